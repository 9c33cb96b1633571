"""Schemas as objects: what is made of one is made once, and does not travel with it."""

from __future__ import annotations

import pickle

from trilake.delta.protocol.schema import ArrayType, PrimitiveType, StructField, StructType, all_nullable

_LONG = PrimitiveType("long")


def test_the_nullable_schema_is_made_once_and_stays_here() -> None:
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


def test_a_schema_that_travels_is_its_fields_alone() -> None:
    schema = StructType((StructField("a", _LONG, nullable=False, metadata={"comment": "c"}),)).exact()
    before = len(pickle.dumps(schema))
    assert schema.nullable.find("a") is not None
    assert schema.find("A") is None
    copy = pickle.loads(data := pickle.dumps(schema))
    assert len(data) == before
    assert copy == schema
    assert copy.find("A") is None
