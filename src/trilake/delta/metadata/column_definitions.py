"""Column definitions from callers: a schema, fields, or types by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from trilake.delta.metadata.schema_changes import NewColumn
from trilake.delta.protocol.schema import DataType, StructField, StructType, from_arrow
from trilake.delta.protocol.schema_edit import parse_path
from trilake.delta.protocol.sql_types import parse_sql_type
from trilake.errors import InvalidArgumentError

#: A type: SQL, an Arrow type or a type of the protocol.
TypeLike: TypeAlias = str | pa.DataType | DataType
#: Columns: a schema, fields, or types by path; also schemas and fields of libraries with Arrow's interface, such as
#: deltalake.
ColumnsLike: TypeAlias = pa.Schema | StructType | Mapping[str, TypeLike] | Iterable[pa.Field | StructField]


def new_field(name: str, kind: TypeLike) -> StructField:
    """Create a column from a type in any form."""
    if isinstance(kind, str):
        data_type, metadata = parse_sql_type(kind)
        return StructField(name, data_type, metadata=metadata)
    if isinstance(kind, pa.DataType):
        return from_arrow(pa.schema([pa.field(name, kind)])).fields[0]
    if not isinstance(kind, DataType):
        type_name = kind.__name__ if isinstance(kind, type) else type(kind).__name__
        raise InvalidArgumentError(
            f"the type of column {name} must be a Spark SQL type or a pyarrow type, got {type_name}",
            help="pass a type such as 'bigint', 'array<string>' or pa.int64()",
            column=name,
        )
    return StructField(name, kind)


def as_arrow(columns: Any) -> Any:
    """Convert a schema or fields of another library to Arrow; return everything else unchanged."""
    if _of_others(columns):
        try:
            return pa.schema(columns)
        except pa.ArrowInvalid:
            return columns  # one field, or one type
    if isinstance(columns, Iterable) and not isinstance(columns, str | Mapping | pa.Schema):
        return [pa.field(f) if _of_others(f) else f for f in columns]
    return columns


def _of_others(value: object) -> bool:
    return hasattr(value, "__arrow_c_schema__") and not isinstance(value, pa.Schema | pa.Field | pa.DataType)


def new_columns(columns: ColumnsLike) -> list[NewColumn]:
    """The columns, each with the path of its parent.  Raises ``InvalidArgumentError`` for anything else."""
    columns = as_arrow(columns)
    if isinstance(columns, pa.Schema):
        return [NewColumn(f) for f in from_arrow(columns).fields]
    if isinstance(columns, StructType):
        return [NewColumn(f) for f in columns.fields]
    if isinstance(columns, Mapping):
        paths = [(parse_path(p), kind) for p, kind in columns.items()]
        return [NewColumn(new_field(path[-1], kind), path[:-1]) for path, kind in paths]
    if isinstance(columns, str | pa.Field | StructField) or not isinstance(columns, Iterable):
        raise InvalidArgumentError(
            f"columns must be a schema, a list of fields, or a dict of types by name, got {columns!r:.80}",
            help='write {"id": "bigint"}',
        )
    out = []
    for f in columns:
        if isinstance(f, pa.Field):
            out.append(NewColumn(from_arrow(pa.schema([f])).fields[0]))
        elif isinstance(f, StructField):
            out.append(NewColumn(f))
        else:
            raise InvalidArgumentError(f"{f!r} is not a field", help="pass pyarrow fields, or types by name")
    return out
