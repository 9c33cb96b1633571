"""Row-major files to Trevni and back, as Spark jobs.

Avro files keep their schema: one task converts each file without Spark's rows, because Spark has neither unions nor
enums (specification: "Implementation Notes", technique 3).  JSON, CSV and all other formats that Spark reads and writes
go through DataFrames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from trilake.errors import InvalidArgumentError, StorageError, TableExistsError, TableNotFoundError, TrilakeError
from trilake.spark.session.job_errors import failing_as, job_error_of
from trilake.spark.session.runner import SparkRunner
from trilake.spark.session.sources.python_source import ensure_source
from trilake.spark.trevni.format import write_dataframe
from trilake.spark.trevni.source import TrilakeTrevniDataSource, task_name
from trilake.storage import Store, open_store
from trilake.table.folders import DataFile
from trilake.table.results import WriteResult
from trilake.trevni.blocks.codecs import check_codec
from trilake.trevni.mappings.avro_files import WRITE_CODECS, from_avro, to_avro
from trilake.trevni.tables import jobs
from trilake.trevni.tables.dataset import find_files, list_files
from trilake.trevni.tables.row_groups import StagedFile, new_write_id, publish, write_result
from trilake.trevni.tables.table_write import write_options

#: Converts a file in the first store to one in the second; returns the number of records.
_Convert = Callable[[tuple[Store, str], tuple[Store, str]], int]


def to_trevni(
    spark: SparkSession,
    source: str,
    target: str,
    *,
    format: str,
    mode: str = "error",
    options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    partition_by: Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WriteResult:
    """Convert files of rows to a folder of Trevni files.

    Parameters
    ----------
    source: a file, a folder or a glob.
    format: ``avro``, ``json``, ``csv``, or another format that Spark reads.
    mode: ``error``, ``append`` or ``overwrite``, for a target that has files already.
    options: options of Spark's reader for the format, such as ``header`` for CSV; none for Avro.
    properties: how to write files, see :func:`trilake.trevni.tables.table_write.write_options`; for Avro only
        ``codec``.
    partition_by: columns that become folders; not for Avro, whose files keep their folders.
    storage_options: options of the stores of Avro files and of the target.

    An Avro file becomes one Trevni file with its schema in ``avro.schema``, by the Avro mapping.  Readers of the target
    see all of it or nothing, see :func:`trilake.trevni.publish`.

    Raises ``TableNotFoundError``, ``TableExistsError``, ``InvalidArgumentError``, and ``WriteFailedError``, with
    nothing written, if a file cannot be converted.
    """
    store = dict(storage_options or {})
    if format != "avro":
        df = spark.read.format(format).options(**dict(options or {})).load(source)
        how = write_options(properties or {})
        return write_dataframe(df, target, store, mode=mode, partition_by=partition_by, options=how)
    _reject(options=options, partition_by=partition_by)
    codec = _codec(properties, "snappy")
    check_codec(codec)
    return _convert(spark, source, target, mode, store, suffix=".trv", convert=partial(from_avro, codec=codec))


def from_trevni(
    spark: SparkSession,
    source: str,
    target: str,
    *,
    format: str,
    mode: str = "error",
    options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> WriteResult | None:
    """Convert Trevni files to files of rows: the reverse of :func:`to_trevni`.

    Parameters
    ----------
    source: a file, a folder or a glob.
    format: ``avro``, ``json``, ``csv``, or another format that Spark writes.
    mode: one of Spark's modes; for Avro ``error``, ``append`` or ``overwrite``.
    options: options of Spark's writer for the format; none for Avro.
    properties: for Avro ``codec``: ``null``, ``deflate``, ``bzip2`` or ``xz``.

    Each Trevni file with a schema in ``avro.schema`` becomes one Avro file.  Only for Avro, returns what was written.
    """
    store = dict(storage_options or {})
    if format != "avro":
        _reject(properties=properties)
        ensure_source(spark, TrilakeTrevniDataSource)
        df = spark.read.format("trilake-trevni").options(**store).load(source)
        df.write.format(format).options(**dict(options or {})).mode(mode).save(target)
        return None
    _reject(options=options)
    codec = _codec(properties, "deflate")
    if codec not in WRITE_CODECS:
        raise InvalidArgumentError(
            f"unknown codec {codec!r} for Avro files", help=f"use one of {', '.join(WRITE_CODECS)}"
        )
    return _convert(spark, source, target, mode, store, suffix=".avro", convert=partial(to_avro, codec=codec))


def _reject(**arguments: object) -> None:
    for name, value in arguments.items():
        if value:
            raise InvalidArgumentError(f"{name} {value!r} cannot be used with this format", help="leave it out")


def _codec(properties: Mapping[str, str] | None, default: str) -> str:
    codec_options = {name.lower(): value for name, value in (properties or {}).items()}
    codec = codec_options.pop("codec", default).lower()
    _reject(properties=codec_options)
    return codec


@dataclass(frozen=True)
class _FileConversion:
    """Converts one numbered file in a task, to a staged file."""

    source: str
    target: str
    options: dict[str, str] = field(repr=False)
    job: str
    suffix: str
    convert: _Convert

    def __call__(self, task: tuple[int, DataFile]) -> StagedFile:
        number, file = task
        _, attempt = task_name()
        store = open_store(self.target, self.options)
        folder = file.key.rpartition("/")[0]
        name = f"part-{number:05d}-{self.job}{self.suffix}"
        key = f"{folder}/{name}" if folder else name
        staged = f"{jobs.STAGING}/{self.job}-{number:05d}-{attempt}/{key}"
        jobs.check_running(store, self.job)
        try:
            rows = self.convert((open_store(self.source, self.options), file.key), (store, staged))
            jobs.check_running(store, self.job)
            return StagedFile(staged, key, rows, store.head(staged).size)
        except TrilakeError:
            with suppress(StorageError):
                store.delete([staged])
            raise


def _convert(
    spark: SparkSession,
    source: str,
    target: str,
    mode: str,
    options: dict[str, str],
    *,
    suffix: str,
    convert: _Convert,
) -> WriteResult:
    """Convert each file in a separate task; afterwards, the driver moves all files into place at once."""
    if mode not in ("error", "append", "overwrite"):
        raise InvalidArgumentError(f"unknown mode {mode!r}", help="use append, error or overwrite")
    try:
        origin, files = find_files(source, options)
    except TableNotFoundError as e:
        raise TableNotFoundError("no files to convert found", help="check the path", file=source) from e
    store = open_store(target, options)
    if mode == "error" and list_files(store):
        raise TableExistsError("the target already contains files", file=target)
    job = new_write_id()
    task = _FileConversion(origin.uri, target, options, job, suffix, convert)

    def failed(cause: Exception) -> Exception:
        with suppress(StorageError, OSError):  # the job's own error is the one to show
            jobs.record_outcome(store, job, "aborted")
            jobs.remove_staged(store, job)
        what = "a file could not be converted, and nothing was written"
        return job_error_of(cause, what, again="convert again", file=target)

    with failing_as(failed):
        staged = sorted(SparkRunner(spark, width=1, least=1)(task, list(enumerate(files))), key=lambda f: f.key)
    try:
        publish(store, staged, replace=mode == "overwrite", first=mode == "error", job=job)
    except TableExistsError:
        jobs.remove_staged(store, job)
        raise
    jobs.remove_staged(store, job)
    return write_result(staged)
