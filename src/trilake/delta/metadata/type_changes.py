"""Type changes of columns, as pure functions: type widening, and changed length limits of strings."""

from __future__ import annotations

from trilake.delta.metadata.schema_changes import MetadataChange, change_of_column, check_free_of_rules
from trilake.delta.protocol import type_widening
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.schema import DataType, PrimitiveType, StructType
from trilake.delta.protocol.schema_edit import Path, PathLike, edit_type, format_path, spelled, type_at
from trilake.delta.protocol.sql_types import with_limits, without_limits
from trilake.errors import InvalidArgumentError

#: Numeric types; Spark casts each of them to the later ones without loss.
_UPWARDS = ("byte", "short", "integer", "long", "float", "double")


def change_type(
    protocol: Protocol, metadata: Metadata, path: PathLike, kind: DataType, *, version: int, limit: str | None = None
) -> MetadataChange:
    """Widen a column's type; files stay unchanged.

    Parameters
    ----------
    path: may lead to an element, key or value as well.
    kind: the new type.
    version: the version to be committed.
    limit: ``varchar(n)`` if the new type is a string with that limit.

    Raises ``InvalidArgumentError`` without ``delta.enableTypeWidening``, for a change that the protocol does not
    allow, and if rules use the column.
    """
    old = with_limits(metadata.schema)
    names = spelled(old, path)
    column = _column_of(old, names)
    before = type_at(old, names)
    after: DataType = kind if limit is None else PrimitiveType(limit)
    if before == after:
        return change_of_column(protocol, metadata, metadata.schema, column)
    if not _relaxes(before, after):
        _check_widens(metadata, names, before, after)
    check_free_of_rules(metadata, column, "change the type of")
    plain = without_limits(edit_type(old, names, lambda _: after))
    noted = version if type_widening.only_preview(protocol) else None
    schema = type_widening.record_changes(metadata.schema, plain, version=noted)
    return change_of_column(protocol, metadata, schema, column)


def _column_of(schema: StructType, names: Path) -> Path:
    """The path without a trailing part inside arrays and maps."""
    while names[1:] and not isinstance(type_at(schema, names[:-1]), StructType):
        names = names[:-1]
    return names


def _check_widens(metadata: Metadata, names: Path, before: DataType, after: DataType) -> None:
    if not type_widening.can_widen(before, after):
        raise InvalidArgumentError(
            f"the type of column {format_path(names)} cannot change from {before} to {after}",
            help="types can only be widened; otherwise rewrite the column",
            column=format_path(names),
            condition="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"
            if _upcasts(before, after)
            else "NOT_SUPPORTED_CHANGE_COLUMN",
        )
    if not type_widening.enabled(metadata):
        raise InvalidArgumentError(
            f"the type of column {format_path(names)} can change from {before} to {after} only with type widening",
            help=f"set the table property {type_widening.ENABLED} to 'true' first",
            column=format_path(names),
            condition="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        )


def _upcasts(before: DataType, after: DataType) -> bool:
    """Whether Spark's analysis allows the change, so that Delta itself must refuse it."""
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
    limit = _limit(before, "varchar") or _limit(before, "char")
    if after.name == "string":
        return limit is not None
    new = _limit(after, "varchar")
    return limit is not None and new is not None and limit <= new


def _limit(t: PrimitiveType, kind: str) -> int | None:
    return int(t.name[len(kind) + 1 : -1]) if t.name.startswith(f"{kind}(") else None
