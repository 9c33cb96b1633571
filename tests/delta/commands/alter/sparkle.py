"""The fictional table feature ``sparkle``, in one file as every feature."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import (
    Feature,
    FeatureRemoval,
    Inspection,
    Trace,
    metadata_in_past,
    property_is_on,
)
from trilake.delta.protocol.property_values import Property, boolean

KEY = "delta.enableSparkle"


def _in_use(table: Inspection) -> Trace | None:
    names = [f.name for f in table.metadata.schema.fields if "sparkle" in f.name]
    return Trace(f"columns sparkle: {', '.join(names)}", "drop them first") if names else None


FEATURE = Feature(
    "sparkle",
    3,
    7,
    active=property_is_on(KEY),
    properties=(Property(KEY, "false", boolean),),
    removal=FeatureRemoval(in_use=_in_use, in_past=metadata_in_past(lambda m: "sparkle" in m.schema_string)),
)
