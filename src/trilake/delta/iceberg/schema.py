"""The Iceberg schema and partition spec of a Delta table, with the field ids of column mapping."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg import types
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.column_mapping import nested_ids
from trilake.delta.protocol.schema import ArrayType, DataType, MapType, StructField, StructType
from trilake.errors import SchemaMismatchError

PRIMITIVES: Mapping[str, types.PrimitiveType] = {
    **dict.fromkeys(("byte", "short", "integer"), types.IntegerType()),
    "long": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "boolean": types.BooleanType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "date": types.DateType(),
    "timestamp": types.TimestamptzType(),
    "timestamp_ntz": types.TimestampType(),
}


def iceberg_schema(schema: StructType) -> Schema:
    """The Iceberg schema of a Delta schema.  Raises ``SchemaMismatchError`` for other types, and columns without id."""
    return Schema(*_fields(schema), schema_id=0)


def partition_spec(metadata: Metadata) -> PartitionSpec:
    """The partition spec of a Delta table: an identity transform per partition column."""
    fields = [metadata.schema.field(name) for name in metadata.partition_columns]
    return PartitionSpec(
        *(
            PartitionField(_id(f), PARTITION_FIELD_ID_START + i, IdentityTransform(), f.name)
            for i, f in enumerate(fields)
        ),
        spec_id=0,
    )


def iceberg_type(type_: DataType, field: StructField) -> types.PrimitiveType:
    """The Iceberg type of a primitive type.  Raises ``SchemaMismatchError`` if there is none."""
    name = str(type_)
    if name.startswith("decimal(") and pa.types.is_decimal(type_.arrow):
        return types.DecimalType(type_.arrow.precision, type_.arrow.scale)
    if name not in PRIMITIVES:
        raise SchemaMismatchError(
            f"column {field.name!r} has type {name}, which Iceberg v2 does not support", column=field.name
        )
    return PRIMITIVES[name]


def _id(field: StructField) -> int:
    if field.column_id is None:
        raise SchemaMismatchError(
            f"column {field.name!r} has no field id", help="enable column mapping", column=field.name
        )
    return field.column_id


def _fields(struct: StructType) -> list[types.NestedField]:
    return [
        types.NestedField(_id(f), f.name, _converted(f.type, f, f.physical_name), required=not f.nullable)
        for f in struct.fields
    ]


def _converted(type_: DataType, field: StructField, path: str) -> types.IcebergType:
    if isinstance(type_, StructType):
        return types.StructType(*_fields(type_))
    if isinstance(type_, ArrayType):
        element = _converted(type_.element, field, f"{path}.element")
        return types.ListType(
            element_id=_nested_id(field, f"{path}.element"), element=element, element_required=not type_.contains_null
        )
    if isinstance(type_, MapType):
        return types.MapType(
            key_id=_nested_id(field, f"{path}.key"),
            key_type=_converted(type_.key, field, f"{path}.key"),
            value_id=_nested_id(field, f"{path}.value"),
            value_type=_converted(type_.value, field, f"{path}.value"),
            value_required=not type_.value_contains_null,
        )
    return iceberg_type(type_, field)


def _nested_id(field: StructField, path: str) -> int:
    ids = nested_ids(field)
    if path not in ids:
        help = "enable icebergCompatV2, which adds field ids inside arrays and maps"
        raise SchemaMismatchError(f"column {field.name!r} has no field id for {path}", help=help, column=field.name)
    return ids[path]
