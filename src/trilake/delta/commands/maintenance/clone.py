"""CLONE: a new table, or a new version of one, with the rows of another table at some version.

A shallow clone references the source's files and depends on them forever.  A deep clone copies them.  Properties,
schema, constraints, partitioning and clustering are cloned; history and row ids are not.  An existing target keeps its
history, id and protocol features.

A repeated deep clone copies only new files.  A file stays if the target has it with the same path (ignoring the suffix
that a clone adds), size, time, statistics and vector.  Copies have unique names, so concurrent clones neither overwrite
nor delete each other's files.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.display import Displayed
from trilake.common.progress import track
from trilake.common.runtime import Runtime
from trilake.delta.commands.maintenance.convert import convert_to_delta
from trilake.delta.commands.maintenance.restore import (
    PROTECTED_BEFORE,
    clustering_configuration,
    total_size,
    with_marks_of,
)
from trilake.delta.commands.maintenance.vacuum_files import list_files
from trilake.delta.commands.optimize.metrics import as_row
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.symlink_manifest import format_path
from trilake.delta.commit.transaction import CommitPlan, add_action, commit, remove_action
from trilake.delta.engine import Engine
from trilake.delta.files.file_plan import encode_path
from trilake.delta.files.new_location import COPY_MARK, check_new_location
from trilake.delta.log.clustering import DOMAIN
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot, decoded_paths
from trilake.delta.metadata.property_changes import prepared
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor, z85_encode
from trilake.delta.protocol.features import check_writable, features_of, upgrade_protocol, upgraded, with_features
from trilake.delta.protocol.partitions import hive_directory
from trilake.delta.protocol.properties import ParsedProperties, parse_properties
from trilake.delta.protocol.schema import StructField
from trilake.delta.protocol.table_features import in_commit_timestamp
from trilake.delta.scan.read import locate
from trilake.errors import (
    ConflictError,
    CorruptFileError,
    InvalidArgumentError,
    MissingFileError,
    ObjectNotFoundError,
    TableExistsError,
    TableNotFoundError,
)
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore
from trilake.storage.ownership import discard
from trilake.storage.uri import is_absolute


@dataclass(frozen=True)
class CloneResult(Displayed):
    """What a clone did; sizes in bytes.

    ``version`` is the version of the target, ``source_version`` that of the source.  Files that a repeated deep clone
    reuses count as neither copied nor removed.

    >>> import trilake
    >>> _ = trilake.write({"n": [1]}, "memory://doc-clone-result")
    >>> done = trilake.open("memory://doc-clone-result").clone("memory://doc-clone-result-2")
    >>> done.version, done.num_copied_files
    (0, 1)
    """

    version: int
    source_version: int
    source_table_size: int
    source_num_of_files: int
    num_removed_files: int
    num_copied_files: int
    removed_files_size: int
    copied_files_size: int


def clone(
    source: Snapshot,
    from_log: DeltaLog,
    into: DeltaLog,
    *,
    shallow: bool = False,
    replace_target: bool = False,
    properties: Mapping[str, str] | None = None,
    parquet: str | None = None,
    name: str | None = None,
    run: Runner = run_here,
) -> CloneResult:
    """Make the table ``into`` a copy of the version ``source`` of the table with ``from_log``.

    Parameters
    ----------
    shallow: reference the source's files instead of copying them.
    replace_target: replace the rows and schema of an existing table; its history stays.
    properties: table properties that add to or override the source's.
    parquet: the folder of Parquet files that the source was converted from, if it is not a Delta table.
    name: the source's catalog name, for the history.

    Raises ``TableExistsError`` if the target exists and may not be replaced, ``MissingFileError`` if files of the
    source are gone, ``InvalidArgumentError`` for invalid properties and for a target inside the source or vice versa,
    ``ConflictError`` if another writer has changed the target.
    """
    runtime = into.engine.runtime
    _check_apart(parquet or source.uri, into.store.uri)
    base = _target(into, replace_target)
    if base is None:
        check_new_location(into.store, now_ms=runtime.clock_ms())
    effects = parse_properties(properties or {})
    metadata = _cloned_metadata(source.metadata, None if base is None else base.metadata, effects, runtime)
    protocol = _protocol(source.protocol, base, metadata, effects)
    version = 0 if base is None else base.version + 1
    check_writable(protocol, uri=into.store.uri, version=version)
    if shallow:
        files = ClonedFiles((), tuple(_shallow_adds(source)), frozenset())
    else:
        # Files without row ids cannot stay if the table starts to require them.
        stays = base is not None and row_tracking.supported(protocol) == row_tracking.supported(base.protocol)
        files = _plan_copies(source, into.store, base if stays else None, runtime.new_id)
        _copy(files, from_log.store, into.store, run)
    removed = source.adds.slice(0, 0)
    if base is not None:
        staying = pc.is_in(base.adds["path"], pa.array(sorted(files.staying), pa.string()))
        removed = base.adds.filter(pc.invert(staying))
    result = CloneResult(
        version=version,
        source_version=source.version,
        source_table_size=total_size(source.adds),
        source_num_of_files=source.adds.num_rows,
        num_removed_files=removed.num_rows,
        num_copied_files=len(files.sizes),
        removed_files_size=total_size(removed),
        copied_files_size=sum(files.sizes),
    )
    path_name = f"delta.`{format_path(source.uri)}`" if parquet is None else f"parquet.`{parquet}`"
    now = runtime.clock_ms()
    actions = [*(remove_action(row, now) for row in removed.to_pylist()), *files.adds]
    plan = _plan(source, name or path_name, base, metadata, protocol, actions, result)
    try:
        return replace(result, version=commit(into, base, plan))
    except (ConflictError, TableExistsError, InvalidArgumentError) as e:
        discard(into.store, files.unshared)
        if not (replace_target and isinstance(e, TableExistsError)):
            raise
    # Another writer created a table here: replace it.
    options: dict[str, Any] = {"shallow": shallow, "properties": properties, "parquet": parquet, "name": name}
    return clone(source, from_log, into, replace_target=True, **options, run=run)


def _copy(files: ClonedFiles, source: Store, target: Store, run: Runner) -> None:
    # Largest first, so that workers finish at about the same time.
    ordered = sorted(files.copies, key=lambda c: -(c.size or 0))
    try:
        for _ in track(run(partial(_copy_file, source, target), ordered), "clone", len(ordered)):
            pass
    except Exception:  # whatever a worker raised
        discard(target, files.unshared)
        raise


def _check_apart(source: str, target: str) -> None:
    a, b = source.rstrip("/") + "/", target.rstrip("/") + "/"
    if a.startswith(b) or b.startswith(a):
        raise InvalidArgumentError(
            f"a table cannot be cloned into {'itself' if a == b else 'a folder inside the other table'}",
            help="choose another location: vacuum of one table would delete files of the other",
            source=source,
            target=target,
            condition="DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE",
        )


def _target(into: DeltaLog, replace_target: bool) -> Snapshot | None:
    try:
        base = into.snapshot()
    except TableNotFoundError:
        return None
    if not replace_target:
        raise TableExistsError(
            "a Delta table already exists at this location",
            help="pass replace=True to replace the table; its history is kept",
            file=into.store.uri,
            version=base.version,
            condition="DELTA_UNSUPPORTED_NON_EMPTY_CLONE",
        )
    base.check_writable()
    if base.adds.num_rows:
        base.check_removable(so="it cannot be replaced")
    return base


def _cloned_metadata(source: Metadata, base: Metadata | None, parsed: ParsedProperties, runtime: Runtime) -> Metadata:
    """The target's metadata: the source's, except for what the target keeps, such as its id and high-water marks.

    Raises ``InvalidArgumentError`` if column mapping would change.
    """
    # The row ids in these columns belong to the source, so the target must not read them.
    ids = {row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN}
    times = {in_commit_timestamp.SINCE_VERSION, in_commit_timestamp.SINCE_TIME}
    not_cloned = {PROTECTED_BEFORE, *ids, *times}
    configuration = {k: v for k, v in source.configuration.items() if k not in not_cloned} | dict(parsed.values)
    metadata = replace(
        source,
        id=runtime.new_id() if base is None else base.id,
        name=None if base is None else base.name,
        description=source.description if base is None else base.description,
        created_time=runtime.clock_ms() if base is None else base.created_time,
        configuration=configuration,
    )
    if base is not None:
        metadata = replace(metadata, schema_string=with_marks_of(source.schema, base.schema).json())
        both = in_commit_timestamp.enabled(base) and in_commit_timestamp.enabled(metadata)
        own_properties = {k: v for k, v in base.configuration.items() if k in not_cloned and (both or k not in times)}
        metadata = replace(metadata, configuration={**configuration, **own_properties})
    for other in (source, *([base] if base is not None else [])):
        if other.column_mapping_mode != metadata.column_mapping_mode:
            raise InvalidArgumentError(
                f"a clone cannot change the column mapping mode from {other.column_mapping_mode} to"
                f" {metadata.column_mapping_mode}",
                help="change the mode separately, or clone to another location",
                condition="DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
            )
    return prepared(source, metadata, new_id=runtime.new_id)


def _protocol(source: Protocol, base: Snapshot | None, metadata: Metadata, parsed: ParsedProperties) -> Protocol:
    protocol = source
    if base is not None:
        protocol = with_features(base.protocol, features_of(source) - features_of(base.protocol))
    protocol = upgraded(protocol, metadata, parsed.features)
    if parsed.reader is not None or parsed.writer is not None:
        protocol = upgrade_protocol(protocol, parsed.reader or 1, parsed.writer or 2)
    return protocol


def _plan(
    source: Snapshot,
    source_uri: str,
    base: Snapshot | None,
    metadata: Metadata,
    protocol: Protocol,
    actions: Sequence[Mapping[str, Any]],
    result: CloneResult,
) -> CommitPlan:
    # There are no reads to conflict: if another writer creates the table, it wins.
    read = ReadSet()
    if base is not None:
        old_paths = frozenset(a["remove"]["path"] for a in actions if "remove" in a)
        read = ReadSet(whole_table=True, removed=old_paths, isolation="Serializable", changes_metadata=True)
    clustering = clustering_configuration(source)  # None removes that of the target
    clusters = clustering is not None or (base is not None and DOMAIN in base.state.domains)
    return CommitPlan(
        operation="CLONE",
        parameters={"source": source_uri, "sourceVersion": source.version},
        file_actions=actions,
        metadata=metadata if base is None or metadata != base.metadata else None,
        protocol=protocol if base is None or protocol != base.protocol else None,
        metrics={name: value for name, value in as_row(result).items() if name not in ("version", "sourceVersion")},
        read=read,
        domains={DOMAIN: clustering} if clusters else {},
    )


def snapshot_of_parquet(
    store: Store,
    engine: Engine,
    *,
    partition_by: Sequence[str | StructField] = (),
    timezone: str = "UTC",
    run: Runner = run_here,
) -> Snapshot:
    """A table, with its log in memory, of the files below the root of ``store``.

    ``partition_by`` are the partition columns in the order of the folders.
    """
    log = MemoryStore()
    convert_to_delta(store, engine, partition_by=partition_by, into=log, timezone=timezone, run=run)
    return DeltaLog(log, engine).snapshot()


def no_versions(name: Sequence[str]) -> InvalidArgumentError:
    """The error for a clone of Parquet files with ``VERSION AS OF``."""
    return InvalidArgumentError(
        f"{'.'.join(name)} contains Parquet files, which have no versions",
        help="leave the version out",
        condition="DELTA_CLONE_UNSUPPORTED_SOURCE",
    )


#: Bytes copied at a time, from remote stores and from disks.  A mapped piece that fits in the CPU cache takes half the
#: time.
_PIECE, _LOCAL_PIECE = 8 << 20, 1 << 20
_COPIED = re.compile(rf"(?<![^/]){COPY_MARK}(?=[^/]*\Z)")
#: A clone gives its rows new ids.
_FRESH = {"baseRowId": None, "defaultRowCommitVersion": None, "dataChange": True}


def _shallow_adds(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The snapshot's files with absolute paths, for a table elsewhere; so are the paths of vectors."""
    root = snapshot.uri.rstrip("/")
    paths = decoded_paths(snapshot.adds["path"]).to_pylist()
    out = []
    for row, path in zip(snapshot.adds.to_pylist(), paths, strict=True):
        absolute = row["path"] if is_absolute(path) else f"{root}/{encode_path(path)}"
        vector = DeletionVectorDescriptor.from_json(row["deletionVector"])
        if vector is not None and vector.storage_type == "u":
            vector_path = f"{root}/{encode_path(vector.relative_path())}"
            out.append(add_action(row, **_FRESH, path=absolute, deletionVector=_moved(row, "p", vector_path)))
        else:
            out.append(add_action(row, **_FRESH, path=absolute))
    return out


