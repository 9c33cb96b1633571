"""ALTER TABLE for columns: from protocol and metadata to protocol and metadata.

All functions are pure.  Each returns a :class:`MetadataChange`: the new state, the operation and its parameters for the
history, and conditions on existing rows.  For properties, constraints and features see
:mod:`trilake.delta.metadata.property_changes`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa

from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.char_varchar import TYPE_STRING
from trilake.delta.protocol.column_mapping import check_can_rename, check_names, mapped
from trilake.delta.protocol.features import upgraded
from trilake.delta.protocol.property_values import column_list
from trilake.delta.protocol.schema import ArrayType, DataType, MapType, StructField, StructType, is_spatial
from trilake.delta.protocol.schema_edit import (
    Path,
    PathLike,
    Position,
    add_field,
    drop_field,
    edit_type,
    field_at,
    format_path,
    move_field,
    name_taken,
    nested_fields,
    parse_path,
    replace_field,
    spelled,
    strip,
    type_at,
)
from trilake.delta.protocol.sql_types import with_limits, without_limits
from trilake.delta.rules.defaults import CURRENT_DEFAULT, JudgeDefault, parse_default
from trilake.delta.rules.dependents import check_free_of_rules
from trilake.delta.rules.identity import START as IDENTITY
from trilake.delta.rules.new_columns import check_collations, check_fields
from trilake.delta.scan.generated import GENERATION_EXPRESSION as GENERATED
from trilake.errors import InvalidArgumentError, stating

STATS_COLUMNS = "delta.dataSkippingStatsColumns"


@dataclass(frozen=True)
class Condition:
    """A condition on every row of the table; ``sql`` is over its columns."""

    kind: str
    name: str
    sql: str


@dataclass(frozen=True)
class MetadataChange:
    """A change of a table's protocol and metadata, ready to be committed.

    Existing rows must satisfy ``conditions``; ``domains`` are metadata domains to set (``None`` removes one).
    """

    protocol: Protocol
    metadata: Metadata
    operation: str
    parameters: Mapping[str, Any]
    conditions: tuple[Condition, ...] = ()
    domains: Mapping[str, str | None] = field(default_factory=dict)

    def changes(self, protocol: Protocol, metadata: Metadata) -> bool:
        return (self.protocol, self.metadata) != (protocol, metadata) or bool(self.domains)


@dataclass(frozen=True)
class NewColumn:
    """A column to add: to the struct at ``parent``, or to the table itself."""

    field: StructField
    parent: Path = ()
    position: Position | None = None


def with_schema(
    protocol: Protocol,
    metadata: Metadata,
    schema: StructType,
    operation: str,
    parameters: Mapping[str, Any],
    *,
    new_id: Callable[[], str] | None = None,
    features: Sequence[str] = (),
    **more: Any,
) -> MetadataChange:
    """The change to another schema, including column mapping of new columns and the features that the schema needs.

    ``new_id`` creates physical names of new columns.
    """
    new = replace(metadata, schema_string=schema.json(), **more)
    if new_id is not None:
        new = mapped(new, new_id=new_id)
    return MetadataChange(upgraded(protocol, new, features), new, operation, parameters)


def _edited(schema: StructType, step: Callable[..., StructType], *args: Any, limited: bool = False) -> StructType:
    """The schema after a step, keeping the length limits of strings; set ``limited`` if the step adds some."""
    if not limited and not any(TYPE_STRING in f.metadata for f in schema.fields):
        return step(schema, *args)
    return without_limits(step(with_limits(schema), *args))


def logged_column(path: Path, f: StructField) -> dict[str, Any]:
    """A column in the form of the history."""
    json = f.type.to_json()
    kind = json if isinstance(json, str) else str(json["type"])
    return {"name": format_path(path), "type": kind, "nullable": f.nullable, "metadata": dict(f.metadata)}


def logged_json(value: object) -> str:
    """A value in the form of the history."""
    return orjson.dumps(value).decode()


def _stats_columns(configuration: Mapping[str, str], path: Path, new: Path | None) -> dict[str, str]:
    """The properties with ``path`` renamed to ``new`` in the list of columns with statistics, or removed from it."""
    out = dict(configuration)
    if STATS_COLUMNS not in out:
        return out
    lowered = tuple(p.lower() for p in path)
    columns = []
    for column in column_list(out[STATS_COLUMNS]):
        names = parse_path(column)
        if tuple(n.lower() for n in names[: len(path)]) == lowered:
            if new is None:
                continue
            column = format_path((*new, *names[len(path) :]))
        columns.append(column)
    out[STATS_COLUMNS] = ",".join(columns)
    if not columns:
        del out[STATS_COLUMNS]
    return out


def add_columns(
    protocol: Protocol, metadata: Metadata, columns: Sequence[NewColumn], *, new_id: Callable[[], str]
) -> MetadataChange:
    """Add columns, which read as null in existing rows.

    Raises ``InvalidArgumentError`` for an existing name, and for a column that is NOT NULL, has a default or is
    computed, since existing rows have no value for it; ``SchemaMismatchError`` for an unknown parent or sibling.
    """
    if not columns:
        raise InvalidArgumentError("no columns to add were given")
    schema, log = metadata.schema, []
    for c in columns:
        new = strip(StructType((c.field,))).fields[0]  # without another table's column mapping
        path = (*(spelled(schema, c.parent) if c.parent else ()), new.name)
        _check_addable(new, path)
        nested = with_limits(StructType((new,))).fields[0] if path[1:] else new
        schema = _edited(schema, add_field, c.parent, nested, c.position, limited=nested != new)
        entry: dict[str, Any] = {"column": logged_column(path, new)}
        if c.position is not None:
            entry["position"] = str(c.position)
        log.append(entry)
    new_fields = StructType(tuple(c.field for c in columns))
    check_names(new_fields, metadata.column_mapping_mode)
    check_collations(new_fields)
    for f in new_fields.fields:  # fields of other structs may have the same name
        check_fields(StructType((f,)))
    return with_schema(protocol, metadata, schema, "ADD COLUMNS", {"columns": logged_json(log)}, new_id=new_id)


def _check_addable(f: StructField, path: Path) -> None:
    wrong = condition = None
    no_value = "must not be null, but existing rows have no value for it"
    if not f.nullable:
        wrong, help = no_value, "add it as nullable, fill it, then set it NOT NULL"
        condition = "DELTA_OPERATION_NOT_ALLOWED"
    elif (required := next((n for n in nested_fields(f.type) if not n.nullable), None)) is not None:
        wrong, help = f"has a field {required.name} that {no_value}", "leave out NOT NULL in the type"
        condition = "DELTA_OPERATION_NOT_ALLOWED"
    elif CURRENT_DEFAULT in f.metadata:
        wrong, help = "has a default", "add the column without it, then set the default, which applies to new rows"
        condition = "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED"
    elif GENERATED in f.metadata or IDENTITY in f.metadata:
        wrong, help = "is a generated or identity column", "declare such columns when you create the table"
    elif str(f.type) == "void":
        wrong, help = "has no type", "declare a type"
    if wrong is not None:
        raise InvalidArgumentError(
            f"column {format_path(path)} cannot be added: it {wrong}",
            help=help,
            column=format_path(path),
            condition=condition,
        )


def rename_column(protocol: Protocol, metadata: Metadata, path: PathLike, new_name: str) -> MetadataChange:
    """Rename a column; files keep its physical name.

    Raises ``InvalidArgumentError`` without column mapping, for an existing name, and if rules use the column.
    """
    names = spelled(metadata.schema, path)
    with stating({None: "INVALID_FIELD_NAME"}):
        field_at(metadata.schema, names)
    check_can_rename(metadata, "rename")
    if not new_name.strip():
        raise InvalidArgumentError("a column name must not be empty")
    new = (*names[:-1], new_name)
    if new == names:
        raise name_taken(names)
    check_free_of_rules(metadata, names, "rename")
    schema = _edited(metadata.schema, replace_field, names, lambda f: replace(f, name=new[-1]))
    partitions = metadata.partition_columns
    if len(names) == 1:
        partitions = tuple(new[0] if c == names[0] else c for c in partitions)
    return with_schema(
        protocol,
        metadata,
        schema,
        "RENAME COLUMN",
        {"oldColumnPath": format_path(names), "newColumnPath": format_path(new)},
        partition_columns=partitions,
        configuration=_stats_columns(metadata.configuration, names, new),
    )


def drop_columns(
    protocol: Protocol, metadata: Metadata, paths: Sequence[PathLike], *, clustering: Sequence[Path] = ()
) -> MetadataChange:
    """Drop columns; the files keep their values.

    ``clustering`` are the display paths of the clustering columns.  Raises ``InvalidArgumentError`` without column
    mapping, for partition and clustering columns, for the last column, and if rules use a column.
    """
    if not paths:
        raise InvalidArgumentError("no columns to drop were given")
    check_can_rename(metadata, "drop")
    schema, configuration = metadata.schema, metadata.configuration
    dropped_paths = [spelled(schema, p) for p in paths]
    for names in dropped_paths:
        check_free_of_rules(metadata, names, "drop")
        role = "partitioned" if names[0] in metadata.partition_columns and not names[1:] else None
        if any(c[: len(names)] == names for c in clustering):
            role = "clustered"
        if role:
            raise InvalidArgumentError(
                f"cannot drop column {format_path(names)}: the table is {role} by this column",
                column=format_path(names),
                condition=f"DELTA_UNSUPPORTED_DROP_{'PARTITION' if role == 'partitioned' else 'CLUSTERING'}_COLUMN",
            )
        with stating({None: "DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE"}):
            schema = _edited(schema, drop_field, names)
        configuration = _stats_columns(configuration, names, None)
    if metadata.partition_columns and len(schema.fields) == len(metadata.partition_columns):
        raise InvalidArgumentError(
            "the table would have only partition columns left",
            help="keep at least one other column",
            condition="DELTA_NON_PARTITION_COLUMN_ABSENT",
        )
    parameters = {"columns": logged_json([format_path(n) for n in dropped_paths])}
    return with_schema(protocol, metadata, schema, "DROP COLUMNS", parameters, configuration=configuration)


def enclosing_column(schema: StructType, names: Path) -> Path:
    """The path without a trailing part inside arrays and maps."""
    while names[1:] and not isinstance(type_at(schema, names[:-1]), StructType):
        names = names[:-1]
    return names


def change_of_column(
    protocol: Protocol,
    metadata: Metadata,
    schema: StructType,
    path: Path,
    *,
    position: Position | None = None,
    features: Sequence[str] = (),
) -> MetadataChange:
    """The change of a column that keeps its name and type."""
    parameters = {"column": logged_json(logged_column(path, field_at(schema, path)))}
    if position is not None:
        parameters["position"] = str(position)
    return with_schema(protocol, metadata, schema, "CHANGE COLUMN", parameters, features=features)


def move_column(protocol: Protocol, metadata: Metadata, path: PathLike, position: Position) -> MetadataChange:
    """Move a column among its siblings.  Raises ``SchemaMismatchError`` for unknown columns."""
    names = spelled(metadata.schema, path)
    schema = _edited(metadata.schema, move_field, names, position)
    return change_of_column(protocol, metadata, schema, names, position=position)


def comment_column(protocol: Protocol, metadata: Metadata, path: PathLike, comment: str | None) -> MetadataChange:
    """Set or, with ``None``, remove the comment of a column."""
    names = spelled(metadata.schema, path)
    with stating({None: "DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY"}):
        schema = replace_field(metadata.schema, names, lambda f: _noted(f, "comment", comment))
    return change_of_column(protocol, metadata, schema, names)


def _noted(f: StructField, key: str, value: str | None) -> StructField:
    others = {k: v for k, v in f.metadata.items() if k != key}
    return replace(f, metadata=others if value is None else {**others, key: value})


def set_nullable(protocol: Protocol, metadata: Metadata, path: PathLike) -> MetadataChange:
    """Allow nulls in a column, element or value (``DROP NOT NULL``).

    Raises ``InvalidArgumentError`` for a key, which is never null.
    """
    names = spelled(metadata.schema, path)
    column = enclosing_column(metadata.schema, names)
    if column != names:
        if names[-1] == "key":
            raise InvalidArgumentError(
                f"{format_path(names)} is the key of a map, which is never null",
                column=format_path(names),
                condition="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
            )
        schema = edit_type(metadata.schema, names[:-1], _with_nulls)
        return change_of_column(protocol, metadata, schema, column)
    schema = replace_field(metadata.schema, names, lambda f: replace(f, nullable=True))
    return change_of_column(protocol, metadata, schema, names)


def _with_nulls(t: DataType) -> DataType:
    if isinstance(t, ArrayType):
        return replace(t, contains_null=True)
    return replace(t, value_contains_null=True) if isinstance(t, MapType) else t


def set_not_null(protocol: Protocol, metadata: Metadata, path: PathLike) -> MetadataChange:
    """Forbid nulls in a column; no existing row may hold one.  Keys never hold one.

    Raises ``InvalidArgumentError`` for a column inside an array or map.
    """
    names = spelled(metadata.schema, path)
    if names[-1] == "key" and (column := enclosing_column(metadata.schema, names)) != names:
        return change_of_column(protocol, metadata, metadata.schema, column)
    field_at(metadata.schema, names)
    for i in range(1, len(names)):
        if not isinstance(type_at(metadata.schema, names[:i]), StructType):
            raise InvalidArgumentError(
                f"column {format_path(names)} is inside an array or map and cannot be set NOT NULL",
                help="declare the column NOT NULL when you create the table",
                column=format_path(names),
                condition="DELTA_NESTED_NOT_NULL_CONSTRAINT",
            )
    schema = replace_field(metadata.schema, names, lambda f: replace(f, nullable=False))
    change = change_of_column(protocol, metadata, schema, names, features=["invariants"])
    # A field of a null struct has no value, so it violates nothing.
    parents = [f"{format_path(names[:i])} IS NULL" for i in range(1, len(names))]
    sql = " OR ".join([*parents, f"{format_path(names)} IS NOT NULL"])
    return replace(change, conditions=(Condition("NOT NULL of column", format_path(names), sql),))


def set_default(
    protocol: Protocol,
    metadata: Metadata,
    column: PathLike,
    expression: str,
    *,
    now: dt.datetime,
    judge: JudgeDefault | None = None,
) -> MetadataChange:
    """Set the default of a column, for rows that omit it; ``judge`` checks expressions that DuckDB cannot parse.

    Raises ``InvalidArgumentError`` for nested and computed columns, ``ExpressionError`` for an expression that reads
    columns or does not have the column's type, and the errors of ``judge``.
    """
    names = _top_level(metadata, column)
    f = field_at(metadata.schema, names)
    if GENERATED in f.metadata or IDENTITY in f.metadata:
        raise InvalidArgumentError(
            f"column {format_path(names)} is a generated or identity column and cannot have a default",
            column=format_path(names),
            condition="DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"
            if IDENTITY in f.metadata
            else "GENERATED_COLUMN_WITH_DEFAULT_VALUE",
        )
    if is_spatial(str(f.type)):
        raise InvalidArgumentError(
            f"column {format_path(names)} has type {f.type}, which cannot have a default",
            help="write its values explicitly",
            column=format_path(names),
            condition="DELTA_OPERATION_NOT_SUPPORTED_FOR_DATATYPES",
        )
    default = parse_default(f, expression, now)
    if default is not None:
        default.evaluate(pa.table({"row": [0]}))  # reject a value that never fits now, not in the next write
    elif judge is not None:
        judge(f, expression)
    schema = replace_field(metadata.schema, names, lambda f: _noted(f, CURRENT_DEFAULT, expression))
    return change_of_column(protocol, metadata, schema, names)


def drop_default(protocol: Protocol, metadata: Metadata, column: PathLike) -> MetadataChange:
    """Remove a column's default."""
    names = _top_level(metadata, column)
    schema = replace_field(metadata.schema, names, lambda f: _noted(f, CURRENT_DEFAULT, None))
    return change_of_column(protocol, metadata, schema, names)


def _top_level(metadata: Metadata, column: PathLike) -> Path:
    names = spelled(metadata.schema, column)
    if names[1:]:
        raise InvalidArgumentError(
            f"{format_path(names)} is nested; only top-level columns can have defaults", column=format_path(names)
        )
    return names
