r"""Writing tables of many files: one row group a file (spec: "Design": "Each row group is a separate file").

A write has two steps, which may run in different processes.  :class:`RowGroupWriter` takes rows and leaves files of
about the size asked for in a staging folder, whose name starts with ``_`` so that no reader looks there.
:func:`publish` moves what all writers staged to its place, where it appears all at once (see
:mod:`trilake.trevni.tables.jobs`); :func:`discard` removes it instead::

    write -> _staged/<write id>/...  --publish-->  part-....trv
                                     \-discard-->  nothing
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arguments import checked
from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.errors import (
    InvalidArgumentError,
    ObjectNotFoundError,
    SchemaMismatchError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UnknownOutcomeError,
    WriteFailedError,
)
from trilake.storage import Store, open_store
from trilake.storage.ownership import check_own
from trilake.storage.staging import move, remove_folder, sync_names
from trilake.trevni.blocks.encode import BLOCK_SIZE
from trilake.trevni.file.batches import as_batches
from trilake.trevni.file.column_options import ColumnOptions
from trilake.trevni.file.writer import TrevniWriter
from trilake.trevni.tables import jobs
from trilake.trevni.tables.dataset import check_trevni, find_files, list_files
from trilake.trevni.tables.jobs import STAGING
from trilake.trevni.tables.rivals import begin_alone

#: Bytes that a row group should have: one block of the file systems the format was made for.
ROW_GROUP_SIZE = 1 << 27
_NULL = "__HIVE_DEFAULT_PARTITION__"
#: Rows between two looks at the size of the file.
_STEP = 1 << 14
#: Seconds of some 30,000 years.
_FAR = 30_000 * 365 * 86_400


@dataclass(frozen=True)
class WriteOptions:
    """The options of the files of a table; see :class:`trilake.trevni.TrevniWriter`.

    ``row_group_size`` is about how many bytes a file has, before codecs; ``memory`` is shared by the files that one
    writer has open.
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
    """A file that was written: where it is, where it shall be, its rows and bytes."""

    staged: str
    key: str
    rows: int
    size: int


def new_write_id(runtime: Runtime = SYSTEM_RUNTIME) -> str:
    """A name for one write, which its writers share."""
    return runtime.new_hex_id()


