"""Filters on row ids: ``_rowid``, ``_rowaddr`` and similar columns, which no file stores.

They are computed only to evaluate the filter.  If a filter lists the ids that it matches, other rows are not read.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from trilake.expr import Filter
from trilake.expr.terms.predicate import Compare, In, IsNull
from trilake.lance.file.schema import LanceSchema
from trilake.lance.scan.fragment_reader import (
    ROW_ADDRESS,
    ROW_ID,
    ROW_METADATA,
    ROW_METADATA_TYPE,
    FragmentReader,
    Ids,
    Rows,
)
from trilake.lance.versions.manifest import Manifest

_LEAST, _GREATEST = pa.scalar(0, pa.decimal128(20)), pa.scalar(2**64 - 1, pa.decimal128(20))


def condition_schema(schema: pa.Schema, condition: object) -> pa.Schema:
    """The columns that a condition may name: those of the dataset, and the id columns in its SQL."""
    sql = str(condition).lower()
    named = [name for name in ROW_METADATA if name in sql and name not in schema.names]
    return (
        pa.schema([*schema, *(pa.field(name, ROW_METADATA_TYPE) for name in named)], schema.metadata)
        if named
        else schema
    )


def id_columns(filter: Filter, schema: pa.Schema) -> list[str]:
    """The id columns that a condition reads."""
    return [name for name in ROW_METADATA if name in filter.columns and name not in schema.names]


def with_ids(rows: pa.Table, names: list[str], reader: FragmentReader, offsets: Rows) -> pa.Table:
    """Append id columns to the rows at some offsets of a fragment."""
    for name in names:
        rows = rows.append_column(name, pa.array(reader.row_metadata(name, offsets)))
    return rows


def is_of_ids(leaf: Compare | In | IsNull, schema: LanceSchema) -> bool:
    """Whether a condition is on a column of ids."""
    return len(leaf.path) == 1 and leaf.path[0] in (ROW_ID, ROW_ADDRESS) and schema.find(leaf.path) is None


def named_ids(leaf: Compare | In, manifest: Manifest) -> Ids | None:
    """Return the sorted ids that a comparison matches, of present and past rows; ``None`` if it does not list ids."""
    if leaf.widened or any(not f.physical_rows for f in manifest.fragments):
        return None
    if manifest.has_stable_row_ids and leaf.path[0] == ROW_ADDRESS:
        return None  # index queries return row ids
    if isinstance(leaf, In):
        values = leaf.values
    elif leaf.op == "=":
        values = pa.array([leaf.literal.as_py()], leaf.literal.type)
    else:
        return None
    if not pt.is_decimal(values.type) or values.type.scale:  # unsigned numbers are compared as decimals
        return None
    values = values.filter(pc.and_(pc.greater_equal(values, _LEAST), pc.less_equal(values, _GREATEST)))
    ids: Ids = np.unique(values.cast(pa.uint64()).to_numpy(zero_copy_only=False))
    if manifest.has_stable_row_ids:
        return ids
    rows = {f.id: f.physical_rows for f in manifest.fragments}
    fragment_ids = np.array(sorted(rows), np.uint64)
    if not len(fragment_ids):
        return ids[:0]
    ends = np.array([rows[int(id)] for id in fragment_ids], np.uint64)
    of = ids >> np.uint64(32)
    at = np.minimum(np.searchsorted(fragment_ids, of), len(fragment_ids) - 1)
    there: Ids = ids[(fragment_ids[at] == of) & ((ids & np.uint64(0xFFFFFFFF)) < ends[at])]
    return there
