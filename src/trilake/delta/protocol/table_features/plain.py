"""Table features that are only data: a property enables them, or nothing here depends on them."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, property_is_on
from trilake.delta.protocol.iceberg import MATERIALIZED
from trilake.delta.protocol.property_values import Property, boolean

CDF = "delta.enableChangeDataFeed"
_MATERIALIZES = "delta.enableMaterializePartitionColumnsFeature"

#: Every commit records which rows it changed.
CHANGE_DATA_FEED = Feature(
    "changeDataFeed", None, 4, active=property_is_on(CDF), properties=(Property(CDF, "false", boolean),), late=True
)
CLUSTERING = Feature(
    "clustering", None, 7, needs=("domainMetadata",), removal=FeatureRemoval(domains=("delta.clustering",))
)
#: Data files also contain the partition columns.
MATERIALIZED_PARTITIONS = Feature(
    MATERIALIZED, None, 7, active=property_is_on(_MATERIALIZES), properties=(Property(_MATERIALIZES, None, boolean),)
)
#: VACUUM must support the whole protocol.
VACUUM_PROTOCOL_CHECK = Feature("vacuumProtocolCheck", 3, 7, late=True)
