"""Write to a folder of Trevni files: :func:`write_table`, or three steps that may run in different processes.

:func:`plan_table_write` lists the folder, :func:`write_rows` stages files in tasks, and :func:`finish_table_write`
moves them to the table.  :func:`clean` removes the staged files of a write, :func:`give_up` also stops its running
tasks.  Plans and staged files can be pickled.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from trilake.common.arguments import checked
from trilake.common.arrow_types import is_binary, is_list, is_string
from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.errors import (
    InvalidArgumentError,
    ObjectNotFoundError,
    SchemaMismatchError,
    StorageError,
    TableExistsError,
    UnknownOptionError,
)
from trilake.storage import Store, open_store
from trilake.table.folders import DataFile
from trilake.table.results import WriteResult
from trilake.trevni.blocks.codecs import check_checksum, check_codec
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.file.writer import as_batches
from trilake.trevni.nesting.arrow_forms import bare
from trilake.trevni.nesting.columns import ColumnOptions
from trilake.trevni.nesting.shred import checked_batch
from trilake.trevni.tables import jobs
from trilake.trevni.tables.dataset import check_trevni, list_files
from trilake.trevni.tables.jobs import STAGING
from trilake.trevni.tables.row_groups import (
    RowGroupWriter,
    StagedFile,
    WriteOptions,
    discard,
    new_write_id,
    publish,
    write_result,
)

#: Names of write options in Spark; see :func:`write_options`.
OPTIONS = ("codec", "checksum", "rowGroupSize", "blockSize", "values")

#: Log folders of other formats, whose tables must not be changed.
_LOGS = {"_delta_log": "Delta", "_versions": "Lance"}
#: Number of attempts to read a folder whose files disappear.
_ATTEMPTS = 5
_SIZE = re.compile(r"([0-9]{1,15})\s*([kmg]?)b?", re.IGNORECASE)
_T = pa.types


def write_options(strings: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a write.

    Parameters
    ----------
    strings: ``codec`` (``null``, ``deflate``, ``snappy`` or ``bzip2``), ``checksum`` (``null`` or ``crc32``),
        ``rowGroupSize`` and ``blockSize`` in bytes (``64m`` is 64 MiB), and ``values``: a comma-separated list of
        columns in ascending order, for which the first value of each block is stored, so that filters can skip blocks.
        Names are case-insensitive.

    Raises ``UnknownOptionError`` and ``InvalidArgumentError``.

    >>> write_options({"codec": "deflate", "rowGroupSize": "64m"}).row_group_size
    67108864
    """
    by_lower = {name.lower(): name for name in OPTIONS}
    unknown = sorted(name for name in strings if name.lower() not in by_lower)
    if unknown:
        raise UnknownOptionError(
            f"{', '.join(map(repr, unknown))} is not a Trevni write option", help=f"options are {', '.join(OPTIONS)}"
        )
    options = WriteOptions()
    for name, value in strings.items():
        match by_lower[name.lower()]:
            case "codec":
                options = replace(options, codec=check_codec(value.lower()))
            case "checksum":
                options = replace(options, checksum=check_checksum(value.lower()))
            case "rowGroupSize":
                options = replace(options, row_group_size=_size(name, value))
            case "blockSize":
                options = replace(options, block_size=_size(name, value))
            case "values":
                columns = [column.strip() for column in value.split(",") if column.strip()]
                options = replace(options, columns={column: ColumnOptions(values=True) for column in columns})
    return options


def _size(name: str, value: str) -> int:
    match = _SIZE.fullmatch(value.strip())
    size = 0 if match is None else int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2].lower()]
    if not 0 < size < 1 << 62:
        raise InvalidArgumentError(
            f"option {name} must be a number of bytes above 0, got {value!r}", help="use a value such as 1000000 or 64m"
        )
    return size


@dataclass(frozen=True)
class TableWritePlan:
    """A planned write; ``schema`` is that of the new files.

    With ``describe``, a write without rows creates an empty file.  With ``nothing``, there is nothing to write.
    """

    schema: pa.Schema
    mode: str
    write_id: str
    partition_by: tuple[str, ...] = ()
    options: WriteOptions = field(default_factory=WriteOptions)
    describe: bool = True
    nothing: bool = False


