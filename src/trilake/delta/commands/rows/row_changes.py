"""The common steps of DELETE, UPDATE, MERGE and overwrite by predicate.

A command finds its rows (:func:`find_rows`, or a join), writes new ones with :class:`RowChangeWriter`, removes old ones
(:mod:`~trilake.delta.commands.rows.removal`) and ends in :func:`commit_changes`.

Protocol: *Add CDC File*, *Row Tracking*.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from trilake.common.progress import track
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, check_read_at, commit
from trilake.delta.files.file_plan import FilePlan, WrittenFiles, not_written
from trilake.delta.files.write_files import TaskWriter
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.column_mapping import FIELD_ID
from trilake.delta.protocol.iceberg import ROW_ID_FIELD, ROW_VERSION_FIELD, compat_versions
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema import PrimitiveType, StructField
from trilake.delta.rules.identity import updated_schema
from trilake.delta.rules.row_rules import RowPipeline
from trilake.delta.scan.changes import CHANGE_TYPE
from trilake.delta.scan.conform import as_nullable
from trilake.delta.scan.parquet_rows import as_dictionaries
from trilake.delta.scan.read import Positions, RowsOfFiles, pack_size, packs, read_task, read_together
from trilake.delta.scan.scan import FileTask, ReadPlan, plan_scan, read_plan, read_schema, skip_files
from trilake.delta.scan.statistics import record_counts
from trilake.errors import ConflictError, InvalidArgumentError, TrilakeError
from trilake.expr import Filter
from trilake.expr.terms.engine import Query
from trilake.storage import ownership
from trilake.storage.base import Store

T = TypeVar("T")
CDF = "delta.enableChangeDataFeed"
VECTORS = "delta.enableDeletionVectors"

#: Runs a function for each task, in any order and place.
Runner = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


def run_here(function: Callable[[Any], Any], tasks: Sequence[Any], threads: int | None = None) -> Iterator[Any]:
    """A :data:`Runner` that runs tasks in threads of this process, by default one per processor."""
    if len(tasks) <= 1:
        yield from map(function, tasks)
        return
    with ThreadPoolExecutor(min(len(tasks), threads or os.cpu_count() or 1)) as pool:
        yield from pool.map(function, tasks)


def gathered(items: Iterable[T], weigh: Callable[[T], Sequence[int]], limits: Sequence[int]) -> Iterator[list[T]]:
    """Consecutive items in lists; a list ends when the sum of one of the items' weights reaches its limit.

    >>> list(gathered([3, 4, 5], lambda n: (n,), (7,)))
    [[3, 4], [5]]
    """
    waiting, totals = list[T](), [0] * len(limits)
    for item in items:
        waiting.append(item)
        totals = [total + weight for total, weight in zip(totals, weigh(item), strict=True)]
        if any(total >= limit for total, limit in zip(totals, limits, strict=True)):
            yield waiting
            waiting, totals = [], [0] * len(limits)
    if waiting:
        yield waiting


def uses_vectors(snapshot: Snapshot) -> bool:
    """Whether removing rows writes deletion vectors."""
    metadata = snapshot.metadata
    has_feature = "deletionVectors" in (snapshot.protocol.writer_features or ())
    # Files in other formats (ORC, CSV, ...) never get a vector, whatever the property says.
    return (
        has_feature and is_on(metadata.configuration, VECTORS) and metadata.provider.lower() in snapshot.engine.written
    )


def records_changes(snapshot: Snapshot) -> bool:
    """Whether the change data feed is on."""
    return snapshot.properties.is_on(CDF)


def check_changeable(snapshot: Snapshot, operation: str, *, removes: bool = True) -> None:
    """Check that rows of the table may be changed.

    Raises ``UnsupportedProtocolError`` for an unsupported table, ``InvalidArgumentError`` for an append-only table or
    an unsupported file format.  Set ``removes=False`` for a command that only adds rows.
    """
    snapshot.check_writable()
    if removes:
        snapshot.check_removable(so=f"{operation} is not possible")
    provider = snapshot.metadata.provider.lower()
    if provider not in snapshot.engine.written:
        raise not_written(snapshot.engine, provider, snapshot.uri)


def row_columns(snapshot: Snapshot) -> tuple[StructField, ...]:
    """The columns with the id and the version of moved rows, in this order; empty without row tracking."""
    conf = snapshot.metadata.configuration
    if not is_on(conf, row_tracking.ENABLED):
        return ()
    names = (conf.get(row_tracking.ID_COLUMN), conf.get(row_tracking.VERSION_COLUMN))
    return tuple(StructField(n, PrimitiveType("long")) for n in names if n)


def whole_rows(snapshot: Snapshot) -> ReadPlan:
    """The plan for reading all columns of rows that are rewritten, followed by :func:`row_columns`."""
    plan = read_plan(snapshot, None, None)
    return replace(plan, fields=(*plan.fields, *row_columns(snapshot)))


def rewrite_plan(snapshot: Snapshot, job_id: str) -> FilePlan:
    """The plan for writing rows unchanged, followed by :func:`row_columns`."""
    plan = changed_rows_plan(snapshot, snapshot.metadata, job_id)
    return replace(plan, schema=read_schema(plan.schema))  # a file may lack a required column


def changed_rows_plan(snapshot: Snapshot, metadata: Metadata, job_id: str) -> FilePlan:
    """The plan for writing changed rows with ``metadata``: like :func:`rewrite_plan`, for rows with all columns."""
    with_ids = bool(compat_versions(snapshot.metadata.configuration))
    extra = tuple(
        pa.field(f.name, pa.int64(), metadata={FIELD_ID: str(i)} if with_ids else None)
        for f, i in zip(row_columns(snapshot), (ROW_ID_FIELD, ROW_VERSION_FIELD), strict=False)
    )
    return FilePlan.of(metadata, snapshot.protocol, snapshot.engine, job_id, extra=extra)


def change_file_plan(files: FilePlan) -> FilePlan:
    """The plan for change files of the rows that ``files`` writes; ``_change_type`` is the last column."""
    return replace(
        files,
        schema=read_schema(files.schema),
        action="cdc",
        materialized=False,
        extra=(pa.field(CHANGE_TYPE, pa.string()),),
        rules=None,
        required=None,
    )


def with_change_type(rows: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """Append the change type to rows."""
    return rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(kind, pa.string()), rows.num_rows))


@dataclass(frozen=True)
class ChangedFile:
    """A file that a command reads: ``number`` is its position in ``snapshot.adds``.

    ``base_row_id`` and ``commit_version`` apply to its rows that were never moved.
    """

    number: int
    file: FileTask
    base_row_id: int | None = None
    commit_version: int | None = None


def changed_files(snapshot: Snapshot, numbers: Sequence[int] | np.ndarray[Any, Any]) -> list[ChangedFile]:
    """The files at these positions of ``snapshot.adds``."""
    positions = np.asarray(numbers, np.int64)
    files = snapshot.adds.take(pa.array(positions))
    scan = plan_scan(replace(snapshot, state=replace(snapshot.state, adds=files)))
    ids, versions = files["baseRowId"].to_pylist(), files["defaultRowCommitVersion"].to_pylist()
    return [
        ChangedFile(int(n), file, row_id, version)
        for n, file, row_id, version in zip(positions, scan.tasks(), ids, versions, strict=True)
    ]


def live_rows(adds: pa.Table, query: Query) -> pa.ChunkedArray:
    """The number of undeleted rows of each file; null if the statistics lack it."""
    deleted = pc.fill_null(pc.struct_field(adds["deletionVector"], "cardinality"), 0)
    return pc.subtract(record_counts(adds, query), deleted)


def with_row_ids(some: RowsOfFiles, sources: Sequence[ChangedFile], plan: ReadPlan, files: FilePlan) -> pa.RecordBatch:
    """The columns of ``plan.output``, followed, with row tracking, by the id and the version of each row.

    ``some`` are rows of the files ``sources``, read with the plan of :func:`whole_rows`; ``files`` is the plan of
    :func:`rewrite_plan`.
    """
    rows = some.rows.select(list(plan.output))
    if not files.extra:
        return rows
    at = pa.array(some.files)
    bases = pa.array([s.base_row_id for s in sources], pa.int64()).take(at)
    fresh = {
        row_tracking.ID_COLUMN: pc.add(bases, pa.array(some.positions)),
        row_tracking.VERSION_COLUMN: pa.array([s.commit_version for s in sources], pa.int64()).take(at),
    }
    keys = [key for key in fresh if files.configuration.get(key)]
    for f, key in zip(files.extra, keys, strict=True):
        rows = rows.append_column(f.name, pc.coalesce(some.rows.column(f.name), fresh[key]))
    return rows


# --- The commit, and the clean-up after a failure ---------------------------------------------------------------------


def commit_changes(
    log: DeltaLog,
    snapshot: Snapshot,
    operation: str,
    parameters: Mapping[str, Any],
    actions: Sequence[Mapping[str, Any]],
    read: ReadSet,
    metrics: Mapping[str, Any],
    *,
    job_id: str,
    user_metadata: str | None = None,
    txn: tuple[str, int] | None = None,
    metadata: Metadata | None = None,
    protocol: Protocol | None = None,
) -> int | None:
    """Commit the actions of a command at the table's isolation level; return the new version.

    ``txn`` is an application id and its transaction version; ``metadata`` and ``protocol`` are those of the resulting
    table.  Returns ``None`` if there is nothing to commit.  Raises the errors of
    :func:`trilake.delta.commit.transaction.commit`; after a conflict, deletes the new files, whose names contain
    ``job_id``.
    """
    metadata = None if metadata == snapshot.metadata else metadata
    if not actions and metadata is None and txn is None:
        for other in read.elsewhere:
            check_read_at(log, other, snapshot.version)  # that nothing matched must be true of one version
        return None
    plan = CommitPlan(
        operation=operation,
        parameters=parameters,
        file_actions=actions,
        metadata=metadata,
        protocol=None if protocol == snapshot.protocol else protocol,
        metrics=metrics,
        user_metadata=user_metadata,
        read=replace(read, isolation=snapshot.properties.isolation_level()),
        txns={} if txn is None else dict([txn]),
    )
    try:
        return commit(log, snapshot, plan)
    except (ConflictError, InvalidArgumentError):
        discard(log.store, actions, job_id)
        raise


def moved_on(metadata: Metadata, parts: Iterable[WrittenFiles]) -> Metadata:
    """The metadata, with identity columns advanced past the values in the written files."""
    marks = [p.marks for p in parts if p.marks]
    if not marks:
        return metadata
    return replace(metadata, schema_string=updated_schema(metadata.schema, marks).json())


def discard(store: Store, actions: Iterable[Mapping[str, Any]], job_id: str) -> None:
    """Delete the data and change files of a job whose actions will never be committed.

    Vectors stay for vacuum, since an action does not show whether its vector is new.
    """
    files = [a.get("cdc") or a.get("add") for a in actions]
    ownership.discard(store, [unquote(str(f["path"])) for f in files if f is not None and job_id in f["path"]])


@dataclass(frozen=True)
class ChangedPart:
    """The result of a task that writes rows again: the actions of its files, and the rows that they replace.

    ``removed_rows`` are serialized bitmaps of row indexes by position in ``snapshot.adds``, ``replaced`` the positions
    of fully rewritten files, ``copied`` their number of unchanged rows.
    """

    written: WrittenFiles
    cdc: tuple[Mapping[str, Any], ...] = ()
    removed_rows: Mapping[int, bytes] = field(default_factory=dict)
    replaced: tuple[int, ...] = ()
    updated: int = 0
    copied: int = 0
    #: The error of the task, whose files are deleted; returned, so that the files of other tasks can be deleted, too.
    error: TrilakeError | None = None

    @property
    def actions(self) -> list[dict[str, Any]]:
        return [*({"add": a} for a in self.written.actions), *({"cdc": a} for a in self.cdc)]


def successful(store: Store, results: Iterable[ChangedPart], job_id: str) -> list[ChangedPart]:
    """All results; if a task failed, deletes the files of the others and raises its error."""
    parts = list(results)
    failed = next((p.error for p in parts if p.error is not None), None)
    if failed is not None:
        discard(store, [a for p in parts for a in p.actions], job_id)
        raise failed
    return parts


# --- The output of a task of UPDATE or MERGE: new files, change files, row ids ----------------------------------------


@dataclass(frozen=True)
class RowCounts:
    """Counts of rows by kind of change.

    Rows that an UPDATE changes count as matched.
    """

    source: int = 0
    updated_matched: int = 0
    updated_unmatched: int = 0
    deleted_matched: int = 0
    deleted_unmatched: int = 0
    inserted: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(*(getattr(self, n) + getattr(other, n) for n in self.__dataclass_fields__))

    @property
    def updated(self) -> int:
        return self.updated_matched + self.updated_unmatched

    @property
    def deleted(self) -> int:
        return self.deleted_matched + self.deleted_unmatched


class RowChangeWriter:
    """The open data and change files of one task, and the :attr:`counts` of rows written.

    A context manager: on an error, deletes its files.  Incoming rows have passed the table's rules.  ``feed`` indicates
    whether the table records changes.
    """

    def __init__(self, store: Store, files: FilePlan, task: int, *, feed: bool) -> None:
        self.files, self.feed, self.counts = files, feed, RowCounts()
        self.rows = TaskWriter(store, files, task)
        self.changes = TaskWriter(store, change_file_plan(files), task)
        id_column = files.configuration.get(row_tracking.ID_COLUMN)
        #: The column for the ids of moved rows; ``None`` without row tracking.
        self.id_column = next((f.name for f in files.extra if f.name == id_column), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.abort()

    def abort(self) -> None:
        self.rows.abort()
        self.changes.abort()

    def update(
        self,
        new: pa.RecordBatch,
        old: Iterable[pa.RecordBatch],
        ids: pa.Array | None,
        *,
        matched: bool = True,
        dictionaries: Collection[str] = (),
    ) -> None:
        """Write rows with new values.

        ``old`` are the old rows, for the change feed.  With row tracking, the rows keep their ``ids``, and their
        version is that of the commit.  ``matched`` indicates whether they matched a condition; ``dictionaries`` are
        string columns that are dictionaries in other rows of the file, since a column has one type per file.
        """
        self.record_update(new, old, matched=matched)
        self._write_new(as_dictionaries(new, dictionaries), ids)

    def record_update(self, new: pa.RecordBatch, old: Iterable[pa.RecordBatch], *, matched: bool = True) -> None:
        """Record an update of rows whose data file is written elsewhere; parameters as in :meth:`update`.

        If the table records changes, both images have all columns.
        """
        if self.feed:
            for rows in old:
                self.changes.write(with_change_type(rows, "update_preimage"))
            self.changes.write(with_change_type(self._as_read(new), "update_postimage"))
        count = new.num_rows
        self.counts += RowCounts(updated_matched=count) if matched else RowCounts(updated_unmatched=count)

    def delete(self, count: int, old: Iterable[pa.RecordBatch], *, matched: bool = True) -> None:
        """Record that ``count`` rows are deleted; ``old`` are these rows, for the change feed."""
        if self.feed:
            for rows in old:
                self.changes.write(with_change_type(rows, "delete"))
        self.counts += RowCounts(deleted_matched=count) if matched else RowCounts(deleted_unmatched=count)

    def insert(self, new: pa.RecordBatch, *, feed: bool) -> None:
        """Write new rows.

        Without ``feed``, the change feed reads the rows from the data files, which works if nothing else changed.
        """
        if self.feed and feed:
            self.changes.write(with_change_type(self._as_read(new), "insert"))
        self._write_new(new, None)
        self.counts += RowCounts(inserted=new.num_rows)

    def copy(self, rows: pa.RecordBatch, tracked: Sequence[pa.Array]) -> None:
        """Write unchanged rows, with their row tracking columns."""
        for f, values in zip(self.files.extra, tracked, strict=True):
            rows = rows.append_column(f, values)
        self.rows.write(rows)

    def _as_read(self, new: pa.RecordBatch) -> pa.RecordBatch:
        """Cast rows that have passed the rules to the nullable types of rows that were read from files.

        Both kinds of rows are in the same change file.
        """
        schema = self.changes.plan.schema.to_arrow_schema()
        columns = [as_nullable(c, f.type) for c, f in zip(new.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _write_new(self, new: pa.RecordBatch, ids: pa.Array | None) -> None:
        none = pa.nulls(new.num_rows, pa.int64())
        self.copy(new, [ids if ids is not None and f.name == self.id_column else none for f in self.files.extra])

    def close(self, pipelines: Iterable[RowPipeline | None]) -> tuple[WrittenFiles, tuple[Mapping[str, Any], ...]]:
        """Finish all files; return what was written, and the actions of change files.

        ``pipelines`` are the rules that new rows passed.
        """
        marks: dict[str, int] = {}
        for pipeline in filter(None, pipelines):
            for column in pipeline.rules.identities:
                further = column.further(pipeline.marks.get(column.name), marks.get(column.name))
                if further is not None:
                    marks[column.name] = further
        return WrittenFiles(tuple(self.rows.close()), marks), tuple(self.changes.close())


# --- The rows that match a predicate, for DELETE and overwrite by predicate -------------------------------------------
# Files whose rows all provably match by statistics are not read; of other files, only the predicate's columns are.


#: Bytes and rows per evaluation of a predicate, whose fixed cost equals that of about 50,000 rows.
_PIECE_BYTES, _PIECE_ROWS = 16 << 20, 1 << 19


@dataclass(frozen=True)
class FoundRows:
    """The matching rows: indexes by position of their file in ``snapshot.adds``, and the files whose rows all match.

    ``looked_into`` are the positions of all files that may have matching rows, including ``whole``.
    """

    rows: Mapping[int, BitMap64]
    whole: tuple[int, ...]
    looked_into: tuple[int, ...]

    def paths(self, snapshot: Snapshot) -> frozenset[str]:
        """The paths of ``looked_into``, as the log spells them."""
        return frozenset(snapshot.adds["path"].take(pa.array(self.looked_into, pa.int64())).to_pylist())


def candidates(snapshot: Snapshot, filter: Filter) -> tuple[list[int], list[int]]:
    """Positions of the files to search, and of those whose rows all match according to their statistics."""
    result = skip_files(snapshot, filter)
    keep, every = result.keep, result.every_row
    return np.flatnonzero(keep & ~every).tolist(), np.flatnonzero(keep & every).tolist()


def find_rows(log: DeltaLog, snapshot: Snapshot, filter: Filter, *, run: Runner = run_here) -> FoundRows:
    """Find the live rows for which ``filter`` is true, in tasks."""
    maybe, whole = candidates(snapshot, filter)
    plan = read_plan(snapshot, sorted(filter.columns), filter)
    tasks = list(
        packs(changed_files(snapshot, maybe), lambda f: f.file.size, pack_size(len(maybe), os.cpu_count() or 1))
    )
    results = run(partial(_matching, log.store, plan, filter), tasks)
    tracked = track(results, "looking for rows", len(tasks), unit="tasks")
    rows = {number: BitMap64.deserialize(data) for indexes in tracked for number, data in indexes.items()}
    return FoundRows(rows, tuple(whole), tuple(sorted([*maybe, *whole])))


def _matching(store: Store, plan: ReadPlan, filter: Filter, sources: Sequence[ChangedFile]) -> dict[int, bytes]:
    indexes = matching_rows(store, sources, plan, filter)
    return {number: as_bitmap(positions).serialize() for number, positions in indexes.items()}


def as_bitmap(positions: Positions) -> BitMap64:
    """Row indexes as a bitmap."""
    return BitMap64(positions.astype(np.uint64))


def matching_rows(store: Store, sources: Sequence[ChangedFile], plan: ReadPlan, filter: Filter) -> dict[int, Positions]:
    """Indexes of the live rows of some files for which ``filter`` is true, by file number.

    Leaves out files without such rows.  ``plan`` reads the filter's columns.
    """
    matching: list[RowsOfFiles] = []
    for some in in_large_pieces(read_together(store, [s.file for s in sources], plan)):
        mask = filter.mask(some.rows)
        if mask.true_count:
            hit = mask.to_numpy(zero_copy_only=False)
            matching.append(RowsOfFiles(some.files[hit], some.positions[hit], some.rows.slice(0, 0)))
    if not matching:
        return {}
    files = np.concatenate([m.files for m in matching])
    positions = np.concatenate([m.positions for m in matching])
    numbers, starts = np.unique(files, return_index=True)
    pieces = np.split(positions, starts[1:])
    return {sources[n].number: piece for n, piece in zip(numbers.tolist(), pieces, strict=True)}


def in_large_pieces(batches: Iterable[RowsOfFiles]) -> Iterator[RowsOfFiles]:
    """The same rows in fewer batches."""
    for some in gathered(batches, lambda b: (b.rows.nbytes, b.rows.num_rows), (_PIECE_BYTES, _PIECE_ROWS)):
        if len(some) == 1:
            yield some[0]
        else:
            files, positions, rows = zip(*some, strict=True)
            yield RowsOfFiles(np.concatenate(files), np.concatenate(positions), pa.concat_batches(rows))


def write_inserts(store: Store, snapshot_plan: ReadPlan, files: FilePlan, tasks: Sequence[FileTask]) -> list[Any]:
    """Write change files for the inserts of a commit that has change files."""
    with TaskWriter(store, change_file_plan(files), 0) as feed:
        for task in tasks:
            for batch in read_task(store, task, snapshot_plan):
                feed.write(with_change_type(batch, "insert"))
        return [{"cdc": a} for a in feed.close()]
