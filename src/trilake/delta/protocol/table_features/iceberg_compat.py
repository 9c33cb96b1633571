"""Table features ``icebergCompatV1``, ``V2`` and ``V3``: tables that can be described by Iceberg metadata."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, property_is_on
from trilake.delta.protocol.iceberg import ENABLED, without_uniform
from trilake.delta.protocol.property_values import Property, boolean


def _feature(version: int, *needs: str) -> Feature:
    key = ENABLED[version]
    return Feature(
        f"icebergCompatV{version}",
        None,
        7,
        active=property_is_on(key),
        needs=("columnMapping", *needs),
        properties=(Property(key, None, boolean),),
        removal=FeatureRemoval(metadata=without_uniform),
    )


V1, V2, V3 = _feature(1), _feature(2), _feature(3, "rowTracking")
