"""Convert Arrow views and run-end encoded columns to plain arrays, and nanoseconds to microseconds.

Parquet files of writers such as polars declare strings as views.  Arrow reads them as views, but many kernels do not
support views (such as ``array_take`` in pyarrow 26), and its cast from list views returns invalid arrays for null
lists.  So views and run-end encoded columns are converted on input.  Spark's times have microseconds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from trilake.common.arrow_types import mapped, rebuilt
from trilake.common.compute import pc
from trilake.errors import SchemaMismatchError
from trilake.expr.terms.datatypes import normalise

_T = pa.types


def without_views_type(t: pa.DataType) -> pa.DataType:
    """The type with plain layouts for views, at every depth; ``t`` itself if it has none.

    >>> without_views_type(pa.list_view(pa.struct([("a", pa.string_view())])))
    ListType(list<item: struct<a: string>>)
    """
    return mapped(t, _plain_layout)


def _plain_layout(t: pa.DataType) -> pa.DataType:
    if _T.is_run_end_encoded(t):
        return _plain_layout(t.value_type)
    if _T.is_dictionary(t):
        value = without_views_type(t.value_type)
        return t if value == t.value_type else pa.dictionary(t.index_type, value, t.ordered)
    if _T.is_list_view(t):
        return pa.list_(t.value_field)
    if _T.is_large_list_view(t):
        return pa.large_list(t.value_field)
    if _T.is_string_view(t):
        return pa.string()
    return pa.binary() if _T.is_binary_view(t) else t


def retyped(schema: pa.Schema, of_type: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    """The schema with ``of_type`` applied to its columns' types; ``schema`` itself where nothing changes."""
    types = schema.types
    new = list(map(of_type, types))
    if all(map(operator.eq, types, new)):
        return schema
    return pa.schema([f.with_type(t) for f, t in zip(schema, new, strict=True)], schema.metadata)


def without_views_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with plain layouts for views; ``schema`` itself if it has none."""
    return retyped(schema, without_views_type)


def without_views(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with plain layouts for views; ``rows`` itself if there are none.

    >>> without_views(pa.record_batch({"s": pa.array(["a", None], pa.string_view())})).schema.field("s").type
    DataType(string)
    """
    schema = without_views_schema(rows.schema)
    if schema is rows.schema:
        return rows
    arrays = [plain_array(c, f.type) for c, f in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def numbered_without_views(batches: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of one file, each with the index of its first row, with plain layouts for views.

    Checks types only once, since that is slow for 5,000 columns.
    """
    checked_schema: pa.Schema | None = None
    for start, batch in batches:
        if checked_schema is None or not batch.schema.equals(checked_schema):
            batch = without_views(batch)
            checked_schema = batch.schema
        yield start, batch


def stream_without_views(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and batches with plain layouts for views."""
    plain_schema = without_views_schema(schema)
    return plain_schema, iter(batches) if plain_schema is schema else map(without_views, batches)


def plain_array(array: pa.Array, target: pa.DataType | None = None) -> pa.Array:
    """The array with plain layouts for views; ``target`` is :func:`without_views_type` of its type."""
    target = without_views_type(array.type) if target is None else target
    t = array.type
    if t == target:
        return array
    if _T.is_string_view(t) or _T.is_binary_view(t):
        return array.cast(target)
    if _T.is_run_end_encoded(t):
        return plain_array(pc.run_end_decode(array), target)
    if _T.is_dictionary(t):
        return pa.DictionaryArray.from_arrays(array.indices, plain_array(array.dictionary), ordered=t.ordered)
    if _T.is_list_view(t) or _T.is_large_list_view(t):
        return plain_array(list_of_view(array), target)
    return rebuilt(array, target, lambda part, field: plain_array(part, field.type))


def list_of_view(array: pa.Array) -> pa.Array:
    """An array of another list layout (views, fixed size) as plain lists."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    large = _T.is_large_list_view(array.type)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64() if large else pa.int32())
    field = array.type.value_field
    kind, type_ = (pa.LargeListArray, pa.large_list(field)) if large else (pa.ListArray, pa.list_(field))
    return kind.from_arrays(offsets, array.flatten(), type=type_, mask=array.is_null())


# --- Convert nanosecond times, as in pandas, to the microseconds of Spark's types -------------------------------------
# Nanoseconds are rounded down to microseconds, as in PySpark; deltalake rounds towards 1970.  ``round_down=False``
# rejects them.


def microseconds_type(t: pa.DataType) -> pa.DataType:
    """The type with microseconds for nanoseconds, at every depth; ``t`` itself if it has none.

    >>> microseconds_type(pa.list_(pa.timestamp("ns", "Asia/Tokyo")))
    ListType(list<item: timestamp[us, tz=Asia/Tokyo]>)
    """
    return mapped(t, lambda t: pa.timestamp("us", t.tz) if _T.is_timestamp(t) and t.unit == "ns" else t)


def microseconds_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with microseconds for nanoseconds; ``schema`` itself if it has none."""
    return retyped(schema, microseconds_type)


def in_microseconds(rows: pa.RecordBatch, *, round_down: bool = False) -> pa.RecordBatch:
    """Convert rows to microseconds; ``rows`` itself without nanoseconds.

    ``round_down`` rounds nanoseconds down; otherwise they raise ``SchemaMismatchError``.

    >>> rows = pa.record_batch({"t": pa.array([1_999, -1], pa.timestamp("ns"))})
    >>> in_microseconds(rows, round_down=True).column("t").cast("int64").to_pylist()
    [1, -1]
    """
    if microseconds_schema(rows.schema) is rows.schema:
        return rows
    rows = without_views(rows)
    schema = microseconds_schema(rows.schema)
    columns = [
        _converted(c, f.type, path=f.name, round_down=round_down) for c, f in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def in_microseconds_all(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, round_down: bool
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and batches converted by :func:`in_microseconds`; unchanged without nanoseconds."""
    if microseconds_schema(schema) is schema:
        return schema, iter(batches)
    schema, plain = stream_without_views(schema, batches)
    return microseconds_schema(schema), map(partial(in_microseconds, round_down=round_down), plain)


def _converted(array: pa.Array, target: pa.DataType, *, path: str, round_down: bool) -> pa.Array:
    if array.type == target:
        return array
    if _T.is_timestamp(target):
        microseconds = normalise(array) if round_down else exact_microseconds(array, path)
        return microseconds.cast(target)
    return rebuilt(array, target, lambda part, field: _converted(part, field.type, path=path, round_down=round_down))


def exact_microseconds(array: pa.Array, path: str) -> pa.Array:
    """Convert timestamps to microseconds exactly.  Raises ``SchemaMismatchError`` for nanoseconds.

    ``path`` is the column, for messages.
    """
    microseconds = normalise(array)
    if array.type.unit != "ns":
        return microseconds
    nanos = array.cast(pa.int64())
    lost = pc.not_equal(pc.multiply(microseconds.cast(pa.int64()), 1000), nanos)
    if pc.any(lost).as_py():
        first = nanos[pc.index(lost, pa.scalar(True)).as_py()].as_py()
        raise SchemaMismatchError(
            f"column {path} has a time that Spark's microseconds cannot"
            f" represent: {first} nanoseconds since 1970-01-01",
            help="leave out round_times=False to round down, or write a Lance or Trevni table, which store nanoseconds",
            column=path,
        )
    return microseconds
