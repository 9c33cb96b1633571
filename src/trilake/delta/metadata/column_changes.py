"""Column definitions, type changes, several column changes at once, REPLACE COLUMNS, and SYNC IDENTITY.

``ALTER TABLE ... CHANGE COLUMN a a BIGINT COMMENT 'x' AFTER b`` applies several steps of
:mod:`trilake.delta.metadata.schema_changes` in turn.  All functions are pure.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from trilake.delta.metadata import schema_changes as steps
from trilake.delta.metadata.schema_changes import (
    MetadataChange,
    NewColumn,
    add_columns,
    change_of_column,
    drop_columns,
    enclosing_column,
    logged_column,
    with_schema,
)
from trilake.delta.protocol import type_widening
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.char_varchar import TYPE_STRING
from trilake.delta.protocol.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    check_distinct,
    from_arrow,
    marked,
    paired,
    parse_schema,
    with_parts,
)
from trilake.delta.protocol.schema_edit import (
    Path,
    PathLike,
    Position,
    edit_type,
    format_path,
    has_void,
    is_void,
    nested_fields,
    parse_path,
    spelled,
    type_at,
)
from trilake.delta.protocol.sql_types import parse_sql_type, with_limits, without_limits
from trilake.delta.rules.defaults import CURRENT_DEFAULT, JudgeDefault
from trilake.delta.rules.dependents import check_free_of_rules
from trilake.delta.rules.identity import (
    ALLOW_EXPLICIT_INSERT,
    IdentityColumn,
    identity_columns,
    identity_metadata,
    updated_schema,
)
from trilake.delta.rules.identity import START as IDENTITY_START
from trilake.delta.rules.identity import STEP as IDENTITY_STEP
from trilake.delta.scan.generated import GENERATION_EXPRESSION
from trilake.errors import InvalidArgumentError, stating

#: Numeric types; Spark casts each of them to the later ones without loss.
_UPWARDS = ("byte", "short", "integer", "long", "float", "double")


def change_type(
    protocol: Protocol, metadata: Metadata, path: PathLike, kind: DataType, *, version: int, limit: str | None = None
) -> MetadataChange:
    """Widen the type of a column, element, key or value, or give a ``void`` column one; files stay unchanged.

    ``version`` is the version to be committed; ``limit`` is ``varchar(n)`` if the new type ``kind`` is a string with
    that limit.  Raises ``InvalidArgumentError`` without ``delta.enableTypeWidening``, for a change that the protocol
    does not allow, and if rules use the column.
    """
    old = with_limits(metadata.schema)
    names = spelled(old, path)
    column = enclosing_column(old, names)
    before = type_at(old, names)
    after: DataType = kind if limit is None else PrimitiveType(limit)
    if before == after:
        return change_of_column(protocol, metadata, metadata.schema, column)
    if names in [(c.name,) for c in identity_columns(old)]:
        raise InvalidArgumentError(
            f"the type of identity column {format_path(names)} cannot change from {before} to {after}",
            column=format_path(names),
            condition="DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"
            if type_widening.can_widen(before, after) or _upcasts(before, after)
            else "NOT_SUPPORTED_CHANGE_COLUMN",
        )
    # A column of nulls, which files do not store, may get a type without fields.
    types_void = is_void(before) and not nested_fields(after) and not has_void(after)
    if not types_void and not _relaxes(before, after):
        _check_widens(metadata, names, before, after)
    check_free_of_rules(metadata, column, "change the type of")
    plain = without_limits(edit_type(old, names, lambda _: after))
    noted = version if type_widening.only_preview(protocol) else None
    schema = type_widening.record_changes(metadata.schema, plain, version=noted)
    return change_of_column(protocol, metadata, schema, column)


def _check_widens(metadata: Metadata, names: Path, before: DataType, after: DataType) -> None:
    if not type_widening.can_widen(before, after):
        raise InvalidArgumentError(
            f"the type of column {format_path(names)} cannot change from {before} to {after}",
            help="types can only be widened; otherwise rewrite the column",
            column=format_path(names),
            condition=_rejected_change(before, after),
        )
    if not type_widening.enabled(metadata):
        raise InvalidArgumentError(
            f"the type of column {format_path(names)} can change from {before} to {after} only with type widening",
            help=f"set the table property {type_widening.ENABLED} to 'true' first",
            column=format_path(names),
            condition="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        )


#: The conditions of changes to nested types.
_NESTED: dict[type[DataType], str] = {
    StructType: "CANNOT_UPDATE_FIELD.STRUCT_TYPE",
    MapType: "CANNOT_UPDATE_FIELD.MAP_TYPE",
    ArrayType: "CANNOT_UPDATE_FIELD.ARRAY_TYPE",
}


def _rejected_change(before: DataType, after: DataType) -> str:
    """The condition of a change that is not a widening."""
    if type(after) in _NESTED:
        return _NESTED[type(after)]
    upcasts = _upcasts(before, after)
    return "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP" if upcasts else "NOT_SUPPORTED_CHANGE_COLUMN"


def _upcasts(before: DataType, after: DataType) -> bool:
    """Whether Spark's analysis allows the change, so that Delta itself must reject it."""
    old, new = str(before), str(after)
    if not isinstance(before, PrimitiveType) or not isinstance(after, PrimitiveType):
        return type(before) is type(after)
    if old in _UPWARDS and new in _UPWARDS:
        return _UPWARDS.index(old) < _UPWARDS.index(new)
    return new == "string" or (old in ("date", "timestamp_ntz") and new.startswith("timestamp"))


