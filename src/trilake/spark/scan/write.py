"""Data files that Spark itself writes: rows that need no checks or conversions do not pass through Python.

Spark writes Parquet files to a staging folder below the table.  Their footers give the statistics; then they are
renamed into the table.  This uses only the DataFrame API, so it also works on Spark Connect if the server shares a
disk with this process.

The result equals that of :mod:`trilake.delta.files.write_files`: the same rows, names, field IDs and statistics, except
for strings of more than 64 kB, for which Spark writes no statistics.

:func:`rows_on_driver` returns rows that need no job at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.arrow_types import leaf_paths, type_at
from trilake.common.text import quote_name
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.file_statistics import file_statistics, stated_columns
from trilake.delta.files.file_writer import file_action
from trilake.delta.protocol.column_mapping import nested_ids
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.protocol.schema_edit import is_void, nested_fields, without_voids
from trilake.delta.rules.constraints import forbids_null, verify_not_null
from trilake.delta.rules.store_assignment import assign_batch
from trilake.spark.scan.obstacles import native_obstacle
from trilake.spark.session.compat import is_connect, to_arrow, without_echo
from trilake.spark.session.internals import query_execution
from trilake.spark.session.schemas import to_physical_spark, to_spark
from trilake.spark.session.settings import overridden
from trilake.storage.base import Store
from trilake.storage.staging import Staging, staging

_PARQUET = "spark.sql.parquet."
#: Override legacy Parquet settings, and the default INT96, which has no statistics.
_SETTINGS = {
    f"{_PARQUET}outputTimestampType": "TIMESTAMP_MICROS",
    f"{_PARQUET}writeLegacyFormat": "false",
    f"{_PARQUET}datetimeRebaseModeInWrite": "CORRECTED",
    f"{_PARQUET}fieldId.write.enabled": "true",
}
_OPTIONS = {
    # Files appear in the folder only after all tasks have succeeded.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Parquet's default, which the session may have changed.
    "parquet.page.write-checksum.enabled": "true",
}
#: Threads that read footers.
_READERS = 8
_VOID = T.NullType()
#: Compressions that all releases of Spark and Arrow support without extra libraries.
_COMPRESSIONS = {"none", "snappy", "gzip", "zstd"}
_DATA_FILE = re.compile(r"part-.*\.parquet")


def native_write_obstacle(df: DataFrame, store: Store, plan: FilePlan) -> str | None:
    """Why Spark itself cannot write these rows with the columns of the plan; ``None`` if it can."""
    if plan.provider != "parquet":
        return f"the files are {plan.provider}"
    if plan.action != "add" or plan.extra or plan.required is not None:
        return "the files need extra columns or only some of the rows"
    if plan.compression not in _COMPRESSIONS:
        return f"not all Spark releases support the compression {plan.compression}"
    if plan.partition_columns:
        return "the table is partitioned"
    if plan.rules is None or not plan.rules.plain:
        return "values must be computed or checked"
    if "delta.targetFileSize" in plan.configuration:
        return "the table sets delta.targetFileSize"
    if any(nested_ids(f) for f in nested_fields(plan.schema)):
        return "array elements or map entries have field IDs"
    reason = _types_obstacle(df.schema, plan.schema)
    if reason is not None:
        return reason
    if store.local_path("x") is None:
        return "Spark writes to local disks only"
    if not str(df.sparkSession.conf.get("spark.master", None) or "").startswith("local"):
        # The committer runs on the driver and would not see the tasks' files.
        return "tasks may run on machines that do not share this disk"
    return native_obstacle(store.uri, "parquet", spark=df.sparkSession)


def _types_obstacle(row_schema: T.StructType, schema: StructType) -> str | None:
    """Why rows of these types must be converted or checked one by one; ``None`` if they need not."""
    types = {f.name.lower(): f.dataType for f in row_schema.fields}
    for field in schema.fields:
        if is_void(field.type) and not isinstance(types.get(field.name.lower(), _VOID), T.NullType):
            return f"column {field.name} has type void"
    stored = without_voids(schema)
    for field, spark in zip(stored.fields, to_spark(stored).fields, strict=True):
        row_type = types.get(field.name.lower())
        if row_type is not None and row_type.simpleString() != spark.dataType.simpleString():
            return f"column {field.name} is {row_type.simpleString()}, expected {spark.dataType.simpleString()}"
        if forbids_null(field.type) or (not field.nullable and not isinstance(field.type, PrimitiveType)):
            return f"nested values of column {field.name} must not be null"
    variants = any(f.type.name == "variant" for f in nested_fields(schema) if isinstance(f.type, PrimitiveType))
    return "the table has a column of type variant" if variants else None


def write_natively(df: DataFrame, store: Store, plan: FilePlan) -> WrittenFiles:
    """Write rows in one Spark job, where :func:`native_write_obstacle` is ``None``.

    Raises ``ConstraintViolatedError`` for a null in a non-nullable column, ``StorageError``, and Spark's errors; no
    files remain after an error.
    """
    folder = staging(store)
    assert folder is not None, "the check for staged files ran"
    with folder, without_echo(), overridden(df.sparkSession, _SETTINGS):
        writer = _physical(df, plan).write.options(**_OPTIONS)
        if plan.max_records is not None:
            writer = writer.option("maxRecordsPerFile", plan.max_records)
        writer.option("compression", plan.compression).parquet(f"file://{folder.path}")
        return _publish(folder, plan)


def _physical(df: DataFrame, plan: FilePlan) -> DataFrame:
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
            column = column.cast(target.dataType)  # renames nested fields and sets their IDs
        columns.append(column.alias(target.name, metadata=target.metadata or {}))
    return df.select(*columns)


def _are_physical(
    actual: Sequence[T.StructField], logical: Sequence[T.StructField], physical: Sequence[T.StructField]
) -> bool:
    return len(actual) == len(physical) and all(
        (field.name, field.metadata or {}, logical_field.dataType)
        == (target.name, target.metadata or {}, target.dataType)
        for field, logical_field, target in zip(actual, logical, physical, strict=True)
    )


def _publish(folder: Staging, plan: FilePlan) -> WrittenFiles:
    names = sorted(n for n in folder.names() if _DATA_FILE.fullmatch(n))
    schema = plan.file_schema
    with ThreadPoolExecutor(_READERS) as pool:
        footers = dict(zip(names, pool.map(lambda n: pq.read_metadata(f"{folder.path}/{n}"), names), strict=True))
    full = {n: m for n, m in footers.items() if m.num_rows}
    for name, footer in full.items():
        _check_nulls(f"{folder.path}/{name}", footer, plan)
    attempt = plan.engine.runtime.new_attempt()
    keys = {name: f"part-{i:05d}-{plan.job_id}-{attempt}.c000.{plan.ending}" for i, name in enumerate(full)}
    sizes = {name: folder.size(name) for name in full}
    folder.publish(keys)
    now = plan.engine.runtime.clock_ms()
    actions = (
        file_action(plan, keys[name], {}, sizes[name], now, partial(_statistics, footer, schema, plan))
        for name, footer in full.items()
    )
    return WrittenFiles(tuple(actions))


def _statistics(footer: pq.FileMetaData, schema: pa.Schema, plan: FilePlan) -> str:
    return file_statistics(footer, stated_columns(schema, plan.statistics), _with_nan(footer, schema))


def _with_nan(footer: pq.FileMetaData, schema: pa.Schema) -> frozenset[tuple[str, ...]]:
    """The columns with a NaN, which Spark's writer treats as the greatest value."""
    floats = [
        (i, p) for i, p in enumerate(leaf_paths(schema)) if p is not None and pa.types.is_floating(type_at(schema, p))
    ]
    groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
    chunks = ((p, g.column(i).statistics) for i, p in floats for g in groups)
    return frozenset(p for p, s in chunks if s is not None and s.has_min_max and s.max != s.max)