def _moved(row: Mapping[str, Any], kind: str, path: str) -> dict[str, Any]:
    return {**row["deletionVector"], "storageType": kind, "pathOrInlineDv": path}


@dataclass(frozen=True)
class Copy:
    """One file to copy: ``source`` is a decoded path of the source's log, ``target`` a key of the target.

    ``size`` in bytes is the size in the log, ``None`` if unknown.
    """

    source: str
    target: str
    size: int | None


@dataclass(frozen=True)
class ClonedFiles:
    """The files to copy, the ``add`` actions of the clone, and the target's files that stay, as the log spells them."""

    copies: tuple[Copy, ...]
    adds: tuple[Mapping[str, Any], ...]
    staying: frozenset[str]

    @property
    def sizes(self) -> list[int]:
        """The bytes of the data files to copy."""
        return [c.size for c in self.copies if c.size is not None]

    @property
    def unshared(self) -> list[str]:
        """The copies that no other clone references: not vectors, which have the same name in every clone."""
        return [c.target for c in self.copies if c.size is not None]


@dataclass(frozen=True)
class _Planner:
    there: Mapping[str, int]
    new_id: Callable[[], str]
    copies: dict[str, Copy] = field(default_factory=dict)

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
            return None if descriptor is None else row["deletionVector"]
        if descriptor.storage_type == "u":
            source, prefix = descriptor.relative_path(), descriptor.path_or_inline_dv[:-20]
            vector_id = uuid.UUID(source.rpartition("deletion_vector_")[2].removesuffix(".bin"))
        else:
            source, prefix = _decoded(descriptor.path_or_inline_dv), ""
            vector_id = uuid.uuid5(uuid.NAMESPACE_URL, source)
        key = "/".join(p for p in (prefix, f"deletion_vector_{vector_id}.bin") if p)
        # Vector files have random names and never change: a file with the same name is the same file.
        if key not in self.there and key not in self.copies:
            self.copies[key] = Copy(source, key, None)
        return _moved(row, "u", prefix + z85_encode(vector_id.bytes))


