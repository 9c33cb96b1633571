"""RESTORE and FSCK; RESTORE makes a new version whose rows, schema and properties are those of an older one.

Files in both versions stay; files only in the older one are added again, files only in the newest one are removed.
Some things never go back: the protocol keeps its features, identity columns and row ids continue from their high-water
marks, and column ids are not reused.  If row tracking has been dropped since, rows get their older ids back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arguments import as_version
from trilake.common.display import Displayed
from trilake.delta.commands.maintenance.vacuum_files import list_files, vector_files
from trilake.delta.commands.optimize.metrics import as_row
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, add_actions, commit, remove_action
from trilake.delta.log.clustering import DOMAIN
from trilake.delta.log.commit_times import timestamp_string
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot, decoded_paths, file_keys
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.column_mapping import MAX_COLUMN_ID, max_column_id
from trilake.delta.protocol.features import features_of, with_features
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.table_features import in_commit_timestamp
from trilake.delta.rules.identity import identity_columns, updated_schema
from trilake.delta.scan.read import locate
from trilake.errors import InvalidArgumentError, MissingFileError, stating
from trilake.storage.base import Store
from trilake.storage.uri import is_absolute

#: The most missing files that an error lists.
_NAMED = 100
#: Table property: log files before this version are deleted all together or not at all.
PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"


#: The metrics that delta-spark returns.
METRICS = (
    *("table_size_after_restore", "num_of_files_after_restore", "num_removed_files", "num_restored_files"),
    *("removed_files_size", "restored_files_size"),
)


@dataclass(frozen=True)
class RestoreResult(Displayed):
    """What a restore did; sizes in bytes.

    ``version`` is the new version, ``restored_version`` the one whose rows it has.

    >>> import trilake
    >>> for n in 1, 2:
    ...     _ = trilake.write({"n": [n]}, "memory://doc-restore-result", mode="overwrite")
    >>> done = trilake.open("memory://doc-restore-result").restore(0)
    >>> done.version, done.restored_version, done.num_restored_files
    (2, 0, 1)
    """

    version: int
    restored_version: int
    table_size_after_restore: int
    num_of_files_after_restore: int
    num_removed_files: int
    num_restored_files: int
    removed_files_size: int
    restored_files_size: int


def restore(
    log: DeltaLog,
    *,
    version: int | None = None,
    timestamp_ms: int | None = None,
    ignore_missing: bool = False,
    cached: Snapshot | None = None,
    run: Runner = run_here,
) -> RestoreResult:
    """Bring back an older version, ``version`` or the newest one at ``timestamp_ms``, as a new version.

    With ``ignore_missing``, goes on if files of the older version were deleted; reading the table will fail on them.
    ``cached`` is a version that was read already.

    Raises ``VersionNotFoundError`` for a version or time that is not in the log, ``MissingFileError`` with the files
    that were deleted since, ``InvalidArgumentError`` for the newest version itself and for an append-only table that
    would lose rows, ``ConflictError`` if another writer has changed the table, or a vacuum started that may delete
    restored files.
    """
    version = as_version(version)
    if (version is None) == (timestamp_ms is None):
        raise InvalidArgumentError(
            "expected either a version or a timestamp to restore",
            help='pass one of them, such as version=3 or timestamp="2024-01-02"',
        )
    target = version
    if timestamp_ms is not None:
        with stating({"DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION": "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER"}):
            target = log.version_at(timestamp_ms)
    assert target is not None
    base = log.snapshot() if cached is None else log.update(cached)
    base.check_writable()
    if target == base.version:
        raise InvalidArgumentError(
            f"version {target} is already the newest version",
            help=f"pass a version less than {base.version}",
            file=base.uri,
            condition="DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER" if version is None else None,
        )
    with stating({"DELTA_VERSION_NOT_FOUND": "DELTA_CANNOT_RESTORE_TABLE_VERSION"}):
        old = cached if cached is not None and cached.version == target else log.snapshot(target)
    adds, removes = without(old.adds, base.adds), without(base.adds, old.adds)
    if removes.num_rows:
        base.check_removable()
    if not ignore_missing and (absent := missing_files(log.store, adds, run)):
        raise _missing(absent, log.store.uri, target)
    result = RestoreResult(
        version=base.version + 1,
        restored_version=target,
        table_size_after_restore=total_size(old.adds),
        num_of_files_after_restore=old.adds.num_rows,
        num_removed_files=removes.num_rows,
        num_restored_files=adds.num_rows,
        removed_files_size=total_size(removes),
        restored_files_size=total_size(adds),
    )
    now, clustering = log.engine.runtime.clock_ms(), clustering_configuration(old)
    metadata = restored_metadata(base.metadata, old.metadata)
    protocol = with_features(base.protocol, features_of(old.protocol) - features_of(base.protocol))
    tracked = row_tracking.supported(old.protocol)
    plan = CommitPlan(
        operation="RESTORE",
        parameters={
            "version": version,
            "timestamp": None if timestamp_ms is None else timestamp_string(timestamp_ms),
        },
        file_actions=[
            *add_actions(adds, dataChange=True),
            *(add_actions(_with_other_ids(old.adds, base.adds), dataChange=False) if tracked else ()),
            *(remove_action(row, now) for row in removes.to_pylist()),
        ],
        metadata=metadata if metadata != base.metadata else None,
        protocol=protocol if features_of(protocol) != features_of(base.protocol) else None,
        metrics={name: value for name, value in as_row(result).items() if name not in ("version", "restoredVersion")},
        # Any change since then would be undone without notice.
        read=ReadSet(
            whole_table=True,
            removed=frozenset(removes["path"].to_pylist()),
            isolation="Serializable",
            changes_metadata=True,
            revives_from=None if ignore_missing else _removed_from(log, base, adds),
        ),
        # Other domains belong to their owners.
        domains={} if clustering == clustering_configuration(base) else {DOMAIN: clustering},
        row_id_mark=row_tracking.high_water_mark(old.state) if tracked else -1,
    )
    return replace(result, version=commit(log, base, plan))


def _missing(absent: Sequence[str], uri: str, version: int) -> MissingFileError:
    more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
    return MissingFileError(
        f"version {version} cannot be restored because files are missing ({len(absent)}):"
        f" {', '.join(absent[:_NAMED])}{more}",
        help="restore the files from a backup, or restore a newer version; to restore the remaining rows, ignore"
        " missing files (ignore_missing=True, on Spark spark.sql.files.ignoreMissingFiles)",
        file=uri,
        version=version,
    )


def _removed_from(log: DeltaLog, base: Snapshot, added: pa.Table) -> int | None:
    """When the first of these files was removed; 0 if unknown for one of them, ``None`` without files."""
    if not added.num_rows:
        return None
    tombstones = log.tombstones(base)
    if not pc.all(pc.is_in(added["path"], tombstones["path"].combine_chunks())).as_py():
        return 0
    times = tombstones.filter(pc.is_in(tombstones["path"], added["path"].combine_chunks()))["deletionTimestamp"]
    return int(pc.min(pc.fill_null(times, 0)).as_py())


def restored_metadata(now: Metadata, old: Metadata) -> Metadata:
    """The older metadata, except for parts that never go back."""
    schema = with_marks_of(old.schema, now.schema)
    metadata = replace(old, id=now.id, schema_string=schema.json() if schema is not old.schema else old.schema_string)
    configuration = dict(old.configuration)
    lasting = [PROTECTED_BEFORE]
    if in_commit_timestamp.enabled(now) and in_commit_timestamp.enabled(old):
        lasting += [in_commit_timestamp.SINCE_VERSION, in_commit_timestamp.SINCE_TIME]
    for key in lasting:
        configuration.pop(key, None)
        if key in now.configuration:
            configuration[key] = now.configuration[key]
    if MAX_COLUMN_ID in configuration:
        configuration[MAX_COLUMN_ID] = str(max(max_column_id(now), max_column_id(old)))
    return replace(metadata, configuration=configuration)


def _with_other_ids(files: pa.Table, now: pa.Table) -> pa.Table:
    """The files that ``now`` has with other row ids, because row tracking was dropped in between."""
    places = pc.index_in(file_keys(files), file_keys(now))
    files, now = files.filter(places.is_valid()), now.take(places.drop_null())
    same = pc.and_(*(pc.equal(files[name], now[name]) for name in ("baseRowId", "defaultRowCommitVersion")))
    return files.filter(pc.and_(files["baseRowId"].is_valid(), pc.invert(pc.fill_null(same, False))))


# --- Files that a commit takes over from another version or table, whether they exist, and FSCK REPAIR TABLE ----------


#: Above this many files, listing the folder is cheaper than one request per file.
_ASK = 500
_CHUNK = 50


def without(files: pa.Table, others: pa.Table) -> pa.Table:
    """The files that are not among ``others``, or have another vector there."""
    return files.filter(pc.invert(pc.is_in(file_keys(files), pc.unique(file_keys(others)))))


def gone(store: Store, paths: Sequence[str]) -> list[str]:
    """The files that the store reports as missing; any other failure is an error."""
    located = (locate(store, path) for path in paths)
    found = store.at_once([partial(place.find, key) for place, key in located])
    return [path for path, file in zip(paths, found, strict=True) if file is None]


def missing_files(store: Store, adds: pa.Table, run: Runner, *, ask: int = _ASK) -> list[str]:
    """The missing data files and deletion vector files of ``adds``, as decoded paths."""
    paths = pc.unique(decoded_paths(adds["path"]))
    inside, outside, _ = vector_files(adds["deletionVector"])
    required = sorted({*paths.to_pylist(), *inside.to_pylist(), *decoded_paths(outside).to_pylist()})
    relative = [p for p in required if not is_absolute(p)]
    if len(relative) > ask:
        there = pc.is_in(pa.array(relative, pa.string()), list_files(store)["path"])
        # A listing may omit hidden or odd names, so check each of these by itself.
        doubtful = pa.array(relative, pa.string()).filter(pc.invert(there)).to_pylist()
        required = [*doubtful, *(p for p in required if is_absolute(p))]
    chunks = [required[i : i + _CHUNK] for i in range(0, len(required), _CHUNK)]
    return sorted(path for absent in run(partial(gone, store), chunks) for path in absent)


def with_marks_of(schema: StructType, other: StructType) -> StructType:
    """The schema, with high-water marks of identity columns at least as high as those of ``other``.

    Protocol: *Identity Columns*.
    """
    marks = {c.name: c.mark for c in identity_columns(other) if c.mark is not None}
    return updated_schema(schema, [marks]) if marks else schema


def clustering_configuration(snapshot: Snapshot) -> str | None:
    """The configuration of the clustering domain."""
    domain = snapshot.state.domains.get(DOMAIN)
    return None if domain is None or domain.get("removed") else str(domain.get("configuration") or "")


def total_size(files: pa.Table) -> int:
    """The total bytes of some files."""
    return int(pc.sum(files["size"]).as_py() or 0)


def fsck(log: DeltaLog, *, dry_run: bool = False, run: Runner = run_here) -> list[str]:
    """Remove the data files that do not exist from the newest version; return their decoded paths.

    Their rows are already lost; without the references, the table becomes readable again.  With ``dry_run``, only lists
    these files.  Raises a ``ConflictError`` if another writer has removed one of the files.
    """
    snapshot = log.snapshot()
    snapshot.check_writable()
    paths = decoded_paths(snapshot.adds["path"])
    absent = pa.array(missing_files(log.store, snapshot.adds, run), pa.string())
    is_gone = pc.is_in(paths, absent)
    missing: list[str] = paths.filter(is_gone).to_pylist()
    if not missing or dry_run:
        return missing
    drop_files(log, snapshot, snapshot.adds.filter(is_gone), {})
    return missing


def drop_files(log: DeltaLog, snapshot: Snapshot, files: pa.Table, parameters: Mapping[str, Any]) -> int:
    """Remove files, whose rows are lost, from a version; return the new version."""
    now = log.engine.runtime.clock_ms()
    plan = CommitPlan(
        operation="FSCK",
        parameters=parameters,
        file_actions=[remove_action(row, now) for row in files.to_pylist()],
        metrics={"numRemovedFiles": files.num_rows},
        read=ReadSet(removed=frozenset(files["path"].to_pylist())),
    )
    return commit(log, snapshot, plan)
