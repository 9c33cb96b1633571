"""A table's rows as a DataFrame: the newest or another version, a stream, or the change feed."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pyspark.sql import DataFrame

from trilake.common.timestamps import iso, timestamp_ms
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Head
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.spark.delta.reading.load import load_delta
from trilake.spark.delta.reading.read import read_dataframe
from trilake.spark.delta.settings import session_log
from trilake.spark.live_frames.versions import ReadVersion, is_in_cache, version_to_read
from trilake.spark.scan.frame_tables import note
from trilake.spark.session.format import spark_format_named
from trilake.spark.session.settings import session_time_ms
from trilake.sql.parser.literals import Args
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target
from trilake.table.location import explained
from trilake.table.registry import format_named


def moment_ms(
    session: SqlSession, expression: str, args: Args = None, *, condition: str = "DELTA_TIMESTAMP_INVALID"
) -> int:
    """Evaluate a timestamp, as ms since the epoch.  Raises ``InvalidArgumentError``, with ``condition``."""
    value = session.value(f"unix_millis(try_cast(({expression}) AS TIMESTAMP))", args)
    if value is None:
        raise InvalidArgumentError(
            f"{expression} is not a valid timestamp",
            help="write it like '2024-05-01 12:30:00'",
            condition=condition,
        )
    return int(value)


def log_to_change(session: SqlSession, target: Target) -> DeltaLog:
    """A Delta table's log for commits with the session's settings."""
    return session_log(session.spark, target.store)


def open_delta(
    session: SqlSession, target: Target, version: int | None = None, ms: int | None = None
) -> ArrowDeltaTable:
    """Open a Delta table at a version, with its files.  Raises ``TableNotFoundError``, ``VersionNotFoundError``, and
    ``InvalidArgumentError`` for two versions."""
    log, version = _opened(session, target, version, ms)
    return ArrowDeltaTable(log.store, log.engine, version=version, user_metadata=log.user_metadata)


def head_of(session: SqlSession, target: Target) -> Head:
    """Open a Delta table without its files."""
    log, version = _opened(session, target, None, None)
    return log.head(version)


def _travel(session: SqlSession, target: Target, version: int | None, ms: int | None) -> tuple[int | None, int | None]:
    """The version or time of a read: the given one, or that after the path."""
    if target.at is None:
        return version, ms
    if version is not None or ms is not None:
        raise InvalidArgumentError(
            f"the path of {target.display_name} and the statement both name a version",
            help="leave one of them out",
            condition="DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS",
        )
    time = target.at.time
    return target.at.version, None if time is None else session_time_ms(session.spark, time)


def _opened(session: SqlSession, target: Target, version: int | None, ms: int | None) -> tuple[DeltaLog, int | None]:
    version, ms = _travel(session, target, version, ms)
    store = target.store
    if not target.log.exists():
        nothing = target.entry is None and next(iter(store.list()), None) is None
        name = target.path if target.entry is None else f"{target.path}, the location of {target.display_name},"
        missing = TableNotFoundError(
            f"{name} does not exist, or is not a Delta table",
            help="check the name or the path",
            file=store.uri,
            condition="PATH_NOT_FOUND" if nothing else "DELTA_TABLE_NOT_FOUND",
        )
        raise missing if target.entry is not None else explained(missing, store)
    log = session_log(session.spark, store)
    return log, version if ms is None else log.version_at(ms, reached=True)


def frame_of(session: SqlSession, target: Target, version: int | None = None, ms: int | None = None) -> DataFrame:
    """A table's rows at a version."""
    spark = session.spark
    if target.has_log:
        is_newest = version is None and ms is None and target.at is None
        delta = open_delta(session, target, version_to_read(target.store.uri) if is_newest else version, ms)
        frame: DataFrame = read_dataframe(spark, delta, options=target.options, newest=is_newest)
        return note(frame, ReadVersion.of(delta)) if is_newest else frame
    version, ms = _travel(session, target, version, ms)
    table = format_named(target.format).open(target.store, version, None if ms is None else iso(ms))
    return spark_format_named(target.format).read(spark, table, options=target.options)


def stream_of(session: SqlSession, target: Target) -> DataFrame:
    """A table's rows as a stream.  Raises ``InvalidArgumentError`` for a version."""
    if target.at is not None:
        raise InvalidArgumentError(
            f"a stream cannot read a fixed version, got {target.display_name}",
            help="leave the version out",
            condition="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS",
        )
    frame: DataFrame = session.spark.readStream.format(target.format).options(**target.options).load(target.path)
    return frame


def changes_of(session: SqlSession, target: Target, bounds: list[Any]) -> DataFrame:
    """A Delta table's changes between two versions or times, inclusive; to the newest by default."""
    if not target.has_log:
        raise InvalidArgumentError(
            f"only Delta tables have a change feed, but {target.display_name} is a {target.format} table",
            condition="DELTA_TABLE_ONLY_OPERATION",
        )
    open_delta(session, target)
    options = {**target.options, "readChangeFeed": "true"}
    for which, bound in zip(("starting", "ending"), bounds, strict=False):
        if bound is None:
            raise InvalidArgumentError(
                f"the {which} version or time of the changes must not be NULL",
                help="pass a version or a time",
                condition="DELTA_CDC_READ_NULL_RANGE_BOUNDARY",
            )
        if isinstance(bound, bool) or not isinstance(bound, int | str | dt.datetime | dt.date):
            raise InvalidArgumentError(
                f"the {which} version or time of the changes must be a number or a string, got {bound!r}",
                help="pass a version such as 3, or a time such as '2024-05-01 12:30:00'",
                condition="DELTA_UNSUPPORTED_EXPRESSION",
            )
        if isinstance(bound, int):
            options[f"{which}Version"] = str(bound)
        elif isinstance(bound, dt.datetime) and bound.tzinfo is not None:
            options[f"{which}Timestamp"] = iso(timestamp_ms(bound))
        else:
            options[f"{which}Timestamp"] = iso(session_time_ms(session.spark, str(bound)))
    return load_delta(session.spark, target.path, options)


def cache(session: SqlSession, target: Target, level: Any = None, *, fill: bool = False) -> None:
    """Cache a table's rows in Spark, on the first read or, with ``fill``, now; ``level`` is a storage level."""
    uncache(session, target)
    frame = frame_of(session, target)
    frame = frame.cache() if level is None else frame.persist(level)
    if fill:
        frame.count()
    session.cached[_key(target)] = frame


def uncache(session: SqlSession, target: Target) -> None:
    """Remove a table's rows from Spark's cache."""
    frame = session.cached.pop(_key(target), None)
    if frame is not None:
        frame.unpersist()


def is_cached(session: SqlSession, target: Target) -> bool:
    """Whether a read of the newest version uses Spark's cache."""
    return is_in_cache(frame_of(session, target))


def _key(target: Target) -> tuple[str, ...]:
    if target.entry is None:
        return target.format, target.path, str(target.at)
    return target.entry.database.lower(), target.entry.table.lower()
