"""Table feature ``clustering``: columns by which files are kept together."""

from __future__ import annotations

from trilake.delta.protocol.feature import Feature, FeatureRemoval

FEATURE = Feature(
    "clustering", None, 7, needs=("domainMetadata",), removal=FeatureRemoval(domains=("delta.clustering",))
)
