"""Data files written by Spark itself: rows that need nothing but to be Parquet do not pass through Python.

Spark writes them into a staging folder below the table; their statistics come from their footers; then they get names
of the table's own.  It takes nothing but the DataFrame interface, so Spark Connect can do it too, where its server and
this process see the same disk.

What is written is what :mod:`trilake.delta.files.write_files` would write: the same rows, names, field ids and
statistics, apart from those of strings of more than 64 kB, which Spark keeps none of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.runtime import Runtime
from trilake.common.text import quote_name
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.file_statistics import file_statistics, leaf_paths, type_at
from trilake.delta.files.file_writer import file_action
from trilake.delta.protocol.all_fields import nested_fields
from trilake.delta.protocol.column_mapping import nested_ids
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.protocol.voids import is_void, without_voids
from trilake.delta.rules.constraints import forbids_null, verify_not_null
from trilake.delta.rules.store_assignment import assign_batch
from trilake.spark.scan.refusal import native_refusal
from trilake.spark.session.compat import without_echo
from trilake.spark.session.schemas import to_physical_spark, to_spark
from trilake.spark.session.settings import overridden
from trilake.storage.base import Store
from trilake.storage.staging import Staging, staging

_PARQUET = "spark.sql.parquet."
#: Without these, Spark writes older spellings of Parquet on request, and timestamps that have no statistics always.
_SETTINGS = {
    f"{_PARQUET}outputTimestampType": "TIMESTAMP_MICROS",
    f"{_PARQUET}writeLegacyFormat": "false",
    f"{_PARQUET}datetimeRebaseModeInWrite": "CORRECTED",
    f"{_PARQUET}fieldId.write.enabled": "true",
}
_OPTIONS = {
    # Files appear in the folder when all tasks have ended well, and only then.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # As Parquet's own default is: a session may have turned it off.
    "parquet.page.write-checksum.enabled": "true",
}
#: Footers that are read at the same time.
_READERS = 8
_VOID = T.NullType()
#: Compressions that mean the same to every release of Spark and to Arrow, and need no library that may be lacking.
_COMPRESSIONS = {"none", "snappy", "gzip", "zstd"}
_DATA_FILE = re.compile(r"part-.*\.parquet")


def native_write_refusal(df: DataFrame, store: Store, plan: FilePlan) -> str | None:
    """Why Spark cannot write the rows itself, or ``None`` where it can.

    Parameters
    ----------
    df: the rows, of the columns that they were planned for.
    store: the table's.
    plan: how its files are to be written.
    """
    if plan.provider != "parquet":
        return f"the files are {plan.provider}"
    if plan.action != "add" or plan.extra or plan.required is not None:
        return "the files are to hold more than the rows, or only rows of some kind"
    if plan.compression not in _COMPRESSIONS:
        return f"releases of Spark differ in what they write for the compression {plan.compression}"
    if plan.partition_columns:
        return "the table is partitioned"
    if plan.rules is None or not plan.rules.plain:
        return "values are made or checked on their way in"
    if "delta.targetFileSize" in plan.configuration:
        return "the table says how large its files are to be"
    if any(nested_ids(f) for f in nested_fields(plan.schema)):
        return "parts of arrays and maps have field ids"
    reason = _types_refusal(df.schema, plan.schema)
    if reason is not None:
        return reason
    if store.local_path("x") is None:
        return "Spark writes to local disks only"
    if not str(df.sparkSession.conf.get("spark.master", None) or "").startswith("local"):
        # The committer, on the driver, would take files that it does not see for files that are not there.
        return "tasks may run on machines with disks of their own"
    return native_refusal(store.uri, "parquet", spark=df.sparkSession)


def _types_refusal(row_schema: T.StructType, wanted: StructType) -> str | None:
    """Why rows of these types would have to be changed, or looked at one by one, to be rows of the table."""
    types = {f.name.lower(): f.dataType for f in row_schema.fields}
    for field in wanted.fields:
        if is_void(field.type) and not isinstance(types.get(field.name.lower(), _VOID), T.NullType):
            return f"column {field.name} has no type yet"
    stored = without_voids(wanted)
    for field, spark in zip(stored.fields, to_spark(stored).fields, strict=True):
        row_type = types.get(field.name.lower())
        if row_type is not None and row_type.simpleString() != spark.dataType.simpleString():
            return f"column {field.name} is {row_type.simpleString()} and the table has {spark.dataType.simpleString()}"
        if forbids_null(field.type) or (not field.nullable and not isinstance(field.type, PrimitiveType)):
            return f"parts of column {field.name} must not be null"
    variants = any(f.type.name == "variant" for f in nested_fields(wanted) if isinstance(f.type, PrimitiveType))
    return "the table has columns of type variant" if variants else None


def write_natively(df: DataFrame, store: Store, plan: FilePlan, runtime: Runtime | None = None) -> WrittenFiles:
    """Write rows that :func:`native_write_refusal` has nothing against, as one Spark job.

    Raises ``ConstraintViolatedError`` for a null where the table allows none, ``StorageError`` where files cannot get
    their place, and what Spark raises for a job that fails.  Then no files remain.
    """
    folder = staging(store)
    assert folder is not None, "the check for staged files ran"
    with folder, without_echo(), overridden(df.sparkSession, _SETTINGS):
        writer = _physical(df, plan).write.options(**_OPTIONS)
        if plan.max_records is not None:
            writer = writer.option("maxRecordsPerFile", plan.max_records)
        writer.option("compression", plan.compression).parquet(f"file://{folder.path}")
        return _publish(folder, store, plan, runtime or plan.engine.runtime)


def _physical(df: DataFrame, plan: FilePlan) -> DataFrame:
    """The rows with the table's columns, as its files call them."""
    fields = to_physical_spark(plan.stored.fields, ids=plan.mode != "none").fields
    spark = to_spark(plan.stored).fields
    if _are_physical(df.schema.fields, spark, fields):
        return df
    names = {n.lower(): n for n in df.columns}
    columns = []
    for field, logical, target in zip(plan.stored.fields, spark, fields, strict=True):
        name = names.get(field.name.lower())
        column = F.lit(None) if name is None else F.col(quote_name(name))
        if name is None or target.dataType != logical.dataType:
            column = column.cast(target.dataType)  # which gives nested fields their names and ids
        columns.append(column.alias(target.name, metadata=target.metadata or {}))
    return df.select(*columns)


