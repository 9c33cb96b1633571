"""Columns of instants: DuckDB has them with a zone, and expressions compute with times of UTC without one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from trilake.expr.terms.duckdb_sql import Sql

#: An instant's column as a time of UTC, as :func:`instant_column` writes it.
_INSTANT = re.compile(r'make_timestamp\(epoch_us\(("(?:[^"]|"")*")\)\)')


def instant_column(ident: str) -> Sql:
    """A column that DuckDB has with its zone, as the time in UTC that expressions compute with."""
    return Sql(f"make_timestamp(epoch_us({ident}))", "TIMESTAMP")


def compared(left: str, right: str) -> tuple[str, str]:
    """A comparison of an instant's column with a constant as one of the column itself, which DuckDB can look up."""
    for x, y, swapped in ((left, right, False), (right, left, True)):
        column = _INSTANT.fullmatch(x)
        if column is not None and '"' not in y:
            pair = column[1], f"CAST({y} AS TIMESTAMPTZ)"
            return (pair[1], pair[0]) if swapped else pair
    return left, right


def has_times(kind: str) -> bool:
    """Whether values of a DuckDB type are times, or hold some."""
    return "TIMESTAMP" in kind


def kinds_of_times(t: pa.DataType, fields: Sequence[str] = ()) -> set[bool]:
    """Of the times in a type, or in a field of it, whether they are instants.

    >>> both = pa.struct([("t", pa.timestamp("us", "UTC")), ("n", pa.list_(pa.timestamp("us")))])
    >>> kinds_of_times(both, ["n"]), sorted(kinds_of_times(both))
    ({False}, [False, True])
    """
    if pa.types.is_timestamp(t):
        return {t.tz is not None}
    if isinstance(t, pa.BaseExtensionType):
        return kinds_of_times(t.storage_type, fields)
    if not pa.types.is_nested(t):
        return set()
    inner = [t.field(i) for i in range(t.num_fields)]
    if fields and pa.types.is_struct(t):
        named = [f for f in inner if f.name.lower() == fields[0].lower()]
        inner, fields = named or inner, fields[1:]
    return {kind for f in inner for kind in kinds_of_times(f.type, fields)}


def times_of_both(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type of the values of two columns, types of one shape: each time is an instant that is one in either.

    >>> both = [pa.struct([("t", pa.timestamp("us", zone))]) for zone in (None, "UTC")]
    >>> times_of_both(*both).field("t").type
    TimestampType(timestamp[us, tz=UTC])
    """
    if pa.types.is_struct(a):
        return pa.struct([(f.name, times_of_both(f.type, g.type)) for f, g in zip(a, b, strict=True)])
    if pa.types.is_map(a):
        return pa.map_(times_of_both(a.key_type, b.key_type), times_of_both(a.item_type, b.item_type))
    if pa.types.is_list(a):
        return pa.list_(times_of_both(a.value_type, b.value_type))
    return b if pa.types.is_timestamp(a) and a.tz is None else a
