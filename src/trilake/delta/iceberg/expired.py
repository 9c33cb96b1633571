"""Delete old metadata files, and the manifests and manifest lists that only they reference.

The remaining metadata files stay complete.  A snapshot keeps some manifests of the previous snapshot and adds new ones.
So a manifest that an expired snapshot shares with any remaining snapshot is also in the oldest remaining one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import orjson

from trilake.delta.iceberg.avro import DamagedFileError, File
from trilake.delta.iceberg.newest import FOLDER, content_at, exists, metadata_key
from trilake.errors import ObjectNotFoundError
from trilake.storage.base import Store

_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MANIFEST = re.compile(rf"{_ID}-m\d+\.avro")
_NAMED_LIST = re.compile(rf'"[^"]*/{FOLDER}/(snap-\d+-0-{_ID}\.avro)"'.encode())
#: Objects read at once, and the most metadata files that an interrupted call may have left.
_BATCH, _LEFT = 16, 1000


def delete_expired(store: Store, numbers: Sequence[int], oldest: int, used: Iterable[str]) -> None:
    """Delete the metadata files ``numbers``, all below ``oldest``, the oldest one that stays.

    ``used`` are the manifests of the newest snapshot.  Manifests are deleted first and metadata files last, from the
    oldest on, so that the next call can complete an interrupted one.  If a remaining file cannot be read, nothing is
    deleted.
    """
    dropped = sorted(numbers)
    while dropped[0] > 1 and len(dropped) < _LEFT and exists(store, metadata_key(dropped[0] - 1)):
        dropped.insert(0, dropped[0] - 1)
    lists = {name for content in _contents(store, map(metadata_key, dropped)) for name in _NAMED_LIST.findall(content)}
    try:
        snapshots = orjson.loads(bytes(store.read(metadata_key(oldest))))["snapshots"]
        stay = {_name(s["manifest-list"]): s["sequence-number"] for s in snapshots}
        expired = sorted(_key(name) for name in map(bytes.decode, lists) if name not in stay)
        if expired:
            first = File(bytes(store.read(_key(min(stay, key=stay.__getitem__)))))
            kept = {_name(path) for path in (*used, *_manifests(first))}
            named = {_name(path) for file in _lists(store, expired) for path in _manifests(file.without(first))}
            store.delete(_key(name) for name in sorted(named - kept) if _MANIFEST.fullmatch(name))
    except (ValueError, LookupError, TypeError, AttributeError, DamagedFileError, ObjectNotFoundError):
        return
    store.delete([*expired, *map(metadata_key, dropped)])


def _lists(store: Store, keys: Iterable[str]) -> Iterator[File]:
    for content in _contents(store, keys):
        with suppress(DamagedFileError):
            yield File(content)


def _contents(store: Store, keys: Iterable[str]) -> Iterator[bytes]:
    """The objects that still exist."""
    calls = [partial(content_at, store, key) for key in keys]
    for i in range(0, len(calls), _BATCH):
        yield from (content for content in store.at_once(calls[i : i + _BATCH]) if content is not None)


def _manifests(manifest_list: File) -> Iterator[str]:
    return (str(record["manifest_path"]) for record in manifest_list.records())


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _key(name: str) -> str:
    return f"{FOLDER}/{name}"