def _are_physical(
    given: Sequence[T.StructField], logical: Sequence[T.StructField], physical: Sequence[T.StructField]
) -> bool:
    """Whether rows are as files have them.  To select a column takes some 25 calls to the JVM, 3 ms."""
    return len(given) == len(physical) and all(
        (own.name, own.metadata or {}, kind.dataType) == (asked.name, asked.metadata or {}, asked.dataType)
        for own, kind, asked in zip(given, logical, physical, strict=True)
    )


def _publish(folder: Staging, store: Store, plan: FilePlan, runtime: Runtime) -> WrittenFiles:
    """Give the files that hold rows their place in the table."""
    names = sorted(n for n in folder.names() if _DATA_FILE.fullmatch(n))
    schema = plan.file_schema
    with ThreadPoolExecutor(_READERS) as pool:
        footers = dict(zip(names, pool.map(lambda n: pq.read_metadata(f"{folder.path}/{n}"), names), strict=True))
    full = {n: m for n, m in footers.items() if m.num_rows}
    for name, footer in full.items():
        _check_nulls(f"{folder.path}/{name}", footer, plan)
    attempt = runtime.new_attempt()
    keys = {name: f"part-{i:05d}-{plan.job_id}-{attempt}.c000.{plan.ending}" for i, name in enumerate(full)}
    sizes = {name: folder.size(name) for name in full}
    folder.publish(keys)
    now = runtime.clock_ms()
    actions = (
        file_action(plan, keys[name], {}, sizes[name], now, partial(_statistics, footer, schema, plan))
        for name, footer in full.items()
    )
    return WrittenFiles(tuple(actions))


def _statistics(footer: pq.FileMetaData, schema: pa.Schema, plan: FilePlan) -> str:
    return file_statistics(footer, schema, with_nan=_with_nan(footer, schema), which=plan.statistics)


def _with_nan(footer: pq.FileMetaData, schema: pa.Schema) -> frozenset[tuple[str, ...]]:
    """The columns that hold a NaN, which the writer of these files counts as the greatest value."""
    floats = [
        (i, p) for i, p in enumerate(leaf_paths(schema)) if p is not None and pa.types.is_floating(type_at(schema, p))
    ]
    groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
    chunks = ((p, g.column(i).statistics) for i, p in floats for g in groups)
    return frozenset(p for p, s in chunks if s is not None and s.has_min_max and s.max != s.max)


def _check_nulls(path: str, footer: pq.FileMetaData, plan: FilePlan) -> None:
    """Refuse a null in a column that must have none: by the footer, and by the rows where it finds one or is silent."""
    at = {p: i for i, p in enumerate(leaf_paths(plan.file_schema))}
    groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
    suspects = [f for f in plan.stored.fields if not f.nullable and not _certain(f, at, groups)]
    if not suspects:
        return
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches():
            verify_not_null(assign_batch(batch.rename_columns(plan.stored.names), _lenient(plan.stored)), plan.stored)


def _certain(field: StructField, at: Mapping[Any, int], groups: list[pq.RowGroupMetaData]) -> bool:
    statistics = [g.column(at[(field.physical_name,)]).statistics for g in groups]
    return all(s is not None and s.has_null_count and not s.null_count for s in statistics)


def _lenient(schema: StructType) -> StructType:
    """The columns, each allowed to be null, so that they can be read to see which is."""
    return StructType(tuple(StructField(f.name, f.type, True, f.metadata) for f in schema.fields))
