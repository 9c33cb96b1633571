"""Table feature ``timestampNtz``: timestamps without a time zone."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, has_type, metadata_in_past, type_in_use

_TYPE = "timestamp_ntz"

FEATURE = Feature(
    "timestampNtz",
    3,
    7,
    active=has_type(_TYPE),
    removal=FeatureRemoval(in_use=type_in_use(_TYPE), in_past=metadata_in_past(has_type(_TYPE))),
    late=True,
)
