"""Checkpoints, compacted commits and checksums of a Delta log match the commits when they are written.

They are read here without the library: a checkpoint that lacks something is found although the commits before it are
still there, and the library would read those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.world import DAY_MS, Violation

if TYPE_CHECKING:
    from tests.simulation.delta.delta_history import DeltaHistory, Version
    from trilake.storage.memory import MemoryStore

FileId = tuple[str, str | None]
Action = tuple[str, dict[str, Any]]

#: The default of ``delta.deletedFileRetentionDuration``.
_RETENTION_MS = 7 * DAY_MS
_CHECKPOINT = re.compile(
    r"_delta_log/(\d{20})\.checkpoint(?:\.[0-9a-f-]{36})?(?:\.(\d{10})\.(\d{10}))?\.(?:parquet|json)\Z"
)
_COMPACTED = re.compile(r"_delta_log/(\d{20})\.(\d{20})\.compacted\.json\Z")
_CHECKSUM = re.compile(r"_delta_log/(\d{20})\.crc\Z")
_SIDECARS = "_delta_log/_sidecars/"


def file_id(action: Mapping[str, Any]) -> FileId:
    """Return the key of a file action: its path and the id of its deletion vector."""
    vector = action.get("deletionVector")
    id = None if not vector else f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"
    return unquote(action["path"]), id


def check_derived(history: DeltaHistory, key: str) -> None:
    """Check a written log file that is not a commit; raise :class:`Violation` if it differs from the commits."""
    if (match := _CHECKPOINT.match(key)) is not None:
        _check_checkpoint(history, key, match)
    elif (match := _COMPACTED.match(key)) is not None:
        _check_compacted(history, key, int(match[1]), int(match[2]))
    elif (match := _CHECKSUM.match(key)) is not None:
        _check_checksum(history, key, int(match[1]))


def check_sidecar_deleted(history: DeltaHistory, key: str) -> None:
    """Check that no existing checkpoint names a deleted sidecar."""
    store = history.world.place("t")
    for meta in store.list("_delta_log/") if key.startswith(_SIDECARS) else ():
        match = None if meta.key in history.rotten else _CHECKPOINT.match(meta.key)
        if match is not None and any(name == "sidecar" and _sidecar(d) == key for name, d in _actions(store, meta.key)):
            raise Violation(f"{key} was deleted, and {meta.key} names it")


def damageable(store: MemoryStore) -> list[str]:
    """Return checkpoints that may be damaged: top-level files, but no sidecars."""
    return [m.key for m in store.list("_delta_log/") if _CHECKPOINT.match(m.key)]


# --- checkpoints -----------------------------------------------------------------------------------------------------


def _check_checkpoint(history: DeltaHistory, key: str, match: re.Match[str]) -> None:
    version, store = _version(history, key, int(match[1])), history.world.place("t")
    keys = [key]
    if match[2] is not None:
        pattern = re.compile(rf"_delta_log/{match[1]}\.checkpoint\.\d{{10}}\.{match[3]}\.parquet\Z")
        keys = [m.key for m in store.list("_delta_log/") if pattern.match(m.key)]
        if len(keys) < int(match[3]) or history.rotten.keys() & set(keys):
            return  # the others follow
    actions = [a for k in keys for a in _actions(store, k)]
    for name, data in [a for a in actions if a[0] == "sidecar"]:
        del name
        if not _has(store, _sidecar(data)):
            raise Violation(f"{key} names {_sidecar(data)}, which is not in the store")
        actions += _actions(store, _sidecar(data))
    _same_files(f"{key}: add", version.live, [d for n, d in actions if n == "add"])
    _same_rare(key, version, actions)
    removes = {file_id(d) for n, d in actions if n == "remove"}
    if len(removes) < sum(n == "remove" for n, _ in actions):
        raise Violation(f"{key} has a tombstone twice")
    if foreign := removes - set(version.tombstones):
        raise Violation(f"{key} has tombstones of files that are live, or never were: {sorted(foreign, key=str)}")
    # A writer whose clock was ahead dropped more tombstones, and writers based on its checkpoint do not know them.
    cut = history.world.latest_clock - _RETENTION_MS
    young = {f for f, r in version.tombstones.items() if (r.get("deletionTimestamp") or 0) > cut}
    if lost := young - removes:
        raise Violation(f"{key} forgets the tombstones of {sorted(lost, key=str)}")


def _sidecar(data: Mapping[str, Any]) -> str:
    return _SIDECARS + unquote(data["path"]).rpartition("/")[2]


def _actions(store: MemoryStore, key: str) -> tuple[Action, ...]:
    """Read the actions of a JSON or Parquet file of the log."""
    return _parsed(bytes(store.read(key)), key.endswith(".json"))


@lru_cache(maxsize=16)
def _parsed(data: bytes, as_json: bool) -> tuple[Action, ...]:
    """Parse the actions once; parts and sidecars are checked again when others arrive."""
    if as_json:
        rows: Iterable[dict[str, Any]] = map(orjson.loads, data.splitlines())
    else:
        rows = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False).to_pylist()
    return tuple((n, d) for row in rows for n, d in row.items() if d is not None)


# --- the others ------------------------------------------------------------------------------------------------------


def _check_compacted(history: DeltaHistory, key: str, start: int, end: int) -> None:
    _version(history, key, end)
    last: dict[FileId, Action] = {}
    rare: dict[tuple[str, str], dict[str, Any]] = {}
    for version in history.versions[start : end + 1]:
        for name, data in version.actions:
            if name in ("add", "remove"):
                last[file_id(data)] = (name, data)
            elif name in _KEYS:
                rare[name, str(data.get(_KEYS[name]))] = data
    actions = _actions(history.world.place("t"), key)
    for kind in ("add", "remove"):
        expected = {i: d for i, (n, d) in last.items() if n == kind}
        _same_files(f"{key}: {kind}", expected, [d for n, d in actions if n == kind])
    found = {(n, str(d.get(_KEYS[n]))): d for n, d in actions if n in _KEYS}
    if found != rare or len(found) < sum(n in _KEYS for n, _ in actions):
        raise Violation(f"{key} says {found}, the commits {rare}")


def _check_checksum(history: DeltaHistory, key: str, number: int) -> None:
    version = _version(history, key, number)
    found = orjson.loads(bytes(history.world.place("t").read(key)))
    vectors = [add["deletionVector"] for add in version.live.values() if add.get("deletionVector")]
    expected = {
        "numFiles": len(version.live),
        "tableSizeBytes": sum(add["size"] for add in version.live.values()),
        "numDeletedRecordsOpt": sum(v["cardinality"] for v in vectors),
        "numDeletionVectorsOpt": len(vectors),
        "inCommitTimestampOpt": version.info.get("inCommitTimestamp"),
        "txnId": version.info.get("txnId"),
    }
    wrong = {n: found[n] for n, v in expected.items() if found.get(n) is not None and found[n] != v}
    if wrong:
        raise Violation(f"{key} says {wrong}, the commits {expected}")
    rare: list[Action] = [("protocol", found["protocol"]), ("metaData", found["metadata"])]
    _same_rare(key, version, rare, keyed=False)
    for name, kind, field in (("setTransactions", "txn", "appId"), ("domainMetadata", "domainMetadata", "domain")):
        if found.get(name) is not None and {d[field]: d for d in found[name]} != version.keyed[kind]:
            raise Violation(f"{key}: {name} is {found[name]}, the commits say {version.keyed[kind]}")


# --- comparing -------------------------------------------------------------------------------------------------------

#: Kinds with a single action or one per key, and the field of that key.
_KEYS = {"protocol": "", "metaData": "", "txn": "appId", "domainMetadata": "domain"}


def _version(history: DeltaHistory, key: str, number: int) -> Version:
    if number > history.newest:
        raise Violation(f"{key} was written, and the newest version is {history.newest}")
    return history.versions[number]


def _same_files(what: str, expected: Mapping[FileId, dict[str, Any]], actions: list[dict[str, Any]]) -> None:
    found = {file_id(d): d for d in actions}
    if len(found) < len(actions):
        raise Violation(f"{what}: a file is there twice")
    if found.keys() != expected.keys():
        lost, extra = expected.keys() - found.keys(), found.keys() - expected.keys()
        raise Violation(f"{what}: lacks {sorted(lost, key=str)}, has {sorted(extra, key=str)} too many")
    for id, data in found.items():
        if _comparable(data) != _comparable(expected[id]):
            raise Violation(f"{what}: {id} is {_comparable(data)}, the commits say {_comparable(expected[id])}")


def _comparable(action: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the fields of a file action that must be the same in every file."""
    vector = action.get("deletionVector") or {}
    fields = ("size", "modificationTime", "deletionTimestamp", "baseRowId", "defaultRowCommitVersion")
    return (
        sorted(dict(action.get("partitionValues") or {}).items()),
        *(action.get(f) for f in fields),
        vector.get("cardinality"),
        vector.get("sizeInBytes"),
    )


def _same_rare(key: str, version: Version, actions: list[Action], *, keyed: bool = True) -> None:
    for name in ("protocol", "metaData"):
        found = [_plain(d) for n, d in actions if n == name]
        expected = _plain(version.protocol if name == "protocol" else version.metadata)
        if found != [expected]:
            raise Violation(f"{key}: {name} is {found}, the commits say {expected}")
    for name in ("txn", "domainMetadata") if keyed else ():
        got = {d[_KEYS[name]]: _plain(d) for n, d in actions if n == name and not d.get("removed")}
        expected = {k: _plain(d) for k, d in version.keyed[name].items()}
        if got != expected:
            raise Violation(f"{key}: {name} is {got}, the commits say {expected}")


def _plain(value: Any) -> Any:
    """Return a value without null fields and with Parquet maps as objects."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if v is not None and v != {} and v != []}
    if isinstance(value, list) and value and all(isinstance(v, tuple) for v in value):
        return {k: _plain(v) for k, v in value}
    if isinstance(value, list):
        return sorted(value, key=str)
    return value


def _has(store: MemoryStore, key: str) -> bool:
    return store._root + key in store._space.objects
