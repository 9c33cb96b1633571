"""Table feature ``columnMapping``: columns have ids and physical names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.column_mapping import FORBIDDEN, MAX_COLUMN_ID, MODE, MODES
from trilake.delta.protocol.feature_definition import (
    Feature,
    FeatureRemoval,
    Inspection,
    Numbers,
    Trace,
    metadata_in_past,
)
from trilake.delta.protocol.property_values import Property, choice, integer, is_on
from trilake.delta.protocol.schema_edit import nested_fields, strip


def _is_mapped(metadata: Metadata) -> bool:
    return metadata.column_mapping_mode != "none"


def _in_use(table: Inspection) -> Trace | None:
    """Whether physical names differ from display names, or files hold dropped columns."""
    fields = nested_fields(table.metadata.schema)
    odd = [f.name for f in fields if set(f.name) & set(FORBIDDEN)]
    if odd:
        return Trace(
            f"columns have names that need it: {', '.join(map(repr, odd))}",
            "rename these columns first",
            condition="DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING",
        )
    if not table.adds.num_rows:
        return None
    other = [f.name for f in fields if f.physical_name != f.name]
    if not other and not table.may_hold_dropped_columns():
        return None
    what = "files may contain dropped columns"
    if other:
        what = f"files use other names for these columns: {', '.join(other)}"
    if is_on(table.metadata.configuration, "delta.enableChangeDataFeed"):
        # A change feed of older versions needs names that only these versions have.
        return Trace(what, "turn the change data feed off first (delta.enableChangeDataFeed=false)")
    return Trace(what, rewrite=True)


def _all_files(table: Inspection) -> Numbers:
    return np.arange(table.adds.num_rows, dtype=np.int64)


def _without_mapping(metadata: Metadata) -> Metadata:
    remaining = {k: v for k, v in metadata.configuration.items() if k not in (MODE, MAX_COLUMN_ID)}
    return replace(metadata, schema_string=strip(metadata.schema).json(), configuration=remaining)


FEATURE = Feature(
    "columnMapping",
    2,
    5,
    active=_is_mapped,
    properties=(
        Property(MODE, "none", choice(*MODES)),
        Property(MAX_COLUMN_ID, "0", integer(0), set_by="column mapping itself"),
    ),
    removal=FeatureRemoval(
        properties=(),  # the commit of the rewritten files removes them
        in_use=_in_use,
        metadata=_without_mapping,
        in_past=metadata_in_past(_is_mapped),
        rewritten=_all_files,
        renames=True,
    ),
)
