"""Table feature ``changeDataFeed``: every commit records which rows it changed."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, property_is_on
from trilake.delta.protocol.property_values import Property, boolean

KEY = "delta.enableChangeDataFeed"

FEATURE = Feature(
    "changeDataFeed", None, 4, active=property_is_on(KEY), properties=(Property(KEY, "false", boolean),), late=True
)
