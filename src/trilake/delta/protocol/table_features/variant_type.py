"""Table feature ``variantType`` and its preview: columns of semi-structured values."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, has_type, metadata_in_past, type_in_use

_TYPE = "variant"
_REMOVAL = FeatureRemoval(in_use=type_in_use(_TYPE), in_past=metadata_in_past(has_type(_TYPE)))

FEATURE = Feature("variantType", 3, 7, active=has_type(_TYPE), also="variantType-preview", removal=_REMOVAL)
PREVIEW = Feature("variantType-preview", 3, 7, active=has_type(_TYPE), removal=_REMOVAL)
