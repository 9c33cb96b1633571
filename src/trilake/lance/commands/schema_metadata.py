"""Update the metadata of schema, columns and table, and the configuration, without touching rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trilake.lance.commands.replan import replanned_with_files
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import Fragment


def update_schema_metadata(snapshot: Snapshot, changes: Any, *, replace_all: bool = False) -> Snapshot:
    """Set entries of the schema metadata; ``None`` removes an entry.

    ``replace_all`` removes all entries that are not listed.

    Raises ``WrongTypeError`` unless keys and values are strings, ``ConflictError`` or ``WriteFailedError``.
    """
    _check(changes)

    def make(current: Snapshot, _: list[Fragment]) -> op.Operation:
        schema = current.manifest.schema
        if not current.manifest.storage_version.is_first:
            return op.UpdateConfig(schema_metadata=op.MapUpdate(dict(changes), replace_all))
        entries = _changed({} if replace_all else schema.metadata, changes)
        return op.Merge(current.manifest.fragments, replace(schema, metadata=entries))

    return replanned_with_files(snapshot, make)


def update_field_metadata(snapshot: Snapshot, changes: Any, *, replace_all: bool = False) -> Snapshot:
    """Set entries of the metadata of columns or nested fields, by name; see :func:`update_schema_metadata`.

    Names and parameters of extension types are always kept, as they belong to the type.

    Also raises ``UnknownColumnError``.
    """
    if not isinstance(changes, Mapping):
        raise WrongTypeError(
            f"field metadata must be a mapping, got {changes!r}", help='pass {"column": {"key": "value"}}'
        )
    for entries in changes.values():
        _check(entries)

    def make(current: Snapshot, _: list[Fragment]) -> op.Operation:
        schema = current.manifest.schema
        by_id = {current.view.schema.field(name).id: entries for name, entries in changes.items()}
        if not current.manifest.storage_version.is_first:
            return op.UpdateConfig(field_metadata={id: _of_field(schema, id, by_id[id], replace_all) for id in by_id})

        def with_metadata(field: Field) -> Field:
            children = tuple(map(with_metadata, field.children))
            if field.id not in by_id:
                return replace(field, children=children)
            extension = {
                k: v for k, v in field.metadata.items() if not replace_all or k.startswith(b"ARROW:extension:")
            }
            return replace(field, children=children, metadata=_changed(extension, by_id[field.id]))

        return op.Merge(current.manifest.fragments, replace(schema, fields=tuple(map(with_metadata, schema.fields))))

    return replanned_with_files(snapshot, make)


def _of_field(schema: LanceSchema, id: int, changes: Mapping[str, str | None], replace_all: bool) -> op.MapUpdate:
    """Return the change of a field's metadata; keeps that of an extension type."""
    field = schema.by_id(id)
    metadata = {} if field is None else field.metadata
    extension = {
        k.decode(): v.decode(errors="replace") for k, v in metadata.items() if k.startswith(b"ARROW:extension:")
    }
    return op.MapUpdate({**extension, **changes} if replace_all else dict(changes), replace_all)


def update_config(snapshot: Snapshot, changes: Any, *, replace_all: bool = False) -> Snapshot:
    """Set entries of the configuration; see :func:`update_schema_metadata`."""
    _check(changes)
    return replanned_with_files(
        snapshot, lambda current, _: op.UpdateConfig(config=op.MapUpdate(dict(changes), replace_all))
    )


def update_metadata(snapshot: Snapshot, changes: Any, *, replace_all: bool = False) -> Snapshot:
    """Set entries of the table metadata; see :func:`update_schema_metadata`."""
    _check(changes)
    return replanned_with_files(
        snapshot, lambda current, _: op.UpdateConfig(table_metadata=op.MapUpdate(dict(changes), replace_all))
    )


def _check(changes: Any) -> None:
    """Raise ``WrongTypeError`` unless ``changes`` is a mapping from strings to strings or ``None``."""
    if not isinstance(changes, Mapping):
        raise WrongTypeError(f"metadata must be a mapping, got {changes!r}", help='pass {"key": "value"}')
    for key, value in changes.items():
        if not isinstance(key, str) or not isinstance(value, str | None):
            raise WrongTypeError(f"metadata keys and values must be strings, got {key!r}: {value!r}")


def _changed(entries: Mapping[bytes, bytes], changes: Mapping[str, str | None]) -> dict[bytes, bytes]:
    changed = dict(entries)
    for key, value in changes.items():
        changed.pop(key.encode(), None)
        if value is not None:
            changed[key.encode()] = value.encode()
    return changed