def _relaxes(before: DataType, after: DataType) -> bool:
    """Whether the change raises or removes the length limit of a string."""
    if not (isinstance(before, PrimitiveType) and isinstance(after, PrimitiveType)):
        return False
    old, new = (re.fullmatch(r"(var)?char\((\d+)\)", t.name) for t in (before, after))
    if old is None or new is None or not new[1]:
        return old is not None and after.name == "string"
    return int(old[2]) <= int(new[2])


@dataclass(frozen=True)
class ColumnChange:
    """A change of one column; ``None`` leaves a property unchanged.

    ``type`` is a wider type, ``default`` an expression for rows that omit the column (an empty string removes it), and
    ``position`` the place among its siblings.
    """

    path: PathLike
    type: TypeLike | None = None
    nullable: bool | None = None
    default: str | None = None
    comment: str | None = None
    position: Position | None = None


def change_columns(
    protocol: Protocol,
    metadata: Metadata,
    changes: Sequence[ColumnChange],
    *,
    version: int,
    now: dt.datetime,
    judge: JudgeDefault | None = None,
) -> MetadataChange:
    """Combine the changes of some columns into one change of the table.

    ``version`` is the version to be committed, ``now`` the time for default expressions, and ``judge`` checks default
    expressions that DuckDB cannot parse.  Raises the errors of each step, and ``InvalidArgumentError`` for an empty
    change.
    """
    each: list[MetadataChange] = []
    for change in changes:
        result = _steps(protocol, metadata, change, version, now, judge)
        protocol, metadata = result[-1].protocol, result[-1].metadata
        whole = {k: v for step in result for k, v in step.parameters.items()}  # the last step has the final column
        conditions = tuple(c for step in result for c in step.conditions)
        each.append(replace(result[-1], parameters=whole, conditions=conditions))
    if not each:
        raise InvalidArgumentError("no columns to change were given")
    if len(each) == 1:
        return each[0]
    logged = [{**d.parameters, "column": orjson.loads(d.parameters["column"])} for d in each]
    conditions = tuple(c for d in each for c in d.conditions)
    return MetadataChange(protocol, metadata, "CHANGE COLUMNS", {"columns": orjson.dumps(logged).decode()}, conditions)


def _steps(
    protocol: Protocol,
    metadata: Metadata,
    change: ColumnChange,
    version: int,
    now: dt.datetime,
    judge: JudgeDefault | None,
) -> list[MetadataChange]:
    out: list[MetadataChange] = []

    def state() -> tuple[Protocol, Metadata]:
        return (out[-1].protocol, out[-1].metadata) if out else (protocol, metadata)

    if change.type is not None:
        new = new_field("", change.type)
        limit = new.metadata.get(TYPE_STRING)
        out.append(change_type(*state(), change.path, new.type, version=version, limit=limit))
    if change.nullable is not None:
        out.append((steps.set_nullable if change.nullable else steps.set_not_null)(*state(), change.path))
    if change.default:
        out.append(steps.set_default(*state(), change.path, change.default, now=now, judge=judge))
    elif change.default is not None:
        out.append(steps.drop_default(*state(), change.path))
    if change.comment is not None:
        out.append(steps.comment_column(*state(), change.path, change.comment))
    if change.position is not None:
        out.append(steps.move_column(*state(), change.path, change.position))
    if not out:
        raise InvalidArgumentError("no change to the column was given", help="pass a type, a comment or a position")
    return out


