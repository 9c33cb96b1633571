"""``spark.read.format("delta")``: a version of a table, or its change feed.

The version comes from options, or from a suffix of the path: ``@v3`` or a timestamp.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.common.option_values import Travel, split_travel
from trilake.common.text import quote_name
from trilake.delta.log.log import DeltaLog
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError, masked
from trilake.spark.delta.reading.change_feed import load_change_feed
from trilake.spark.delta.reading.read import read_dataframe
from trilake.spark.delta.source import FEED_RANGE, READ_OPTIONS, reads_feed
from trilake.spark.live_frames.versions import ReadVersion, version_to_read
from trilake.spark.scan.frame_tables import RowCount, note, noted
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.options import Options, requested_version
from trilake.spark.session.schemas import requested_schema
from trilake.spark.session.settings import time_ms
from trilake.storage import open_store
from trilake.table.location import explained

_log = logging.getLogger("trilake.spark")


def split_version(path: str, store: Mapping[str, str]) -> tuple[str, Travel | None]:
    """A table's path without its suffix, and what the suffix names, if any.  A path that exists has no suffix, whatever
    it looks like.

    >>> split_version("/no/such/table@v12", {})
    ('/no/such/table', Travel(version=12, time=None))
    """
    split = split_travel(path)
    if split is None or os.path.exists(path) or DeltaLog(open_store(path, dict(store)), spark_engine()).exists():
        return path, None
    return split


def load_delta(spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
    """The DataFrame of ``spark.read.format("delta").options(...).schema(...).load(path)``.  A suffix ``@v3`` or
    ``@20240131120000000`` of the path names a version."""
    read_options = Options(options, READ_OPTIONS, reading=True)
    path, in_path = split_version(path, read_options.store)
    log = DeltaLog(open_store(path, dict(read_options.store)), spark_engine())
    if not reads_feed(read_options):
        frame, newest = _load_version(spark, log, read_options, in_path)
    elif in_path is None and not (read_options.get("versionAsOf") or read_options.get("timestampAsOf")):
        frame, newest = load_change_feed(spark, log, read_options)
    else:
        raise InvalidArgumentError(
            "a change feed cannot be read at a single version",
            help="pass startingVersion and endingVersion",
            file=log.store.uri,
            condition="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS",
        )
    result = frame if schema is None else _with_schema(frame, schema)
    return result if newest is None else note(result, newest)


def _load_version(
    spark: SparkSession, log: DeltaLog, options: Options, in_path: Travel | None
) -> tuple[DataFrame, ReadVersion | None]:
    """The rows of a version, and which version that is, if it is the newest and not one that the user chose."""
    store = log.store
    unused = [name for name in FEED_RANGE if options.get(name) is not None]
    if unused:  # delta-spark ignores them, too
        _log.warning(
            "%s has no effect without readChangeFeed: reading the table %s", ", ".join(unused), masked(store.uri)
        )
    if not log.exists():
        missing = TableNotFoundError(
            "the path does not exist, or is not a Delta table",
            help="check the path",
            file=store.uri,
            condition="DELTA_PATH_DOES_NOT_EXIST",
        )
        raise explained(missing, store)
    version = requested_version(log, options, in_path, partial(time_ms, spark))
    at = version_to_read(store.uri) if version is None else version
    table = ArrowDeltaTable(store, log.engine, version=at)
    frame = read_dataframe(spark, table, filter=options.get("filter"), options=options.store, newest=version is None)
    return frame, ReadVersion.of(table) if version is None else None


def _with_schema(df: DataFrame, schema: Any) -> DataFrame:
    """A DataFrame projected and cast to ``schema``, a type or a DDL string.  Raises ``InvalidArgumentError`` for an
    unknown column."""
    requested = requested_schema(df.sparkSession, schema)
    columns = []
    by_lower = {f.name.lower(): f for f in df.schema.fields}
    for field in requested.fields:
        source = by_lower.get(field.name.lower())
        if source is None:
            raise InvalidArgumentError(
                f"column {field.name!r} of the schema not found in the table",
                help=f"its columns are {', '.join(df.columns)}",
                column=field.name,
                condition="DELTA_UNSUPPORTED_SCHEMA_DURING_READ",
            )
        column = F.col(quote_name(source.name))
        columns.append((column if source.dataType == field.dataType else column.cast(field.dataType)).alias(field.name))
    return note(df.select(*columns), noted(df, RowCount))
