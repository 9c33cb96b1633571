"""The metadata of a dataset's schema, changed without writing any rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trilake.lance.commands.replan import replanned_with_files
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import Fragment


def update_schema_metadata(snapshot: Snapshot, changes: Any, *, replace_all: bool = False) -> Snapshot:
    """Set entries of the schema's metadata to texts, and remove those that are ``None``.

    ``replace_all`` removes all others.

    Raises ``WrongTypeError`` for what is no text, ``ConflictError`` or ``WriteFailedError``.
    """
    if not isinstance(changes, Mapping):
        raise WrongTypeError(f"the metadata are {changes!r}", help='pass {"name": "text"}')
    for key, value in changes.items():
        if not isinstance(key, str) or not isinstance(value, str | None):
            raise WrongTypeError(f"the metadata {key!r} is {value!r}", help="names and values are texts")

    def make(current: Snapshot, _: list[Fragment]) -> op.Operation:
        schema = current.manifest.schema
        entries = {} if replace_all else dict(schema.metadata)
        for key, value in changes.items():
            entries.pop(key.encode(), None)
            if value is not None:
                entries[key.encode()] = value.encode()
        return op.Merge(current.manifest.fragments, replace(schema, metadata=entries))

    return replanned_with_files(snapshot, make)
