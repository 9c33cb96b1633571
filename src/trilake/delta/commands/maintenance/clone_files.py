"""The files of a clone: referenced (shallow) or copied (deep).

A repeated deep clone copies only new files.  A file is not copied again if the target has one with the same path
(ignoring the suffix that a clone adds), size, modification time, statistics and deletion vector.  Copies have unique
names, so concurrent clones neither overwrite nor delete each other's files.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.progress import progress
from trilake.delta.commands.maintenance.vacuum_listing import list_files
from trilake.delta.commands.rows.row_changes import Runner
from trilake.delta.commit.transaction import add_action
from trilake.delta.files.file_plan import encode_path
from trilake.delta.files.place import COPY_MARK
from trilake.delta.log.snapshot import Snapshot, decoded_paths
from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor, z85_encode
from trilake.delta.protocol.partitions import hive_directory
from trilake.delta.scan.read import locate
from trilake.errors import CorruptFileError, MissingFileError, ObjectNotFoundError
from trilake.storage.base import Store
from trilake.storage.ownership import discard
from trilake.storage.uri import is_absolute

#: Bytes copied at a time, from remote stores and from disks.  A mapped piece that fits in the CPU cache takes half the
#: time.
_PIECE, _LOCAL_PIECE = 8 << 20, 1 << 20
_COPIED = re.compile(rf"(?<![^/]){COPY_MARK}(?=[^/]*\Z)")
#: A clone gives its rows new ids.
_FRESH = {"baseRowId": None, "defaultRowCommitVersion": None, "dataChange": True}


def shallow_adds(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The snapshot's files with absolute paths, for a table elsewhere; so are the paths of vectors."""
    root = snapshot.uri.rstrip("/")
    paths = decoded_paths(snapshot.adds["path"]).to_pylist()
    out = []
    for row, path in zip(snapshot.adds.to_pylist(), paths, strict=True):
        absolute = row["path"] if is_absolute(path) else f"{root}/{encode_path(path)}"
        vector = DeletionVectorDescriptor.from_json(row["deletionVector"])
        if vector is not None and vector.storage_type == "u":
            place = f"{root}/{encode_path(vector.relative_path())}"
            out.append(add_action(row, **_FRESH, path=absolute, deletionVector=_moved(row, "p", place)))
        else:
            out.append(add_action(row, **_FRESH, path=absolute))
    return out


def _moved(row: Mapping[str, Any], kind: str, place: str) -> dict[str, Any]:
    vector = {k: v for k, v in row["deletionVector"].items() if v is not None}
    return {**vector, "storageType": kind, "pathOrInlineDv": place}


@dataclass(frozen=True)
class Copy:
    """One file to copy: ``source`` is a decoded path of the source's log, ``target`` a key of the target.

    ``size`` in bytes is the size in the log, ``None`` if unknown.
    """

    source: str
    target: str
    size: int | None


@dataclass(frozen=True)
class DeepPlan:
    """What a deep clone copies, the actions that name the copies, and which files of the target stay."""

    copies: tuple[Copy, ...]
    adds: tuple[Mapping[str, Any], ...]
    staying: frozenset[str]

    @property
    def sizes(self) -> list[int]:
        return [c.size for c in self.copies if c.size is not None]


