"""Table feature ``rowTracking``: rows keep an id and the version that last changed them."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, property_is_on
from trilake.delta.protocol.property_values import Property, boolean, text

KEY = "delta.enableRowTracking"
_BY = "row tracking itself"

FEATURE = Feature(
    "rowTracking",
    None,
    7,
    active=property_is_on(KEY),
    needs=("domainMetadata",),
    properties=(
        Property(KEY, "false", boolean),
        Property("delta.rowTracking.materializedRowCommitVersionColumnName", None, text, set_by=_BY),
        Property("delta.rowTracking.materializedRowIdColumnName", None, text, set_by=_BY),
        Property("delta.rowTrackingSuspended", "false", boolean),
    ),
    removal=FeatureRemoval(domains=("delta.rowTracking",), fields=("baseRowId", "defaultRowCommitVersion")),
)
