"""The newest Iceberg metadata of a table, read without pyiceberg."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from trilake.delta.commit.symlink_manifest import format_path
from trilake.errors import ObjectNotFoundError
from trilake.storage.base import Store

FOLDER = "metadata"
HINT = f"{FOLDER}/version-hint.text"
#: Properties of the metadata, named as in delta-spark: the last converted version and its time.
VERSION, TIMESTAMP = "delta-version", "delta-timestamp"
#: Property of the metadata: the id of the Delta table that was converted.
TABLE_ID = "delta-table-id"
METADATA_KEY = re.compile(rf"{FOLDER}/v(\d+)\.metadata\.json")


@dataclass(frozen=True)
class Newest:
    """A metadata file: its number and bytes, ``0`` and no bytes if there is none, and its content as a JSON object."""

    number: int
    data: bytes = b""
    content: Mapping[str, Any] = field(default_factory=dict)

    @property
    def properties(self) -> Mapping[str, Any]:
        properties = self.content.get("properties")
        return properties if isinstance(properties, Mapping) else {}

    @property
    def version(self) -> int:
        """Its Delta version; -1 if unknown."""
        value = self.properties.get(VERSION, "")
        return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 19 else -1

    def is_of(self, table_id: str, location: str) -> bool:
        """Whether it belongs to the table at this location; a table that was moved is converted again."""
        return bool(self.properties.get(TABLE_ID) == table_id and self.content.get("location") == location)


def metadata_key(number: int) -> str:
    """The key of a metadata file."""
    return f"{FOLDER}/v{number}.metadata.json"


def metadata_location(store: Store) -> str:
    """The table's folder as Iceberg writes it: with three slashes, which every reader accepts."""
    path = format_path(store.uri)
    return f"file://{path.removeprefix('file:')}" if path.startswith("file:") else path


def newest_metadata(store: Store) -> Newest:
    """Read the newest metadata file.  The hint may be outdated, so higher numbers are tried, too."""
    hint = (content_at(store, HINT) or b"").strip()
    number = int(hint) if hint.isdigit() and len(hint) < 19 else 0
    content = content_at(store, metadata_key(number)) if number else None
    if content is None:
        number = max((int(m[1]) for o in store.list(FOLDER) if (m := METADATA_KEY.fullmatch(o.key))), default=0)
        content = content_at(store, metadata_key(number)) if number else None
    while content is not None and (later := content_at(store, metadata_key(number + 1))) is not None:
        number, content = number + 1, later
    try:
        json = orjson.loads(content or b"")
    except ValueError:
        json = None
    return Newest(number, content or b"", json if isinstance(json, dict) else {})


def content_at(store: Store, key: str) -> bytes | None:
    """The bytes of an object; ``None`` if it does not exist."""
    try:
        return bytes(store.read(key))
    except ObjectNotFoundError:
        return None
