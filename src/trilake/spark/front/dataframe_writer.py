"""``df.write`` for what Spark never passes on to a Python data source.

Spark refuses the modes ``errorifexists`` (its default) and ``ignore``, ``partitionBy`` and ``saveAsTable`` for Python
sources before any code of theirs is asked.  After :func:`take_over` such writes of our formats, and all those of Delta
tables, go the way of :func:`trilake.write`; others, and all other formats, stay with Spark.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameWriter

from trilake.delta.commands.write.write import parse_mode
from trilake.delta.log.log import DeltaLog
from trilake.errors import InvalidArgumentError, TableExistsError, TrilakeError
from trilake.spark.delta.catalogue import add_name, default_location, known_location, location_of
from trilake.spark.session.analysis_errors import job_error
from trilake.storage import open_store

R = TypeVar("R")

#: Set on a class whose methods have been taken over, so that it happens once.
_DONE = "_trilake_writer"


@dataclass(frozen=True)
class SaveRequest:
    """What a chain of calls on ``df.write`` asks for.  ``mode`` is one of ``error``, ``ignore``, ``append`` and
    ``overwrite``; ``properties`` are those of a new table."""

    df: DataFrame
    format: str
    mode: str
    options: Mapping[str, str]
    partition_by: tuple[str, ...] | None
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Columns of ``clusterBy``.
    cluster_by: tuple[str, ...] | None = None
    #: What ``bucketBy`` and ``sortBy`` said, which none of our formats do.
    buckets: str | None = None


class Saver(Protocol):
    """How a format writes a DataFrame to a place."""

    def __call__(self, request: SaveRequest, path: str) -> None:
        """Write it, in the request's mode."""


#: Formats whose writes are taken over, by the names that they are registered under.
SAVERS: dict[str, Saver] = {}
#: Of those, the formats that tables of the catalogue may have.
NAMED: set[str] = set()


def take_over() -> None:
    """Teach ``df.write`` of this process the writes that Spark refuses; doing it again changes nothing."""
    _take_over(DataFrameWriter, _classic)
    connect = _connect_writer()
    if connect is not None:
        _take_over(connect, _connect)


def _connect_writer() -> type | None:
    try:
        from pyspark.sql.connect.readwriter import DataFrameWriter as ConnectWriter
    except ImportError:  # Spark Connect's own requirements are not installed
        return None
    return ConnectWriter


def _take_over(cls: Any, read: Callable[[Any], SaveRequest]) -> None:
    if getattr(cls, _DONE, False):
        return
    setattr(cls, _DONE, True)
    save, save_as_table, insert_into = cls.save, cls.saveAsTable, cls.insertInto

    @functools.wraps(save)
    def save_ours(
        self: Any, path: Any = None, format: Any = None, mode: Any = None, partitionBy: Any = None, **options: Any
    ) -> None:
        _apply(self, format, mode, partitionBy, options)
        request = read(self)
        place = path or request.options.get("path")
        if request.format not in SAVERS or _left_to_spark(request, place):
            save(self, path)
            return
        if not isinstance(place, str):
            raise InvalidArgumentError("no path was given", help='write .save("/path/to/table")')
        translated(lambda: SAVERS[request.format](request, place))

    @functools.wraps(save_as_table)
    def save_as_table_ours(
        self: Any, name: str, format: Any = None, mode: Any = None, partitionBy: Any = None, **options: Any
    ) -> None:
        _apply(self, format, mode, partitionBy, options)
        request = read(self)
        if request.format not in NAMED:
            save_as_table(self, name)
            return
        translated(lambda: _save_as_table(request, name))

    @functools.wraps(insert_into)
    def insert_into_ours(self: Any, tableName: str, overwrite: bool | None = None) -> None:
        request = read(self)
        session = request.df.sparkSession
        place = our_location(session, tableName)
        if place is None:
            insert_into(self, tableName, overwrite)
            return
        replaces = request.mode == "overwrite" if overwrite is None else overwrite
        translated(lambda: _insert_into(request, session, tableName, "overwrite" if replaces else "append"))

    cls.save, cls.saveAsTable, cls.insertInto = save_ours, save_as_table_ours, insert_into_ours


