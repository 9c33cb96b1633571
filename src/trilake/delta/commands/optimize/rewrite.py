"""Rewrite files of a table in tasks, one per bin of files, and commit the result.

A task drops deleted rows and moves row ids into columns; the table's rules are not applied again.  It runs in any
process with the plan and a store.

Commits have snapshot isolation.  If a concurrent commit has removed files of a bin, or changed their deletion vectors,
that bin is dropped and the others are committed on top of it; see :func:`rewrite`.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any
from urllib.parse import unquote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import type_at
from trilake.common.progress import progress
from trilake.delta.commands.optimize.bins import PROVIDER, Numbers, sizes_of
from trilake.delta.commands.optimize.curve_order import SAMPLE_ROWS, Curve, in_curve_order, sample_indexes
from trilake.delta.commands.optimize.metrics import history_metrics
from trilake.delta.commands.rows.row_changes import (
    ChangedFile,
    Runner,
    changed_files,
    gathered,
    live_rows,
    rewrite_plan,
    row_columns,
    run_here,
    whole_rows,
    with_row_ids,
)
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, commit, remove_action
from trilake.delta.files.file_plan import FilePlan
from trilake.delta.files.write_files import TaskWriter
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LOG
from trilake.delta.log.snapshot import Snapshot, file_keys
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.column_mapping import MODE
from trilake.delta.protocol.iceberg import compat_versions, writes_partition_columns
from trilake.delta.protocol.partitions import PartitionKeys, partition_fields
from trilake.delta.rules.identity import only_marks_moved
from trilake.delta.scan.read import packs, read_together
from trilake.delta.scan.scan import ReadPlan, metadata_plan
from trilake.errors import (
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConflictError,
    MetadataChangedError,
    ProtocolChangedError,
)
from trilake.parquet.merged_files import FEWEST
from trilake.storage.base import Store
from trilake.storage.ownership import discard

#: Bytes of rows that a sort keeps in memory.
MEMORY = 512 << 20
#: Batches of one file to buffer, and bytes of files to read ahead.
_WAITING, _AHEAD_BYTES = 4, 16 << 20
#: Bytes of remote files to rewrite at once, and most bins; at least one bin per processor is rewritten.
_TOGETHER, _MOST_TOGETHER = 64 << 20, 32
#: Fixed cost per file, in bytes.
_OPENING = 128 << 10
#: Bytes of the batches in which rows of small files are gathered.
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True)
class Bin:
    """Files to rewrite as ``new_files`` new files.

    ``partition`` are their partition values, in partitioning order, as the first file spells them.  ``rows`` is the
    number of live rows, ``None`` if unknown.  ``unbounded`` are columns without an upper bound in some file, for
    example because of a NaN: the new files get no bounds for them.
    """

    number: int
    files: tuple[ChangedFile, ...]
    partition: tuple[str | None, ...]
    rows: int | None = None
    new_files: int = 1
    unbounded: frozenset[tuple[str, ...]] = frozenset()


@dataclass(frozen=True)
class Rewritten:
    """The ``add`` actions of a bin's new files."""

    number: int
    adds: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Rewrite:
    """The picklable task of an optimization.

    ``read`` reads the columns that files store; ``curve`` is the order of the rows, ``None`` to keep it; ``readers`` is
    the number of files that one task reads concurrently.  ``advance`` reports files that were read, only in this
    process.
    """

    store: Store
    read: ReadPlan
    files: FilePlan
    curve: Curve | None = None
    memory: int = MEMORY
    readers: int = 1
    advance: Callable[[int], object] | None = field(default=None, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "advance": None}

    def __call__(self, work: Bin) -> Rewritten:
        """Rewrite the files of a bin.  On failure, delete its new files."""
        files = replace(self.files, unbounded=work.unbounded)
        with TaskWriter(self.store, files, work.number) as writer:
            batches = self.rows(work.files)
            if self.curve is None:
                for batch in batches:
                    writer.write_partition(work.partition, pa.Table.from_batches([batch]))
            else:
                self._in_order(writer, work, batches, self.curve)
            return Rewritten(work.number, tuple(writer.close()))

    def _in_order(self, writer: TaskWriter, work: Bin, batches: Iterator[pa.RecordBatch], curve: Curve) -> None:
        ordered = in_curve_order(
            batches, curve, count=work.rows, sample=lambda: self.sample(work, curve), memory=self.memory
        )
        # Make files of about equally many rows; if the number of rows is unknown, of equally many bytes.
        limit = -(-work.rows // work.new_files) if work.rows and work.new_files > 1 else None
        rows_so_far = 0
        for table in ordered:
            while limit is not None and rows_so_far + table.num_rows >= limit:
                writer.write_partition(work.partition, table.slice(0, limit - rows_so_far))
                writer.finish_partition(work.partition)
                table, rows_so_far = table.slice(limit - rows_so_far), 0
            writer.write_partition(work.partition, table)
            rows_so_far += table.num_rows

    def rows(self, files: Sequence[ChangedFile]) -> Iterator[pa.RecordBatch]:
        """The live rows of files in order, in the form in which they are written."""

        def together(pack: Sequence[ChangedFile]) -> Iterator[pa.RecordBatch]:
            for some in read_together(self.store, [source.file for source in pack], self.read):
                yield with_row_ids(some, pack, self.read, self.files)
            if self.advance is not None:
                self.advance(len(pack))

        yield from in_turn(files, together, self.readers)

    def sample(self, work: Bin, curve: Curve) -> pa.Table:
        """The curve's columns of some rows of each file, in total about ``SAMPLE_ROWS`` of ``work.rows``."""
        names = {path[0] for path in curve.columns}
        fields = tuple(f for f in self.read.fields if f.name in names)
        narrow = replace(self.read, fields=fields, output=tuple(f.name for f in fields))
        share = SAMPLE_ROWS / max(work.rows or 0, SAMPLE_ROWS) if work.rows is not None else 0.05

        def some(pack: Sequence[ChangedFile]) -> Iterator[pa.RecordBatch]:
            for _, _, batch in read_together(self.store, [source.file for source in pack], narrow):
                size = max(1, int(np.ceil(batch.num_rows * share)))
                yield batch.take(pa.array(sample_indexes(batch.num_rows, size)))

        return pa.Table.from_batches(in_turn(work.files, some, self.readers), narrow.schema)


_END = object()


def in_turn(
    items: Sequence[ChangedFile], read: Callable[[Sequence[ChangedFile]], Iterator[pa.RecordBatch]], readers: int
) -> Iterator[pa.RecordBatch]:
    """The batches of one item after the other; the next items are read ahead within bounds.

    Many small files are read together, since the cost per batch is the same for ten rows as for ten thousand.
    """
    stop = threading.Event()

    def put(results: queue.Queue[Any], value: object) -> bool:
        while not stop.is_set():
            with suppress(queue.Full):
                results.put(value, timeout=0.1)
                return True
        return False

    def batches_of(pack: Sequence[ChangedFile]) -> Iterator[pa.RecordBatch]:
        if len(pack) == 1:
            yield from read(pack)
            return
        for together in gathered(read(pack), lambda b: (b.nbytes,), (_BATCH_BYTES,)):
            yield from pa.Table.from_batches(together).combine_chunks().to_batches()

    def work(results: queue.Queue[Any], pack: Sequence[ChangedFile]) -> None:
        try:
            if all(put(results, batch) for batch in batches_of(pack)):
                put(results, _END)
        except BaseException as e:  # noqa: BLE001 - handed to the caller's thread, whatever it is
            put(results, e)

    share = len(items) // max(1, readers)
    # If files are merged, two packs per thread, since merging gets cheaper with their number; otherwise more packs,
    # for equal shares.
    most = share // 2 if share >= 2 * FEWEST else share // 8
    todo = packs(items, lambda item: item.file.size, most)
    queues = deque[tuple[queue.Queue[Any], int]]()
    with ThreadPoolExecutor(max(1, readers)) as pool:
        try:
            while True:
                while len(queues) <= readers or sum(size for _, size in queues) < _AHEAD_BYTES:
                    if (pack := next(todo, None)) is None:
                        break
                    queues.append((queue.Queue(_WAITING), sum(item.file.size + _OPENING for item in pack)))
                    pool.submit(work, queues[-1][0], pack)
                if not queues:
                    return
                results, _ = queues.popleft()
                while (result := results.get()) is not _END:
                    if isinstance(result, BaseException):
                        raise result
                    yield result
        finally:
            stop.set()


#: Attempts to commit the remaining bins.
_ATTEMPTS = 100
_DECISIVE = (MODE, row_tracking.ENABLED, row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN)


def _file_rules(snapshot: Snapshot) -> tuple[object, ...]:
    """The settings that decide what files contain, apart from the schema: if one changes, older files are not valid."""
    configuration = snapshot.metadata.configuration
    partitions = writes_partition_columns(snapshot.protocol, configuration)
    return partitions, compat_versions(configuration), [configuration.get(k) for k in _DECISIVE], row_columns(snapshot)


@dataclass(frozen=True)
class RewriteRequest:
    """Bins of files to rewrite, and the description of the commit."""

    bins: Sequence[Numbers]
    operation: str
    parameters: Mapping[str, Any]
    limit: int
    curve: Curve | None = None
    #: Tags of the new files of each bin, if the bins become cubes.
    tags: Sequence[Mapping[str, str]] = ()
    #: New metadata that the commit sets; the new files are written for it.
    metadata: Metadata | None = None
    #: New protocol.
    protocol: Protocol | None = None
    #: Configurations of metadata domains that the commit sets.
    domains: Mapping[str, str] = field(default_factory=dict)
    memory: int = MEMORY


@dataclass(frozen=True)
class RewriteOutcome:
    """The committed bins, by index, and the actions."""

    version: int
    bins: tuple[int, ...] = ()
    added: tuple[Mapping[str, Any], ...] = ()
    removed: tuple[Mapping[str, Any], ...] = ()
    partitions: int = 0


def rewrite(log: DeltaLog, snapshot: Snapshot, work: RewriteRequest, *, run: Runner = run_here) -> RewriteOutcome:
    """Rewrite the files of all bins and commit them as one version; without bins, do nothing.

    If a bin is not committed, its new files are deleted.
    """
    if not work.bins:
        return RewriteOutcome(snapshot.version)
    job = _job(log.store, snapshot, work)
    bins = _as_tasks(snapshot, work, job.files)
    total = sum(len(b.files) for b in bins)
    finished: list[Rewritten] = []
    with progress("optimize", total=total) as bar:
        local = run is run_here or len(bins) == 1
        lock = Lock()

        def advance(files: int) -> None:
            with lock:  # local tasks run in threads, which share the progress bar
                bar.advance(files)

        if run is run_here and log.store.local_path(LOG) is None:
            run = partial(run_here, threads=_threads(bins))
        try:
            for outcome in run(replace(job, advance=advance if local else None), bins):
                finished.append(outcome)
                if not local:
                    bar.advance(len(bins[outcome.number].files))
        except BaseException:
            _discard(log, finished)
            raise
    return _commit(log, snapshot, work, bins, sorted(finished, key=lambda r: r.number))


def _threads(bins: Sequence[Bin]) -> int:
    """How many bins of remote files to rewrite at once: threads wait for small files, and large ones take memory."""
    average = sum(file.file.size for work in bins for file in work.files) // len(bins)
    return max(os.cpu_count() or 1, min(_MOST_TOGETHER, _TOGETHER // max(average, 1)))


def _job(store: Store, snapshot: Snapshot, work: RewriteRequest) -> Rewrite:
    read = whole_rows(snapshot)
    partition = set(read.partition_columns)
    read = replace(
        read,
        fields=tuple(f for f in read.fields if f.name not in partition),
        output=tuple(n for n in read.output if n not in partition),
    )
    files = rewrite_plan(snapshot, snapshot.engine.runtime.new_id())
    configuration = files.configuration
    if work.metadata is not None:
        after = metadata_plan(work.metadata, snapshot.engine, snapshot.uri, snapshot.version)
        configuration = work.metadata.configuration
        materialized = writes_partition_columns(work.protocol or snapshot.protocol, configuration)
        files = replace(files, schema=replace(files.schema, fields=after.fields), materialized=materialized)
    # Bins and rows per file determine the sizes; this limit is for data that grow when they are rewritten.
    files = replace(files, configuration={**configuration, "delta.targetFileSize": str(2 * work.limit)})
    readers = max(1, (os.cpu_count() or 1) // len(work.bins))
    return Rewrite(store, read, files, work.curve, work.memory, readers)


def _as_tasks(snapshot: Snapshot, work: RewriteRequest, files_plan: FilePlan) -> list[Bin]:
    sizes = sizes_of(snapshot.adds)
    physical = [snapshot.schema.field(c).physical_name for c in snapshot.metadata.partition_columns]
    numbers = np.concatenate(list(work.bins))
    sources = changed_files(snapshot, numbers)
    rows = live_rows(snapshot.adds.take(pa.array(numbers)), snapshot.engine.query)
    # The floating-point columns for which new files get bounds, as physical paths.
    schema = files_plan.stated_schema
    indexed = filter(None, files_plan.statistics.indexed(schema))
    floats = [path for path in indexed if pa.types.is_floating(type_at(schema, path))]
    out, start = list[Bin](), 0
    for number, chosen in enumerate(work.bins):
        files = sources[start : start + len(chosen)]
        row_counts = rows.slice(start, len(chosen))
        start += len(chosen)
        stats = snapshot.adds["stats"].take(pa.array(chosen)).to_pylist() if floats else []
        total = None if row_counts.null_count else int(pc.sum(row_counts).as_py())
        size = int(sizes[chosen].sum())
        partition = tuple(files[0].file.partition_values.get(n) for n in physical)
        unbounded = frozenset(p for p in floats if any(_lacks_bound(json_string, p) for json_string in stats))
        out.append(Bin(number, tuple(files), partition, total, max(1, size // work.limit), unbounded))
    return out


def _lacks_bound(json_string: str | None, path: tuple[str, ...]) -> bool:
    """Whether a file's statistics have bounds for other columns, but no upper bound for this one."""
    stats = orjson.loads(json_string) if json_string else {}
    if "maxValues" not in stats:
        return False  # this file's writer writes no bounds at all
    nulls, highest = stats.get("nullCount"), stats["maxValues"]
    for name in path:
        nulls = nulls.get(name) if isinstance(nulls, Mapping) else None
        highest = highest.get(name) if isinstance(highest, Mapping) else None
    return highest is None and nulls != stats.get("numRecords")


def _discard(log: DeltaLog, rewritten: Iterable[Rewritten]) -> None:
    discard(log.store, [unquote(str(a["path"])) for r in rewritten for a in r.adds])


def _commit(
    log: DeltaLog,
    base: Snapshot,
    work: RewriteRequest,
    bins: Sequence[Bin],
    rewritten: Sequence[Rewritten],
) -> RewriteOutcome:
    origin, remaining = base, list(rewritten)
    for _ in range(_ATTEMPTS):
        actions = _actions(origin, work, bins, remaining)
        paths = frozenset(r["path"] for r in actions.removed)
        plan = CommitPlan(
            operation=work.operation,
            parameters=work.parameters,
            file_actions=[*({"remove": r} for r in actions.removed), *({"add": a} for a in actions.added)],
            metadata=work.metadata,
            protocol=work.protocol,
            metrics=history_metrics(
                [a["size"] for a in actions.added],
                [r["size"] or 0 for r in actions.removed],
                [r["deletionVector"] for r in actions.removed if r.get("deletionVector")],
            ),
            domains=work.domains,
            read=ReadSet(
                # Files added concurrently would have the old metadata.
                whole_table=work.metadata is not None,
                files=paths,
                removed=paths,
                isolation="SnapshotIsolation" if work.metadata is None else "Serializable",
            ),
        )
        try:
            return replace(actions, version=commit(log, base, plan))
        except (
            ConcurrentDeleteReadError,
            ConcurrentDeleteDeleteError,
            MetadataChangedError,
            ProtocolChangedError,
        ) as e:
            now = log.snapshot()
            rest = _with_live_files(origin, now, bins, remaining) if _stay_valid(origin, now, work) else []
            _discard(log, [r for r in remaining if r not in rest])
            if not rest:
                raise
            reason, base, remaining = e, now, rest
        except ConflictError:
            _discard(log, remaining)
            raise
    _discard(log, remaining)
    raise reason


def _stay_valid(before: Snapshot, now: Snapshot, work: RewriteRequest) -> bool:
    """Whether files written for one version of the table are valid for another."""
    old, new = before.metadata, now.metadata
    # Properties are compared below; every append advances the marks of identity columns.
    bare = replace(new, configuration=old.configuration, name=old.name, description=old.description)
    same = only_marks_moved(old, bare)
    return work.metadata is None and same and _file_rules(before) == _file_rules(now)


def _with_live_files(
    before: Snapshot, now: Snapshot, bins: Sequence[Bin], rewritten: Sequence[Rewritten]
) -> list[Rewritten]:
    read = before.adds.take(pa.array([f.number for r in rewritten for f in bins[r.number].files], pa.int64()))
    live = pc.is_in(file_keys(read), value_set=file_keys(now.adds).combine_chunks()).to_pylist()
    out, start = list[Rewritten](), 0
    for r in rewritten:
        count = len(bins[r.number].files)
        if all(live[start : start + count]):
            out.append(r)
        start += count
    return out


def _actions(
    origin: Snapshot, work: RewriteRequest, bins: Sequence[Bin], rewritten: Sequence[Rewritten]
) -> RewriteOutcome:
    now = origin.engine.runtime.clock_ms()
    numbers = [f.number for r in rewritten for f in bins[r.number].files]
    old = origin.adds.take(pa.array(numbers, pa.int64()))
    fields = partition_fields(origin.schema, origin.metadata.partition_columns)
    partitions = PartitionKeys.of(old["partitionValues"], fields).count
    removes = [{**remove_action(a, now)["remove"], "dataChange": False} for a in old.to_pylist()]
    adds: list[Mapping[str, Any]] = []
    for r in rewritten:
        for add in r.adds:
            new = {**add, "dataChange": False}
            if work.tags:
                tags = {**(add.get("tags") or {}), **work.tags[r.number]}
                new |= {"tags": tags, "clusteringProvider": PROVIDER}
            adds.append(new)
    committed = tuple(r.number for r in rewritten)
    return RewriteOutcome(origin.version, committed, tuple(adds), tuple(removes), partitions)
