"""The newest Iceberg metadata of a table, read without pyiceberg."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from trilake.errors import ObjectNotFoundError
from trilake.storage.base import Store

FOLDER = "metadata"
HINT = f"{FOLDER}/version-hint.text"
#: Properties of the metadata, as delta-spark names them: the last converted version and its time.
VERSION, TIMESTAMP = "delta-version", "delta-timestamp"
_METADATA = re.compile(rf"{FOLDER}/v(\d+)\.metadata\.json")


class Newest(NamedTuple):
    """A metadata file: its number and content; ``0`` and nothing where there is none."""

    number: int
    content: Mapping[str, Any]

    @property
    def version(self) -> int:
        """The Delta version that it is of, -1 where it does not say so."""
        properties = self.content.get("properties")
        text = properties.get(VERSION, "") if isinstance(properties, Mapping) else ""
        return int(text) if isinstance(text, str) and text.isdigit() and len(text) < 19 else -1


def metadata_key(number: int) -> str:
    """The key of a metadata file."""
    return f"{FOLDER}/v{number}.metadata.json"


def newest_metadata(store: Store) -> Newest:
    """Read the newest metadata file.  Raises ``ValueError`` where it is not a JSON object.

    The hint may be behind, so later numbers are tried as well.
    """
    number = _hinted(store)
    content = _content(store, number) if number else None
    if content is None:
        number = max((int(m[1]) for o in store.list(FOLDER) if (m := _METADATA.fullmatch(o.key))), default=0)
        content = _content(store, number) if number else None
    while content is not None and (later := _content(store, number + 1)) is not None:
        number, content = number + 1, later
    data = orjson.loads(content) if content is not None else {}
    if not isinstance(data, dict):
        raise ValueError(f"{metadata_key(number)} must be a JSON object, got {type(data).__name__}")
    return Newest(number, data)


def _hinted(store: Store) -> int:
    try:
        text = bytes(store.read(HINT)).strip()
    except ObjectNotFoundError:
        return 0
    return int(text) if text.isdigit() and len(text) < 19 else 0


def _content(store: Store, number: int) -> bytes | None:
    try:
        return bytes(store.read(metadata_key(number)))
    except ObjectNotFoundError:
        return None
