"""Values as a column of a table stores them, in Spark's own expressions.

What Spark calls store assignment, in its ANSI way: a value that does not fit is an error in every session, also in one
that is not in ANSI mode, where a cast alone would make something else of it without a word.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.spark.session.compat import try_cast


def stored(value: Column, source: T.DataType, target: T.DataType, name: str, *, ansi: bool) -> Column:
    """``value``, which is of type ``source``, as a value of ``target``.

    Parameters
    ----------
    name: of the column, for the error of a value that does not fit.
    ansi: whether the session's casts fail on such a value by themselves.

    Structs are taken apart and put together by the names of their fields, where these are the same; a field that the
    value does not have becomes null.

    Raises ``UnsupportedSparkError`` over Spark Connect of 3.5 for a session whose casts do not fail.
    """
    if _same(source, target):
        return value
    if isinstance(source, T.StructType) and isinstance(target, T.StructType):
        return _struct(value, source, target, name, ansi=ansi)
    if isinstance(source, T.NullType) or ansi or not isinstance(target, T.AtomicType):
        return value.cast(target)
    fitting = try_cast(value, target)
    number = isinstance(source, T.NumericType) and isinstance(target, T.NumericType)
    condition = "CAST_OVERFLOW_IN_TABLE_INSERT" if number else "CAST_INVALID_INPUT"
    refusal = f"[{condition}] a value of column {name} does not fit {target.simpleString()}: "
    message = F.concat(F.lit(refusal), value.cast("string"))
    return F.when(value.isNull() | fitting.isNotNull(), fitting).otherwise(F.raise_error(message).cast(target))


def _struct(value: Column, source: T.StructType, target: T.StructType, name: str, *, ansi: bool) -> Column:
    by_name = {f.name.lower(): f for f in source.fields}
    if not {n.lower() for n in target.names} & set(by_name):
        return value.cast(target)  # by position, as Spark does where no name fits
    fields = []
    for f in target.fields:
        source_field = by_name.get(f.name.lower())
        part = (
            F.lit(None).cast(f.dataType)
            if source_field is None
            else stored(
                value.getField(source_field.name), source_field.dataType, f.dataType, f"{name}.{f.name}", ansi=ansi
            )
        )
        fields.append(part.alias(f.name))
    return F.when(value.isNotNull(), F.struct(*fields))


def _same(a: T.DataType, b: T.DataType) -> bool:
    """Whether two types are equal but for what may be null and what is noted of fields."""
    if isinstance(a, T.StructType) and isinstance(b, T.StructType):
        return a.names == b.names and all(_same(x.dataType, y.dataType) for x, y in zip(a.fields, b.fields))
    if isinstance(a, T.ArrayType) and isinstance(b, T.ArrayType):
        return _same(a.elementType, b.elementType)
    if isinstance(a, T.MapType) and isinstance(b, T.MapType):
        return _same(a.keyType, b.keyType) and _same(a.valueType, b.valueType)
    return a == b
