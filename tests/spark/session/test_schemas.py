"""DataFrame schemas that tables cannot have."""

from __future__ import annotations

import orjson
import pytest
from pyspark.ml.linalg import MatrixUDT, VectorUDT
from pyspark.sql import types as T
from pyspark.testing.objects import PythonOnlyUDT

from trilake.delta.protocol.schema import StructField, StructType, UserDefinedType, parse_primitive, parse_schema
from trilake.errors import SchemaMismatchError
from trilake.spark.session.compat import RELEASE
from trilake.spark.session.schemas import arrow_columns, from_spark, new_columns, to_spark


def _frame(kind: T.DataType) -> T.StructType:
    return T.StructType([T.StructField("id", T.LongType()), T.StructField("v", kind)])


def test_format_without_user_types_names_the_remedy() -> None:
    with pytest.raises(SchemaMismatchError, match="column v has the user-defined type VectorUDT") as raised:
        arrow_columns(_frame(VectorUDT()))
    assert raised.value.context == {"column": "v"}
    assert "vector_to_array" in str(raised.value.help)


def test_nested_user_defined_type_is_named_by_its_path() -> None:
    inner = T.StructType([T.StructField("m", T.MapType(T.StringType(), T.ArrayType(MatrixUDT())))])
    with pytest.raises(SchemaMismatchError, match=r"column v.m.value.element has the user-defined type MatrixUDT"):
        new_columns(_frame(inner))


@pytest.mark.parametrize("kind", [VectorUDT(), MatrixUDT(), PythonOnlyUDT()], ids=repr)
def test_user_defined_types_round_trip_in_a_schema(kind: T.UserDefinedType) -> None:
    inner = T.StructType([T.StructField("m", T.MapType(T.StringType(), T.ArrayType(kind)))])
    for schema in (_frame(kind), _frame(inner)):
        assert to_spark(from_spark(schema)) == schema


def test_user_defined_type_without_its_class_is_its_sql_type() -> None:
    known = parse_schema(orjson.dumps(_frame(VectorUDT()).jsonValue()).decode())
    kind = known.field("v").type
    assert isinstance(kind, UserDefinedType)
    for lost in ({"pyClass": "no.such.Class"}, {"pyClass": "json.JSONDecoder"}, {"pyClass": None}, {"sqlType": "long"}):
        node = {"type": "struct", "fields": [{"name": "v", "type": {**kind.to_json(), **lost}}]}
        spark = to_spark(parse_schema(orjson.dumps(node).decode()))
        assert spark["v"].dataType == (T.LongType() if "sqlType" in lost else VectorUDT().sqlType())


def test_nested_metadata_of_another_table_is_removed() -> None:
    """A frame with a nested invariant of another table was rejected, although it does not apply to this table."""
    left = {
        "delta.columnMapping.id": 7,
        "delta.columnMapping.physicalName": "col-7",
        "delta.generationExpression": "1",
        "delta.invariants": '{"expression":{"expression":"a > 5"}}',
        "__CHAR_VARCHAR_TYPE_STRING": "char(3)",
        "comment": "kept",
    }
    inner = T.StructType([T.StructField("a", T.StringType(), True, left)])
    columns = {"s": inner, "l": T.ArrayType(T.ArrayType(inner, False)), "m": T.MapType(T.StringType(), inner, False)}
    given = T.StructType([T.StructField(n, t) for n, t in columns.items()])

    plain = T.StructType([T.StructField("a", T.StringType(), True, {"comment": "kept"})])
    expected = {"s": plain, "l": T.ArrayType(T.ArrayType(plain, False)), "m": T.MapType(T.StringType(), plain, False)}
    clean = from_spark(T.StructType([T.StructField(n, t) for n, t in expected.items()]))
    assert from_spark(given) == clean
    assert clean.fields[0].type.field("a").metadata == {"comment": "kept"}  # type: ignore[union-attr]


@pytest.mark.skipif(RELEASE < (4, 1), reason="Spark has the types from 4.1 on")
def test_spatial_types_are_those_of_spark_if_supported() -> None:
    names = ["geometry", "geometry(EPSG:3857)", "geometry(EPSG:5)", "geography", "geography(OGC:CRS84, vincenty)"]
    schema = StructType(tuple(StructField(f"c{i}", parse_primitive(n)) for i, n in enumerate(names)))
    spark = to_spark(schema)
    assert [f.dataType.simpleString() for f in spark] == [
        *("geometry(4326)", "geometry(3857)", "binary", "geography(4326)", "binary"),
    ]
    back = from_spark(spark)
    assert [f.type == g.type for f, g in zip(back.fields, schema.fields, strict=True)] == [
        True,
        True,
        False,
        True,
        False,
    ]
