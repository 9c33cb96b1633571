"""Schema objects: derived values are cached and not pickled."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from trilake.delta.protocol.partitions import check_partition_columns
from trilake.delta.protocol.schema import (
    ArrayType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    all_nullable,
    from_arrow,
    parse_schema,
    types_in,
)
from trilake.delta.protocol.schema_edit import described_schema
from trilake.errors import CorruptLogError, InvalidArgumentError

_LONG = PrimitiveType("long")


def test_nullable_schema_is_cached() -> None:
    inner = StructType((StructField("x", _LONG, nullable=False),))
    schema = StructType(
        (StructField("id", _LONG), StructField("s", inner), StructField("l", ArrayType(_LONG, contains_null=False)))
    )
    nullable = schema.nullable
    assert all_nullable(schema) is nullable is schema.nullable
    assert nullable.nullable == nullable
    assert nullable.fields[0] is schema.fields[0]
    assert str(nullable) == str(schema)
    assert nullable.fields[1] == StructField("s", StructType((StructField("x", _LONG),)))
    assert nullable.fields[2].type == ArrayType(_LONG)
    assert not schema.fields[1].type.fields[0].nullable  # type: ignore[union-attr]


def test_pickled_schema_has_no_caches() -> None:
    schema = StructType((StructField("a", _LONG, nullable=False, metadata={"comment": "c"}),)).exact()
    before = len(pickle.dumps(schema))
    assert schema.nullable.find("a") is not None
    assert schema.find("A") is None
    copy = pickle.loads(data := pickle.dumps(schema))
    assert len(data) == before
    assert copy == schema
    assert copy.find("A") is None


POINT = {
    "type": "udt",
    "class": "example.PointUDT",
    "sqlType": {"type": "array", "elementType": "double", "containsNull": False},
    "later": 1,
}


def _schema(kind: Any) -> str:
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    fields.append({"name": "p", "type": kind, "nullable": True, "metadata": {}})
    return json.dumps({"type": "struct", "fields": fields})


@pytest.mark.parametrize(
    "kind",
    [
        POINT,
        {"type": "array", "elementType": POINT, "containsNull": False},
        {"type": "struct", "fields": [{"name": "in", "type": POINT, "nullable": False, "metadata": {}}]},
    ],
)
def test_user_defined_type_round_trips(kind: Any) -> None:
    schema = parse_schema(_schema(kind))
    assert json.loads(schema.json()) == json.loads(_schema(kind))
    (inner,) = (t for _, t in types_in(schema) if isinstance(t, UserDefinedType))
    assert inner.arrow == pa.list_(pa.field("element", pa.float64()))
    assert all_nullable(inner) is inner
    assert from_arrow(described_schema(schema)).field("p").type in (
        schema.field("p").type,
        schema.nullable.field("p").type,
    )


def test_user_defined_types_are_equal_by_class() -> None:
    other = {**POINT, "pyClass": "example.Point", "later": 2}
    assert parse_schema(_schema(POINT)) == parse_schema(_schema(other))
    assert parse_schema(_schema(POINT)) != parse_schema(_schema({**POINT, "class": "example.Other"}))


@pytest.mark.parametrize("wrong", [{"sqlType": None}, {"class": 3}, {"class": None}, {"sqlType": {"type": {}}}])
def test_damaged_user_defined_type_is_a_corrupt_log(wrong: dict[str, Any]) -> None:
    with pytest.raises(CorruptLogError, match="schemaString is not a schema"):
        parse_schema(_schema({**POINT, **wrong}))


def test_partitioning_by_a_user_defined_type_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be partitioned by a column of type array<double>"):
        check_partition_columns(parse_schema(_schema(POINT)), ["p"])
