"""Table feature ``variantShredding`` and its preview: files may store parts of variants as separate columns."""

from __future__ import annotations

import numpy as np

from trilake.delta.protocol.feature_definition import (
    Feature,
    FeatureRemoval,
    Inspection,
    Numbers,
    files_in_use,
    has_type,
    metadata_in_past,
    property_is_on,
)
from trilake.delta.protocol.property_values import Property, boolean

ENABLED = "delta.enableVariantShredding"


def _shredded_files(table: Inspection) -> Numbers:
    return table.files_of_other_types() if has_type("variant")(table.metadata) else np.array([], dtype=np.int64)


_REMOVAL = FeatureRemoval(
    properties=(ENABLED,),
    in_use=files_in_use(_shredded_files, "shredded variants, or types that differ from the columns"),
    in_past=metadata_in_past(property_is_on(ENABLED)),
    rewritten=_shredded_files,
)

FEATURE = Feature(
    "variantShredding",
    3,
    7,
    active=property_is_on(ENABLED),
    needs=("variantType",),
    also="variantShredding-preview",
    properties=(Property(ENABLED, "false", boolean),),
    removal=_REMOVAL,
)
PREVIEW = Feature("variantShredding-preview", 3, 7, removal=_REMOVAL)
