"""The readers and writers of PySpark, classic and Connect, and a record of the calls in their chains."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from os import PathLike, fspath
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trilake.errors import InvalidArgumentError
from trilake.spark.live_frames.frames import pinned
from trilake.spark.patches.recorder import Record, watch
from trilake.spark.session.analysis_errors import as_spark_errors, job_error
from trilake.spark.session.compat import frame_of_plan
from trilake.storage.uri import parse_location

#: Decorates writes whose errors can be caught as Spark's.
with_spark_errors = as_spark_errors(job_error)
#: Import paths of the classes by role: classic, and Spark Connect.
_CLASSES: dict[str, tuple[str, ...]] = {
    "reader": ("pyspark.sql.readwriter:DataFrameReader", "pyspark.sql.connect.readwriter:DataFrameReader"),
    "writer": ("pyspark.sql.readwriter:DataFrameWriter", "pyspark.sql.connect.readwriter:DataFrameWriter"),
    "table_writer": ("pyspark.sql.readwriter:DataFrameWriterV2", "pyspark.sql.connect.readwriter:DataFrameWriterV2"),
    "stream_reader": (
        "pyspark.sql.streaming.readwriter:DataStreamReader",
        "pyspark.sql.connect.streaming.readwriter:DataStreamReader",
    ),
    "stream_writer": (
        "pyspark.sql.streaming.readwriter:DataStreamWriter",
        "pyspark.sql.connect.streaming.readwriter:DataStreamWriter",
    ),
    "frame": (
        "pyspark.sql.classic.dataframe:DataFrame",
        "pyspark.sql.dataframe:DataFrame",  # the classic class before PySpark 4.0, then the base of both
        "pyspark.sql.connect.dataframe:DataFrame",
    ),
    "session": ("pyspark.sql.session:SparkSession", "pyspark.sql.connect.session:SparkSession"),
    "catalog": ("pyspark.sql.catalog:Catalog", "pyspark.sql.connect.catalog:Catalog"),
    "query": ("pyspark.sql.streaming.query:StreamingQuery", "pyspark.sql.connect.streaming.query:StreamingQuery"),
    "batch_function": ("pyspark.sql.utils:ForeachBatchFunction",),  # Connect runs these on the server
}


def classes(kind: str) -> Iterator[type]:
    """The classes of one role in this PySpark; those of Connect need its dependencies."""
    for path in _CLASSES[kind]:
        module, _, name = path.partition(":")
        try:
            member = getattr(importlib.import_module(module), name, None)
        except ImportError:  # Spark Connect's dependencies are not installed
            continue
        if isinstance(member, type):
            yield member


def is_connect_class(cls: type) -> bool:
    """Whether a class is one of Spark Connect's."""
    return cls.__module__.startswith("pyspark.sql.connect")


def watch_chains() -> None:
    """Record the calls of all readers and writers.  Idempotent."""
    for kind, notes in _NOTES.items():
        for cls in classes(kind):
            for name, note in notes.items():
                watch(cls, name, note)


def frame_of(record: Record) -> DataFrame:
    """The DataFrame that a writer writes."""
    first: DataFrame = record.constructor_args[0]
    if hasattr(first, "sparkSession"):
        return first
    return frame_of_plan(first, record.constructor_args[1])  # Connect's writers take a plan and a session


def table_of(record: Record) -> str:
    """The table name in ``df.writeTo(name)``."""
    return next(str(a) for a in record.constructor_args[1:] if isinstance(a, str))


def session_of(record: Record) -> SparkSession:
    """The session of the DataFrame to write."""
    return frame_of(record).sparkSession


def source_of(record: Record, format: Any, spark: SparkSession) -> str:
    """The format that a chain reads or writes, in lower case."""
    return str(format or record.format or default_source(spark)).lower()


def default_source(spark: SparkSession) -> str:
    """The session's default format, in lower case."""
    return str(spark.conf.get("spark.sql.sources.default", "parquet")).lower()


