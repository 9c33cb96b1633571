"""``spark.read`` and ``spark.table`` for trilake tables: DataFrames over Spark's native scan if possible.

After :func:`patch_readers`, ``spark.read.format("delta"|"lance"|"trevni").load(path)``, ``spark.read.table(name)`` and
``spark.table(name)`` are handled here.  A name shows its table's current columns, even if the catalog entry has others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession, functions

from trilake.errors import IllegalArgumentError, InvalidArgumentError
from trilake.spark.catalog.named_tables import NamedTable, table_at
from trilake.spark.live_frames.connect import cache
from trilake.spark.live_frames.frames import following, follows, is_live, make, makers
from trilake.spark.patches.chains import (
    all_options,
    check_one_location,
    classes,
    is_connect_class,
    record_option,
    source_of,
    watch_chains,
)
from trilake.spark.patches.formats import FORMATS, registered
from trilake.spark.patches.recorder import Action, Record, patch, record_of
from trilake.spark.patches.table_names import must_be_at, trilake_table
from trilake.spark.scan.frame_tables import WholeTable, note
from trilake.spark.session.analysis_errors import as_spark_errors
from trilake.spark.session.compat import is_connect
from trilake.spark.session.format import SparkFormat
from trilake.spark.session.internals import frame_named, say_once
from trilake.spark.session.settings import session_options


def patch_readers() -> None:
    """Patch ``spark.read`` and ``spark.table``.  Idempotent."""
    watch_chains()
    for cls in classes("reader"):
        patch(cls, "load", _load)
        patch(cls, "table", _read_table)
    for cls in classes("session"):
        patch(cls, "table", _session_table)
    for cls in classes("frame"):
        if is_connect_class(cls):
            patch(cls, "persist", _persist)
            continue
        for name in makers(cls):
            if not name.startswith("_"):
                patch(cls, name, _make)
    for module in {functions, getattr(functions, "builtin", functions)}:  # a separate module since PySpark 4.0
        patch(module, "broadcast", _broadcast)


def _load(
    original: Any, reader: Any, path: Any = None, format: Any = None, schema: Any = None, **options: Any
) -> Action | None:
    record = record_of(reader)
    if record is None:
        return None
    spark = record.constructor_args[0]
    source = source_of(record, format, spark)
    if source not in FORMATS:
        return None
    merged = all_options(record, options)

    def act() -> DataFrame:
        location = _one_path(path, record_option(merged, "path"))
        check_one_location(location, merged)
        return _follow_table(spark, FORMATS[source], location, merged, record.schema if schema is None else schema)

    return as_spark_errors()(act)


def _follow_table(
    spark: SparkSession,
    format: SparkFormat,
    location: str,
    options: Mapping[str, str],
    schema: Any,
    names: Sequence[str] = (),
) -> DataFrame:
    """The DataFrame of a read, which follows its table; ``names``: the parts of its name in the catalog."""
    others = {k: v for k, v in options.items() if k.lower() != "path"}
    frame = following(
        lambda: format.load(spark, location, session_options(spark, location, others), schema),
        lambda read: with_table_name(spark, read, names),
    )
    return note(frame, WholeTable(format.name, location)) if not others and schema is None else frame


def _make(original: Any, frame: DataFrame, *args: Any, **kwargs: Any) -> Action | None:
    """Make a DataFrame follow the tables of its arguments, also if ``reduce(DataFrame.union, frames)`` makes it."""
    if not any(map(is_live, (frame, *args, *kwargs.values()))):
        return None
    return lambda: make(original.func, frame, *args, **kwargs)


def _persist(original: Any, frame: DataFrame, *level: Any, **kwargs: Any) -> Action | None:
    return (lambda: cache(frame, lambda: original(*level, **kwargs))) if follows(frame) else None


def _broadcast(original: Any, frame: Any) -> Action | None:
    return (lambda: make(original.func, frame)) if follows(frame) else None


def _one_path(path: Any, option: str | None) -> str:
    paths = [path] if isinstance(path, str | PathLike) else list(path or ([] if option is None else [option]))
    if len(paths) > 1:
        raise InvalidArgumentError(
            f"a read takes one path, got {', '.join(map(str, paths))}",
            help="read each table and union() the DataFrames; use where() for parts of one table",
        )
    if not paths or not fspath(paths[0]):
        raise IllegalArgumentError("a path is required", help='write .load("/path/to/table")')
    return fspath(paths[0])


def _read_table(original: Any, reader: Any, tableName: str) -> Action | None:
    record = record_of(reader)
    return None if record is None else _table(record.constructor_args[0], tableName, record)


def _session_table(original: Any, spark: Any, tableName: str) -> Action | None:
    return _table(spark, tableName, Record())


def _table(spark: SparkSession, name: str, record: Record) -> Action | None:
    table, names = table_at(name), list[str]()  # a path may end with a version
    if table is None:
        table, names = _table_of(spark, name)
    if table is None or (format := registered(table.format)) is None:
        return None

    def act() -> DataFrame:
        must_be_at(table, name, record_option(record.options, "path"))
        return _follow_table(spark, FORMATS[format], table.location, record.options, record.schema, names)

    return as_spark_errors()(act)


def _table_of(spark: SparkSession, name: str) -> tuple[NamedTable | None, list[str]]:
    """The trilake table (not a view) with a name, and the parts of its full name."""
    if not spark.catalog.tableExists(name):
        return None, []
    entry = spark.catalog.getTable(name)
    if entry.tableType in ("VIEW", "TEMPORARY", "METRIC_VIEW"):
        return None, []
    return trilake_table(spark, name), [*filter(None, (entry.catalog, *(entry.namespace or ()))), entry.name]


def with_table_name(spark: SparkSession, frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """A DataFrame whose columns can be qualified with the table's full name (``sales.id``), except on Connect."""
    if not names or is_connect(spark):
        return frame
    try:
        return frame_named(spark, frame, names)
    except Py4JError as e:
        say_once("columns cannot be qualified with the table's name", e)
        return frame
