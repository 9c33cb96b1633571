"""Map Arrow types to Spark types, and Arrow columns to the normal form for comparisons.

Several Arrow types stand for one Spark type (dictionaries, views, time units, unsigned integers).  Statistics, rows and
literals are compared in the *normal* form of :func:`normal_type`.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from trilake.common.arrow_types import mapped
from trilake.common.compute import pc

#: A column: its top-level name, followed by names of nested fields.
Path = tuple[str, ...]

TIMESTAMP = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ = pa.timestamp("us")


class TypeNames(NamedTuple):
    """The names of a type without parts in Spark and in DuckDB, its family (see :class:`~.duckdb_sql.Sql`), and the
    names of a cast's target that mean it, as sqlglot has them."""

    spark: str
    duckdb: str
    family: str
    casts: tuple[str, ...] = ()


#: Every normal type without parts, except decimals.
NAMES = {
    pa.bool_(): TypeNames("boolean", "BOOLEAN", "boolean", ("BOOLEAN",)),
    pa.int8(): TypeNames("tinyint", "TINYINT", "integer", ("TINYINT",)),
    pa.int16(): TypeNames("smallint", "SMALLINT", "integer", ("SMALLINT",)),
    pa.int32(): TypeNames("int", "INTEGER", "integer", ("INT", "INTEGER")),
    pa.int64(): TypeNames("bigint", "BIGINT", "integer", ("BIGINT",)),
    pa.float32(): TypeNames("float", "FLOAT", "float", ("FLOAT", "REAL")),
    pa.float64(): TypeNames("double", "DOUBLE", "double", ("DOUBLE",)),
    **dict.fromkeys((pa.string(), pa.large_string()), TypeNames("string", "VARCHAR", "string", ("STRING", "TEXT"))),
    **dict.fromkeys(
        (pa.binary(), pa.large_binary()), TypeNames("binary", "BLOB", "binary", ("BINARY", "BLOB", "VARBINARY"))
    ),
    pa.date32(): TypeNames("date", "DATE", "date", ("DATE",)),
    # Times in DuckDB have no zone: those of a timestamp are in UTC.
    TIMESTAMP_NTZ: TypeNames("timestamp_ntz", "TIMESTAMP", "timestamp", ("TIMESTAMPNTZ",)),
    TIMESTAMP: TypeNames("timestamp", "TIMESTAMP", "timestamp", ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ")),
    # A column of nulls; the type of the literal NULL is another.
    pa.null(): TypeNames("void", "INTEGER", "void"),
}


def storage_type(t: pa.DataType) -> pa.DataType:
    """The storage of an extension type; ``t`` itself for others."""
    return storage_type(t.storage_type) if isinstance(t, pa.BaseExtensionType) else t


def normal_type(t: pa.DataType) -> pa.DataType:
    """The type in which values of ``t`` are compared; ``t`` itself if nothing changes.

    >>> normal_type(pa.dictionary(pa.int8(), pa.string())), normal_type(pa.uint32()), normal_type(pa.timestamp("ns"))
    (DataType(string), DataType(int64), TimestampType(timestamp[us]))
    """
    if isinstance(t, pa.BaseExtensionType):
        return normal_type(t.storage_type)
    if pa.types.is_dictionary(t) or pa.types.is_run_end_encoded(t):
        return normal_type(t.value_type)
    if pa.types.is_timestamp(t):
        return TIMESTAMP if t.tz else TIMESTAMP_NTZ
    if pa.types.is_decimal(t):
        # DuckDB and Spark support 38 digits; wider columns keep their type and are rejected on use.
        return pa.decimal128(t.precision, t.scale) if t.precision <= 38 else t
    if pa.types.is_string_view(t) or pa.types.is_large_string(t):
        return pa.large_string()
    if pa.types.is_binary_view(t) or pa.types.is_large_binary(t):
        return pa.large_binary()
    if pa.types.is_fixed_size_binary(t):
        return pa.binary()
    return _SIMPLE.get(t, t)


_SIMPLE = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def naive_type(t: pa.DataType) -> pa.DataType:
    """The type of a column in DuckDB: normal at every depth, with timestamps without their zone (UTC).

    >>> naive_type(pa.list_(pa.struct([("t", pa.timestamp("ns", "Asia/Tokyo"))])))
    ListType(list<item: struct<t: timestamp[us]>>)
    """

    def without_zone(t: pa.DataType) -> pa.DataType:
        t = normal_type(t)
        return TIMESTAMP_NTZ if pa.types.is_timestamp(t) else t

    return mapped(t, without_zone)


def normalise(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """``values`` in their :func:`normal_type`.  Times finer than a microsecond are rounded down, as in Spark."""
    source, target = values.type, normal_type(values.type)
    if source == target:
        return values
    if isinstance(source, pa.BaseExtensionType):
        return normalise(values.cast(source.storage_type))
    if pa.types.is_dictionary(source):
        return normalise(values.cast(source.value_type))
    if pa.types.is_run_end_encoded(source):
        return normalise(pc.run_end_decode(values))
    if pa.types.is_timestamp(source) and source.unit == "ns":
        nanos = values.cast(pa.int64())
        micros = pc.divide(nanos, 1000)  # rounds toward zero
        below = pc.less(pc.subtract(nanos, pc.multiply(micros, 1000)), 0)
        return pc.subtract(micros, below.cast(pa.int64())).cast(target)
    return values.cast(target)


def is_ordered(t: pa.DataType) -> bool:
    """Whether values of the normal type ``t`` can be compared in Spark's order."""
    return bool(pa.types.is_decimal(t) or (t in NAMES and not pa.types.is_null(t)))


def is_string(t: pa.DataType) -> bool:
    """Whether ``t`` is a normal string type."""
    return bool(pa.types.is_string(t) or pa.types.is_large_string(t))


def is_bytes(t: pa.DataType) -> bool:
    """Whether ``t`` is a normal binary type."""
    return bool(pa.types.is_binary(t) or pa.types.is_large_binary(t))


def is_float(t: pa.DataType) -> bool:
    """Whether ``t`` is a normal floating point type, which may hold NaN."""
    return bool(pa.types.is_float32(t) or pa.types.is_float64(t))


def spark_name(t: pa.DataType) -> str:
    """The name of a type in Spark SQL, for messages.

    >>> spark_name(pa.int64()), spark_name(pa.decimal128(10, 2)), spark_name(pa.list_(pa.string()))
    ('bigint', 'decimal(10,2)', 'array<string>')
    """
    t = normal_type(t)
    if pa.types.is_decimal(t):
        return f"decimal({t.precision},{t.scale})"
    if pa.types.is_struct(t):
        return f"struct<{','.join(f'{f.name}:{spark_name(f.type)}' for f in t)}>"
    if pa.types.is_map(t):
        return f"map<{spark_name(t.key_type)},{spark_name(t.item_type)}>"
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        return f"array<{spark_name(t.value_type)}>"
    return NAMES[t].spark if t in NAMES else str(t)
