"""One write into a folder of Trevni files, in three steps that may run in three places.

:func:`plan_table_write` looks at the folder, :func:`write_rows` leaves staged files wherever the rows are, and
:func:`finish_table_write` puts them in their places.  :func:`clean` removes what a write has staged, :func:`give_up`
also stops tasks of it that still run.  Plans and staged files can be pickled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from trilake.common.arrow_types import is_list
from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.errors import (
    InvalidArgumentError,
    ObjectNotFoundError,
    SchemaMismatchError,
    StorageError,
    TableExistsError,
    UnknownOptionError,
)
from trilake.storage import Store
from trilake.table.folders import DataFile
from trilake.trevni.blocks.codecs import check_checksum, check_codec
from trilake.trevni.file.column_options import ColumnOptions
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.nesting.arrow_forms import bare
from trilake.trevni.tables import jobs
from trilake.trevni.tables.dataset import check_trevni, list_files
from trilake.trevni.tables.jobs import STAGING
from trilake.trevni.tables.row_groups import (
    RowGroupWriter,
    StagedFile,
    TableWrite,
    WriteOptions,
    discard,
    new_write_id,
    publish,
)

#: Options of a write by the names that Spark's users give them; see :func:`write_options`.
OPTIONS = ("codec", "checksum", "rowGroupSize", "blockSize", "values")

#: Folders in which other formats keep their logs: their data files must not go, and must not be joined by strangers.
_LOGS = {"_delta_log": "Delta", "_versions": "Lance"}
#: How often the folder is looked at where files go in the meantime.
_LOOKS = 5
_SIZE = re.compile(r"([0-9]{1,15})\s*([kmg]?)b?", re.IGNORECASE)
_T = pa.types


def write_options(texts: Mapping[str, str]) -> WriteOptions:
    """The options of a write, from texts.

    Parameters
    ----------
    strings: ``codec`` (``null``, ``deflate``, ``snappy`` or ``bzip2``), ``checksum`` (``null`` or ``crc32``),
        ``rowGroupSize`` and ``blockSize`` in bytes (``64m`` is 64 MiB), and ``values``: columns in ascending order,
        separated by commas, whose blocks' first values are stored, so that filters can skip blocks.  Names in any case.

    Raises ``UnknownOptionError`` and ``InvalidArgumentError``.

    >>> write_options({"codec": "deflate", "rowGroupSize": "64m"}).row_group_size
    67108864
    """
    known = {name.lower(): name for name in OPTIONS}
    unknown = sorted(name for name in texts if name.lower() not in known)
    if unknown:
        raise UnknownOptionError(
            f"{', '.join(map(repr, unknown))} is not an option of a Trevni write",
            help=f"options are {', '.join(OPTIONS)}",
        )
    options = WriteOptions()
    for name, value in texts.items():
        match known[name.lower()]:
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


def _size(name: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = 0 if match is None else int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2].lower()]
    if not 0 < size < 1 << 62:
        raise InvalidArgumentError(
            f"option {name} is {text!r}", help="it must be a number of bytes above 0, such as 1000000 or 64m"
        )
    return size


@dataclass(frozen=True)
class TableWritePlan:
    """A write ready to run.

    ``schema`` is what rows become; ``describe`` says that the table would have no file without rows, and therefore gets
    an empty one that tells its schema; ``nothing`` that there is nothing to do (``mode="ignore"`` where files are).
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
    """Look at the folder, and decide how rows of ``schema`` become files of it.

    Parameters
    ----------
    store: rooted at the table's folder.
    mode: ``error``, ``ignore``, ``append`` or ``overwrite``.
    partition_by: columns of a new table that become folders; for rows that are appended, the table's own or ``None``.
    runtime: where the id of the write comes from.

    Appended rows take the table's columns and types: columns are matched by name without regard to case, one that the
    rows lack is null, and values are converted where none can be lost.

    Raises ``TableExistsError``, also where files lie that are not Trevni files, ``SchemaMismatchError`` and
    ``InvalidArgumentError``.
    """
    if mode not in ("error", "ignore", "append", "overwrite"):
        raise InvalidArgumentError(f"mode {mode!r} is unknown", help="modes are append, error, ignore, overwrite")
    for folder, name in _LOGS.items():
        if next(iter(store.list(folder)), None) is not None:
            raise TableExistsError(f"a {name} table is here", help="write to another folder", file=store.uri)
    write_id = new_write_id(runtime)
    partition = _spelled(tuple(partition_by or ()), schema)
    files, stored = _found(store, mode)
    if not files:
        if not schema.names:
            raise SchemaMismatchError("a table needs at least one column", file=store.uri)
        return TableWritePlan(schema, mode, write_id, partition, options or WriteOptions())
    if mode == "error":
        raise TableExistsError("there are files already", file=store.uri)
    if mode == "ignore":
        return TableWritePlan(schema, mode, write_id, nothing=True)
    names = tuple(name for name, _ in files[0].partition)
    if partition_by is not None and partition != names:
        raise SchemaMismatchError(
            f"the table is partitioned by {list(names)}, the write by {list(partition_by)}",
            help="leave partition_by out, or use the table's partition columns",
            file=store.uri,
        )
    target = _target(stored, names, schema, store.uri)
    return TableWritePlan(target, mode, write_id, names, options or WriteOptions(), describe=False)


