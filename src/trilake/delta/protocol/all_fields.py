"""Every field of a schema at once: listed, without what column mapping noted, with what users noted for Arrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from trilake.delta.protocol.field_notes import arrow_notes
from trilake.delta.protocol.schema import (
    COLUMN_ID,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_field,
    arrow_list,
    arrow_map,
    marked,
)


def nested_fields(t: DataType) -> list[StructField]:
    """Every field in ``t``, at any depth, parents before children."""
    if isinstance(t, StructType):
        return [f for child in t.fields for f in (child, *nested_fields(child.type))]
    if isinstance(t, ArrayType):
        return nested_fields(t.element)
    if isinstance(t, MapType):
        return nested_fields(t.key) + nested_fields(t.value)
    return []


def each_field(t: DataType, change: Callable[[StructField], StructField]) -> DataType:
    """The type with every field changed, a parent before its children."""
    if isinstance(t, StructType):
        fields = []
        for f in t.fields:
            changed = change(f)
            fields.append(replace(changed, type=each_field(changed.type, change)))
        return StructType(tuple(fields))
    if isinstance(t, ArrayType):
        return ArrayType(each_field(t.element, change), t.contains_null)
    if isinstance(t, MapType):
        return MapType(each_field(t.key, change), each_field(t.value, change), t.value_contains_null)
    return t


def strip(schema: StructType) -> StructType:
    """The schema without ids and physical names."""

    def bare(field: StructField) -> StructField:
        return replace(field, metadata={k: v for k, v in field.metadata.items() if k not in (COLUMN_ID, PHYSICAL_NAME)})

    stripped = each_field(schema, bare)
    assert isinstance(stripped, StructType)
    return stripped


def described_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of the rows, each field with its comment and other notes, and a mark where it holds variants.

    >>> from trilake.delta.protocol.schema import PrimitiveType
    >>> noted = StructField("a", PrimitiveType("long"), metadata={"comment": "x"})
    >>> described_schema(StructType((noted,))).field("a").metadata
    {b'comment': b'x'}
    """
    return pa.schema([_field(f) if _is_plain(f.type) else marked(_field(f), f.type) for f in schema.fields])


def _is_plain(t: DataType) -> bool:
    return isinstance(t, PrimitiveType) and t.name != "variant"


def _field(f: StructField) -> pa.Field:
    return arrow_field(f.name, _type(f.type), f.nullable, arrow_notes(f.metadata) if f.metadata else None)


def _type(t: DataType) -> pa.DataType:
    if isinstance(t, PrimitiveType):  # most are, of the thousands that a wide table has
        return t.arrow
    if isinstance(t, StructType):
        return pa.struct([_field(f) for f in t.fields])
    if isinstance(t, ArrayType):
        return arrow_list(_type(t.element), t.contains_null)
    return arrow_map(_type(t.key), _type(t.value), t.value_contains_null)