class RowGroupWriter:
    """Writes rows into staged files of one row group each.

    Parameters
    ----------
    store: rooted at the table's folder.
    schema: of the rows, partition columns included.
    write_id: of :func:`new_write_id`, perhaps with a dash and more behind it; ``task`` tells the writers of one write
        apart.
    partition_by: a column or columns that become ``key=value`` folders.

    As a context manager it closes its files; an error in the block discards them.  Its methods raise
    ``WriteFailedError`` when the write was given up in the meantime.
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
            raise InvalidArgumentError(f"partition_by {list(partition_by)} must name different columns of the data")
        if len(partition_by) == len(schema) and partition_by:
            raise InvalidArgumentError("a table must have a column that it is not partitioned by")
        self._store, self._write_id, self._task = store, write_id, task
        self._partition_by = list(partition_by)
        self._schema = schema
        self._own = pa.schema([f for f in schema if f.name not in partition_by], metadata=schema.metadata)
        self._options = options or WriteOptions()
        self._open: dict[str, tuple[TrevniWriter, str, str]] = {}
        self._number = 0
        #: The files that are finished.
        self.files: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.  Raises ``SchemaMismatchError`` and ``StorageError``."""
        if batch.schema.names != self._schema.names:
            raise SchemaMismatchError(f"a batch has the columns {batch.schema.names}, the table {self._schema.names}")
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
        keys = [self._folder_texts(name, batch.column(name)) for name in self._partition_by]
        folders = pc.binary_join_element_wise(*keys, "/").dictionary_encode()
        own = batch.select(self._own.names)
        for code, folder in enumerate(folders.dictionary.to_pylist()):
            yield folder, own.filter(pc.equal(folders.indices, code))

    def _folder_texts(self, name: str, values: pa.Array) -> pa.Array:
        """``key=value`` for each row; few values are different, so only those are quoted."""
        encoded = values.dictionary_encode() if not pa.types.is_dictionary(values.type) else values
        try:
            texts = encoded.dictionary.cast(pa.string()).to_pylist()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise InvalidArgumentError(f"a column of {values.type} cannot name folders", column=name) from e
        except UnicodeDecodeError as e:
            raise SchemaMismatchError(f"a string that is not UTF-8 cannot name a folder: {e}", column=name) from e
        _check_years(name, encoded.dictionary)
        # Hive takes empty text for null, too.
        quoted = pa.array([f"{quote(name, safe='')}={quote(t, safe=' ') if t else _NULL}" for t in texts], pa.string())
        return pc.fill_null(quoted.take(encoded.indices), f"{quote(name, safe='')}={_NULL}")

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
                self._own,
                codec=options.codec,
                checksum=options.checksum,
                columns=options.columns,
                metadata=options.metadata,
                block_size=options.block_size,
                # Many partitions may be open at once.
                memory=max(1 << 20, options.memory // (1 + len(self._open))),
            )
            self._open[folder] = (writer, staged, key)
            # The job may have been given up, and what it staged removed, while the file was created.
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
            # A table of no rows has a schema, and a file says it.
            self._writer("")
        for folder in list(self._open):
            self._finish(folder)
        return self.files

    def discard(self) -> None:
        """Give up: nothing of what was written stays."""
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
    """Put staged files in their places; with ``replace``, in the place of all that are there.

    Readers see none of them, and all that was there before, until the last one is where it shall be and on disk; then
    they see all of them at once.  With ``first`` nothing may be there yet.  Of several calls with ``replace`` or
    ``first`` at the same time one comes after the other, as :mod:`trilake.trevni.tables.rivals` says.  ``job`` is the
    write's id, which tells its tasks what became of it.

    Raises ``WriteFailedError`` where a file cannot be moved, or the write was given up: then nothing has changed; so it
    has where ``first`` raises ``TableExistsError``.  Raises ``UnknownOutcomeError`` where the store did not say whether
    the write is committed: then it is all there or not at all.
    """
    if not files and not replace:
        return
    job = job or new_write_id()
    plan = jobs.Plan(tuple(file.key for file in files))
    _check_free(store, plan.adds)

    def removes() -> tuple[str, ...]:
        there = list_files(store)
        check_trevni(store, there)
        old = tuple(file.key for file in there)
        if first and old:
            raise TableExistsError("there are files already", file=store.uri)
        check_own(store, old, what="the overwrite")
        return old

    if replace or first:  # what is wrong with the folder is no failure of the write
        plan = jobs.Plan(plan.adds, removes())
    done = 0
    try:
        if replace or first:
            plan = begin_alone(store, job, plan, removes, runtime)
        else:
            jobs.begin(store, job, plan)
        for done, file in enumerate(files, 1):  # noqa: B007 - the error says how far it came
            move(store, file.staged, file.key)
        sync_names(store, plan.adds)
    except (StorageError, OSError) as e:
        _roll_back(store, job, plan, under_way=isinstance(e, UnknownOutcomeError))
        raise _failed(store, f"file {done} of {len(files)} could not be put in its place: {e}") from e
    try:
        outcome = jobs.record_outcome(store, job, "committed")
    except UnknownOutcomeError:
        raise
    except StorageError as e:
        _roll_back(store, job, plan)
        raise _failed(store, f"the write could not be committed: {e}") from e
    if outcome == "aborted":
        _roll_back(store, job, plan)
        raise _failed(store, "the write was given up before it was committed")
    with suppress(StorageError, OSError):  # the write has succeeded; the next one cleans up
        now = store.head(jobs.end_key(job)).modified_ms
        jobs.complete(store, job, plan, "committed")
        _remove_staged_copies(store, files)
        jobs.finish_stale_jobs(store, now)


def _check_free(store: Store, keys: Sequence[str]) -> None:
    for key in keys:
        with suppress(ObjectNotFoundError):
            store.head(key)
            raise WriteFailedError("a file of this name is there already", help="use a new write id", file=key)


def _roll_back(store: Store, job: str, plan: jobs.Plan, *, under_way: bool = False) -> None:
    """Take back what a job has moved; where a file may still be ``under_way``, its plan stays and hides it."""
    with suppress(StorageError, OSError):  # readers pass over the files as long as the plan is there
        if jobs.record_outcome(store, job, "aborted") == "aborted":
            jobs.complete(store, job, plan, "aborted", keep_records=under_way)


