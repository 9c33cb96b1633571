"""A version of a Delta table as a DataFrame, in the first of these ways that is possible.

* A data source that opens the newest version in each plan: for a stream that is joined with a table.
* Spark's own scan of files that are listed when a query is planned (:func:`~.listed_frames.late_frame`): for
  very large tables.
* Spark's own scan of the files of the version (:func:`~.listed_frames.listed_frame`).
* A data source that reads through Arrow: for files that Spark cannot scan.

:func:`files_obstacle` decides from the table's metadata and the session.  Some reasons, such as a file name that Spark
skips, appear only when files are listed; the scans then raise ``NativeScanError``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.common.arguments import resolve_columns
from trilake.common.text import quote_name
from trilake.delta.commands.alter.metadata_commits import FindViolation
from trilake.delta.log.snapshot import PendingSnapshot, Snapshot
from trilake.delta.metadata.schema_changes import Condition
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.protocol.schema_edit import nested_fields
from trilake.delta.scan.scan import plan_scan, read_schema, vector_count
from trilake.delta.table import ArrowDeltaTable
from trilake.expr import Filter, parse_filter
from trilake.spark.delta.reading.listed_frames import VersionRead, late_frame, listed_frame, look_up
from trilake.spark.delta.source import TrilakeDeltaDataSource
from trilake.spark.delta.storing.computed import judge_check
from trilake.spark.live_frames.versions import is_read_in_each_plan
from trilake.spark.scan.char_padding import with_padding
from trilake.spark.scan.columns import is_certain
from trilake.spark.scan.manifest import NativeScanError
from trilake.spark.scan.obstacles import native_obstacle
from trilake.spark.session.compat import RELEASE
from trilake.spark.session.runner import map_in_arrow
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.settings import reads_quotes_plainly
from trilake.spark.session.sources.pruned_source import pruned_source_frame
from trilake.spark.session.type_tree import with_strings
from trilake.storage import open_store
from trilake.table.explanation import Explanation
from trilake.table.table import FilterLike

_log = logging.getLogger("trilake.spark")
_INTEGERS = {"byte", "short", "integer", "long"}
#: Types that Parquet stores as INT32: widening one to another changes no file.
_INT32 = {"short", "integer"}


def read_dataframe(
    spark: SparkSession,
    table: ArrowDeltaTable,
    *,
    columns: Sequence[str] | None = None,
    filter: FilterLike | None = None,
    options: Mapping[str, str] | None = None,
    newest: bool = False,
) -> DataFrame:
    """The rows of an open table's version for which ``filter`` is true, projected to ``columns``.  ``newest`` is
    that of :class:`~.listed_frames.VersionRead`."""
    schema = read_schema(table.metadata.schema)
    output = resolve_columns(schema.names, columns, table.uri)
    bound = None if filter is None else parse_filter(filter, filter_schema(schema))
    certain = bound is None or (
        is_certain(spark, bound) and (bound.expression is not None or reads_quotes_plainly(spark))
    )
    used = bound if certain else None
    df = with_padding(_rows(VersionRead(spark, table, newest), used, options or {}), schema)
    if isinstance(filter, str):
        df = df.where(filter)
    elif bound is not None:
        df = map_in_arrow(df, lambda batches: map(bound.apply, batches), df.schema)
    return df if columns is None else df.select(*map(quote_name, output))


def _rows(request: VersionRead, filter: Filter | None, options: Mapping[str, str]) -> DataFrame:
    spark, table = request.spark, request.table
    if request.newest and is_read_in_each_plan():
        return _through_arrow(spark, table, options, version=None)
    native = _natively(request, filter)
    if isinstance(native, str):
        _log.info("version %d of %s is read through Arrow: %s", table.version, table.uri, native)
        return _through_arrow(spark, table, options, version=table.version)
    _log.info("version %d of %s is read by Spark's native scan", table.version, table.uri)
    return native


def _natively(request: VersionRead, filter: Filter | None) -> DataFrame | str:
    """The rows from one of Spark's own scans, or the reason why there is none."""
    spark, table = request.spark, request.table
    is_pending = isinstance(table.opened, PendingSnapshot)
    if is_pending and (obstacle := files_obstacle(table.metadata, table.uri, spark, vectors=False)) is not None:
        return obstacle
    try:
        if is_pending and filter is None:  # with a filter, only the files that it needs are listed
            frame = late_frame(request)
            if frame is not None:
                return frame
        version = look_up(spark, table.log, table.opened, filter, lambda _: table.snapshot)
        scan = plan_scan(version, None, filter)
        vectors = vector_count(scan.snapshot.adds) > 0
        obstacle = files_obstacle(table.metadata, table.uri, spark, vectors=vectors)
        return listed_frame(request, scan) if obstacle is None else obstacle
    except NativeScanError as e:
        return str(e)