def plan_table_write(
    store: Store,
    schema: pa.Schema,
    *,
    mode: str,
    partition_by: Sequence[str] | None = None,
    options: WriteOptions | None = None,
    runtime: Runtime = SYSTEM_RUNTIME,
) -> TableWritePlan:
    """Plan a write of rows of ``schema`` to the folder of ``store``.

    ``mode`` is ``error``, ``ignore``, ``append`` or ``overwrite``; ``partition_by`` are the columns of a new table that
    become folders, for appends those of the table, or ``None``; ``runtime`` creates the id of the write.  Appended rows
    get the table's columns and types: names match case-insensitively, missing columns are null, and values are cast if
    none is lost.

    Raises ``TableExistsError``, ``ForeignFilesError`` if the folder has other files, ``SchemaMismatchError`` and
    ``InvalidArgumentError``.
    """
    if mode not in ("error", "ignore", "append", "overwrite"):
        raise InvalidArgumentError(f"mode {mode!r} is unknown", help="modes are append, error, ignore, overwrite")
    for folder, name in _LOGS.items():
        if next(iter(store.list(folder)), None) is not None:
            raise TableExistsError(
                f"there is already a {name} table at this location", help="write to another folder", file=store.uri
            )
    write_id = new_write_id(runtime)
    by_lower = {name.lower(): name for name in schema.names}
    # The writer raises for unknown names.
    partition = tuple(n if n in schema.names else by_lower.get(n.lower(), n) for n in partition_by or ())
    files, stored = _current_files(store, mode)
    if not files:
        if not schema.names:
            raise SchemaMismatchError("a table needs at least one column", file=store.uri)
        return TableWritePlan(schema, mode, write_id, partition, options or WriteOptions())
    if mode == "error":
        raise TableExistsError("the folder already has files", file=store.uri)
    if mode == "ignore":
        return TableWritePlan(schema, mode, write_id, nothing=True)
    names = tuple(name for name, _ in files[0].partition)
    if partition_by is not None and partition != names:
        raise SchemaMismatchError(
            f"the table is partitioned by {list(names)}, but the write by {list(partition_by)}",
            help="leave partition_by out, or use the table's partition columns",
            file=store.uri,
        )
    target = _target_schema(stored, names, schema, store.uri)
    return TableWritePlan(target, mode, write_id, names, options or WriteOptions(), describe=False)


def _current_files(store: Store, mode: str) -> tuple[list[DataFile], pa.Schema]:
    """Return the current files that the write depends on; for appends also the schema of the first one."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        files = list_files(store)
        try:
            if mode != "ignore":
                check_trevni(store, files)
            if mode == "overwrite":
                return [], pa.schema([])  # their schema does not matter
            reads = mode == "append" and bool(files)
            return files, TrevniFile((store, files[0].key)).schema if reads else pa.schema([])
        except ObjectNotFoundError:  # removed by a concurrent overwrite
            if not attempts_left:
                raise
    raise AssertionError("the last attempt raises")


def _target_schema(stored: pa.Schema, partition: Sequence[str], incoming: pa.Schema, uri: str) -> pa.Schema:
    """Return the table's columns, and its partition columns with the types of the rows."""
    by_name = {f.name.lower(): f for f in incoming}
    fields = [f for f in stored if f.name not in partition]
    problems = []
    for f in fields:
        column = by_name.get(f.name.lower())
        if column is not None and not _fits(column.type, f.type):
            problems.append(f"column {f.name} is {column.type}, the table has {f.type}")
    missing = [name for name in partition if name.lower() not in by_name]
    problems += [f"partition column {name} is missing" for name in missing]
    names = {f.name.lower() for f in fields} | {name.lower() for name in partition}
    problems += [f"column {f.name} is not in the table" for f in incoming if f.name.lower() not in names]
    if problems or len(by_name) < len(incoming):
        raise SchemaMismatchError(
            f"the rows do not match the table's schema: {'; '.join(problems) or 'two columns differ only by case'}",
            help="cast, rename or drop these columns, or write to a new folder",
            file=uri,
        )
    columns = [f.with_nullable(True) for f in fields]
    columns += [by_name[name.lower()].with_name(name) for name in partition]
    return pa.schema(columns, metadata=stored.metadata)