def _failed(store: Store, message: str) -> WriteFailedError:
    help = f"nothing was changed for readers; what was staged is below {STAGING}"
    return WriteFailedError(message, help=help, file=store.uri)


def discard(store: Store, files: Sequence[StagedFile]) -> None:
    """Remove staged files."""
    store.delete([file.staged for file in files])
    _remove_staged_copies(store, files)


def _remove_staged_copies(store: Store, files: Sequence[StagedFile]) -> None:
    """Remove what is left of staging: copies, and folders where there are such things."""
    if store.local_path("x") is None:
        store.delete([file.staged for file in files])
    for folder in {"/".join(file.staged.split("/")[:2]) for file in files}:
        remove_folder(store, folder)
    jobs.remove_staging_folder(store)


@dataclass(frozen=True)
class TableWrite:
    """What :func:`write_table` did."""

    files_added: int = 0
    rows_added: int = 0
    bytes_added: int = 0


@checked
def write_table(
    data: Any,
    location: str | os.PathLike[str],
    *,
    mode: str = "error",
    partition_by: str | Sequence[str] = (),
    options: WriteOptions | None = None,
    schema: pa.Schema | None = None,
    storage_options: Mapping[str, str] | None = None,
    runtime: Runtime = SYSTEM_RUNTIME,
) -> TableWrite:
    """Write rows into a folder of Trevni files.

    Parameters
    ----------
    data: as for :func:`trilake.trevni.write`.
    location: the folder.
    mode: ``error``, ``ignore``, ``append`` or ``overwrite``, for a folder that has files already.
    partition_by: columns that become ``key=value`` folders instead of columns of the files.
    options: how files are written, see :func:`trilake.trevni.tables.table_write.write_options`.
    schema: for rows as dictionaries.
    storage_options: credentials, region and endpoint of an object store.
    runtime: where the id of the write comes from.

    Readers see all of it or nothing, see :func:`publish`.

    Raises ``TableExistsError``, ``SchemaMismatchError``, ``InvalidArgumentError`` and ``WriteFailedError``.

    >>> import trilake
    >>> _ = write_table({"day": ["mon", "tue"], "n": [1, 2]}, "memory://doc-write-table", partition_by="day")
    >>> trilake.open("memory://doc-write-table", format="trevni").count("day = 'mon'")
    1
    """
    if mode not in ("error", "ignore", "append", "overwrite"):
        raise InvalidArgumentError(f"mode {mode!r} is unknown", help="modes are append, error, ignore, overwrite")
    if mode in ("error", "ignore") and _has_files(location, storage_options):
        if mode == "ignore":
            return TableWrite()
        raise TableExistsError("there are files already", file=os.fspath(location))
    store = open_store(location, storage_options)
    check_trevni(store, list_files(store))
    rows_schema, batches = as_batches(data, schema)
    job = new_write_id(runtime)
    folders = (partition_by,) if isinstance(partition_by, str) else partition_by
    writer = RowGroupWriter(store, rows_schema, job, partition_by=folders, options=options)
    with writer:
        for batch in _record_batches(batches):
            writer.write(batch)
    try:
        publish(
            store,
            writer.files,
            replace=mode == "overwrite",
            first=mode in ("error", "ignore"),
            job=job,
            runtime=runtime,
        )
    except TableExistsError:
        discard(store, writer.files)
        if mode == "error":
            raise
        return TableWrite()
    files = writer.files
    return TableWrite(len(files), sum(f.rows for f in files), sum(f.size for f in files))


def _record_batches(batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.RecordBatch]:
    for one in batches:
        if isinstance(one, pa.Table):
            yield from one.to_batches()
        else:
            yield one


def _has_files(location: str | os.PathLike[str], options: Mapping[str, str] | None) -> bool:
    try:
        find_files(location, options)
    except TableNotFoundError:
        return False
    except SchemaMismatchError:
        return True
    return True


def _check_years(name: str, values: pa.Array) -> None:
    """Raise ``SchemaMismatchError`` for times whose strings Arrow gets wrong: it has 16 bits for a year."""
    kind = values.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        seconds = values.cast(pa.timestamp("s", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        if pc.any(pc.greater_equal(pc.abs_checked(seconds), _FAR)).as_py():
            raise SchemaMismatchError(
                "a folder cannot be named after a time more than 30,000 years from 1970",
                help="partition by another column, or write the times as strings",
                column=name,
            )