@dataclass
class _Planner:
    there: Mapping[str, int]
    new_id: Callable[[], str]
    copies: dict[str, Copy] = field(default_factory=dict)
    vectors: dict[str, str] = field(default_factory=dict)

    def place(self, source: str, preferred: str, size: int | None) -> str:
        folder, _, name = preferred.rpartition("/")
        name = f"copy-{uuid.UUID(self.new_id()).hex}-{name}"
        key = f"{folder}/{name}" if folder else name
        self.copies[key] = Copy(source, key, size)
        return key

    def vector(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """The descriptor of a vector in the target; plans one copy of its file."""
        descriptor = DeletionVectorDescriptor.from_json(row["deletionVector"])
        if descriptor is None or descriptor.storage_type not in ("u", "p"):
            return None if descriptor is None else {k: v for k, v in row["deletionVector"].items() if v is not None}
        source = (
            descriptor.relative_path() if descriptor.storage_type == "u" else _decoded(descriptor.path_or_inline_dv)
        )
        if source not in self.vectors:
            self.vectors[source] = self._vector_path(source, descriptor)
        return _moved(row, "u", self.vectors[source])

    def _vector_path(self, source: str, descriptor: DeletionVectorDescriptor) -> str:
        if descriptor.storage_type == "u":
            prefix, vector_id = descriptor.path_or_inline_dv[:-20], _vector_uuid(source)
        else:
            prefix, vector_id = "", uuid.uuid5(uuid.NAMESPACE_URL, source)
        key = "/".join(p for p in (prefix, f"deletion_vector_{vector_id}.bin") if p)
        # Vector files have random names and never change: a file with the same name is the same file.
        if key not in self.there and key not in self.copies:
            self.copies[key] = Copy(source, key, None)
        return prefix + z85_encode(vector_id.bytes)


def _vector_uuid(path: str) -> uuid.UUID:
    return uuid.UUID(path.rpartition("deletion_vector_")[2].removesuffix(".bin"))


def _decoded(path: str) -> str:
    decoded: str = decoded_paths(pa.chunked_array([[path]], pa.string()))[0].as_py()
    return decoded


def plan_copies(source: Snapshot, target: Store, base: Snapshot | None, new_id: Callable[[], str]) -> DeepPlan:
    """Plan what a deep clone of ``source`` into ``target``, which is at version ``base``, must copy."""
    listing = list_files(target)
    there = dict(zip(listing["path"].to_pylist(), listing["size"].to_pylist(), strict=True))
    planner = _Planner(there, new_id)
    by_identity = {} if base is None else _known(base)
    adds, staying = [], set()
    paths = decoded_paths(source.adds["path"]).to_pylist()
    for row, path in zip(source.adds.to_pylist(), paths, strict=True):
        preferred, vector = _below(row, path), planner.vector(row)
        same = by_identity.get(_identity(row, encode_path(preferred)))
        if same is None or there.get(_decoded(same["path"])) != row["size"]:
            key = planner.place(path, preferred, row["size"])
            adds.append(add_action(row, **_FRESH, path=encode_path(key), deletionVector=vector))
        elif _mark(same["deletionVector"]) == _mark(vector) and same["stats"] == row["stats"]:
            staying.add(same["path"])
        else:  # the same rows, some deleted since: they keep their ids
            ids = {k: same[k] for k in ("baseRowId", "defaultRowCommitVersion")}
            adds.append(add_action(row, **{**_FRESH, **ids}, path=same["path"], deletionVector=vector))
    return DeepPlan(tuple(planner.copies.values()), tuple(adds), frozenset(staying))


def _known(base: Snapshot) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The target's files by the identity of the source files that they copy."""
    rows = base.adds.to_pylist()
    copied = {_identity(r, _COPIED.sub("", r["path"])): r for r in rows}
    return copied | {_identity(r, r["path"]): r for r in rows}


def _below(row: Mapping[str, Any], path: str) -> str:
    """The key of a file in a table that stores its own files."""
    if not is_absolute(path):
        return path
    mark = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    folder = hive_directory(dict(row["partitionValues"] or ()))
    name = f"{mark}-{path.rpartition('/')[2]}"
    return f"{folder}/{name}" if folder else name


def _identity(row: Mapping[str, Any], path: str) -> tuple[Any, ...]:
    """The identity of a data file, which its copies share."""
    statistics = row["stats"]
    with suppress(orjson.JSONDecodeError):
        # A vector changes nothing but whether the bounds are tight.
        stats = orjson.loads(statistics or "null")
        if isinstance(stats, dict):
            statistics = orjson.dumps({k: v for k, v in stats.items() if k != "tightBounds"})
    partition = tuple(sorted(dict(row["partitionValues"] or ()).items(), key=str))
    return (path, row["size"], row["modificationTime"], statistics, partition)


def _mark(vector: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A vector's descriptor without null fields."""
    return None if vector is None else {k: v for k, v in vector.items() if v is not None}


@dataclass(frozen=True)
class _Copying:
    source: Store
    target: Store

    def __call__(self, copies: Sequence[Copy]) -> int:
        for copy in copies:
            copy_file(self.source, self.target, copy)
        return len(copies)


def copy_file(source: Store, target: Store, copy: Copy) -> None:
    """Copy one file from store to store.

    Raises ``MissingFileError`` if it does not exist, ``CorruptFileError`` if its size differs from the log.
    """
    store, key = locate(source, copy.source)
    most = _PIECE if store.local_path(key) is None else _LOCAL_PIECE
    try:
        with store.open_input(key) as file, target.open_output(copy.target) as out:
            copied = 0
            while piece := file.read_buffer(most):
                out.write(memoryview(piece))
                copied += piece.size
            if copy.size is not None and copied != copy.size:
                raise CorruptFileError(
                    f"the file has {copied} bytes, but the log says {copy.size}",
                    help="restore the file, or clone a version without it",
                    file=f"{store.uri}/{key}",
                )
    except ObjectNotFoundError as e:
        raise MissingFileError(
            "a file of the source table is missing", file=f"{store.uri}/{key}", path=copy.source
        ) from e


def copy_all(source: Store, target: Store, copies: Sequence[Copy], run: Runner) -> None:
    """Copy files, several at a time.  If the clone fails, the copies are deleted."""
    # Largest first, so that workers finish at about the same time.
    ordered = sorted(copies, key=lambda c: -(c.size or 0))
    try:
        with progress("clone", len(ordered)) as bar:
            for count in run(_Copying(source, target), [[c] for c in ordered]):
                bar.advance(count)
    except Exception:  # whatever a worker raised
        discard(target, unshared(copies))
        raise


def unshared(copies: Sequence[Copy]) -> list[str]:
    """The copies that no other clone references: not vectors, which have the same name in every clone."""
    return [c.target for c in copies if c.size is not None]


def not_staying(base: Snapshot, staying: frozenset[str]) -> pa.Table:
    """The files of a version that are not among ``staying``; both as the log spells paths."""
    return base.adds.filter(pc.invert(pc.is_in(base.adds["path"], pa.array(sorted(staying), pa.string()))))