def identity_column(schema: StructType, column: PathLike) -> IdentityColumn:
    """The identity column with this name.

    Raises ``SchemaMismatchError`` for an unknown name, ``InvalidArgumentError`` for a column that is not an identity
    column.
    """
    names = spelled(schema, column)
    identity = next((c for c in identity_columns(schema) if (c.name,) == names), None)
    if identity is None:
        raise InvalidArgumentError(
            f"{format_path(names)} is not an identity column",
            help="SYNC IDENTITY is for columns GENERATED ... AS IDENTITY",
            column=format_path(names),
            condition="DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN",
        )
    return identity


def sync_identity(protocol: Protocol, metadata: Metadata, column: PathLike, reached: int | None) -> MetadataChange:
    """Advance an identity column beyond ``reached``, the furthest value of its rows; the mark never goes back.

    Raises the errors of :func:`identity_column`, and ``IdentityOverflowError`` if no value is left.
    """
    identity, schema = identity_column(metadata.schema, column), metadata.schema
    if reached is not None:
        # The mark must be a value of the sequence: the first one that is at least as far as the rows' values.
        mark = identity.value(-((identity.start - reached) // identity.step))
        schema = updated_schema(schema, [{identity.name: mark}])
    return change_of_column(protocol, metadata, schema, (identity.name,))


# --- REPLACE COLUMNS: replace a table's columns, including nested ones, with a list -----------------------------------
# Columns in both keep their values, with the position and comment of the list.  Columns only in the list are added, and
# columns only in the table are dropped.  The same holds for fields of structs at any depth.

_REJECTED = "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP"
_OF_TYPES: dict[str | None, str] = {
    "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP": _REJECTED,
    "NOT_SUPPORTED_CHANGE_COLUMN": _REJECTED,
    **dict.fromkeys(_NESTED.values(), _REJECTED),
}


@dataclass
class _Differences:
    added: list[NewColumn] = field(default_factory=list)
    dropped: list[Path] = field(default_factory=list)
    retyped: list[tuple[Path, DataType]] = field(default_factory=list)


def replace_columns(
    protocol: Protocol,
    metadata: Metadata,
    columns: Sequence[StructField],
    *,
    clustering: Sequence[Path] = (),
    new_id: Callable[[], str],
    version: int,
) -> MetadataChange:
    """Replace the table's columns with a list; ``version`` is the version to be committed.

    Raises the errors of ``add_columns`` and ``drop_columns``, and ``InvalidArgumentError`` for an unsupported type
    change, for a column that becomes NOT NULL, and for a table with an identity column.
    """
    if identities := identity_columns(metadata.schema):
        raise InvalidArgumentError(
            f"REPLACE COLUMNS is not supported for a table with an identity column, {identities[0].name}",
            help="use ADD COLUMNS, DROP COLUMN and ALTER COLUMN",
            column=identities[0].name,
            condition="DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED",
        )
    target = StructType(tuple(columns))
    differences = _Differences()
    _compare(with_limits(metadata.schema), with_limits(target), (), differences)
    new_columns = [c if c.parent else NewColumn(target.field(c.field.name)) for c in differences.added]
    change = MetadataChange(protocol, metadata, "REPLACE COLUMNS", {})
    if new_columns:
        change = add_columns(change.protocol, change.metadata, new_columns, new_id=new_id)
    if differences.dropped:
        change = drop_columns(change.protocol, change.metadata, differences.dropped, clustering=clustering)
    for path, kind in differences.retyped:
        with stating(_OF_TYPES):
            change = change_type(change.protocol, change.metadata, path, kind, version=version)
    fields = _arranged_fields(change.metadata.schema, target)
    parameters = {"columns": orjson.dumps([logged_column((f.name,), f) for f in fields]).decode()}
    return with_schema(
        change.protocol, change.metadata, StructType(fields), "REPLACE COLUMNS", parameters, new_id=new_id
    )


def _compare(old: DataType, new: DataType, path: Path, differences: _Differences) -> None:
    if isinstance(old, StructType) and isinstance(new, StructType):
        differences.dropped += [(*path, f.name) for f in old.fields if new.find(f.name) is None]
        for f in new.fields:
            there = old.find(f.name)
            if there is None:
                differences.added.append(NewColumn(f, path))
            else:
                inner = (*path, there.name)
                if there.nullable and not f.nullable:
                    raise InvalidArgumentError(
                        f"column {format_path(inner)} is nullable, and REPLACE COLUMNS does not check its rows for"
                        " nulls",
                        help="leave out NOT NULL, then set it with ALTER COLUMN ... SET NOT NULL",
                        column=format_path(inner),
                        condition=_REJECTED,
                    )
                _compare(there.type, f.type, inner, differences)
    elif (inside := paired(old, new)) is not None:
        for name, a, b in inside:
            _compare(a, b, (*path, name), differences)
    elif old != new:
        differences.retyped.append((path, new))


def _arranged(there: DataType, target: DataType) -> DataType:
    """The type ``there`` with the field order and comments of ``target``, which has the same fields."""
    if isinstance(there, StructType) and isinstance(target, StructType):
        return StructType(_arranged_fields(there, target))
    inside = paired(there, target)
    return there if inside is None else with_parts(there, [_arranged(a, b) for _, a, b in inside])


def _arranged_fields(there: StructType, target: StructType) -> tuple[StructField, ...]:
    fields = []
    for f in target.fields:
        old, comment = there.field(f.name), f.metadata.get("comment")
        metadata = old.metadata if comment is None else {**old.metadata, "comment": comment}
        fields.append(replace(old, type=_arranged(old.type, f.type), nullable=f.nullable, metadata=metadata))
    return tuple(fields)


# --- Column definitions from callers: a schema, fields, or types by name ----------------------------------------------


#: A type: SQL, an Arrow type or a type of the protocol.
TypeLike: TypeAlias = str | pa.DataType | DataType
#: Columns: a schema, fields, or types by path; also schemas and fields of libraries with Arrow's interface, such as
#: deltalake.
ColumnsLike: TypeAlias = pa.Schema | StructType | Mapping[str, TypeLike] | Iterable[pa.Field | StructField]
#: The field metadata for rules about missing values.
RULES = (GENERATION_EXPRESSION, CURRENT_DEFAULT, IDENTITY_START, IDENTITY_STEP, ALLOW_EXPLICIT_INSERT)


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
            return pa.schema(_marked_fields(pa.schema(columns), columns))
        except pa.ArrowInvalid:
            return columns  # one field, or one type
    if isinstance(columns, Iterable) and not isinstance(columns, str | Mapping | pa.Schema):
        return [_marked_fields([pa.field(f)], f)[0] if _of_others(f) else f for f in columns]
    return columns


def _of_others(value: object) -> bool:
    return hasattr(value, "__arrow_c_schema__") and not isinstance(value, pa.Schema | pa.Field | pa.DataType)


def _marked_fields(fields: Iterable[pa.Field], source: Any) -> list[pa.Field]:
    """The fields, marked with the types that Arrow lacks if ``source`` is a schema or field of deltalake."""
    if not hasattr(source, "to_json"):
        return list(fields)
    described = orjson.loads(source.to_json())
    schema = {"type": "struct", "fields": [described] if "name" in described else described["fields"]}
    types = parse_schema(orjson.dumps(schema).decode()).fields
    return [marked(f, column.type) for f, column in zip(fields, types, strict=True)]


def _column(f: pa.Field) -> StructField:
    """The column of an Arrow field, with the rule for missing values that its metadata has under the protocol's keys.

    Raises ``InvalidArgumentError`` for an invalid rule.
    """
    column = from_arrow(pa.schema([f])).fields[0]
    notes = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in (f.metadata or {}).items()}
    rules: dict[str, Any] = {k: notes[k] for k in (CURRENT_DEFAULT, GENERATION_EXPRESSION) if k in notes}
    if IDENTITY_START in notes or IDENTITY_STEP in notes:
        numbers = [notes.get(k, "1") for k in (IDENTITY_START, IDENTITY_STEP)]
        try:
            start, step = map(int, numbers)
        except ValueError as e:
            raise InvalidArgumentError(
                f"start and step of identity column {f.name!r} must be integers, got {numbers}", column=f.name
            ) from e
        explicit = notes.get(ALLOW_EXPLICIT_INSERT, "false").lower() == "true"
        rules = identity_metadata(start, step, explicit=explicit)
    return replace(column, metadata={**column.metadata, **rules})


def new_columns(columns: ColumnsLike) -> list[NewColumn]:
    """The columns, each with the path of its parent.  Raises ``InvalidArgumentError`` for anything else."""
    columns = as_arrow(columns)
    if isinstance(columns, pa.Schema):
        check_distinct(columns.names)
        return [NewColumn(_column(f)) for f in columns]
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
            out.append(NewColumn(_column(f)))
        elif isinstance(f, StructField):
            out.append(NewColumn(f))
        else:
            raise InvalidArgumentError(f"{f!r} is not a field", help="pass pyarrow fields, or types by name")
    return out
