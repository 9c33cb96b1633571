"""Table feature ``typeWidening`` and its preview: columns with a widened type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.feature_definition import (
    Feature,
    FeatureRemoval,
    Inspection,
    Numbers,
    Trace,
    files_in_use,
    metadata_in_past,
    property_is_on,
)
from trilake.delta.protocol.property_values import Property, boolean
from trilake.delta.protocol.schema_edit import without_keys
from trilake.delta.protocol.type_widening import ENABLED, TYPE_CHANGES, has_type_changes


def _narrow_files(table: Inspection) -> Numbers:
    """Files whose footers show that they were written before a column's type was widened."""
    return table.files_of_other_types() if has_type_changes(table.metadata.schema) else np.array([], dtype=np.int64)


def _in_use(table: Inspection) -> Trace | None:
    widened = has_type_changes(table.metadata.schema) and table.adds.num_rows
    if widened and table.metadata.provider.lower() != "parquet":
        return Trace("older files may have narrower types", "copy the rows into a new table")
    return files_in_use(_narrow_files, "narrower types than the columns")(table)


def _without_changes(metadata: Metadata) -> Metadata:
    return replace(metadata, schema_string=without_keys(metadata.schema, (TYPE_CHANGES,)).json())


_REMOVAL = FeatureRemoval(
    properties=(ENABLED,),
    in_use=_in_use,
    metadata=_without_changes,
    in_past=metadata_in_past(lambda m: has_type_changes(m.schema)),
    rewritten=_narrow_files,
)

FEATURE = Feature(
    "typeWidening",
    3,
    7,
    active=property_is_on(ENABLED),
    also="typeWidening-preview",
    properties=(Property(ENABLED, "false", boolean),),
    removal=_REMOVAL,
)
PREVIEW = Feature("typeWidening-preview", 3, 7, removal=_REMOVAL)
