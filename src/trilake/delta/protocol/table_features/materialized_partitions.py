"""Table feature ``materializePartitionColumns``: data files also contain the partition columns."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, property_is_on
from trilake.delta.protocol.iceberg import MATERIALIZED
from trilake.delta.protocol.property_values import Property, boolean

KEY = "delta.enableMaterializePartitionColumnsFeature"

FEATURE = Feature(MATERIALIZED, None, 7, active=property_is_on(KEY), properties=(Property(KEY, None, boolean),))
