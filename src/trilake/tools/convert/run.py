"""``convert``: read, write, read back, compare checksums, and only then commit.

::

    source --(pieces)--> tasks: rows -> invisible files; checksums of the rows and of the files
           --(compare)--> one commit, or remove the files if checksums differ
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trilake.common.arguments import checked, column_names
from trilake.common.display import Displayed
from trilake.common.progress import progress
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.common.text import columns_help, plural
from trilake.common.timestamps import TimestampLike
from trilake.errors import (
    ChecksumMismatchError,
    InvalidArgumentError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
    WriteFailedError,
)
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table import registry
from trilake.table.checksum import Checksum, checksum
from trilake.table.conversion import Done, Piece, Rows, Source, Target, TargetRequest
from trilake.table.registry import format_named, has_log
from trilake.table.table import FilterLike
from trilake.tools.convert import parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Conversion(Displayed):
    """The result of :func:`convert`.

    ``rows``, ``files`` and ``bytes`` count what was written; ``version`` is the target's new version, if it has
    versions.  ``checksum`` is that of the target's rows, and equals the source's if ``verified``.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2]}, "memory://doc-conversion")
    >>> done = trilake.convert("memory://doc-conversion", "memory://doc-conversion-lance", format="lance")
    >>> done.rows, done.format, done.verified
    (2, 'lance', True)
    """

    source: str
    source_format: str
    source_version: int | None
    target: str
    format: str
    version: int | None
    rows: int
    files: int
    bytes: int
    checksum: Checksum
    verified: bool = True

    def _facts(self) -> list[tuple[str, object]]:
        return [
            ("from", f"{self.source_format} {self.source}"),
            ("from version", "" if self.source_version is None else self.source_version),
            ("to", f"{self.format} {self.target}"),
            ("to version", "" if self.version is None else self.version),
            ("rows", self.rows),
            ("files", self.files),
            ("bytes", self.bytes),
            ("checksum", self.checksum),
            ("read back and compared", self.verified),
        ]

    def __repr__(self) -> str:
        def side(format: str, uri: str, version: int | None) -> str:
            return f"{format} {uri}" + ("" if version is None else f" (version {version})")

        source = side(self.source_format, self.source, self.source_version)
        target = side(self.format, self.target, self.version)
        size = f"{plural(self.rows, 'row')}, {plural(self.files, 'file')}, {plural(self.bytes, 'byte')}"
        check = f"checksum {self.checksum}, " + ("read back" if self.verified else "not compared: nulls were replaced")
        return f"<Conversion {source} -> {target}: {size}, {check}>"


@checked
def convert(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    format: str,
    spark: SparkSession | None = None,
    source_format: str | None = None,
    version: int | None = None,
    timestamp: TimestampLike | None = None,
    columns: Sequence[str] | None = None,
    filter: FilterLike | None = None,
    mode: str = "error",
    partition_by: str | Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
    data_format: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    target_storage_options: Mapping[str, str] | None = None,
) -> Conversion:
    """Copy rows from a Delta table, Lance dataset, Trevni folder or folder of Parquet files to another of these
    formats.

    The target is read back and compared by checksum before it becomes visible.

    Parameters
    ----------
    source, target: locations.
    format: format of the target: ``"delta"``, ``"lance"``, ``"trevni"`` or ``"parquet"``.
    spark: a session whose tasks do the work; without it, this process does, with bounded memory.
    source_format: detected by default.
    version, timestamp: version of the source; the newest by default.
    columns, filter: the columns to copy, and a condition (SQL or a pyarrow expression) for the rows.
    mode: for an existing target, ``"error"`` raises, ``"append"`` adds rows, ``"overwrite"`` replaces it.
    partition_by: partition columns of a new target; by default those of the source if the target supports them, none
        for ``[]``.
    options: properties of a Delta table, or options of :func:`trilake.lance.table.write_options` (such
        as ``{"nulls": "mask"}``), :func:`trilake.trevni.tables.table_write.write_options` or
        :class:`trilake.tools.convert.parquet.ParquetOptions`.
    data_format: format of a new Delta table's data files.
    storage_options: options of the source's store, and of the target's without ``target_storage_options``.

    Raises ``TableNotFoundError``, ``TableExistsError``, ``InvalidArgumentError``, ``SchemaMismatchError`` for a column
    or value that the target does not support, ``ChecksumMismatchError`` if rows differ when they are read back, and
    ``WriteFailedError``.  After any error before the commit, the target is unchanged.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1, 2, 3]}), "memory://doc-convert-from")
    >>> done = trilake.convert("memory://doc-convert-from", "memory://doc-convert-to", format="lance", filter="n > 1")
    >>> done.rows, done.version, done.verified
    (2, 1, True)
    >>> trilake.open("memory://doc-convert-to").to_arrow()["n"].to_pylist()
    [2, 3]
    """
    if format.lower() not in names():
        raise InvalidArgumentError(f"unknown format {format!r}", help=f"use one of {', '.join(names())}")
    source_store = _store(spark, source, storage_options)
    target_store = _store(spark, target, storage_options if target_storage_options is None else target_storage_options)
    if source_store.uri == target_store.uri:
        raise InvalidArgumentError(
            "source and target are the same location", help="pass another target", file=source_store.uri
        )
    rows = open_source(
        source_store,
        format=source_format,
        version=version,
        timestamp=timestamp,
        columns=columns,
        filter=filter,
    )
    tasks = (rows.whole,) if spark is None else rows.cut()
    request = TargetRequest(
        format=format.lower(),
        mode={"errorifexists": "error"}.get(mode.lower(), mode.lower()),
        partition_by=column_names(partition_by),
        options=dict(options or {}),
        data_format=data_format,
        distributed=len(tasks) > 1,
        runtime=SYSTEM_RUNTIME,
    )
    try:
        writer = begin(target_store, rows, request)
    except TableExistsError as e:
        if e.help == TableExistsError.default_help:
            e.help = 'pass mode="append" to add rows, or mode="overwrite" to replace the target'
        raise
    outcomes = _run(writer, rows, tasks, spark)
    committed = _commit(writer, outcomes, rows, target_store.uri)
    return Conversion(
        rows.uri,
        rows.format,
        rows.version,
        target_store.uri,
        request.format,
        committed.version,
        sum(o.back.rows for o in outcomes),
        committed.files,
        committed.bytes,
        sum((o.back for o in outcomes), Checksum()),
        writer.exact,
    )


def _store(spark: SparkSession | None, uri: str | PathLike[str], options: Mapping[str, str] | None) -> Store:
    if spark is None:
        return open_store(uri, dict(options or {}))
    from trilake.spark.session.settings import session_store  # late: PySpark may not be installed

    return session_store(spark, uri, options)


def open_source(
    store: Store,
    *,
    format: str | None,
    version: int | None,
    timestamp: TimestampLike | None,
    columns: Sequence[str] | None,
    filter: FilterLike | None,
) -> Source:
    """Open a table of the given or detected format.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``InvalidArgumentError``, ``FilterError`` and the errors of
    opening a table.
    """
    name = format_at(store) if format is None else format.lower()
    selected = None if columns is None else list(columns)
    if selected == []:
        raise InvalidArgumentError("columns must not be empty", help="leave it out to convert all", file=store.uri)
    if name == parquet.NAME:
        if version is not None or timestamp is not None:
            raise InvalidArgumentError("Parquet files have no versions", help="leave version and timestamp out")
        return parquet.source(store, selected, filter)
    if name is None:
        raise TableNotFoundError(
            "no table, dataset or folder of a known format found", help="check the path", file=store.uri
        )
    if name not in registry.names():
        raise InvalidArgumentError(f"unknown format {format!r}", help=f"use one of {', '.join(names())}")
    adapter = format_named(name)
    return adapter.source(adapter.open(store, version, timestamp), selected, filter)


def names() -> list[str]:
    """The formats of sources and targets."""
    return sorted([*registry.names(), parquet.NAME])


def format_at(store: Store) -> str | None:
    """The format at a location, ``None`` if there is none."""
    for row in registry.rows():
        if row.load().detect(store):
            return row.name
    return parquet.NAME if parquet.find(store)[1] else None


@dataclass(frozen=True)
class Outcome:
    """A task's files with the checksums of the rows that it read and read back, or its error."""

    written: Any
    read: Checksum = field(default_factory=Checksum)
    back: Checksum = field(default_factory=Checksum)
    error: TrilakeError | None = None


