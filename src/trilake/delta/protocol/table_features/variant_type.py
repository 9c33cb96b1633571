"""Table feature ``variantType`` and its preview: columns of semi-structured values."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import feature_of_type

FEATURE = feature_of_type("variantType", "variant", also="variantType-preview")
PREVIEW = feature_of_type("variantType-preview", "variant")
