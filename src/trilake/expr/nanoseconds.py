"""Convert nanosecond times, as in pandas, to the microseconds of Spark's types.

A time between two microseconds is rounded down, as in PySpark and by readers of nanoseconds in files; deltalake rounds
towards 1970.  On request it is refused instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import SchemaMismatchError
from trilake.expr.terms.datatypes import normalise, remembered
from trilake.expr.views import rebuilt, retyped, stream_without_views

_T = pa.types


@remembered
def microseconds_type(t: pa.DataType) -> pa.DataType:
    """The type with microseconds for nanoseconds, at every depth; ``t`` itself where it has none.

    >>> microseconds_type(pa.list_(pa.timestamp("ns", "Asia/Tokyo")))
    ListType(list<item: timestamp[us, tz=Asia/Tokyo]>)
    """
    narrowed = t
    if _T.is_timestamp(t) and t.unit == "ns":
        narrowed = pa.timestamp("us", t.tz)
    elif _T.is_struct(t):
        narrowed = pa.struct([_field(f) for f in t])
    elif _T.is_map(t):
        narrowed = pa.map_(_field(t.key_field), _field(t.item_field), t.keys_sorted)
    elif _T.is_fixed_size_list(t):
        narrowed = pa.list_(_field(t.value_field), t.list_size)
    elif _T.is_list(t):
        narrowed = pa.list_(_field(t.value_field))
    elif _T.is_large_list(t):
        narrowed = pa.large_list(_field(t.value_field))
    return t if narrowed == t else narrowed


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(microseconds_type(field.type))


def microseconds_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with microseconds for nanoseconds; ``schema`` itself where it has none."""
    return retyped(schema, microseconds_type)


def in_microseconds(rows: pa.RecordBatch, *, round_down: bool = False) -> pa.RecordBatch:
    """Convert rows to microseconds; ``rows`` itself where there are no nanoseconds.

    ``round_down`` rounds a time between two microseconds down.  Otherwise it raises ``SchemaMismatchError``.

    >>> rows = pa.record_batch({"t": pa.array([1_999, -1], pa.timestamp("ns"))})
    >>> in_microseconds(rows, round_down=True).column("t").cast("int64").to_pylist()
    [1, -1]
    """
    schema = microseconds_schema(rows.schema)
    if schema is rows.schema:
        return rows
    columns = [
        _converted(c, f.type, path=f.name, round_down=round_down) for c, f in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def in_microseconds_all(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, round_down: bool
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and batches converted by :func:`in_microseconds`; the same ones where there are no nanoseconds."""
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
    return rebuilt(array, target, partial(_converted, path=path, round_down=round_down))


def exact_microseconds(array: pa.Array, path: str) -> pa.Array:
    """Timestamps of any unit in microseconds.  Raises ``SchemaMismatchError`` for one that would lose something.

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
            f"a time of column {path} is finer than a microsecond, which is the finest that Spark's types have: "
            f"{first} nanoseconds since 1970-01-01",
            help="cut it before, or leave out round_times=False, to write the microsecond before; Lance and Trevni keep"
            " nanoseconds",
            column=path,
        )
    return microseconds