def _check_nulls(path: str, footer: pq.FileMetaData, plan: FilePlan) -> None:
    """Reject a null in a non-nullable column, by the footer or, if that is unclear, by the rows."""
    at = {p: i for i, p in enumerate(leaf_paths(plan.file_schema))}
    groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
    suspects = [f for f in plan.stored.fields if not f.nullable and not _has_no_nulls(f, at, groups)]
    if not suspects:
        return
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches():
            verify_not_null(
                assign_batch(
                    batch.rename_columns(plan.stored.names),
                    StructType(tuple(StructField(f.name, f.type, True, f.metadata) for f in plan.stored.fields)),
                ),
                plan.stored,
            )


def _has_no_nulls(field: StructField, at: Mapping[Any, int], groups: list[pq.RowGroupMetaData]) -> bool:
    statistics = [g.column(at[(field.physical_name,)]).statistics for g in groups]
    return all(s is not None and s.has_null_count and not s.null_count for s in statistics)


#: Plan nodes of literal rows, and the operators allowed above them: they add no rows, run no Python and do not set the
#: number of output files.
_LEAVES = ("LocalRelation", "OneRowRelation")
_STEPS = ("Project", "Filter")
_MOST_BYTES = 16 << 20


def rows_on_driver(df: DataFrame) -> pa.Table | None:
    """The rows of a small DataFrame whose data is on the driver (pandas, Arrow or ``VALUES``, filtered and projected);
    ``None`` for any other.  A Python task takes 50 to 100 ms before its first row; this takes a quarter of that."""
    if is_connect(df.sparkSession):
        return None
    try:
        plan = query_execution(df).optimizedPlan()
        while plan.nodeName() in _STEPS:
            plan = plan.children().head()
        if plan.nodeName() not in _LEAVES or int(plan.stats().sizeInBytes()) > _MOST_BYTES:
            return None
    except Py4JError:
        return None  # let a job compute the rows
    return to_arrow(df)