def _decoded(path: str) -> str:
    decoded: str = decoded_paths(pa.chunked_array([[path]], pa.string()))[0].as_py()
    return decoded


def _plan_copies(source: Snapshot, target: Store, base: Snapshot | None, new_id: Callable[[], str]) -> ClonedFiles:
    """Plan what a deep clone of ``source`` into ``target``, which is at version ``base``, must copy."""
    listing = list_files(target)
    there = dict(zip(listing["path"].to_pylist(), listing["size"].to_pylist(), strict=True))
    planner = _Planner(there, new_id)
    #: The target's files by the identity of the source files that they copy.
    by_identity: dict[tuple[Any, ...], dict[str, Any]] = {}
    if base is not None:
        rows = base.adds.to_pylist()
        by_identity = {_identity(r, _COPIED.sub("", r["path"])): r for r in rows}
        by_identity |= {_identity(r, r["path"]): r for r in rows}
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
    return ClonedFiles(tuple(planner.copies.values()), tuple(adds), frozenset(staying))


def _below(row: Mapping[str, Any], path: str) -> str:
    """The key of a file in a table that stores its own files."""
    if not is_absolute(path):
        return path
    mark = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    folder = hive_directory(dict(row["partitionValues"] or ()))
    name = f"{mark}-{path.rpartition('/')[2]}"
    return f"{folder}/{name}" if folder else name


def _identity(row: Mapping[str, Any], path: str) -> tuple[Any, ...]:
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


def _copy_file(source: Store, target: Store, copy: Copy) -> None:
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
