"""Schemas of frames that no table can have."""

from __future__ import annotations

import pytest
from pyspark.ml.linalg import MatrixUDT, VectorUDT
from pyspark.sql import types as T

from trilake.errors import SchemaMismatchError
from trilake.spark.session.schemas import from_spark


def _frame(kind: T.DataType) -> T.StructType:
    return T.StructType([T.StructField("id", T.LongType()), T.StructField("v", kind)])


def test_a_column_of_vectors_is_named_with_what_to_do() -> None:
    """The message was that the schema uses the data type 'udt', and that a newer trilake may read this table."""
    with pytest.raises(SchemaMismatchError, match="column v is of the user-defined type VectorUDT") as raised:
        from_spark(_frame(VectorUDT()))
    assert raised.value.context == {"column": "v"}
    assert "vector_to_array" in str(raised.value.help)


def test_a_nested_user_defined_type_is_named_by_its_path() -> None:
    inner = T.StructType([T.StructField("m", T.MapType(T.StringType(), T.ArrayType(MatrixUDT())))])
    with pytest.raises(SchemaMismatchError, match=r"column v.m.value.element is of the user-defined type MatrixUDT"):
        from_spark(_frame(inner))