def _left_to_spark(request: SaveRequest, place: Any) -> bool:
    """Whether Spark passes the write on to the Python source as it is, and that can do all that was asked.

    Never for a Delta table: on the driver its rows need not pass through Python, and settings of the session are known.
    """
    if request.mode not in ("append", "overwrite") or request.partition_by or request.cluster_by or request.buckets:
        return False
    return request.format not in NAMED or not isinstance(place, str)


def _apply(writer: Any, format: Any, mode: Any, partition_by: Any, options: Mapping[str, Any]) -> None:
    writer.mode(mode).options(**options)
    if partition_by is not None:
        writer.partitionBy(partition_by)
    if format is not None:
        writer.format(format)


def translated(write: Callable[[], R]) -> R:
    """Run a write whose errors Spark's callers can catch."""
    try:
        return write()
    except TrilakeError as e:
        raise job_error(e) from e.__cause__


def _classic(writer: Any) -> SaveRequest:
    """What a classic writer was told: the JVM's object keeps it."""
    java = writer._jwrite
    options = java.extraOptions()
    pairs = options.iterator()
    given = {}
    while pairs.hasNext():
        pair = pairs.next()
        given[str(pair._1())] = str(pair._2())
    return SaveRequest(
        writer._df,
        str(java.source()).lower(),
        _mode(java.curmode().toString()),
        given,
        _columns(java.partitioningColumns()),
        cluster_by=_columns(java.clusteringColumns()) if hasattr(writer, "clusterBy") else None,
        buckets="bucketBy" if java.numBuckets().isDefined() else "sortBy" if _columns(java.sortColumnNames()) else None,
    )


def _columns(names: Any) -> tuple[str, ...] | None:
    """The columns in an option of Scala."""
    if not names.isDefined():
        return None
    found = names.get()
    return tuple(str(found.apply(i)) for i in range(found.size()))


def _connect(writer: Any) -> SaveRequest:
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame

    told = writer._write
    return SaveRequest(
        ConnectFrame(writer._df, writer._spark),
        (told.source or "").lower(),
        _mode(told.mode or "error"),
        {str(k): str(v) for k, v in told.options.items()},
        tuple(told.partitioning_cols) if told.partitioning_cols else None,
        cluster_by=tuple(getattr(told, "clustering_cols", None) or ()) or None,
        buckets="bucketBy" if told.num_buckets and told.num_buckets > 0 else "sortBy" if told.sort_cols else None,
    )


def _mode(text: str) -> str:
    return parse_mode(text)


def our_location(spark: SparkSession, name: str) -> str | None:
    """The place of a table of the catalogue that is ours, ``None`` for any other name."""
    try:
        return location_of(spark, name)
    except InvalidArgumentError:
        return None


def _save_as_table(request: SaveRequest, name: str) -> None:
    spark = request.df.sparkSession
    place = location_of(spark, name)
    if place is not None:
        if request.mode == "error":
            raise TableExistsError(f"table {name} already exists", file=place)
        if request.mode != "ignore":
            SAVERS[request.format](request, place)
            rename(spark, name, place)
        return
    place = request.options.get("path") or default_location(spark, name)
    SAVERS[request.format](request, place)
    rename(spark, name, place)


def rename(spark: SparkSession, name: str, place: str) -> None:
    """Let the catalogue know the table's columns as they are now."""
    if not name.lower().startswith("delta.`"):
        head = DeltaLog(open_store(place)).head()
        add_name(spark, name, place, head.schema, comment=head.metadata.description)


def _insert_into(request: SaveRequest, spark: SparkSession, name: str, mode: str) -> None:
    """Columns by position, as SQL's INSERT INTO takes them."""
    place = known_location(spark, name)
    columns = DeltaLog(open_store(place)).head().schema.names
    if len(columns) != len(request.df.columns):
        raise InvalidArgumentError(
            f"{name} has {len(columns)} columns, the data {len(request.df.columns)}",
            help="insertInto goes by position: select the table's columns in its order",
        )
    df = request.df.toDF(*columns)
    SAVERS["delta"](SaveRequest(df, "delta", mode, request.options, None), place)
