"""``REPLACE COLUMNS``: replace a table's columns, nested ones too, by a list.  A pure function.

Columns in both keep their values, with the position and comment of the list; columns only in the list are new, and
those only in the table are dropped.  The same holds for fields of structs at any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import orjson

from trilake.delta.metadata.schema_changes import (
    MetadataChange,
    NewColumn,
    add_columns,
    drop_columns,
    logged_column,
    with_schema,
)
from trilake.delta.metadata.type_changes import change_type
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.schema import (
    DataType,
    StructField,
    StructType,
    paired,
    with_parts,
)
from trilake.delta.protocol.schema_edit import Path, path_text
from trilake.delta.protocol.sql_types import with_limits
from trilake.errors import InvalidArgumentError, stating

_REFUSED = "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP"
_OF_TYPES: dict[str | None, str] = {
    "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP": _REFUSED,
    "NOT_SUPPORTED_CHANGE_COLUMN": _REFUSED,
}


@dataclass
class _Differences:
    """The differences between a list of columns and a table's columns."""

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
    """Replace the table's columns by a list; ``version`` is the version to be committed.

    Raises what ``add_columns`` and ``drop_columns`` raise, and ``InvalidArgumentError`` for an impossible change of
    a type or for a column that becomes NOT NULL.
    """
    target = StructType(tuple(columns))
    differences = _Differences()
    _compare(with_limits(metadata.schema), with_limits(target), (), differences)
    added = [c if c.parent else NewColumn(target.field(c.field.name)) for c in differences.added]
    change = MetadataChange(protocol, metadata, "REPLACE COLUMNS", {})
    if added:
        change = add_columns(change.protocol, change.metadata, added, new_id=new_id)
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
                _check_nullable(there, f, (*path, there.name))
                _compare(there.type, f.type, (*path, there.name), differences)
    elif (inside := paired(old, new)) is not None:
        for name, a, b in inside:
            _compare(a, b, (*path, name), differences)
    elif old != new:
        differences.retyped.append((path, new))


def _check_nullable(there: StructField, target: StructField, path: Path) -> None:
    if there.nullable and not target.nullable:
        raise InvalidArgumentError(
            f"column {path_text(path)} may be null, and REPLACE COLUMNS does not look whether it is",
            help="leave NOT NULL out, and set it with ALTER COLUMN ... SET NOT NULL",
            column=path_text(path),
            condition=_REFUSED,
        )


def _arranged(there: DataType, target: DataType) -> DataType:
    """A type with the field order and comments of another one with the same fields."""
    if isinstance(there, StructType) and isinstance(target, StructType):
        return StructType(_arranged_fields(there, target))
    inside = paired(there, target)
    return there if inside is None else with_parts(there, [_arranged(a, b) for _, a, b in inside])


def _arranged_fields(there: StructType, target: StructType) -> tuple[StructField, ...]:
    return tuple(_arranged_field(there.field(f.name), f) for f in target.fields)


def _arranged_field(there: StructField, target: StructField) -> StructField:
    comment = target.metadata.get("comment")
    metadata = there.metadata if comment is None else {**there.metadata, "comment": comment}
    return replace(there, type=_arranged(there.type, target.type), nullable=target.nullable, metadata=metadata)
