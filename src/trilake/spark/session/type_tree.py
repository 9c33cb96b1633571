"""Nested Spark types: all code that walks types uses these functions, so that a new nested type is added once.

The last part finds columns that Arrow cannot represent: ``char(n)``, non-nullable arrays of void, and maps with void
keys, which ``array()`` and ``map()`` create in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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


def with_parts(
    t: T.DataType, types: Sequence[T.DataType], nullable: Callable[[bool, T.DataType], bool] = lambda flag, _: flag
) -> T.DataType:
    """The type with other types inside, in the order of :func:`parts`; ``nullable`` returns whether a part may be null,
    given whether it was, and its type before."""
    if isinstance(t, T.StructType):
        pairs = zip(t.fields, types, strict=True)
        return T.StructType(
            [T.StructField(f.name, inner, nullable(f.nullable, f.dataType), f.metadata) for f, inner in pairs]
        )
    if isinstance(t, T.ArrayType):
        return T.ArrayType(types[0], nullable(t.containsNull, t.elementType))
    if isinstance(t, T.MapType):
        return T.MapType(types[0], types[1], nullable(t.valueContainsNull, t.valueType))
    return t


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
    return with_parts(t, [all_nullable(inner) for _, inner in parts(t)], lambda *_: True)


def without_lengths(t: T.DataType) -> T.DataType:
    """The type with strings for ``char(n)`` and ``varchar(n)``, which only sessions with
    ``spark.sql.preserveCharVarcharTypeInfo`` have.

    >>> without_lengths(T.ArrayType(T.CharType(3)))
    ArrayType(StringType(), True)
    """
    if isinstance(t, T.CharType | T.VarcharType):
        return T.StringType()
    return with_parts(t, [without_lengths(inner) for _, inner in parts(t)])


def with_strings(df: DataFrame) -> DataFrame:
    """The DataFrame with strings for ``char(n)`` and ``varchar(n)``, whose lengths are also in the metadata."""
    return _cast(df, without_lengths)


def with_arrow_types(df: DataFrame) -> DataFrame:
    """The DataFrame with columns that Arrow lacks cast: elements become nullable, void keys and values strings."""
    return _cast(df, arrow_type)


def _cast(df: DataFrame, type_of: Callable[[T.DataType], T.DataType]) -> DataFrame:
    kinds = [(f, type_of(f.dataType)) for f in df.schema.fields]
    if all(kind == f.dataType for f, kind in kinds):
        return df
    plain = df.toDF(*(f"c{i}" for i in range(len(kinds))))  # names may differ only in case, or contain dots
    columns = [
        (F.col(f"c{i}") if kind == f.dataType else F.col(f"c{i}").cast(kind)).alias(f.name, metadata=f.metadata)
        for i, (f, kind) in enumerate(kinds)
    ]
    return plain.select(*columns)


def arrow_type(type_: T.DataType) -> T.DataType:
    """The type to send through Arrow: parts of void are nullable, and strings in maps; ``char(n)`` is a string.

    >>> arrow_type(T.ArrayType(T.NullType(), False)), arrow_type(T.LongType())
    (ArrayType(NullType(), True), LongType())
    """
    type_ = without_lengths(type_)
    inside = [arrow_type(inner) for _, inner in parts(type_)]
    if isinstance(type_, T.MapType):  # with void values, Spark 4.3 returns a different number of values than of keys
        inside = [T.StringType() if isinstance(inner, T.NullType) else inner for inner in inside]
    return with_parts(type_, inside, lambda flag, before: flag or isinstance(before, T.NullType))
