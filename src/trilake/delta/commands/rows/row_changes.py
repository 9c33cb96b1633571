"""Taking rows out of a table: what DELETE, UPDATE, MERGE and an overwrite by predicate have in common.

A command finds out which live rows of which files it takes away; :func:`take_rows` makes the actions of it: deletion
vectors where the table has those, a copy of the rest of the file otherwise, and for a file without any row left its
removal alone.  New rows are the command's own business, and so is the decision to commit
(:mod:`trilake.delta.commands.rows.change_commit`).

Protocol: *Deletion Vectors*, *Add CDC File*, *Row Tracking*.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from trilake.delta.commands.rows.change_commit import discard
from trilake.delta.commit import row_tracking
from trilake.delta.commit.transaction import remove_action
from trilake.delta.files.file_plan import FilePlan, not_written
from trilake.delta.files.write_files import TaskWriter
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.deletion_vectors import row_indexes, store_vectors
from trilake.delta.protocol.features import check_writable
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema import PrimitiveType, StructField
from trilake.delta.scan.changes import CHANGE_TYPE
from trilake.delta.scan.parquet_rows import as_texts, places_mask, rows_as_stored
from trilake.delta.scan.read import Positions, locate
from trilake.delta.scan.scan import FileTask, ReadPlan, plan_scan, read_plan, read_schema
from trilake.delta.scan.statistics import record_counts
from trilake.errors import (
    CorruptFileError,
    InvalidArgumentError,
    MissingFileError,
    ObjectNotFoundError,
    TrilakeError,
)
from trilake.parquet_files import DAMAGE
from trilake.progress import track
from trilake.runtime import Runtime
from trilake.storage.base import Store

CDF = "delta.enableChangeDataFeed"
VECTORS = "delta.enableDeletionVectors"

#: Runs a function over tasks, in any order and place.
Runner = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


def run_here(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
    """A :data:`Runner` that runs tasks in threads of this process."""
    if len(tasks) <= 1:
        yield from map(function, tasks)
        return
    with ThreadPoolExecutor(min(len(tasks), os.cpu_count() or 1)) as pool:
        yield from pool.map(function, tasks)


# --- what a table asks for -------------------------------------------------------------------------------------------


def uses_vectors(snapshot: Snapshot) -> bool:
    """Whether rows that are taken away go into deletion vectors."""
    metadata = snapshot.metadata
    named = "deletionVectors" in (snapshot.protocol.writer_features or ())
    # Files that are not written here (ORC, CSV, ...) never get one, whatever the property says.
    return named and is_on(metadata.configuration, VECTORS) and metadata.provider.lower() in snapshot.engine.written


def records_changes(snapshot: Snapshot) -> bool:
    """Whether the change data feed is on."""
    return snapshot.properties.is_on(CDF)


def check_changeable(snapshot: Snapshot, operation: str, *, removes: bool = True) -> None:
    """Raise where no command may change rows of the table: ``UnsupportedProtocolError`` where this library cannot write
    it, ``InvalidArgumentError`` where it is append-only or of a format that is not written.

    ``removes=False`` is for a command that only adds rows.
    """
    metadata, uri = snapshot.metadata, snapshot.uri
    check_writable(snapshot.protocol, metadata, uri=uri, version=snapshot.version)
    if removes:
        check_removable(metadata, operation, uri)
    provider = metadata.provider.lower()
    if provider not in snapshot.engine.written:
        raise not_written(snapshot.engine, provider, uri)


def check_removable(metadata: Metadata, operation: str, uri: str) -> None:
    """Raise ``InvalidArgumentError`` where the table is append-only, and may lose no row."""
    if is_on(metadata.configuration, "delta.appendOnly"):
        raise InvalidArgumentError(
            f"the table is configured to only allow appends (delta.appendOnly=true), which {operation} is not",
            help="set delta.appendOnly=false to change or remove rows",
            file=uri,
            condition="DELTA_CANNOT_MODIFY_APPEND_ONLY",
        )


def row_columns(snapshot: Snapshot) -> tuple[StructField, ...]:
    """The columns that keep the id and version of rows that move, in this order; empty where rows are not tracked."""
    conf = snapshot.metadata.configuration
    if not is_on(conf, row_tracking.ENABLED):
        return ()
    names = (conf.get(row_tracking.ID_COLUMN), conf.get(row_tracking.VERSION_COLUMN))
    return tuple(StructField(n, PrimitiveType("long")) for n in names if n)


def whole_rows(snapshot: Snapshot) -> ReadPlan:
    """How to read all columns of rows that are written again, with those of :func:`row_columns` behind them."""
    plan = read_plan(snapshot, None, None)
    return replace(plan, fields=(*plan.fields, *row_columns(snapshot)))


def rewrite_plan(snapshot: Snapshot, job_id: str) -> FilePlan:
    """How to write rows of the table again: as they are, with the columns of :func:`row_columns` behind them."""
    plan = changed_rows_plan(snapshot, snapshot.metadata, job_id)
    return replace(plan, schema=read_schema(plan.schema))  # a file may lack a column that must not be null


def changed_rows_plan(snapshot: Snapshot, metadata: Metadata, job_id: str) -> FilePlan:
    """How to write rows that change under ``metadata``: as :func:`rewrite_plan`, for rows that have all columns."""
    schema = metadata.schema
    return FilePlan(
        schema,
        tuple(schema.field(c).name for c in metadata.partition_columns),
        job_id,
        snapshot.engine.for_tasks(),
        metadata.configuration,
        provider=metadata.provider.lower(),
        extra=tuple(pa.field(f.name, pa.int64()) for f in row_columns(snapshot)),
    )


def change_file_plan(files: FilePlan) -> FilePlan:
    """How to write change files of rows that ``files`` says how to write; ``_change_type`` stands last."""
    return replace(
        files,
        schema=read_schema(files.schema),
        action="cdc",
        extra=(pa.field(CHANGE_TYPE, pa.string()),),
        rules=None,
        required=None,
    )


def with_change_type(rows: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """Rows as the change feed has them: with what happened to them behind the table's columns."""
    return rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(kind, pa.string()), rows.num_rows))


