"""``REPLACE COLUMNS``: a table's columns, nested ones too, as a list says them.  A pure function.

What is there by name stays, with its values, in the place and with the comment that the list says; what the list alone
has is new, what the table alone has goes.  The same holds inside structs, wherever they are.
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
    """What a list of columns has that the table has not, and the other way round."""

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
    """Give the table a list of columns; ``version`` is the version to be committed.

    Raises as ``add_columns`` and ``drop_columns``, and ``InvalidArgumentError`` for a type that a column cannot get and
    for one that is not to be null any more.
    """
    wanted = StructType(tuple(columns))
    found = _Differences()
    _compare(with_limits(metadata.schema), with_limits(wanted), (), found)
    added = [c if c.parent else NewColumn(wanted.field(c.field.name)) for c in found.added]
    change = MetadataChange(protocol, metadata, "REPLACE COLUMNS", {})
    if added:
        change = add_columns(change.protocol, change.metadata, added, new_id=new_id)
    if found.dropped:
        change = drop_columns(change.protocol, change.metadata, found.dropped, clustering=clustering)
    for path, kind in found.retyped:
        with stating(_OF_TYPES):
            change = change_type(change.protocol, change.metadata, path, kind, version=version)
    fields = _arranged_fields(change.metadata.schema, wanted)
    parameters = {"columns": orjson.dumps([logged_column((f.name,), f) for f in fields]).decode()}
    return with_schema(
        change.protocol, change.metadata, StructType(fields), "REPLACE COLUMNS", parameters, new_id=new_id
    )


def _compare(old: DataType, new: DataType, path: Path, found: _Differences) -> None:
    if isinstance(old, StructType) and isinstance(new, StructType):
        found.dropped += [(*path, f.name) for f in old.fields if new.find(f.name) is None]
        for f in new.fields:
            there = old.find(f.name)
            if there is None:
                found.added.append(NewColumn(f, path))
            else:
                _check_nullable(there, f, (*path, there.name))
                _compare(there.type, f.type, (*path, there.name), found)
    elif (inside := paired(old, new)) is not None:
        for name, a, b in inside:
            _compare(a, b, (*path, name), found)
    elif old != new:
        found.retyped.append((path, new))


def _check_nullable(there: StructField, wanted: StructField, path: Path) -> None:
    if there.nullable and not wanted.nullable:
        raise InvalidArgumentError(
            f"column {path_text(path)} may be null, and REPLACE COLUMNS does not look whether it is",
            help="leave NOT NULL out, and set it with ALTER COLUMN ... SET NOT NULL",
            column=path_text(path),
            condition=_REFUSED,
        )


def _arranged(there: DataType, wanted: DataType) -> DataType:
    """A type with its fields in the places, and with the comments, of another that has the same ones."""
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        return StructType(_arranged_fields(there, wanted))
    inside = paired(there, wanted)
    return there if inside is None else with_parts(there, [_arranged(a, b) for _, a, b in inside])


def _arranged_fields(there: StructType, wanted: StructType) -> tuple[StructField, ...]:
    return tuple(_arranged_field(there.field(f.name), f) for f in wanted.fields)


def _arranged_field(there: StructField, wanted: StructField) -> StructField:
    comment = wanted.metadata.get("comment")
    metadata = there.metadata if comment is None else {**there.metadata, "comment": comment}
    return replace(there, type=_arranged(there.type, wanted.type), nullable=wanted.nullable, metadata=metadata)
