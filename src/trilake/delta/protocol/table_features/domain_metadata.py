"""Table feature ``domainMetadata``: named configurations of other features and of users."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, Inspection, Trace


def _in_use(table: Inspection) -> Trace | None:
    names = sorted(d for d, v in table.domains.items() if not v.get("removed"))
    help = "remove them with the engine that wrote them"
    return Trace(f"the table has the metadata domains {', '.join(names)}", help) if names else None


FEATURE = Feature("domainMetadata", None, 7, removal=FeatureRemoval(in_use=_in_use), late=True)