# --- files to look into ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TouchedFile:
    """A file that a command looks into: ``number`` is its position in ``snapshot.adds``.

    ``base_row_id`` and ``commit_version`` are those of its rows that were never moved.
    """

    number: int
    file: FileTask
    base_row_id: int | None = None
    commit_version: int | None = None


def touched_files(snapshot: Snapshot, numbers: Sequence[int] | np.ndarray[Any, Any]) -> list[TouchedFile]:
    """The files at these positions of ``snapshot.adds``."""
    chosen = np.asarray(numbers, np.int64)
    files = snapshot.adds.take(pa.array(chosen))
    scan = plan_scan(replace(snapshot, state=replace(snapshot.state, adds=files)))
    ids, versions = files["baseRowId"].to_pylist(), files["defaultRowCommitVersion"].to_pylist()
    return [
        TouchedFile(int(n), file, row_id, version)
        for n, file, row_id, version in zip(chosen, scan.tasks(), ids, versions, strict=True)
    ]


def live_rows(adds: pa.Table) -> pa.ChunkedArray:
    """Rows of each file that are not deleted; null where the statistics do not say."""
    deleted = pc.fill_null(pc.struct_field(adds["deletionVector"], "cardinality"), 0)
    return pc.subtract(record_counts(adds), deleted)


