"""The metadata of a dataset, its schema and its columns, and its configuration, changed without writing any rows."""

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
    """Set entries of the schema's metadata to texts, and remove those that are ``None``.

    ``replace_all`` removes all others.

    Raises ``WrongTypeError`` for what is no text, ``ConflictError`` or ``WriteFailedError``.
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
    """Set entries of the metadata of columns, or of fields in them, by their names; otherwise as those of the schema.

    The names and parameters of extension types stay in any case: they are a part of the type.

    Raises ``UnknownColumnError``, too.
    """
    if not isinstance(changes, Mapping):
        raise WrongTypeError(f"the metadata are {changes!r}", help='pass {"column": {"name": "text"}}')
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
            own = {k: v for k, v in field.metadata.items() if not replace_all or k.startswith(b"ARROW:extension:")}
            return replace(field, children=children, metadata=_changed(own, by_id[field.id]))

        return op.Merge(current.manifest.fragments, replace(schema, fields=tuple(map(with_metadata, schema.fields))))

    return replanned_with_files(snapshot, make)


def _of_field(schema: LanceSchema, id: int, changes: Mapping[str, str | None], replace_all: bool) -> op.MapUpdate:
    """The change of a field's metadata, which leaves those of an extension type as they are."""
    field = schema.by_id(id)
    own = {} if field is None else field.metadata
    kept = {k.decode(): v.decode(errors="replace") for k, v in own.items() if k.startswith(b"ARROW:extension:")}
    return op.MapUpdate({**kept, **changes} if replace_all else dict(changes), replace_all)


def update_config(snapshot: Snapshot, changes: Any, *, replace_all: bool = False) -> Snapshot:
    """Set entries of the table's configuration, and remove those that are ``None``; errors as those of the schema."""
    _check(changes)
    return replanned_with_files(
        snapshot, lambda current, _: op.UpdateConfig(config=op.MapUpdate(dict(changes), replace_all))
    )


def update_metadata(snapshot: Snapshot, changes: Any, *, replace_all: bool = False) -> Snapshot:
    """Set entries of the table's metadata, and remove those that are ``None``; errors as those of the schema."""
    _check(changes)
    return replanned_with_files(
        snapshot, lambda current, _: op.UpdateConfig(table_metadata=op.MapUpdate(dict(changes), replace_all))
    )


def _check(changes: Any) -> None:
    """Raise ``WrongTypeError`` for what are no texts by name."""
    if not isinstance(changes, Mapping):
        raise WrongTypeError(f"the metadata are {changes!r}", help='pass {"name": "text"}')
    for key, value in changes.items():
        if not isinstance(key, str) or not isinstance(value, str | None):
            raise WrongTypeError(f"the metadata {key!r} is {value!r}", help="names and values are texts")


def _changed(entries: Mapping[bytes, bytes], changes: Mapping[str, str | None]) -> dict[bytes, bytes]:
    changed = dict(entries)
    for key, value in changes.items():
        changed.pop(key.encode(), None)
        if value is not None:
            changed[key.encode()] = value.encode()
    return changed