def _found(store: Store, mode: str) -> tuple[list[DataFile], pa.Schema]:
    """The files that count for a write, and the columns of the first one, where the rows are to take them.

    Raises ``TableExistsError`` where files lie that are not Trevni files.
    """
    for left in reversed(range(_LOOKS)):
        files = list_files(store)
        try:
            if mode != "ignore":
                check_trevni(store, files)
            if mode == "overwrite":
                return [], pa.schema([])  # what they hold does not matter
            reads = mode == "append" and bool(files)
            return files, TrevniFile((store, files[0].key)).schema if reads else pa.schema([])
        except ObjectNotFoundError:  # an overwrite has taken it away in the meantime
            if not left:
                raise
    raise AssertionError("the last look raises")


def _spelled(names: tuple[str, ...], schema: pa.Schema) -> tuple[str, ...]:
    """Column names as the schema spells them; one that it does not have stays, and is refused by the writer."""
    by_lower = {name.lower(): name for name in schema.names}
    return tuple(name if name in schema.names else by_lower.get(name.lower(), name) for name in names)


def _target(stored: pa.Schema, partition: Sequence[str], incoming: pa.Schema, uri: str) -> pa.Schema:
    """The table's own columns and its partition columns, which have the type that the rows give them."""
    by_name = {f.name.lower(): f for f in incoming}
    fields = [f for f in stored if f.name not in partition]
    problems = []
    for f in fields:
        column = by_name.get(f.name.lower())
        if column is not None and not _fits(column.type, f.type):
            problems.append(f"column {f.name} is {column.type}, the table has {f.type}")
    missing = [name for name in partition if name.lower() not in by_name]
    problems += [f"partition column {name} is missing" for name in missing]
    known = {f.name.lower() for f in fields} | {name.lower() for name in partition}
    problems += [f"column {f.name} is not in the table" for f in incoming if f.name.lower() not in known]
    if problems or len(by_name) < len(incoming):
        raise SchemaMismatchError(
            f"the rows do not match the table's schema: {'; '.join(problems) or 'two columns differ by case only'}",
            help="cast, rename or drop these columns, or write to a new folder",
            file=uri,
        )
    # What was never null may be it now.
    own = [f.with_nullable(True) for f in fields]
    return pa.schema([*own, *(by_name[name.lower()].with_name(name) for name in partition)], metadata=stored.metadata)