def with_row_ids(
    batch: pa.RecordBatch, positions: Positions, plan: ReadPlan, files: FilePlan, source: TouchedFile
) -> pa.RecordBatch:
    """The columns of ``plan.output``, and behind them id and version of each row as they were, where the table tracks
    its rows.

    ``batch`` and ``positions`` come from :func:`~trilake.delta.scan.read.read_positions` with the plan of
    :func:`whole_rows`; ``files`` is that of :func:`rewrite_plan`.
    """
    rows = batch.select(list(plan.output))
    if not files.extra:
        return rows
    fresh = {
        row_tracking.ID_COLUMN: pa.nulls(len(positions), pa.int64())
        if source.base_row_id is None
        else pa.array(positions + source.base_row_id),
        row_tracking.VERSION_COLUMN: pa.scalar(source.commit_version, pa.int64()),
    }
    for f, key in zip(files.extra, _row_keys(files.configuration), strict=True):
        rows = rows.append_column(f.name, pc.coalesce(batch.column(f.name), fresh[key]))
    return rows


def _row_keys(configuration: Mapping[str, str]) -> list[str]:
    return [k for k in (row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN) if configuration.get(k)]


# --- taking rows away ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TakenRows:
    """The actions that take rows away, and what they came to; see :func:`take_rows`.

    ``removed`` are the paths of the removed actions as the log spells them.  ``rows`` were taken, ``None`` where a file
    that went whole does not say how many it had, and ``copied`` were written again as they are.
    Of a file that only got another vector nothing is counted but the vector.
    """

    actions: tuple[Mapping[str, Any], ...] = ()
    removed: frozenset[str] = frozenset()
    rows: int | None = 0
    copied: int = 0
    files_added: int = 0
    files_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    vectors_added: int = 0
    vectors_updated: int = 0
    vectors_removed: int = 0
    #: Whether the change feed of the commit must come from change files alone, of which ``actions`` have those of the
    #: rows taken.
    change_files: bool = False

    @property
    def metrics(self) -> dict[str, int]:
        """Operation metrics as the reference implementation names them, without those that only a command knows."""
        changes = [a["cdc"] for a in self.actions if "cdc" in a]
        return {
            "numRemovedFiles": self.files_removed,
            "numAddedFiles": self.files_added,
            "numCopiedRows": self.copied,
            "numDeletionVectorsAdded": self.vectors_added,
            "numDeletionVectorsUpdated": self.vectors_updated,
            "numDeletionVectorsRemoved": self.vectors_removed,
            "numAddedChangeFiles": len(changes),
            "numRemovedBytes": self.bytes_removed,
            "numAddedBytes": self.bytes_added,
        }


def take_rows(
    log: DeltaLog,
    snapshot: Snapshot,
    touched: Mapping[int, BitMap64],
    *,
    whole: Iterable[int] = (),
    job_id: str,
    change_type: str | None = None,
    runtime: Runtime,
    run: Runner = run_here,
) -> TakenRows:
    """Make the actions that take rows of a snapshot away.  Files and vectors are written; nothing is committed.

    Parameters
    ----------
    touched: the rows to take by position of their file in ``snapshot.adds``: indexes in the file of rows that are not
        deleted yet.  A file of which all rows are taken is removed, and one of which none are is left alone.
    whole: positions of files whose every row is taken.
    job_id: part of the names of new files.
    change_type: what the change feed calls these rows.  Where the feed is on and the actions alone do not say what was
        taken, because a file is written again, the rows go into change files.  ``None`` where the command writes
        change files itself, or none are wanted.
    run: where to copy files; one task a file.

    Raises ``MissingFileError``, ``CorruptFileError`` or ``DeletionVectorError`` for a file that cannot be read.
    """
    every = set(whole)
    numbers = sorted(every | {n for n, rows in touched.items() if len(rows)})
    if not numbers:
        return TakenRows()
    adds = snapshot.adds.take(pa.array(numbers, pa.int64()))
    live = dict(zip(numbers, live_rows(adds).to_pylist(), strict=True))
    taken = {n: touched[n] for n in numbers if n not in every}
    every |= {n for n, rows in taken.items() if live[n] is not None and len(rows) >= live[n]}
    sources = touched_files(snapshot, numbers)
    part = [s for s in sources if s.number not in every]
    counts = [live[n] if n in every else len(taken[n]) for n in numbers]
    base = _Outcome({}, {}, None if None in counts else sum(counts), 0, False)
    if uses_vectors(snapshot):
        unknown = {s.number for s in part if live[s.number] is None}
        outcome = _by_vectors(log.store, part, taken, unknown, base, runtime)
    else:
        feed = change_type if part and records_changes(snapshot) else None
        outcome = _by_copies(log.store, snapshot, sources if feed else part, taken, every, job_id, feed, base, run)
    return _actions(adds.to_pylist(), numbers, outcome, runtime)