def _fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of one type may be cast to another type, provided that each value fits."""
    source, target = bare(source), bare(target)
    if source == target or _T.is_null(source):
        return True
    if _T.is_struct(source) and _T.is_struct(target):
        return [f.name for f in source] == [f.name for f in target] and all(
            _fits(a.type, b.type) for a, b in zip(source, target, strict=True)
        )
    if _T.is_map(source) and _T.is_map(target):
        return _fits(source.key_type, target.key_type) and _fits(source.item_type, target.item_type)
    if is_list(source) and is_list(target):
        return _fits(source.value_type, target.value_type)
    if _T.is_timestamp(source) and _T.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    if _T.is_floating(source) and _T.is_floating(target):
        return bool(source.bit_width <= target.bit_width)
    if _T.is_integer(source):
        return bool(_T.is_integer(target) or _T.is_floating(target) or _T.is_decimal(target))
    kinds = (is_string, is_binary, _T.is_decimal, _T.is_date, _T.is_time, _T.is_duration)
    return any(kind(source) and kind(target) for kind in kinds)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows to ``schema``; names match case-insensitively.  Raises ``SchemaMismatchError``."""
    if batch.schema.equals(schema):
        return batch
    columns = dict(zip((name.lower() for name in batch.schema.names), batch.columns, strict=True))
    arrays = []
    for f in schema:
        array = columns.get(f.name.lower())
        if array is None:
            array = pa.nulls(batch.num_rows, f.type)
        try:
            arrays.append(array if array.type == f.type else array.cast(f.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as e:
            raise SchemaMismatchError(
                f"a value of {array.type} does not fit {f.type}: {e}", help="cast the column", column=f.name
            ) from e
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write_rows(
    store: Store, plan: TableWritePlan, batches: Iterable[pa.RecordBatch], *, task: str = "0", attempt: str = "0"
) -> list[StagedFile]:
    """Write rows to staged files, none if there are no rows; after an error, remove them.

    ``task`` distinguishes concurrent tasks, ``attempt`` the attempts of a task.  Raises ``SchemaMismatchError``.
    """
    rows = (conform(batch, plan.schema) for batch in batches if batch.num_rows)
    first = next(rows, None)
    return [] if first is None else _write(store, plan, chain([first], rows), task, attempt)


def _write(store: Store, plan: TableWritePlan, rows: Iterable[Any], task: str, attempt: str) -> list[StagedFile]:
    # Each attempt has its own folder, so that removing one does not affect others.
    folder = f"{plan.write_id}-{task}-{attempt}"
    try:
        with RowGroupWriter(
            store, plan.schema, folder, task=task, partition_by=plan.partition_by, options=plan.options
        ) as writer:
            for batch in rows:
                writer.write(batch)
        return writer.files
    except BaseException:
        with suppress(StorageError, OSError):  # the first error matters
            discard(store, [StagedFile(f"{STAGING}/{folder}/-", "-", 0, 0)])
        raise


def finish_table_write(
    store: Store, plan: TableWritePlan, files: Sequence[StagedFile], *, runtime: Runtime = SYSTEM_RUNTIME
) -> WriteResult:
    """Move staged files to the table; with ``mode="overwrite"``, remove the previous files.

    If the folder got files after the plan, ``mode="ignore"`` writes nothing, and ``mode="error"`` raises
    ``TableExistsError``.  Readers see all rows or none; see :func:`trilake.trevni.publish`, also for errors.
    """
    if plan.nothing:
        return write_result()
    files = list(files)
    if not files and plan.describe and not plan.partition_by:
        files = _write(store, plan, [], "0", "0")  # creates a file without rows
    first = plan.mode in ("error", "ignore")
    try:
        publish(store, files, replace=plan.mode == "overwrite", first=first, job=plan.write_id, runtime=runtime)
    except TableExistsError:
        if not first:
            raise
        with suppress(StorageError, OSError):  # a write removes these staged files after a week
            clean(store, plan)
        if plan.mode == "error":
            raise
        return write_result()
    with suppress(StorageError, OSError):  # the write is committed: a failed clean-up is not an error
        clean(store, plan)
    return write_result(files)


def clean(store: Store, plan: TableWritePlan) -> None:
    """Remove the staged files of all tasks and attempts of a write."""
    jobs.remove_staged(store, plan.write_id)


def give_up(store: Store, plan: TableWritePlan) -> None:
    """Abort a write unless it is committed, and remove its staged files.  Its tasks find a record of the abort and
    stop."""
    jobs.record_outcome(store, plan.write_id, "aborted")
    clean(store, plan)


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
) -> WriteResult:
    """Write rows to a folder of Trevni files: :func:`plan_table_write`, :func:`write_rows` and
    :func:`finish_table_write` in one call.

    Parameters
    ----------
    data: see :func:`trilake.trevni.write`.
    location: path or URI of the folder.
    mode: what to do if the folder has files: ``error``, ``ignore``, ``append`` or ``overwrite``.
    partition_by: columns that become ``key=value`` folders instead of columns of the files.
    options: options of the files, see :func:`trilake.trevni.tables.table_write.write_options`.
    schema: schema of rows given as dictionaries.
    storage_options: credentials, region and endpoint of an object store.
    runtime: creates the id of the write.

    Readers see all rows or none, see :func:`trilake.trevni.publish`.

    Raises ``TableExistsError``, ``SchemaMismatchError``, ``InvalidArgumentError`` and ``WriteFailedError``.

    >>> import trilake
    >>> _ = write_table({"day": ["mon", "tue"], "n": [1, 2]}, "memory://doc-write-table", partition_by="day")
    >>> trilake.open("memory://doc-write-table", format="trevni").count("day = 'mon'")
    1
    """
    store = open_store(location, storage_options)
    rows_schema, parts = as_batches(data, schema)
    folders = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    plan = plan_table_write(
        store, rows_schema, mode=mode, partition_by=folders or None, options=options, runtime=runtime
    )
    batches = (batch for part in parts for batch in (part.to_batches() if isinstance(part, pa.Table) else [part]))
    batches = (checked_batch(batch, rows_schema) for batch in batches)
    staged = [] if plan.nothing else write_rows(store, plan, batches)
    return finish_table_write(store, plan, staged, runtime=runtime)
