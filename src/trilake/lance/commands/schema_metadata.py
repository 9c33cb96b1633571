"""Update the metadata of schema, columns and table, and the configuration, without touching rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from trilake.lance.commands.replan import replanned
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.effects import ANY_BYTES, configured
from trilake.lance.versions.manifest import Manifest

#: Maps of strings in a manifest: the configuration, and the metadata of the table and of the schema.
Maps = Literal["config", "table_metadata", "schema_metadata"]


def update_map(snapshot: Snapshot, name: Maps, changes: Any, *, replace_all: bool = False) -> Snapshot:
    """Set entries of a map; ``None`` removes an entry, and ``replace_all`` all that are not listed.

    Raises ``WrongTypeError`` unless keys and values are strings, ``ConflictError`` or ``WriteFailedError``.
    """
    _check(changes)

    def plan(current: Snapshot) -> op.Operation:
        update: dict[str, Any] = {name: op.MapUpdate(dict(changes), replace_all)}
        return _operation(current.manifest, op.UpdateConfig(**update))

    return replanned(snapshot, plan)


def _operation(manifest: Manifest, update: op.UpdateConfig) -> op.Operation:
    """Return the update; for a schema of the legacy format, whose readers do not know updates, the changed schema."""
    if not update.changes_schema or not manifest.storage_version.is_legacy:
        return update
    return op.Merge(manifest.fragments, configured(manifest, update).schema)


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
        by_id = {current.view.schema.field(name).id: entries for name, entries in changes.items()}
        errors, updates = ANY_BYTES if current.manifest.storage_version.is_legacy else "replace", {}
        for field in current.manifest.schema.walk():
            if field.id in by_id:
                kept = {
                    key.decode(): value.decode(errors=errors)
                    for key, value in field.metadata.items()
                    if replace_all and key.startswith(b"ARROW:extension:")
                }
                updates[field.id] = op.MapUpdate({**kept, **by_id[field.id]}, replace_all)
        return _operation(current.manifest, op.UpdateConfig(field_metadata=updates))

    return replanned(snapshot, plan)


def _check(changes: Any) -> None:
    if not isinstance(changes, Mapping):
        raise WrongTypeError(f"metadata must be a mapping, got {changes!r}", help='pass {"key": "value"}')
    for key, value in changes.items():
        if not isinstance(key, str) or not isinstance(value, str | None):
            raise WrongTypeError(f"metadata keys and values must be strings, got {key!r}: {value!r}")