@dataclass(frozen=True)
class _Outcome:
    """What becomes of files by their number: the field of their new vector, or the actions that replace them."""

    vectors: Mapping[int, Mapping[str, Any]]
    copies: Mapping[int, Sequence[Mapping[str, Any]]]
    rows: int | None
    copied: int
    change_files: bool
    #: Physical rows of files whose statistics do not say them.
    records: Mapping[int, int] = field(default_factory=dict)


def _actions(
    adds: Sequence[Mapping[str, Any]], numbers: Sequence[int], outcome: _Outcome, runtime: Runtime
) -> TakenRows:
    now = runtime.clock_ms()
    actions: list[Mapping[str, Any]] = []
    removed = [a for n, a in zip(numbers, adds, strict=True) if n not in outcome.vectors]
    for number, add in zip(numbers, adds, strict=True):
        actions.append(remove_action(add, now))
        if number in outcome.vectors:
            vector = outcome.vectors[number]
            actions.append({"add": add_with_vector(add, vector, outcome.records.get(number))})
        actions += outcome.copies.get(number, ())
    new = [a["add"] for copies in outcome.copies.values() for a in copies if "add" in a]
    with_vector = [n for n, a in zip(numbers, adds, strict=True) if a.get("deletionVector") is not None]
    return TakenRows(
        tuple(actions),
        frozenset(a["path"] for a in adds),
        outcome.rows,
        outcome.copied,
        files_added=len(new),
        files_removed=len(removed),
        bytes_added=sum(a["size"] for a in new),
        bytes_removed=sum(a["size"] or 0 for a in removed),
        vectors_added=len(outcome.vectors),
        vectors_updated=sum(n in outcome.vectors for n in with_vector),
        vectors_removed=len(with_vector),
        change_files=outcome.change_files,
    )


# --- by vectors ------------------------------------------------------------------------------------------------------


def _by_vectors(
    store: Store,
    files: Sequence[TouchedFile],
    taken: Mapping[int, BitMap64],
    unknown: set[int],
    base: _Outcome,
    runtime: Runtime,
) -> _Outcome:
    def joined(source: TouchedFile) -> tuple[BitMap64, int | None]:
        rows = taken[source.number]
        if source.file.vector is not None:
            rows = rows | source.file.vector.load(store)
        return rows, physical_rows(store, source.file) if source.number in unknown else None

    with ThreadPoolExecutor(8) as pool:
        vectors = list(pool.map(joined, files))
    left = [(f.number, rows, n) for f, (rows, n) in zip(files, vectors, strict=True) if n is None or len(rows) < n]
    fields = store_vectors(store, [rows for _, rows, _ in left], runtime.new_id)
    return replace(
        base,
        vectors={number: vector for (number, _, _), vector in zip(left, fields, strict=True)},
        records={number: n for number, _, n in left if n is not None},
    )


def physical_rows(store: Store, file: FileTask) -> int:
    """The rows that a Parquet file has, deleted ones included, by its footer.

    Raises ``MissingFileError`` or ``CorruptFileError``.
    """
    place, key = locate(store, file.path)
    try:
        with place.open_input(key) as source:
            return int(pq.read_metadata(source).num_rows)
    except ObjectNotFoundError as e:
        raise MissingFileError("a data file of the table is missing", file=f"{place.uri}/{key}") from e
    except DAMAGE as e:
        raise CorruptFileError(f"the Parquet file cannot be read: {e}", file=f"{place.uri}/{key}") from e


