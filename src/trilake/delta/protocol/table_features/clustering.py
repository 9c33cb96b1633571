"""Table feature ``clustering``: clustering columns."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval

FEATURE = Feature(
    "clustering", None, 7, needs=("domainMetadata",), removal=FeatureRemoval(domains=("delta.clustering",))
)
