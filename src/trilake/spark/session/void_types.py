"""Columns that Arrow cannot represent: non-nullable arrays of void, and maps with void keys.

``array()`` and ``map()`` in Spark make them; PySpark fails to convert them to Arrow.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T


def with_arrow_types(df: DataFrame) -> DataFrame:
    """The frame with such columns cast: elements become nullable, keys and values become strings."""
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
    """The type that Arrow can represent instead.

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
        # Spark 4.3 gives values of void another number than there are keys.
        key, value = (T.StringType() if _is_void(t) else arrow_type(t) for t in kinds)
        return T.MapType(key, value, type_.valueContainsNull or _is_void(type_.valueType))
    return type_


def _is_void(type_: T.DataType) -> bool:
    return isinstance(type_, T.NullType)
