"""Differences between PySpark releases, from 3.5 on.  A module with another difference compares :data:`RELEASE`, or
:func:`parse_release` for the version of a Connect server.

======================================  =======  ====  ====  ====
feature                                 3.5      4.0   4.1   4.2
======================================  =======  ====  ====  ====
Python data sources                     no       yes   yes   yes
Arrow batches in a stream's sink        no       no    yes   yes
filters pushed into a Python source     no       no    yes   yes
limits of a stream's batches            no       no    no    yes
DataFrames to and from Arrow            trilake  yes   yes   yes
metadata columns of a DataFrame         trilake  yes   yes   yes
``try_cast`` of a column                trilake  yes   yes   yes
all settings of a session               SQL      yes   yes   yes
======================================  =======  ====  ====  ====

:mod:`~trilake.spark.session.sources.api` has the data source API, with substitutes for missing classes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.arrow_types import rebuilt
from trilake.errors import UnsupportedSparkError
from trilake.spark.session.type_tree import with_arrow_types


def parse_release(version: str) -> tuple[int, int]:
    """The major and minor version of a Spark release.

    >>> parse_release("4.1.0")
    (4, 1)
    >>> parse_release("4.2.0.dev1")
    (4, 2)
    """
    major, minor = version.split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)


#: The PySpark of this process.
RELEASE = parse_release(pyspark.__version__)


def is_frame(value: object) -> bool:
    """Whether this is a DataFrame, classic or Connect, which are unrelated classes before 4.0."""
    return _is_a(value, "DataFrame")


def is_column(value: object) -> bool:
    """Whether this is a Column, classic or Connect."""
    return _is_a(value, "Column")


def _is_a(value: object, name: str) -> bool:
    return any(c.__name__ == name and c.__module__.startswith("pyspark.sql") for c in type(value).__mro__)


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a Spark Connect session, whose server analyses each plan again."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def analysed_frame(df: DataFrame) -> DataFrame:
    """The DataFrame, analysed now; over Spark Connect, the server would analyse it with its first use."""
    if is_connect(df.sparkSession):
        _ = df.schema
    return df


def all_settings(spark: SparkSession) -> dict[str, str]:
    """The settings of the session, in one call to the JVM or server."""
    get_all: Any = getattr(spark.conf, "getAll", None)
    if get_all is not None:
        return dict(get_all)
    return {str(r[0]): str(r[1]) for r in spark.sql("SET").collect()}


def frame_of_plan(plan: object, spark: SparkSession) -> DataFrame:
    """The DataFrame of a Connect plan."""
    from pyspark.sql.connect import dataframe

    frame_class: Any = dataframe.DataFrame
    frame: DataFrame = frame_class(plan, spark) if RELEASE >= (4, 0) else frame_class.withPlan(plan, spark)
    return frame


def arrow_frame(spark: SparkSession, rows: pa.Table, schema: T.StructType | None = None) -> DataFrame:
    """Arrow data as a DataFrame, with the columns of ``schema`` if given.  Without ``schema``, timestamps without a
    time zone stay ``TIMESTAMP_NTZ``; Spark would make them instants."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = schema or from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    if RELEASE >= (4, 0):
        with _active_session_kept():
            return spark.createDataFrame(rows, schema)
    if is_connect(spark):
        from pyspark.sql.connect import plan

        return frame_of_plan(plan.LocalRelation(rows, schema=schema.json()), spark)
    return _classic_frame(spark, rows, schema)


@contextmanager
def _active_session_kept() -> Iterator[None]:
    """Restore the active session after the block.  ``createDataFrame`` makes its own session active in all threads,
    even while a query runs a batch."""
    sessions: Any = SparkSession
    before = getattr(sessions, "_activeSession", None)
    try:
        yield
    finally:
        if before is not None:
            sessions._activeSession = before


def _classic_frame(spark: Any, rows: pa.Table, schema: T.StructType) -> DataFrame:
    """``createDataFrame`` for Arrow data in PySpark 3.5, which supports only pandas."""
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    batches = rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
    jvm = spark._jvm
    java = spark._sc._serialize_to_jvm(
        batches, ArrowStreamSerializer(), jvm.PythonSQLUtils.readArrowStreamFromFile, jvm.ArrowIteratorServer
    )
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(java, schema.json(), spark._jsparkSession), spark)


def to_arrow(df: DataFrame) -> pa.Table:
    """The rows of a DataFrame as Arrow."""
    with without_echo():
        rows = _to_arrow(with_arrow_types(df))
    if not any(map(pa.types.is_nested, rows.schema.types)):
        return rows
    return pa.Table.from_batches(map(with_offsets, rows.to_batches()), rows.schema)


def _to_arrow(df: DataFrame) -> pa.Table:
    private: Any = df
    connect = is_connect(df.sparkSession)
    if hasattr(df, "toArrow"):
        try:
            return df.toArrow()
        except pa.ArrowInvalid:
            # Spark (4.3) casts the result to its own types, which Arrow rejects for a null variant inside a value.
            return private._to_table()[0] if connect else pa.Table.from_batches(private._collect_as_arrow())
    if connect:
        client = private.sparkSession.client
        return client.to_table(private._plan.to_proto(client))[0]
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = private._collect_as_arrow()
    return pa.Table.from_batches(batches, schema=None if batches else to_arrow_schema(df.schema))


