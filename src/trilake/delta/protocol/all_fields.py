"""Transform every field of a schema: list them, strip column mapping, convert metadata for Arrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from trilake.delta.protocol.field_notes import arrow_notes
from trilake.delta.protocol.schema import (
    COLUMN_ID,
    NESTED_IDS,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_field,
    arrow_list,
    arrow_map,
    fields_in,
    marked,
    needs_mark,
    parts,
    with_parts,
)


def nested_fields(t: DataType) -> list[StructField]:
    """Every field in ``t``, at any depth, parents before children."""
    return [f for _, f in fields_in(t)]


def each_field(t: DataType, change: Callable[[StructField], StructField]) -> DataType:
    """Transform every field, a parent before its children, and these before its next sibling."""
    if not isinstance(t, StructType):
        return with_parts(t, [each_field(inner, change) for _, inner in parts(t)])
    fields = (change(f) for f in t.fields)
    return StructType(tuple(replace(f, type=each_field(f.type, change)) for f in fields))


def strip(schema: StructType) -> StructType:
    """The schema without ids and physical names."""
    mapping = (COLUMN_ID, PHYSICAL_NAME, NESTED_IDS)

    def bare(field: StructField) -> StructField:
        return replace(field, metadata={k: v for k, v in field.metadata.items() if k not in mapping})

    stripped = each_field(schema, bare)
    assert isinstance(stripped, StructType)
    return stripped


def described_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of the rows, each field with its user metadata, and a mark where Arrow lacks the type.

    >>> from trilake.delta.protocol.schema import PrimitiveType
    >>> noted = StructField("a", PrimitiveType("long"), metadata={"comment": "x"})
    >>> described_schema(StructType((noted,))).field("a").metadata
    {b'comment': b'x'}
    """
    return pa.schema([_field(f) if _is_plain(f.type) else marked(_field(f), f.type) for f in schema.fields])


def _is_plain(t: DataType) -> bool:
    return isinstance(t, PrimitiveType) and not needs_mark(t)


def _field(f: StructField) -> pa.Field:
    return arrow_field(f.name, arrow_type(f.type, _field), f.nullable, arrow_notes(f.metadata) if f.metadata else None)


def arrow_type(t: DataType, field: Callable[[StructField], pa.Field]) -> pa.DataType:
    """The Arrow type in which ``field`` converts the fields of structs."""
    if isinstance(t, PrimitiveType):  # most of the thousands in a wide table are
        return t.arrow
    if isinstance(t, StructType):
        return pa.struct(list(map(field, t.fields)))
    if isinstance(t, ArrayType):
        return arrow_list(arrow_type(t.element, field), t.contains_null)
    return arrow_map(arrow_type(t.key, field), arrow_type(t.value, field), t.value_contains_null)
