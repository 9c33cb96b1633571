"""Table feature ``checkConstraints``: conditions that every row satisfies."""

from __future__ import annotations

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, Inspection, Trace

PREFIX = "delta.constraints."


def _has_constraints(metadata: Metadata) -> bool:
    return any(k.startswith(PREFIX) for k in metadata.configuration)


def _in_use(table: Inspection) -> Trace | None:
    names = [k[len(PREFIX) :] for k in sorted(table.metadata.configuration) if k.startswith(PREFIX)]
    if not names:
        return None
    what = f"the table has the CHECK constraints {', '.join(names)}"
    return Trace(what, "drop them first", condition="DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE")


FEATURE = Feature("checkConstraints", None, 3, active=_has_constraints, removal=FeatureRemoval(in_use=_in_use))
