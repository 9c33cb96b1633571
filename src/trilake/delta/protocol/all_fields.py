"""Every field of a schema changed at once, and what column mapping noted on fields taken away again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trilake.delta.protocol.schema import (
    COLUMN_ID,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)


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