def with_offsets(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the offsets that Arrow for Java before 19, and so Spark before 4.3, omits from lists without rows.  pyarrow
    (26) reads them anyway: ``nbytes`` of a list of empty lists of lists crashes the process."""
    columns = rows.columns
    complete = [_with_offsets(c) for c in columns]
    if all(new is old for new, old in zip(complete, columns, strict=True)):
        return rows
    return pa.RecordBatch.from_arrays(complete, schema=rows.schema)


def _with_offsets(column: pa.Array) -> pa.Array:
    kind = column.type
    if not pa.types.is_nested(kind):
        return column
    if not len(column):
        return pa.nulls(0, kind)
    changed = False

    def complete(part: pa.Array, _: pa.Field) -> pa.Array:
        nonlocal changed
        new = _with_offsets(part)
        changed |= new is not part
        return new

    whole = rebuilt(column, kind, complete)
    return whole if changed else column


def file_metadata(df: DataFrame) -> Column:
    """``_metadata`` of a file scan, even if the table has a column of that name."""
    return df.metadataColumn("_metadata") if hasattr(df, "metadataColumn") else F.col("_metadata")


def error_condition(error: Any) -> str | None:
    """The condition of a Spark error."""
    condition: str | None = error.getCondition() if hasattr(error, "getCondition") else error.getErrorClass()
    return condition


def error_logs() -> list[logging.Logger]:
    """The loggers to which PySpark writes errors that it also raises; none before 4.0."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        return []
    return [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]


@contextmanager
def without_echo() -> Iterator[None]:
    """Silence PySpark's log of errors in this thread, since the raised error says the same in a line."""
    here = threading.get_ident()

    def quiet(record: logging.LogRecord) -> bool:
        return record.thread != here

    loggers = error_logs()
    for logger in loggers:
        logger.addFilter(quiet)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(quiet)


def dataset_of(spark: SparkSession, plan: Any) -> DataFrame:
    """The DataFrame of a JVM logical plan; classic sessions only."""
    session: Any = spark
    package = session._jvm.org.apache.spark.sql
    dataset = package.classic.Dataset if RELEASE >= (4, 0) else package.Dataset
    return DataFrame(dataset.ofRows(session._jsparkSession, plan), spark)


def expression_of(java: Any) -> Any:
    """The expression of a JVM column."""
    if RELEASE < (4, 0):
        return java.expr()
    return _expressions().expression(java)


def expression_tree(java: Any) -> Any:
    """The expression of a JVM column with all its parts; from 4.0 on, :func:`expression_of` is a single node."""
    if RELEASE < (4, 0):
        return java.expr()
    jvm: Any = SparkContext._jvm
    converter = getattr(jvm.org.apache.spark.sql.classic, "ColumnNodeToExpressionConverter$")
    return getattr(converter, "MODULE$").apply(java.node())


def column_of(expression: Any) -> Column:
    """The column of a JVM expression."""
    if RELEASE < (4, 0):
        jvm: Any = SparkContext._jvm
        return Column(jvm.org.apache.spark.sql.Column(expression))
    return Column(_expressions().column(expression))


def _expressions() -> Any:
    jvm: Any = SparkContext._jvm
    return jvm.org.apache.spark.sql.classic.ExpressionUtils


def try_cast(column: Column, target: T.DataType) -> Column:
    """Cast a column, with null for values that do not fit.  Raises ``UnsupportedSparkError`` on Spark Connect 3.5,
    which supports this only in SQL."""
    if RELEASE >= (4, 0):
        return column.try_cast(target)
    error = UnsupportedSparkError(
        f"over Spark Connect, Spark {pyspark.__version__} cannot check whether a value fits {target.simpleString()}",
        help="cast the values yourself, set spark.sql.ansi.enabled to true, or use a classic session or PySpark 4",
    )
    return _cast(column, target, "TRY", error)


def legacy_cast(column: Column, target: T.DataType) -> Column:
    """Cast a column as without ANSI mode, in any mode of the session.  Raises ``UnsupportedSparkError`` on Spark
    Connect, which always casts in the session's mode."""
    error = UnsupportedSparkError(
        "over Spark Connect, casts without ANSI mode are not supported in a session with ANSI mode",
        help="set spark.sql.ansi.enabled to false, or spark.sql.storeAssignmentPolicy to ANSI",
    )
    return _cast(column, target, "LEGACY", error)


def _cast(column: Column, target: T.DataType, mode: str, unavailable: UnsupportedSparkError) -> Column:
    """Cast a column in one of Spark's modes, in a classic session."""
    java, jvm = getattr(column, "_jc", None), SparkContext._jvm
    if java is None or jvm is None:
        raise unavailable
    package: Any = jvm.org.apache.spark.sql
    expressions = package.catalyst.expressions
    java_type, eval_mode = package.types.DataType.fromJson(target.json()), getattr(expressions.EvalMode, mode)()
    # The analysis adds the session's time zone.
    return column_of(expressions.Cast(expression_of(java), java_type, jvm.scala.Option.empty(), eval_mode))


def column_string(column: Any) -> str | None:
    """A column as Spark's plans print it, with expression IDs; ``None`` if that is unknown."""
    java = getattr(column, "_jc", None)
    if java is None:
        return None
    try:
        return str(expression_of(java).toString())
    except Py4JError:
        return None