def _fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of one type may become values of another, where each of them fits."""
    source, target = bare(source), bare(target)
    if source == target or _T.is_null(source):
        return True
    if _T.is_struct(source) and _T.is_struct(target):
        return [f.name for f in source] == [f.name for f in target] and all(
            _fits(a.type, b.type) for a, b in zip(source, target, strict=True)
        )
    if _T.is_map(source) or _T.is_map(target):
        return (
            _T.is_map(source)
            and _T.is_map(target)
            and _fits(source.key_type, target.key_type)
            and _fits(source.item_type, target.item_type)
        )
    if is_list(source) and is_list(target):
        return _fits(source.value_type, target.value_type)
    if _T.is_timestamp(source) and _T.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    if _T.is_floating(source) and _T.is_floating(target):
        return bool(source.bit_width <= target.bit_width)
    if _T.is_integer(source):
        return bool(_T.is_integer(target) or _T.is_floating(target) or _T.is_decimal(target))
    kinds = (_is_text, _is_binary, _T.is_decimal, _T.is_date, _T.is_time, _T.is_duration)
    return any(kind(source) and kind(target) for kind in kinds)


def _is_text(t: pa.DataType) -> bool:
    return bool(_T.is_string(t) or _T.is_large_string(t) or _T.is_string_view(t))


def _is_binary(t: pa.DataType) -> bool:
    return bool(_T.is_binary(t) or _T.is_large_binary(t) or _T.is_binary_view(t) or _T.is_fixed_size_binary(t))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the columns and types of ``schema``, matched by name without regard to case.

    Raises ``SchemaMismatchError`` for a value that does not fit.
    """
    if batch.schema.equals(schema):
        return batch
    at = {name.lower(): i for i, name in enumerate(batch.schema.names)}
    arrays = []
    for f in schema:
        i = at.get(f.name.lower())
        if i is None:
            arrays.append(pa.nulls(batch.num_rows, f.type))
            continue
        array = batch.column(i)
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
    """Write rows into staged files; no rows, no file.

    ``task`` tells apart those who write at the same time, ``attempt`` the times that each of them was begun.  When it
    fails, nothing that it staged stays.  Raises ``SchemaMismatchError``, ``InvalidArgumentError`` and ``StorageError``.
    """
    rows = (conform(batch, plan.schema) for batch in batches if batch.num_rows)
    first = next(rows, None)
    return [] if first is None else _write(store, plan, chain([first], rows), task, attempt)


def _write(
    store: Store, plan: TableWritePlan, rows: Iterable[pa.RecordBatch], task: str, attempt: str
) -> list[StagedFile]:
    # A folder for each attempt: giving one up must not touch another's files.
    folder = f"{plan.write_id}-{task}-{attempt}"
    try:
        with RowGroupWriter(
            store, plan.schema, folder, task=task, partition_by=plan.partition_by, options=plan.options
        ) as writer:
            for batch in rows:
                writer.write(batch)
        return writer.files
    except BaseException:
        with suppress(StorageError, OSError):  # why the write failed is the error to show
            discard(store, [StagedFile(f"{STAGING}/{folder}/-", "-", 0, 0)])
        raise


def finish_table_write(
    store: Store, plan: TableWritePlan, files: Sequence[StagedFile], *, runtime: Runtime = SYSTEM_RUNTIME
) -> TableWrite:
    """Put staged files in their places; with ``mode="overwrite"``, remove those that were there before.

    Where others have written into the folder since it was looked at, ``mode="ignore"`` writes nothing, and
    ``mode="error"`` raises ``TableExistsError``.  Readers see all of the write or nothing, see
    :func:`trilake.trevni.publish`, which also says what is raised.
    """
    if plan.nothing:
        return TableWrite()
    files = list(files)
    if not files and plan.describe and not plan.partition_by:
        files = _write(store, plan, [], "0", "0")  # closing the writer leaves a file without rows
    first = plan.mode in ("error", "ignore")
    try:
        publish(store, files, replace=plan.mode == "overwrite", first=first, job=plan.write_id, runtime=runtime)
    except TableExistsError:
        if not first:
            raise
        with suppress(StorageError, OSError):  # what it has staged goes a week later, then
            clean(store, plan)
        if plan.mode == "error":
            raise
        return TableWrite()
    with suppress(StorageError, OSError):  # the write has succeeded, whether this does or not
        clean(store, plan)
    return TableWrite(len(files), sum(f.rows for f in files), sum(f.size for f in files))


def clean(store: Store, plan: TableWritePlan) -> None:
    """Remove everything that a write has staged and not put in its place, by all tasks and attempts."""
    jobs.remove_staged(store, plan.write_id)


def give_up(store: Store, plan: TableWritePlan) -> None:
    """End a write whose tasks may still be running: they find a record of it and stop; what was staged goes.

    A write that is committed stays so.  The record goes with a later write, a week from now.
    """
    jobs.record_outcome(store, plan.write_id, "aborted")
    clean(store, plan)
