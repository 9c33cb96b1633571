"""Nested Spark types: all code that walks types uses these functions, so that a new nested type is added once.

The last part finds columns that Arrow cannot represent: non-nullable arrays of void, and maps with void keys, which
``array()`` and ``map()`` create in Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T


def parts(t: T.DataType) -> tuple[tuple[str, T.DataType], ...]:
    """The types directly inside a type, each with its name in paths: a field's, or ``element``, ``key``, ``value``.

    >>> parts(T.ArrayType(T.LongType()))
    (('element', LongType()),)
    """
    if isinstance(t, T.StructType):
        return tuple((f.name, f.dataType) for f in t.fields)
    if isinstance(t, T.ArrayType):
        return (("element", t.elementType),)
    return (("key", t.keyType), ("value", t.valueType)) if isinstance(t, T.MapType) else ()


def with_parts(t: T.DataType, types: Sequence[T.DataType]) -> T.DataType:
    """The type with other types inside, in the order of :func:`parts`."""
    if isinstance(t, T.StructType):
        pairs = zip(t.fields, types, strict=True)
        return T.StructType([T.StructField(f.name, inner, f.nullable, f.metadata) for f, inner in pairs])
    if isinstance(t, T.ArrayType):
        return T.ArrayType(types[0], t.containsNull)
    return T.MapType(types[0], types[1], t.valueContainsNull) if isinstance(t, T.MapType) else t


def types_in(t: T.DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], T.DataType]]:
    """The type and all types inside it with their paths, parents first."""
    yield path, t
    for name, inner in parts(t):
        yield from types_in(inner, (*path, name))


def paired(a: T.DataType, b: T.DataType) -> list[tuple[T.DataType, T.DataType]] | None:
    """The inner types of two arrays, or of two maps, in pairs; ``None`` for other types."""
    arrays = isinstance(a, T.ArrayType) and isinstance(b, T.ArrayType)
    if arrays or (isinstance(a, T.MapType) and isinstance(b, T.MapType)):
        return [(x, y) for (_, x), (_, y) in zip(parts(a), parts(b), strict=True)]
    return None


def all_nullable(t: T.DataType) -> T.DataType:
    """The type with every part nullable, as Spark reads files."""
    inside = with_parts(t, [all_nullable(inner) for _, inner in parts(t)])
    if isinstance(inside, T.StructType):
        return T.StructType([T.StructField(f.name, f.dataType, True, f.metadata) for f in inside])
    if isinstance(inside, T.ArrayType):
        return T.ArrayType(inside.elementType, True)
    return T.MapType(inside.keyType, inside.valueType, True) if isinstance(inside, T.MapType) else inside


def with_arrow_types(df: DataFrame) -> DataFrame:
    """The DataFrame with columns that Arrow lacks cast: elements become nullable, void keys and values strings."""
    kinds = [(f, arrow_type(f.dataType)) for f in df.schema.fields]
    if all(kind == f.dataType for f, kind in kinds):
        return df
    plain = df.toDF(*(f"c{i}" for i in range(len(kinds))))  # names may differ only in case, or contain dots
    columns = [
        (F.col(f"c{i}") if kind == f.dataType else F.col(f"c{i}").cast(kind)).alias(f.name, metadata=f.metadata)
        for i, (f, kind) in enumerate(kinds)
    ]
    return plain.select(*columns)


def arrow_type(type_: T.DataType) -> T.DataType:
    """The type to send through Arrow: parts of void are nullable, and strings in maps.

    >>> arrow_type(T.ArrayType(T.NullType(), False)), arrow_type(T.LongType())
    (ArrayType(NullType(), True), LongType())
    """
    if isinstance(type_, T.StructType):
        fields = [
            T.StructField(f.name, arrow_type(f.dataType), f.nullable or _is_void(f.dataType), f.metadata)
            for f in type_.fields
        ]
        return T.StructType(fields)
    if isinstance(type_, T.ArrayType):
        return T.ArrayType(arrow_type(type_.elementType), type_.containsNull or _is_void(type_.elementType))
    if isinstance(type_, T.MapType):
        kinds = (type_.keyType, type_.valueType)
        # With void values, Spark 4.3 returns a different number of values than of keys.
        key, value = (T.StringType() if _is_void(t) else arrow_type(t) for t in kinds)
        return T.MapType(key, value, type_.valueContainsNull or _is_void(type_.valueType))
    return type_


def _is_void(type_: T.DataType) -> bool:
    return isinstance(type_, T.NullType)
