"""Table feature ``variantShredding`` and its preview: files may store parts of variants as separate columns."""

from __future__ import annotations

import numpy as np

from trilake.common.text import plural
from trilake.delta.protocol.feature_definition import (
    Feature,
    FeatureRemoval,
    Inspection,
    Numbers,
    Trace,
    has_type,
    metadata_in_past,
    property_is_on,
)
from trilake.delta.protocol.property_values import Property, boolean

ENABLED = "delta.enableVariantShredding"


def _shredded_files(table: Inspection) -> Numbers:
    has_variants = has_type("variant")(table.metadata) and table.metadata.provider.lower() == "parquet"
    return table.files_of_other_types() if has_variants else np.array([], dtype=np.int64)


def _in_use(table: Inspection) -> Trace | None:
    number = len(_shredded_files(table)) if table.adds.num_rows else 0
    return (
        Trace(
            f"{plural(number, 'file has', 'files have')} shredded variants, or types that differ from the columns",
            rewrite=True,
        )
        if number
        else None
    )


_REMOVAL = FeatureRemoval(
    properties=(ENABLED,),
    in_use=_in_use,
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
