r"""Write tables of many files, one row group per file (spec: "Design": "Each row group is a separate file").

A write has two steps, which may run in different processes.  :class:`RowGroupWriter` writes rows to files of about the
requested size in a staging folder, whose name starts with ``_`` so that readers ignore it.  Then :func:`publish` moves
the staged files of all writers to the table, where they become visible at once (see :mod:`trilake.trevni.tables.jobs`),
or :func:`discard` removes them::

    write -> _staged/<write id>/...  --publish-->  part-....trv
                                     \-discard-->  nothing
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    StorageError,
    TableExistsError,
    UnknownOutcomeError,
    WriteFailedError,
)
from trilake.storage import Store
from trilake.storage.ownership import check_own
from trilake.storage.staging import move, remove_folder, sync_names
from trilake.table.folders import NULL
from trilake.table.results import WriteResult
from trilake.trevni.blocks.encode import BLOCK_SIZE
from trilake.trevni.file.writer import TrevniWriter
from trilake.trevni.nesting.columns import ColumnOptions
from trilake.trevni.tables import jobs
from trilake.trevni.tables.dataset import check_trevni, list_files
from trilake.trevni.tables.jobs import STAGING, Plan

#: Default row group size in bytes: one block of HDFS, for which the format was made.
ROW_GROUP_SIZE = 1 << 27
#: Rows between checks of the file size.
_STEP = 1 << 14
#: EntryContents 30,000 years in seconds.
_FAR = 30_000 * 365 * 86_400


@dataclass(frozen=True)
class WriteOptions:
    """Options of the files of a table; see :class:`trilake.trevni.TrevniWriter`.

    Files have about ``row_group_size`` bytes before compression; the open files of a writer share ``memory``.
    """

    codec: str | None = "snappy"
    checksum: str | None = "crc32"
    columns: Mapping[str, ColumnOptions | Mapping[str, Any]] = field(default_factory=dict)
    metadata: Mapping[str, bytes | str] = field(default_factory=dict)
    block_size: int = BLOCK_SIZE
    row_group_size: int = ROW_GROUP_SIZE
    memory: int = 1 << 28


@dataclass(frozen=True)
class StagedFile:
    """A staged file: current key, final key, rows and bytes."""

    staged: str
    key: str
    rows: int
    size: int


def new_write_id(runtime: Runtime = SYSTEM_RUNTIME) -> str:
    """Return the id of a new write, which its writers share."""
    return runtime.new_hex_id()


class RowGroupWriter:
    """Writes rows to staged files of one row group each.

    Parameters
    ----------
    store: store at the folder of the table.
    schema: schema of the rows, including partition columns.
    write_id, task: id from :func:`new_write_id`, optionally with a suffix after a dash, and the number of the writer.
    partition_by: columns that become ``key=value`` folders.

    As a context manager, it closes its files at the end of the block, or discards them after an error.  Methods raise
    ``WriteFailedError`` after the write was aborted.
    """

    def __init__(
        self,
        store: Store,
        schema: pa.Schema,
        write_id: str,
        *,
        task: str = "0",
        partition_by: Sequence[str] = (),
        options: WriteOptions | None = None,
    ) -> None:
        missing = [name for name in partition_by if name not in schema.names]
        if missing or len(set(partition_by)) < len(partition_by):
            raise InvalidArgumentError(f"partition_by must name distinct columns of the data, got {list(partition_by)}")
        if len(partition_by) == len(schema) and partition_by:
            raise InvalidArgumentError("a table needs at least one column that is not a partition column")
        self._store, self._write_id, self._task = store, write_id, task
        self._partition_by = list(partition_by)
        self._schema = schema
        self._file_schema = pa.schema([f for f in schema if f.name not in partition_by], metadata=schema.metadata)
        self._options = options or WriteOptions()
        self._open: dict[str, tuple[TrevniWriter, str, str]] = {}
        self._number = 0
        #: Finished files.
        self.files: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.  Raises ``SchemaMismatchError`` and ``StorageError``."""
        if batch.schema.names != self._schema.names:
            raise SchemaMismatchError(
                f"expected the columns {self._schema.names}, got a batch with {batch.schema.names}"
            )
        for folder, rows in self._by_partition(batch):
            for start in range(0, rows.num_rows, _STEP):
                writer, _, _ = self._writer(folder)
                writer.write(rows.slice(start, _STEP))
                if writer.size >= self._options.row_group_size:
                    self._finish(folder)

    def _by_partition(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not self._partition_by:
            yield "", batch
            return
        keys = [_folder_names(name, batch.column(name)) for name in self._partition_by]
        folders = pc.binary_join_element_wise(*keys, "/").dictionary_encode()
        rows = batch.select(self._file_schema.names)
        for code, folder in enumerate(folders.dictionary.to_pylist()):
            yield folder, rows.filter(pc.equal(folders.indices, code))

    def _writer(self, folder: str) -> tuple[TrevniWriter, str, str]:
        if folder not in self._open:
            name = f"part-{self._task}-{self._number:05d}-{self._write_id}.trv"
            self._number += 1
            key = f"{folder}/{name}" if folder else name
            staged = f"{STAGING}/{self._write_id}/{key}"
            options = self._options
            self._check_running()
            writer = TrevniWriter(
                (self._store, staged),
                self._file_schema,
                codec=options.codec,
                checksum=options.checksum,
                columns=options.columns,
                metadata=options.metadata,
                block_size=options.block_size,
                # Many partitions may be open at once and share the memory.
                memory=max(1 << 20, options.memory // (1 + len(self._open))),
            )
            self._open[folder] = (writer, staged, key)
            # While this file was created, the job may have been aborted and its files removed.
            self._check_running()
        return self._open[folder]

    def _finish(self, folder: str) -> None:
        writer, staged, key = self._open.pop(folder)
        writer.close()
        self.files.append(StagedFile(staged, key, writer.rows, self._store.head(staged).size))
        self._check_running()

    def _check_running(self) -> None:
        jobs.check_running(self._store, jobs.job_of(self._write_id))

    def close(self) -> list[StagedFile]:
        """Finish all files and return them."""
        if not self._open and not self.files and not self._partition_by:
            # A table without rows has one file with the schema.
            self._writer("")
        for folder in list(self._open):
            self._finish(folder)
        return self.files

    def discard(self) -> None:
        """Remove all files."""
        for writer, _, _ in self._open.values():
            writer.discard()
        self._open.clear()
        discard(self._store, self.files)
        self.files = []

    def __enter__(self) -> RowGroupWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def publish(
    store: Store,
    files: Sequence[StagedFile],
    *,
    replace: bool = False,
    first: bool = False,
    job: str | None = None,
    runtime: Runtime = SYSTEM_RUNTIME,
) -> None:
    """Move staged files to the table; with ``replace`` they replace all current files.

    Readers see the previous files until the last new one is in place and on disk, then all new files at once.  With
    ``first`` the folder must be empty.  Concurrent calls with ``replace`` or ``first`` run one after the other, see
    :func:`begin_alone`.  ``job`` is the id of the write, from which its tasks find its outcome.

    Raises ``WriteFailedError`` if a file cannot be moved or the write was aborted, and ``TableExistsError`` with
    ``first``; then nothing has changed.  Raises ``UnknownOutcomeError`` if the store does not confirm the commit; then
    either all rows are visible or none.
    """
    if not files and not replace:
        return
    job = job or new_write_id()
    plan = jobs.Plan(tuple(file.key for file in files))
    _check_free(store, plan.adds)

    def removes() -> tuple[str, ...]:
        files = list_files(store)
        check_trevni(store, files)
        old = tuple(file.key for file in files)
        if first and old:
            raise TableExistsError("the folder already has files", file=store.uri)
        check_own(store, old, what="the overwrite")
        return old

    if replace or first:  # outside of the try: errors about the folder are not failures of the write
        plan = jobs.Plan(plan.adds, removes())
    done = 0
    try:
        if replace or first:
            plan = begin_alone(store, job, plan, removes, runtime)
        else:
            jobs.begin(store, job, plan)
        for file in files:
            done += 1
            move(store, file.staged, file.key)
        sync_names(store, plan.adds)
    except (StorageError, OSError) as e:
        _roll_back(store, job, plan, under_way=isinstance(e, UnknownOutcomeError))
        raise _failed(store, f"file {done} of {len(files)} could not be renamed: {e}") from e
    try:
        outcome = jobs.record_outcome(store, job, "committed")
    except UnknownOutcomeError:
        raise
    except StorageError as e:
        _roll_back(store, job, plan)
        raise _failed(store, f"the write could not be committed: {e}") from e
    if outcome == "aborted":
        _roll_back(store, job, plan)
        raise _failed(store, "the write was aborted before it was committed")
    with suppress(StorageError, OSError):  # the write is committed; the next one cleans up
        now = store.head(jobs.end_key(job)).modified_ms
        jobs.complete(store, job, plan, "committed")
        _remove_staged_copies(store, files)
        jobs.finish_stale_jobs(store, now)


def _check_free(store: Store, keys: Sequence[str]) -> None:
    for key in keys:
        if store.find(key) is not None:
            raise WriteFailedError("a file with this name already exists", help="use a new write id", file=key)


def _roll_back(store: Store, job: str, plan: jobs.Plan, *, under_way: bool = False) -> None:
    """Remove the moved files of a job; if a move may still be ``under_way``, keep the plan, which hides its file."""
    with suppress(StorageError, OSError):  # readers ignore the files while the plan exists
        if jobs.record_outcome(store, job, "aborted") == "aborted":
            jobs.complete(store, job, plan, "aborted", keep_records=under_way)


def _failed(store: Store, message: str) -> WriteFailedError:
    help = f"readers see no change; the staged files are below {STAGING}"
    return WriteFailedError(message, help=help, file=store.uri)


def discard(store: Store, files: Sequence[StagedFile]) -> None:
    """Remove staged files."""
    store.delete([file.staged for file in files])
    _remove_staged_copies(store, files)


def _remove_staged_copies(store: Store, files: Sequence[StagedFile]) -> None:
    if store.local_path("x") is None:
        store.delete([file.staged for file in files])
    for folder in {"/".join(file.staged.split("/")[:2]) for file in files}:
        remove_folder(store, folder)
    jobs.remove_staging_folder(store)


def write_result(files: Sequence[StagedFile] = ()) -> WriteResult:
    """The result of a write that published these files."""
    return WriteResult(None, len(files), 0, sum(f.rows for f in files), sum(f.size for f in files))


def _folder_names(name: str, values: pa.Array) -> pa.Array:
    """Return ``key=value`` for each row; only distinct values are quoted."""
    encoded = values.dictionary_encode() if not pa.types.is_dictionary(values.type) else values
    try:
        strings = encoded.dictionary.cast(pa.string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise InvalidArgumentError(f"a column of type {values.type} cannot be a partition column", column=name) from e
    except UnicodeDecodeError as e:
        raise SchemaMismatchError(f"a partition value is not valid UTF-8: {e}", column=name) from e
    _check_years(name, encoded.dictionary)
    key = quote(name, safe="")
    # Like Hive, treat an empty string as null.
    quoted = pa.array([f"{key}={quote(s, safe=' ') if s else NULL}" for s in strings], pa.string())
    return pc.fill_null(quoted.take(encoded.indices), f"{key}={NULL}")


def _check_years(name: str, values: pa.Array) -> None:
    """Raise ``SchemaMismatchError`` for times that Arrow converts to wrong strings, as it has 16 bits for the year."""
    kind = values.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        seconds = values.cast(pa.timestamp("s", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        if pc.any(pc.greater_equal(pc.abs_checked(seconds), _FAR)).as_py():
            raise SchemaMismatchError(
                "a partition value is more than 30,000 years from 1970",
                help="partition by another column, or write the times as strings",
                column=name,
            )


# --- exclusive writes: those that replace all files of a folder, and those that need an empty folder ------------------
# An exclusive job writes its plan, and looks for other exclusive jobs before it moves files::
#
#     put plan --> another job with a smaller id? --yes--> remove the plan, wait for that job, start again
#                    |no
#                    v
#     wait for jobs with greater ids --> list the folder, put the final plan --> move files, put the end
#
# Of two jobs, the one that looks later sees the plan or the files of the other.  A job keeps its plan only while it
# waits for greater ids, so two jobs never wait for each other.  A job that does not end within :data:`PATIENCE_S` is
# aborted and cannot commit any more.  Jobs wait for the greatest id first: that job waits for no other, so its time
# limit starts at once.  Appends neither wait nor are waited for.

#: Seconds to wait for a job that does not end.
PATIENCE_S = 60.0
#: First and longest pause between checks of a job, in seconds.
_PAUSES_S = 0.02, 1.0


def begin_alone(store: Store, job: str, plan: Plan, removes: Callable[[], tuple[str, ...]], runtime: Runtime) -> Plan:
    """Write the plan of an exclusive job; no other exclusive job can commit until it ends.

    Each puts its plan before it looks for others; of two that see each other, the one with the greater id withdraws its
    plan and waits.  ``removes`` returns the files to remove; if it raises, nothing has moved.  Raises
    ``WriteFailedError`` if another job aborted this one, ``StorageError``, and the errors of ``removes``.
    """
    plan = replace(plan, alone=True)
    while True:
        jobs.begin(store, job, plan)
        try:
            others = sorted(jobs.alone_at_work(store, job), reverse=True)
            if not others or others[-1] > job:
                for other in others:
                    _await(store, job, other, runtime)
                # Also remove files that were committed since the first look.
                final = replace(plan, removes=removes())
                if final != plan:
                    store.put(jobs.plan_key(job), final.serialised())
                return final
        except BaseException:
            with suppress(StorageError):  # the first error matters
                store.delete([jobs.plan_key(job)])
            raise
        store.delete([jobs.plan_key(job)])
        for other in others:
            _await(store, job, other, runtime)


def _await(store: Store, job: str, other: str, runtime: Runtime) -> None:
    """Wait until another job ends; abort it if that takes too long."""
    waited, pause = 0.0, _PAUSES_S[0]
    while jobs.is_at_work(store, other):
        # An aborted job must not abort others.
        jobs.check_running(store, job)
        if waited >= PATIENCE_S:
            jobs.record_outcome(store, other, "aborted")
            return
        runtime.sleep(pause)
        waited, pause = waited + pause, min(2 * pause, _PAUSES_S[1])