def add_with_vector(add: Mapping[str, Any], vector: Mapping[str, Any], records: int | None = None) -> dict[str, Any]:
    """The ``add`` of a file that loses rows to a vector: its statistics bound what is left, no longer tightly.

    ``records`` are the rows of the file where its statistics do not say them: with a vector, they must.
    """
    out = {k: v for k, v in add.items() if v is not None}
    for name in ("partitionValues", "tags"):
        if name in out:
            out[name] = dict(out[name])
    stats = orjson.loads(out["stats"]) if out.get("stats") else {}
    if records is not None:
        stats["numRecords"] = records
    if stats:
        out["stats"] = orjson.dumps({**stats, "tightBounds": False}).decode()
    return {**out, "dataChange": True, "deletionVector": dict(vector)}


# --- by copies -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Copy:
    """A file to copy without some rows: a serialized bitmap of those, ``None`` for all of them."""

    source: TouchedFile
    taken: bytes | None


@dataclass(frozen=True)
class _Copied:
    number: int
    copied: int = 0
    adds: tuple[Mapping[str, Any], ...] = ()
    cdc: tuple[Mapping[str, Any], ...] = ()
    #: Why the file was not copied.  Told and not raised, so that the files of other tasks can be deleted too.
    error: TrilakeError | None = None


@dataclass(frozen=True)
class _CopyJob:
    """What every task of a copy needs, as it travels."""

    store: Store
    read: ReadPlan
    files: FilePlan
    feed: str | None

    def __call__(self, task: _Copy) -> _Copied:
        try:
            return self._copy(task)
        except TrilakeError as e:
            return _Copied(task.source.number, error=e)

    def _copy(self, task: _Copy) -> _Copied:
        runtime, source, copied = self.files.engine.runtime, task.source, 0
        taken = None if task.taken is None else row_indexes(BitMap64.deserialize(task.taken))
        with (
            TaskWriter(self.store, self.files, source.number, runtime) as rest,
            TaskWriter(self.store, change_file_plan(self.files), source.number, runtime) as changes,
        ):
            for positions, batch in rows_as_stored(self.store, source.file, self.read):
                out = np.ones(len(positions), bool) if taken is None else places_mask(positions, taken)
                copied += int((~out).sum())
                if taken is not None:
                    rows = with_row_ids(batch, positions, self.read, self.files, source)
                    rest.write(rows.filter(pa.array(~out)) if out.any() else rows)
                if self.feed is not None and out.any():
                    rows = batch.select(list(self.read.output)).filter(pa.array(out))
                    changes.write(with_change_type(as_texts(rows), self.feed))
            return _Copied(source.number, copied, tuple(rest.close()), tuple(changes.close()))


def _by_copies(
    store: Store,
    snapshot: Snapshot,
    sources: Sequence[TouchedFile],
    taken: Mapping[int, BitMap64],
    every: set[int],
    job_id: str,
    feed: str | None,
    base: _Outcome,
    run: Runner,
) -> _Outcome:
    job = _CopyJob(store, whole_rows(snapshot), rewrite_plan(snapshot, job_id), feed)
    tasks = [_Copy(s, None if s.number in every else taken[s.number].serialize()) for s in sources]
    done: list[_Copied] = list(track(run(job, tasks), "copying files", len(tasks)))
    failed = next((c.error for c in done if c.error is not None), None)
    if failed is not None:
        discard(store, [{"add": a} for c in done for a in (*c.adds, *c.cdc)], job_id)
        raise failed
    copies = {c.number: [*({"add": a} for a in c.adds), *({"cdc": a} for a in c.cdc)] for c in done}
    return replace(base, copies=copies, copied=sum(c.copied for c in done), change_files=feed is not None)
