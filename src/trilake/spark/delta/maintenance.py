"""Maintenance of Delta tables in a Spark session: vacuum, restore, clone, manifests, history and detail.

The Delta layer has the commands; this module adds Spark's settings, executors for many files, and DataFrames with
delta-spark's columns.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.delta.commands.maintenance.clone import clone
from trilake.delta.commands.maintenance.restore import METRICS, restore
from trilake.delta.commands.maintenance.vacuum import vacuum
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit.symlink_manifest import format_path
from trilake.delta.log.descriptions import DETAIL, HISTORY, detail
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.table import ArrowDeltaTable
from trilake.spark.catalog.named_tables import default_location, find_delta_table, new_name, refresh_name, table_at
from trilake.spark.delta.large_vacuum import is_large, vacuum_large
from trilake.spark.delta.settings import session_log
from trilake.spark.session.compat import arrow_frame, to_arrow
from trilake.spark.session.runner import SparkRunner
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.settings import session_flag, session_store, session_time_ms
from trilake.storage import is_absolute
from trilake.storage.base import Store

#: Settings of delta-spark.
RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
VACUUM_LOGGING = "spark.databricks.delta.vacuum.logging.enabled"
LITE_VACUUM = "spark.databricks.delta.vacuum.lite.enabled"
IGNORE_MISSING = "spark.sql.files.ignoreMissingFiles"


def many_runner(spark: SparkSession, store: Store, least: int) -> Runner:
    """Run ``least`` or more tasks as a Spark job, and fewer in threads, which is faster than starting a job."""
    # Executors cannot see this process's memory.
    return run_here if store.uri.startswith("memory:") else SparkRunner(spark, least=least)


def vacuum_table(
    spark: SparkSession,
    log: DeltaLog,
    retention_hours: float | None,
    *,
    dry_run: bool = False,
    lite: bool | None = None,
    inventory: DataFrame | None = None,
) -> DataFrame:
    """Run a vacuum with the session's settings; for a table with very many files, in Spark jobs.  Returns an empty
    DataFrame or, for a dry run, the full paths of the files to delete in a column ``path``."""
    hours = None if retention_hours is None else float(retention_hours)
    lite = session_flag(spark, LITE_VACUUM, False) if lite is None else lite
    enforce, record = session_flag(spark, RETENTION_CHECK, True), session_flag(spark, VACUUM_LOGGING, True)
    if not lite and inventory is None and is_large(spark, log):
        paths = vacuum_large(
            spark, log, retention_hours=hours, dry_run=dry_run, enforce_retention=enforce, record=record
        )
        return spark.createDataFrame([], T.StructType([])) if paths is None else paths
    result = vacuum(
        log,
        retention_hours=hours,
        dry_run=dry_run,
        lite=lite,
        enforce_retention=enforce,
        inventory=None if inventory is None else to_arrow(inventory),
        record=record,
        run=many_runner(spark, log.store, least=64),
    )
    if not dry_run:
        return spark.createDataFrame([], T.StructType([]))
    paths = pc.binary_join_element_wise(format_path(log.store.uri), result.files["path"], "/")
    return arrow_frame(spark, pa.table({"path": paths.cast(pa.string())}))


def restore_table(
    spark: SparkSession, log: DeltaLog, *, version: int | None = None, timestamp: str | None = None
) -> DataFrame:
    """Restore a version; return delta-spark's row of metrics."""
    result = restore(
        log,
        version=version,
        timestamp_ms=None if timestamp is None else session_time_ms(spark, timestamp),
        ignore_missing=session_flag(spark, IGNORE_MISSING, False),
        run=many_runner(spark, log.store, least=64),
    )
    schema = T.StructType([T.StructField(n, T.LongType()) for n in METRICS])
    return spark.createDataFrame([tuple(getattr(result, n) for n in METRICS)], schema)


def history_frame(spark: SparkSession, table: ArrowDeltaTable, limit: int | None) -> DataFrame:
    """The commits, newest first, with delta-spark's columns."""
    return _frame(spark, table.history(limit), HISTORY)


def detail_schema() -> T.StructType:
    """The columns of DESCRIBE DETAIL."""
    return to_spark(from_arrow(DETAIL))


def detail_frame(spark: SparkSession, table: ArrowDeltaTable, name: str | None = None) -> DataFrame:
    """A row about the table with delta-spark's columns and its ``name`` in the catalog; the location has Hadoop's
    form."""
    row = detail(table.log, table.snapshot)
    for column, value in (("location", format_path(table.uri)), ("name", name)):
        if value is not None:
            row = row.set_column(row.schema.get_field_index(column), column, pa.array([value]))
    return _frame(spark, row, DETAIL)


def _frame(spark: SparkSession, table: pa.Table, schema: pa.Schema) -> DataFrame:
    """An Arrow table as a DataFrame with exactly this schema; timestamps are in microseconds, as Spark requires."""
    columns = from_arrow(schema)
    return arrow_frame(spark, table.cast(columns.to_arrow_schema()), to_spark(columns))


_KINDS = {str: "a string", int: "an int", bool: "a boolean"}


def check_is(kind: type, value: object, name: str) -> None:
    """Raise ``ValueError``, as delta-spark does, unless ``value`` is of this type: ``str``, ``int`` or ``bool``."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name} needs to be {_KINDS[kind]} but got '{type(value)}'.")


def check_properties(properties: Mapping[str, str] | None) -> None:
    """Raise ``ValueError``, as delta-spark does, unless ``properties`` maps strings to strings."""
    if properties is None:
        return
    if not isinstance(properties, Mapping):
        raise ValueError(f"properties needs to be a dict but got '{type(properties)}'.")
    for key, value in properties.items():
        check_is(str, key, f"All property keys including {key}")
        check_is(str, value, f"All property values including {value}")


def clone_table(
    spark: SparkSession,
    log: DeltaLog,
    options: Mapping[str, str],
    target: str,
    shallow: bool,
    replace: bool,
    properties: Mapping[str, str] | None,
    *,
    version: int | None = None,
) -> str:
    """Clone a table and return the location of the target.  ``target`` is a path, ``delta.`/path```, or a name in the
    catalog, which is created if it does not exist.  Raises ``ValueError``, as delta-spark does, for arguments of other
    types."""
    check_is(str, target, "target")
    check_is(bool, shallow, "isShallow")
    check_is(bool, replace, "replace")
    check_properties(properties)
    path, name, managed = clone_location(spark, target)
    source = log.snapshot(version)

    def run(path: str) -> str:
        into, many = session_log(spark, session_store(spark, path, options)), many_runner(spark, log.store, least=32)
        clone(source, log, into, shallow=shallow, replace_target=replace, properties=properties, run=many)
        if name is not None:
            refresh_name(spark, name, path, into, managed=managed is not False)
        return path

    if name is None or managed is not None:
        return run(path)
    comment = source.metadata.description
    with new_name(spark, name, source.schema, comment=comment, options=options, replaces=replace) as location:
        return run(location)


def clone_location(spark: SparkSession, target: str) -> tuple[str, str | None, bool | None]:
    """The path of a target, its name in the catalog (if any), and whether that is managed (``None`` if it is new)."""
    by_path = table_at(target)
    if by_path is not None and by_path.format == "delta":
        return by_path.location, None, None
    if is_absolute(target) or "/" in target:
        return target, None, None
    if (table := find_delta_table(spark, target)) is not None:
        return table.location, target, table.managed
    return default_location(spark, target), target, None
