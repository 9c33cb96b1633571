"""Change data feed: which rows each version inserted, updated and deleted.

Protocol: *Add CDC File*, *Change Data Files*.  If a version has ``cdc`` files, only these are read; otherwise its
``add`` and ``remove`` actions with ``dataChange`` are.  If a file only got a new deletion vector, the rows that differ
between the two vectors are the change.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from trilake.common.arguments import as_version
from trilake.common.timestamps import timestamp_ms
from trilake.delta.log.log import BEFORE, DeltaLog
from trilake.delta.log.snapshot import decoded_paths
from trilake.delta.protocol.actions import ActionBatch, Metadata
from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema import DataType, PrimitiveType, StructField, StructType, paired
from trilake.delta.scan.read import read_task
from trilake.delta.scan.scan import FileTask, ReadPlan, metadata_plan
from trilake.delta.scan.statistics import record_counts
from trilake.errors import ChangeFeedError, InvalidArgumentError, VersionNotFoundError
from trilake.storage.base import Store

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
CHANGE_FIELDS = [
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")),
]
_ENABLED = "delta.enableChangeDataFeed"
#: A version, or a time.
Moment: TypeAlias = int | str | dt.datetime


@dataclass(frozen=True)
class ChangeFeedTask:
    """One file of changes: ``change_type`` of all its rows, or ``None`` if the file has a column for it."""

    file: FileTask
    change_type: str | None
    version: int
    timestamp_ms: int


@dataclass(frozen=True)
class ChangeFeedScan:
    """The changes of some versions: tasks in version order, and the plan for reading each."""

    tasks: tuple[ChangeFeedTask, ...]
    plan: ReadPlan
    schema: pa.Schema
    #: The metadata of the version whose plan reads the files.
    metadata: Metadata
    #: The last version of the range.
    end: int


def plan_changes(
    log: DeltaLog, start: int, end: int | None = None, *, columns: Sequence[str] | None = None
) -> ChangeFeedScan:
    """Plan reading the changes of versions ``start`` to ``end`` (at most, and by default, the newest), both included.

    Raises ``InvalidArgumentError`` for a start after the newest version, ``VersionNotFoundError`` for versions that are
    no longer in the log, and ``ChangeFeedError`` if the feed was off at some version.
    """
    latest = log.head()
    start, last = as_version(start) or 0, as_version(end)
    _check_range(log, start, last, latest.version)
    end = latest.version if last is None else min(last, latest.version)
    commits = log.commits(start - BEFORE, end)
    requested = [(v, c) for v, c in commits if v >= start]
    if not requested or requested[0][0] != start or len(requested) != end - start + 1:
        oldest = log.commits(most=1)
        raise VersionNotFoundError(
            f"the log no longer has all commits of versions {start} to {end}",
            help=f"the oldest commit is version {oldest[0][0]}" if oldest else "the log has no commits",
            file=log.store.uri,
            version=start,
            condition="DELTA_VERSION_NOT_FOUND",
        )
    head = latest if end == latest.version else log.head(end)
    batch = log.parse(requested)
    metadata = {v: Metadata.from_json(m, version=v) for v, m in batch.of("metaData")}
    if start not in metadata:
        metadata[start] = log.head(start).metadata
    _check_enabled(log, metadata, start, end)
    times = log.commit_times(commits, head.metadata, dict(batch.of("commitInfo")), first=start)
    tasks = [t for (v, _), time in zip(requested, times, strict=True) for t in version_tasks(log, batch, v, time)]
    read = feed_metadata(latest.metadata, head.metadata, metadata.values())
    plan = metadata_plan(read, head.engine, head.uri, head.version, columns)
    return ChangeFeedScan(tuple(tasks), plan, pa.schema([*plan.schema, *CHANGE_FIELDS]), read, end)


def _check_range(log: DeltaLog, start: int, end: int | None, latest: int) -> None:
    if start > latest:
        problem = f"the change feed cannot start at version {start}: the newest version is {latest}"
        help = f"start at version {latest} or earlier"
    elif start < 0 or (end is not None and end < start):
        problem = f"versions {start} to {latest if end is None else end} are not a valid range"
        help = "pass 0 <= start <= end"
    else:
        return
    raise InvalidArgumentError(problem, help=help, file=log.store.uri, condition="DELTA_INVALID_CDC_RANGE")


def _check_enabled(log: DeltaLog, metadata: Mapping[int, Metadata], start: int, end: int) -> None:
    for version, m in sorted(metadata.items()):
        if not is_on(m.configuration, _ENABLED):
            raise ChangeFeedError(
                f"the change data feed is not available for versions {start} to {end}: it was disabled at version"
                f" {version}",
                help=f"set the table property {_ENABLED}=true before the changes you want to read, or start later",
                file=log.store.uri,
                version=version,
                condition="DELTA_MISSING_CHANGE_DATA",
            )


def version_tasks(log: DeltaLog, batch: ActionBatch, version: int, timestamp_ms: int) -> Iterator[ChangeFeedTask]:
    """The change files of one version with the actions ``batch``."""
    cdc = _of_version(batch.cdc, version)
    if cdc.num_rows:
        for file in _files(cdc):
            yield ChangeFeedTask(file, None, version, timestamp_ms)
        return
    actions = (_of_version(batch.add, version), _of_version(batch.remove, version))
    added_files, removed_files = (a.filter(pc.fill_null(a["dataChange"], True)) for a in actions)
    adds, removes = _files(added_files), _files(removed_files)
    if any(f.partition_values is _UNKNOWN for f in removes):
        removes = _with_partition_values(log, version, removes)
    old = {f.path: f for f in removes}
    changed_positions = [i for i, f in enumerate(adds) if f.path in old]
    counts = record_counts(added_files.take(changed_positions), log.engine.query) if changed_positions else pa.array([])
    records = dict(zip(changed_positions, counts.to_pylist(), strict=True))
    for at, file in enumerate(adds):
        before = old.pop(file.path, None)
        if before is None:
            yield ChangeFeedTask(file, "insert", version, timestamp_ms)
        else:
            yield from _vector_change(log.store, before, file, records[at], version, timestamp_ms)
    for file in old.values():
        yield ChangeFeedTask(file, "delete", version, timestamp_ms)


#: Partition values of remove actions that lack them.
_UNKNOWN: Mapping[str, str | None] = {"": None}


def _of_version(actions: pa.Table, version: int) -> pa.Table:
    return actions.filter(pc.equal(actions["version"], version))


def _files(actions: pa.Table) -> list[FileTask]:
    count = actions.num_rows
    vectors = actions["deletionVector"].to_pylist() if "deletionVector" in actions.column_names else [None] * count
    values: list[Any] = actions["partitionValues"].to_pylist()
    paths, sizes = decoded_paths(actions["path"]).to_pylist(), actions["size"].to_pylist()
    return [
        FileTask(p, s or 0, _UNKNOWN if v is None else dict(v), DeletionVectorDescriptor.from_json(dv))
        for p, s, v, dv in zip(paths, sizes, values, vectors, strict=True)
    ]


def _with_partition_values(log: DeltaLog, version: int, removes: list[FileTask]) -> list[FileTask]:
    """Complete removes from the adds they cancel, since ``extendedFileMetadata`` is optional."""
    if not log.head(version - 1).metadata.partition_columns:
        return [replace(f, partition_values={}) for f in removes]
    before = log.snapshot(version - 1)
    paths = decoded_paths(before.adds["path"])
    mask = pc.is_in(paths, pa.array([f.path for f in removes]))
    pairs = zip(paths.filter(mask).to_pylist(), before.adds["partitionValues"].filter(mask).to_pylist(), strict=True)
    values = {p: dict(v or ()) for p, v in pairs}
    out = []
    for f in removes:
        if f.partition_values is _UNKNOWN:
            if f.path not in values:
                message = "a remove action refers to a file that the previous version does not have"
                raise ChangeFeedError(message, file=f.path, version=version)
            f = replace(f, partition_values=values[f.path])
        out.append(f)
    return out


def _vector_change(
    store: Store, before: FileTask, after: FileTask, records: int | None, version: int, timestamp_ms: int
) -> Iterator[ChangeFeedTask]:
    deleted_before = before.vector.load(store, records) if before.vector is not None else BitMap64()
    now = after.vector.load(store, records) if after.vector is not None else BitMap64()
    for rows, change in ((now - deleted_before, "delete"), (deleted_before - now, "insert")):
        if len(rows):
            file = replace(after, vector=None, selected=rows.serialize())
            yield ChangeFeedTask(file, change, version, timestamp_ms)


def as_partitioned(plan: ReadPlan, file: FileTask) -> ReadPlan:
    """The plan for a file that may be older than the partitioning: it lacks only columns with partition values."""
    columns = tuple(f.name for f in plan.table_fields if f.physical_name in file.partition_values)
    return plan if {*columns} == {*plan.partition_columns} else replace(plan, partition_columns=columns)


def read_change_task(store: Store, task: ChangeFeedTask, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Read one file of changes, with the three columns of the feed."""
    plan = as_partitioned(plan, task.file)
    fields, output = plan.fields, plan.output
    if task.change_type is None:
        # The column only exists in change data files, under this name and without an id.
        marker = StructField(CHANGE_TYPE, PrimitiveType("string"))
        fields, output = (*fields, marker), (*output, CHANGE_TYPE)
        plan = replace(plan, fields=fields, output=output)
    for batch in read_task(store, task.file, plan):
        count = batch.num_rows
        kinds = batch.column(CHANGE_TYPE) if task.change_type is None else pa.repeat(task.change_type, count)
        arrays = [batch.column(n) for n in output if n != CHANGE_TYPE]
        arrays += [
            kinds,
            pa.repeat(pa.scalar(task.version, pa.int64()), count),
            pa.repeat(pa.scalar(task.timestamp_ms * 1000, pa.int64()), count).cast(CHANGE_FIELDS[2].type),
        ]
        schema = pa.schema([*(batch.schema.field(n) for n in output if n != CHANGE_TYPE), *CHANGE_FIELDS])
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def scan_changes(
    log: DeltaLog, start: Moment, end: Moment | None = None, *, columns: Sequence[str] | None = None
) -> ChangeFeedScan:
    """Plan the changes between two versions or times; no tasks if no commit lies between them.

    Raises the errors of :func:`plan_changes`, except for a time after the last commit or an end before the first one.
    """
    begins, ends = _as_time(start), _as_time(end)
    first = (as_version(start) or 0) if begins is None else log.version_from(begins)
    last = as_version(end) if ends is None else log.version_at(ends, reached=True)
    if begins is not None and ends is not None and begins <= ends and last == first - 1:
        return replace(plan_changes(log, first, first, columns=columns), tasks=())
    return plan_changes(log, first, last, columns=columns)