def option_string(value: Any) -> str | None:
    """An option's value as the string into which Spark converts it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def all_options(record: Record, options: Mapping[str, Any]) -> dict[str, str]:
    """The options of a chain and of its last call, which takes precedence; names are case-insensitive."""
    strings = {k: value for k, v in options.items() if (value := option_string(v)) is not None}
    lowered = {k.lower() for k in strings}
    return {**{k: v for k, v in record.options.items() if k.lower() not in lowered}, **strings}


def all_partitions(record: Record, partition_by: Any) -> tuple[str, ...] | None:
    """The partition columns of a chain or of its last call."""
    if partition_by is None:
        return record.partition_by
    return (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)


def record_option(options: Mapping[str, str], name: str) -> str | None:
    """The value of an option; names are case-insensitive."""
    return next((v for k, v in options.items() if k.lower() == name.lower()), None)


def check_one_location(location: Any, options: Mapping[str, str]) -> None:
    """Raise ``InvalidArgumentError`` if the option ``path`` differs from the path of the call."""
    option = record_option(options, "path")
    if option is None or not isinstance(location, str | PathLike) or fspath(location) == option:
        return
    if parse_location(option).uri != parse_location(fspath(location)).uri:
        raise InvalidArgumentError(
            f"the option path is {option}, but the call names {fspath(location)}", help="leave one of them out"
        )


def _record_origin(record: Record, *args: Any, **kwargs: Any) -> None:
    record.constructor_args = tuple(map(pinned, (*args, *kwargs.values())))


def _sets(name: str, convert: Callable[[Any], Any] = lambda value: value) -> Callable[..., None]:
    """A note of a call with one argument that sets a field of the record."""

    def note(record: Record, *args: Any, **kwargs: Any) -> None:
        (value,) = (*args, *kwargs.values())
        setattr(record, name, convert(value))

    return note


def _columns(name: str) -> Callable[..., None]:
    """A note of a call with columns, passed one by one or as a single list."""

    def note(record: Record, *cols: Any) -> None:
        setattr(record, name, _flat(cols) or None)

    return note


def _option(record: Record, key: str, value: Any) -> None:
    string = option_string(value)
    if string is not None:
        for existing in [k for k in record.options if k.lower() == key.lower()]:
            del record.options[existing]  # option names are case-insensitive, and the last value counts
        record.options[key] = string


def _options(record: Record, **options: Any) -> None:
    for key, value in options.items():
        _option(record, key, value)


def _mode(record: Record, saveMode: str | None) -> None:
    record.mode = record.mode if saveMode is None else saveMode


def _bucket_by(record: Record, numBuckets: int, col: Any, *cols: Any) -> None:
    record.bucket_by = (numBuckets, *_flat((col, *cols)))


def _sort_by(record: Record, col: Any, *cols: Any) -> None:
    record.sort_by = _flat((col, *cols))


def _property(record: Record, property: str, value: str) -> None:
    record.properties[property] = value


def _trigger(record: Record, **trigger: Any) -> None:
    record.trigger = {k: v for k, v in trigger.items() if v is not None}


def _function(record: Record, *_: Any, **__: Any) -> None:
    record.format = "foreach"


def _flat(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    """Columns that were passed one by one or as a single list."""
    return tuple(columns[0]) if len(columns) == 1 and isinstance(columns[0], list | tuple) else columns


_CHAIN: dict[str, Callable[..., None]] = {
    "__init__": _record_origin,
    "format": _sets("format", str.lower),
    "option": _option,
    "options": _options,
}
_LAYOUT = {"partitionBy": _columns("partition_by"), "clusterBy": _columns("cluster_by")}
_READS = {**_CHAIN, "schema": _sets("schema")}
#: Notes by role and method.
_NOTES: dict[str, dict[str, Callable[..., None]]] = {
    "reader": _READS,
    "stream_reader": _READS,
    "writer": {**_CHAIN, **_LAYOUT, "mode": _mode, "bucketBy": _bucket_by, "sortBy": _sort_by},
    "table_writer": {
        **_CHAIN,
        "using": _CHAIN["format"],
        "tableProperty": _property,
        "partitionedBy": _LAYOUT["partitionBy"],
        "clusterBy": _LAYOUT["clusterBy"],
    },
    "stream_writer": {
        **_CHAIN,
        **_LAYOUT,
        "outputMode": _sets("mode"),
        "queryName": _sets("query_name"),
        "trigger": _trigger,
        "foreach": _function,
        "foreachBatch": _function,
    },
}
