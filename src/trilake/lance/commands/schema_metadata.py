"""Update the metadata of schema, columns and table, and the configuration, without touching rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from trilake.lance.commands.replan import replanned
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.schema import Field
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op

#: Maps of strings in a manifest: the configuration, and the metadata of the table and of the schema.
Maps = Literal["config", "table_metadata", "schema_metadata"]


def update_map(snapshot: Snapshot, name: Maps, changes: Any, *, replace_all: bool = False) -> Snapshot:
    """Set entries of a map; ``None`` removes an entry, and ``replace_all`` all that are not listed.

    Raises ``WrongTypeError`` unless keys and values are strings, ``ConflictError`` or ``WriteFailedError``.
    """
    _check(changes)

    def plan(current: Snapshot) -> op.Operation:
        schema = current.manifest.schema
        if name != "schema_metadata" or not current.manifest.storage_version.is_first:
            update: dict[str, Any] = {name: op.MapUpdate(dict(changes), replace_all)}
            return op.UpdateConfig(**update)
        entries = _changed({} if replace_all else schema.metadata, changes)
        return op.Merge(current.manifest.fragments, replace(schema, metadata=entries))

    return replanned(snapshot, plan)


def update_field_metadata(snapshot: Snapshot, changes: Any, *, replace_all: bool = False) -> Snapshot:
    """Set entries of the metadata of columns or nested fields, by name; see :func:`update_map`.

    Names and parameters of extension types are always kept, as they belong to the type.

    Also raises ``UnknownColumnError``.
    """
    if not isinstance(changes, Mapping):
        raise WrongTypeError(
            f"field metadata must be a mapping, got {changes!r}", help='pass {"column": {"key": "value"}}'
        )
    for entries in changes.values():
        _check(entries)

    def plan(current: Snapshot) -> op.Operation:
        schema = current.manifest.schema
        by_id = {current.view.schema.field(name).id: entries for name, entries in changes.items()}
        if not current.manifest.storage_version.is_first:
            updates = {}
            for field in schema.walk():
                if field.id in by_id:
                    kept = {k.decode(): v.decode(errors="replace") for k, v in _kept(field).items()}
                    updates[field.id] = op.MapUpdate({**(kept if replace_all else {}), **by_id[field.id]}, replace_all)
            return op.UpdateConfig(field_metadata=updates)

        def with_metadata(field: Field) -> Field:
            children, metadata = tuple(map(with_metadata, field.children)), field.metadata
            if field.id in by_id:
                metadata = _changed(_kept(field) if replace_all else metadata, by_id[field.id])
            return replace(field, children=children, metadata=metadata)

        return op.Merge(current.manifest.fragments, replace(schema, fields=tuple(map(with_metadata, schema.fields))))

    return replanned(snapshot, plan)


def _kept(field: Field) -> dict[bytes, bytes]:
    """Return the metadata of an extension type."""
    return {k: v for k, v in field.metadata.items() if k.startswith(b"ARROW:extension:")}


def _check(changes: Any) -> None:
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