def _as_time(moment: Moment | None) -> int | None:
    return timestamp_ms(moment) if isinstance(moment, str | dt.datetime) else None


def changes_table(log: DeltaLog, start: Moment, end: Moment | None, *, columns: Sequence[str] | None) -> pa.Table:
    """Read the change data feed of some versions: the table's ``columns`` followed by the feed's own.

    If ``columns`` names some of the feed's columns, only the listed columns are returned, in order.  Raises the errors
    of :func:`plan_changes`.
    """
    feed = [f.name for f in CHANGE_FIELDS]
    requested = None if columns is None else [*columns] if {*feed} & {*columns} else [*columns, *feed]
    table_columns = None if requested is None else [c for c in dict.fromkeys(requested) if c not in feed]
    scan = scan_changes(log, start, end, columns=table_columns)
    batches = (b for t in scan.tasks for b in read_change_task(log.store, t, scan.plan))
    changes = pa.Table.from_batches(batches, schema=scan.schema)
    if requested is None or table_columns is None:
        return changes
    places = {c: i for i, c in enumerate([*table_columns, *feed])}  # the table may spell its columns differently
    return changes.select([places[c] for c in requested])


# --- The columns of a feed: the newest ones if they can hold all rows of the range ------------------------------------
# A column added after the range is null in its rows.  If a column was dropped or changed its type since, or if the
# table uses column mapping, the feed has the columns of the last version of the range.


def feed_metadata(newest: Metadata, last: Metadata, written: Iterable[Metadata]) -> Metadata:
    """The newest metadata if it can hold the rows of all ``written`` versions, otherwise that of the range's end."""
    states = (*written, last)
    if any(m.column_mapping_mode != "none" for m in (newest, *states)):
        return last
    stored = newest.partition_columns, newest.provider
    same_files = all((m.partition_columns, m.provider) == stored for m in states)
    return newest if same_files and all(_holds(newest.schema, m.schema) for m in states) else last


def _holds(new: DataType, old: DataType) -> bool:
    """Whether ``new`` has every part of ``old`` unchanged, ignoring nullability."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        pairs = [(new.find(f.name), f) for f in old.fields]
        return all(n is not None and _holds(n.type, f.type) for n, f in pairs)
    inside = paired(new, old)
    return old == new if inside is None else all(_holds(a, b) for _, a, b in inside)
