"""What ``spark.read.format("delta")`` reads: a version of a table or its change feed, natively where possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.delta.log.log import DeltaLog
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.spark.delta.read import read_dataframe
from trilake.spark.delta.reading.change_feed import change_feed
from trilake.spark.delta.reading.time_travel import split_place, version_of, zoned_ms
from trilake.spark.delta.source import READ_OPTIONS
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.options import Options
from trilake.spark.session.schemas import parse_ddl
from trilake.storage import open_store
from trilake.text import quote_name

_FEED = ("readChangeFeed", "readChangeData")
_RANGE = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")


def load_delta(spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
    """The frame of ``spark.read.format("delta").options(...).schema(...).load(path)``.

    Parameters
    ----------
    path: the table, with ``@v3`` or ``@20240131120000000`` behind it for a version.
    options: those of the read and of the store.
    schema: the columns and types that the result shall have; all of the table's by default.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``UnknownOptionError``, ``InvalidArgumentError`` and
    ``ChangeFeedError``.
    """
    given = Options(options, READ_OPTIONS)
    place = split_place(path, given.store)
    store = open_store(place.path, dict(given.store))
    log = DeltaLog(store, spark_engine())
    zone = spark.conf.get("spark.sql.session.timeZone", "UTC") or "UTC"
    if any(given.flag(name) for name in _FEED):
        if place.is_travel or given.get("versionAsOf") or given.get("timestampAsOf"):
            raise InvalidArgumentError(
                "a change feed is of a range of versions, not of one",
                help="pass startingVersion and endingVersion",
                file=store.uri,
            )
        found = change_feed(spark, log, *_range(log, given, zone), options=given.store)
    else:
        lost = [name for name in _RANGE if given.get(name) is not None]
        if lost:
            raise InvalidArgumentError(
                f"{', '.join(lost)} mean something to a change feed only",
                help='add .option("readChangeFeed", "true"), or read one version with versionAsOf',
                file=store.uri,
            )
        if not log.exists():
            raise TableNotFoundError("there is no Delta table", help="check the path", file=store.uri)
        table = ArrowDeltaTable(store, spark_engine(), version=version_of(log, given, place, zone))
        found = read_dataframe(spark, table, options=given.store)
    return found if schema is None else with_schema(found, schema)


def _range(log: DeltaLog, options: Options, zone: str) -> tuple[int, int | None]:
    """First and last version of a change feed; the last is ``None`` for the newest.

    A starting timestamp means the first commit at or after it, an ending one the last at or before it.
    """
    options.one_of("startingVersion", "startingTimestamp")
    options.one_of("endingVersion", "endingTimestamp")
    start, end = options.integer("startingVersion"), options.integer("endingVersion")
    if (text := options.get("startingTimestamp")) is not None:
        start = log.version_from(zoned_ms(text, zone))
    if (text := options.get("endingTimestamp")) is not None:
        end = log.version_at(zoned_ms(text, zone))
    if start is None:
        raise InvalidArgumentError("a change feed needs a start", help="pass startingVersion or startingTimestamp")
    return start, end


def with_schema(df: DataFrame, schema: Any) -> DataFrame:
    """The columns of ``schema``, a type or a text of DDL, out of a frame, in their types.

    Names are found without regard to case.  Raises ``InvalidArgumentError`` for a column that there is not.
    """
    wanted = schema if isinstance(schema, T.StructType) else parse_ddl(df.sparkSession, schema)
    columns = []
    by_lower = {f.name.lower(): f for f in df.schema.fields}
    for field in wanted.fields:
        known = by_lower.get(field.name.lower())
        if known is None:
            raise InvalidArgumentError(
                f"the schema names a column that the table lacks: {field.name!r}",
                help=f"it has {', '.join(df.columns)}",
                column=field.name,
            )
        column = F.col(quote_name(known.name))
        columns.append((column if known.dataType == field.dataType else column.cast(field.dataType)).alias(field.name))
    return df.select(*columns)