@dataclass(frozen=True)
class Job:
    """The work of each task: called with its number and the pieces that it writes.  Picklable.

    ``advance``, in this process, counts rows as they are read and read back.
    """

    rows: Rows
    advance: Callable[[int], None] | None = None

    def __call__(self, task: tuple[int, tuple[Piece, ...]]) -> Outcome:
        number, pieces = task
        total = Checksum()

        def read() -> Iterator[pa.RecordBatch]:
            nonlocal total
            for batch in (b for piece in pieces for b in piece()):
                total += checksum(batch)
                yield batch

        try:
            files = self.rows.write(number, self._counted(read()))
            back = checksum(self._counted(self.rows.read_back(files)))
        except TrilakeError as e:
            # Returned, because Spark would turn it into a string.
            return Outcome(None, error=e)
        except pa.ArrowException as e:
            return Outcome(
                None,
                error=WriteFailedError(
                    f"rows cannot be converted: {e}", help="leave the column out with columns=[…], or cast it"
                ),
            )
        return Outcome(files, total, back)

    def _counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self.advance is not None:
                self.advance(batch.num_rows)
            yield batch


def _run(
    target: Target, source: Source, tasks: Sequence[tuple[Piece, ...]], spark: SparkSession | None
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    try:
        if spark is None or len(tasks) < 2:
            total = None if source.rows is None else 2 * source.rows
            with progress("convert", total, unit="rows") as bar:
                outcomes.append(Job(target.rows, bar.advance)((0, source.whole)))
        else:
            from trilake.spark.session.runner import SparkRunner  # late: PySpark may not be installed

            with progress("convert", len(tasks), unit="tasks") as bar:
                for outcome in SparkRunner(spark, width=1)(Job(target.rows), list(enumerate(tasks))):
                    outcomes.append(outcome)
                    bar.advance()
    except BaseException as e:
        _discard(target, outcomes)
        if spark is None or not isinstance(e, Exception) or isinstance(e, TrilakeError):
            raise
        from trilake.spark.session.job_errors import job_error_of

        raise job_error_of(
            e, "a task failed before the commit; the target is unchanged", again="repeat the conversion"
        ) from None
    failed = next((o.error for o in outcomes if o.error is not None), None)
    if failed is not None:
        _discard(target, outcomes)
        raise failed
    return outcomes


def _discard(target: Target, outcomes: Sequence[Outcome]) -> None:
    with suppress(StorageError, OSError):  # report why the conversion failed
        target.discard([o.written for o in outcomes if o.error is None])


def _commit(target: Target, outcomes: Sequence[Outcome], source: Source, uri: str) -> Done:
    read = sum((o.read for o in outcomes), Checksum())
    back = sum((o.back for o in outcomes), Checksum())
    if read.rows != back.rows or (target.exact and read != back):
        columns = _differing(target, outcomes, source) if read.rows == back.rows else []
        _discard(target, outcomes)
        which = f", in column {', '.join(columns)}" if columns else ""
        raise ChecksumMismatchError(
            f"the target would differ from the source: checksum {back} instead of {read}{which}; the target is"
            " unchanged",
            help="leave the column out or cast it; pass partition_by=[] if values of string partition columns read back"
            " as numbers or null",
            file=uri,
            column=columns[0] if columns else None,
        )
    return target.commit([o.written for o in outcomes])


def _differing(target: Target, outcomes: Sequence[Outcome], source: Source) -> list[str]:
    """The columns that differ, found by reading both sides again."""
    sums: list[dict[str, Checksum]] = [{}, {}]
    read = (b for piece in source.whole for b in piece())
    again = (b for o in outcomes for b in target.rows.read_back(o.written))
    for column_sums, batches in zip(sums, (read, again), strict=True):
        for batch in batches:
            for name in batch.schema.names:
                column_sums[name] = column_sums.get(name, Checksum()) + checksum(batch.select([name]))
    return [name for name in source.schema.names if sums[0].get(name) != sums[1].get(name)]


def begin(store: Store, source: Source, request: TargetRequest) -> Target:
    """Check the target and whether it supports the rows, without writing.

    Raises ``TableExistsError``, ``SchemaMismatchError``, ``InvalidArgumentError`` and ``UnsupportedProtocolError``.
    """
    if request.mode not in ("error", "append", "overwrite"):
        raise InvalidArgumentError(f"unknown mode {request.mode!r}", help="use append, error or overwrite")
    if request.data_format is not None and not has_log(request.format):
        raise InvalidArgumentError(f"data_format needs format='delta', got {request.format!r}", help="leave it out")
    unknown = [c for c in request.partition_by or () if c not in source.schema.names]
    if unknown:
        raise InvalidArgumentError(
            f"partition_by: column {', '.join(map(repr, unknown))} not found in the rows",
            help=columns_help(unknown[0], source.schema.names),
        )
    current = format_at(store)
    if current is not None and current != request.format:
        raise TableExistsError(
            f"the target already contains {current} files",
            help="convert to another location; if a failed write left the files, remove them",
            file=store.uri,
        )
    exists = current is not None
    if request.format == parquet.NAME:
        return parquet.target(store, source, request, exists)
    return format_named(request.format).target(store, source, request, exists)