def explain_read(spark: SparkSession, table: ArrowDeltaTable, filter: FilterLike | None = None) -> Explanation:
    """Which files :func:`read_dataframe` reads, and how."""
    notes = [f"read by {_way(scan_obstacle(table, spark))}"]
    if table.snapshot.properties.is_on("delta.enableChangeDataFeed"):
        obstacle = files_obstacle(table.metadata, table.uri, spark, vectors=False)
        notes.append(f"changes are read by {_way(obstacle)}")
    return replace(table.explain(filter), notes=tuple(notes))


def _way(obstacle: str | None) -> str:
    return "Spark's native scan" if obstacle is None else f"Arrow in Spark's tasks, not Spark's native scan: {obstacle}"


def scan_obstacle(table: ArrowDeltaTable, spark: SparkSession) -> str | None:
    """Why Spark cannot read the files natively; ``None`` if it can."""
    return files_obstacle(table.metadata, table.uri, spark, vectors=vector_count(table.snapshot.adds) > 0)


def files_obstacle(metadata: Metadata, uri: str, spark: SparkSession, *, vectors: bool) -> str | None:
    """Why Spark cannot natively read the files of a table with this metadata, with or without deletion vectors."""
    changes = [c for f in nested_fields(metadata.schema) for c in f.metadata.get("delta.typeChanges") or ()]
    if any(c.get("fromType") in _INTEGERS and str(c.get("toType")).startswith("decimal") for c in changes):
        return "a column was widened from integer to decimal, which Spark's Parquet reader does not support"
    if RELEASE < (4, 0) and any(c.get("toType") not in _INT32 for c in changes):
        return f"a column was widened, which the Parquet reader of Spark {spark.version} does not support"
    return native_obstacle(uri, metadata.provider.lower(), vectors=vectors, spark=spark)


def _through_arrow(
    spark: SparkSession, table: ArrowDeltaTable, options: Mapping[str, str], *, version: int | None
) -> DataFrame:
    """The rows of a version, or of the newest version in each plan, with the current columns."""
    declared_schema = table.metadata.schema
    schema = read_schema(declared_schema)
    read_options = {**({} if version is None else {"versionAsOf": version}), **options}
    columns = to_spark(schema)
    for field, declared in zip(columns.fields, declared_schema.fields, strict=True):
        field.nullable = declared.nullable
    stated = None if all(f.nullable for f in columns.fields) else columns  # those of the source are all nullable
    rows = schema.to_arrow_schema()
    return with_strings(pruned_source_frame(spark, TrilakeDeltaDataSource, table.uri, read_options, rows, stated))


def violation_finder(spark: SparkSession, path: str, options: Mapping[str, str]) -> FindViolation:
    """A function that lets Spark find a row for which a condition is not true, for
    :class:`~trilake.delta.commands.alter.alter_table.Alter`."""

    def find(snapshot: Snapshot, condition: Condition) -> Mapping[str, Any] | None:
        if not condition.kind.startswith("NOT NULL"):
            judge_check(spark, snapshot.schema, condition.name, condition.sql)
        table = ArrowDeltaTable(open_store(path, dict(options)), snapshot.engine, version=snapshot.version)
        violated = ~F.coalesce(F.expr(condition.sql), F.lit(False))
        rows = read_dataframe(spark, table, options=options).where(violated).take(1)
        return rows[0].asDict(recursive=True) if rows else None

    return find
