"""Table feature ``rowTracking``: rows keep an id and the version that last changed them."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, property_is_on
from trilake.delta.protocol.property_values import Property, boolean, text

KEY = "delta.enableRowTracking"
#: Writers assign no ids, so that the feature can be dropped.
SUSPENDED = "delta.rowTrackingSuspended"
ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
_BY = "row tracking itself"

FEATURE = Feature(
    "rowTracking",
    None,
    7,
    active=property_is_on(KEY),
    needs=("domainMetadata",),
    properties=(
        Property(KEY, "false", boolean),
        Property(VERSION_COLUMN, None, text, set_by=_BY),
        Property(ID_COLUMN, None, text, set_by=_BY),
        Property(SUSPENDED, "false", boolean),
    ),
    removal=FeatureRemoval(domains=("delta.rowTracking",), fields=("baseRowId", "defaultRowCommitVersion")),
    late=True,  # ids are assigned during the commit
)
