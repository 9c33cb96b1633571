"""Table feature ``checkpointProtection``: log files before a version are deleted all together or not at all."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, Inspection, Trace
from trilake.delta.protocol.property_values import Property, integer

KEY = "delta.requireCheckpointProtectionBeforeVersion"


def _in_use(table: Inspection) -> Trace | None:
    before, oldest = int(table.metadata.configuration.get(KEY, "0") or 0), table.oldest_version()
    if oldest >= before:
        return None
    return Trace(
        f"the log still has versions before {before}, starting with {oldest}",
        "wait until log cleanup has removed them, or use TRUNCATE HISTORY (truncate_history) once they are a day old",
        condition="DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD",
    )


FEATURE = Feature(
    "checkpointProtection",
    None,
    7,
    properties=(Property(KEY, "0", integer(0), set_by="the removal of a feature"),),
    removal=FeatureRemoval(in_use=_in_use, in_log=True),
)
