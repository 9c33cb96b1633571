"""Nested Spark types: all code that walks types uses these functions, so that a new nested type is added once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
