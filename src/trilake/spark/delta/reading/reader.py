"""``spark.read.format("delta")``: a version of a table or its change feed, natively if possible."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.text import quote_name
from trilake.delta.log.log import DeltaLog
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.spark.delta.read import read_dataframe
from trilake.spark.delta.reading.change_feed import change_feed, no_changes
from trilake.spark.delta.reading.time_travel import split_place, version_of
from trilake.spark.delta.settings import FEED_BEYOND, session_flag
from trilake.spark.delta.source import READ_OPTIONS
from trilake.spark.live_frames.versions import ReadVersion, note_version, version_to_read
from trilake.spark.scan.row_counts import note_row_count, row_count
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.options import Options, change_range
from trilake.spark.session.schemas import parse_ddl
from trilake.spark.session.settings import time_ms
from trilake.storage import open_store
from trilake.table.location import explained

_FEED = ("readChangeFeed", "readChangeData")
_RANGE = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")


def load_delta(spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
    """The frame of ``spark.read.format("delta").options(...).schema(...).load(path)``.

    Parameters
    ----------
    path: the table; a suffix ``@v3`` or ``@20240131120000000`` names a version.
    options: of the read and the store.
    schema: the columns and types of the result; by default the table's.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``UnknownOptionError``, ``InvalidArgumentError`` and
    ``ChangeFeedError``.
    """
    read_options = Options(options, READ_OPTIONS, reading=True)
    place = split_place(path, read_options.store)
    store = open_store(place.path, dict(read_options.store))
    log = DeltaLog(store, spark_engine())
    newest: ReadVersion | None = None
    if any(read_options.flag(name) for name in _FEED):
        if place.is_travel or read_options.get("versionAsOf") or read_options.get("timestampAsOf"):
            raise InvalidArgumentError(
                "a change feed is of a range of versions, not of one",
                help="pass startingVersion and endingVersion",
                file=store.uri,
                condition="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS",
            )
        beyond = session_flag(spark, FEED_BEYOND, False)
        feed_range = change_range(log, read_options, partial(time_ms, spark), beyond=beyond)
        if feed_range.is_empty:
            frame, last = no_changes(spark, log)
        else:
            frame, last = change_feed(spark, log, feed_range.start, feed_range.end, options=read_options.store)
        newest = ReadVersion(log, last) if feed_range.end is None else None
    else:
        lost = [name for name in _RANGE if read_options.get(name) is not None]
        if lost:
            raise InvalidArgumentError(
                f"{', '.join(lost)} mean something to a change feed only",
                help='add .option("readChangeFeed", "true"), or read one version with versionAsOf',
                file=store.uri,
            )
        if not log.exists():
            missing = TableNotFoundError(
                "the path does not exist, or is not a Delta table",
                help="check the path",
                file=store.uri,
                condition="DELTA_PATH_DOES_NOT_EXIST",
            )
            raise explained(missing, store)
        version = version_of(log, read_options, place, partial(time_ms, spark))
        at = version_to_read(store.uri) if version is None else version
        table = ArrowDeltaTable(store, spark_engine(), version=at)
        where, store_options = read_options.get("filter"), read_options.store
        frame = read_dataframe(spark, table, filter=where, options=store_options, newest=version is None)
        newest = ReadVersion.of(table) if version is None else None
    result = frame if schema is None else with_schema(frame, schema)
    return result if newest is None else note_version(result, newest)


def with_schema(df: DataFrame, schema: Any) -> DataFrame:
    """A frame projected to ``schema``, a type or a DDL string, and cast to its types.

    Names are case-insensitive.  Raises ``InvalidArgumentError`` for an unknown column.
    """
    requested = schema if isinstance(schema, T.StructType) else parse_ddl(df.sparkSession, schema)
    columns = []
    by_lower = {f.name.lower(): f for f in df.schema.fields}
    for field in requested.fields:
        source = by_lower.get(field.name.lower())
        if source is None:
            raise InvalidArgumentError(
                f"the schema names a column that the table lacks: {field.name!r}",
                help=f"it has {', '.join(df.columns)}",
                column=field.name,
                condition="DELTA_UNSUPPORTED_SCHEMA_DURING_READ",
            )
        column = F.col(quote_name(source.name))
        columns.append((column if source.dataType == field.dataType else column.cast(field.dataType)).alias(field.name))
    return note_row_count(df.select(*columns), row_count(df))
