"""What differs between releases of PySpark, from 3.5 on: every other module asks here.

======================================  ====  ====  ====  ====
what                                    3.5   4.0   4.1   4.2
======================================  ====  ====  ====  ====
Python data sources                     no    yes   yes   yes
Arrow batches into a stream's sink      no    no    yes   yes
filters pushed into a Python source     no    no    yes   yes
limits of a stream's batches            no    no    no    yes
frames to and from Arrow                ours  yes   yes   yes
scalar subqueries, metadata columns     ours  yes   yes   yes
``try_cast`` of a column                ours  yes   yes   yes
all settings of a session               SQL   yes   yes   yes
======================================  ====  ====  ====  ====

Classes of the data source API come from :mod:`~trilake.spark.session.sources.api`, which stands in for what is lacking.
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

from trilake.errors import UnsupportedSparkError
from trilake.spark.session.void_types import with_arrow_types


def parse_release(version: str) -> tuple[int, int]:
    """Major and minor number of a release of Spark.

    >>> parse_release("4.1.0")
    (4, 1)
    >>> parse_release("4.2.0.dev1")
    (4, 2)
    """
    major, minor = version.split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)


#: The PySpark of this process.
RELEASE = parse_release(pyspark.__version__)

#: Whether one expression can look into another frame of a single row.
HAS_SCALARS: bool = hasattr(DataFrame, "scalar")


# --- frames ----------------------------------------------------------------------------------------------------------


def is_frame(value: object) -> bool:
    """Whether something is a DataFrame, classic or Connect: before 4.0 these were two classes."""
    return _is_a(value, "DataFrame")


def is_column(value: object) -> bool:
    """Whether something is a Column, classic or Connect."""
    return _is_a(value, "Column")


def _is_a(value: object, name: str) -> bool:
    return any(c.__name__ == name and c.__module__.startswith("pyspark.sql") for c in type(value).__mro__)


def is_connect(spark: SparkSession) -> bool:
    """Whether a session talks to a Connect server, and so analyses its plans there, again and again."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def all_settings(spark: SparkSession) -> dict[str, str]:
    """What the session has set, in one call to the JVM or server."""
    known: dict[str, str] | None = getattr(spark.conf, "getAll", None)
    if known is not None:
        return dict(known)
    return {str(r[0]): str(r[1]) for r in spark.sql("SET").collect()}


def frame_of_plan(plan: object, spark: SparkSession) -> DataFrame:
    """The frame of a plan of a Connect client."""
    from pyspark.sql.connect import dataframe

    made: Any = dataframe.DataFrame
    frame: DataFrame = made(plan, spark) if RELEASE >= (4, 0) else made.withPlan(plan, spark)
    return frame


def arrow_frame(spark: SparkSession, rows: pa.Table, schema: T.StructType | None = None) -> DataFrame:
    """Arrow data as a frame, with the columns of ``schema`` where it is given.

    Without it, times that name no zone stay such: Spark by itself takes them for instants of the session's zone.
    """
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
    """Leaves the active session as it is: ``createDataFrame`` lets its own be that of all threads, even where it is the
    session of a query's batch."""
    sessions: Any = SparkSession
    before = getattr(sessions, "_activeSession", None)
    try:
        yield
    finally:
        if before is not None:
            sessions._activeSession = before


def _classic_frame(spark: Any, rows: pa.Table, schema: T.StructType) -> DataFrame:
    """What ``createDataFrame`` makes of Arrow data from 4.0 on, in 3.5, which takes pandas only."""
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    batches = rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
    jvm = spark._jvm
    java = spark._sc._serialize_to_jvm(
        batches, ArrowStreamSerializer(), jvm.PythonSQLUtils.readArrowStreamFromFile, jvm.ArrowIteratorServer
    )
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(java, schema.json(), spark._jsparkSession), spark)


def to_arrow(df: DataFrame) -> pa.Table:
    """The rows of a frame as Arrow."""
    with without_echo():
        return _to_arrow(with_arrow_types(df))


def _to_arrow(df: DataFrame) -> pa.Table:
    if hasattr(df, "toArrow"):
        try:
            return df.toArrow()
        except pa.ArrowInvalid:
            # Spark (4.3) casts what it collected to the same types: Arrow refuses that for a null variant in a value.
            collected: Any = df
            if is_connect(df.sparkSession):
                return collected._to_table()[0]
            return pa.Table.from_batches(collected._collect_as_arrow())
    from pyspark.sql.pandas.types import to_arrow_schema

    if is_connect(df.sparkSession):
        session: Any = df.sparkSession
        table, _ = session.client.to_table(df._plan.to_proto(session.client))  # type: ignore[operator]
        return table
    classic: Any = df
    batches = classic._collect_as_arrow()
    return pa.Table.from_batches(batches, schema=None if batches else to_arrow_schema(df.schema))


def file_metadata(df: DataFrame) -> Column:
    """``_metadata`` of a frame that reads files, even where a column of that name is in the way."""
    return df.metadataColumn("_metadata") if hasattr(df, "metadataColumn") else F.col("_metadata")


def error_condition(error: Any) -> str | None:
    """The name of the condition that one of Spark's errors states."""
    condition: str | None = error.getCondition() if hasattr(error, "getCondition") else error.getErrorClass()
    return condition


def error_logs() -> list[logging.Logger]:
    """Where PySpark logs errors that it also raises, with stack traces of the JVM; nowhere before 4.0."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        return []
    return [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]


@contextmanager
def without_echo() -> Iterator[None]:
    """Keep PySpark's own log of errors quiet in this thread, where the error that follows says the same in a line."""
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
    """A frame of a logical plan of the JVM; classic sessions only."""
    session: Any = spark
    package = session._jvm.org.apache.spark.sql
    dataset = package.classic.Dataset if RELEASE >= (4, 0) else package.Dataset
    return DataFrame(dataset.ofRows(session._jsparkSession, plan), spark)


def expression_of(java: Any) -> Any:
    """The expression behind a column of the JVM's."""
    if RELEASE < (4, 0):
        return java.expr()
    return _expressions().expression(java)


def column_of(expression: Any) -> Column:
    """A column that is an expression of the JVM's."""
    if RELEASE < (4, 0):
        jvm: Any = SparkContext._jvm
        return Column(jvm.org.apache.spark.sql.Column(expression))
    return Column(_expressions().column(expression))


def _expressions() -> Any:
    jvm: Any = SparkContext._jvm
    return jvm.org.apache.spark.sql.classic.ExpressionUtils


def try_cast(column: Column, target: T.DataType) -> Column:
    """The column in another type, with null for a value that does not fit.

    Raises ``UnsupportedSparkError`` over Spark Connect of 3.5, which has no such expression but in the text of SQL.
    """
    if RELEASE >= (4, 0):
        return column.try_cast(target)
    java, jvm = getattr(column, "_jc", None), SparkContext._jvm
    if java is None or jvm is None:
        raise UnsupportedSparkError(
            f"over Spark Connect, Spark {pyspark.__version__} cannot say whether a value fits {target.simpleString()}",
            help="cast the values yourself, set spark.sql.ansi.enabled to true, or use a classic session or PySpark 4",
        )
    package: Any = jvm.org.apache.spark.sql
    expressions = package.catalyst.expressions
    wanted = package.types.DataType.fromJson(target.json())
    # The zone of the session is put in when the expression is analysed.
    return column_of(expressions.Cast(java.expr(), wanted, jvm.scala.Option.empty(), expressions.EvalMode.TRY()))


def legacy_cast(column: Column, target: T.DataType) -> Column:
    """The column in another type as a session without ANSI mode casts, whatever the session's own mode is.

    Raises ``UnsupportedSparkError`` over Spark Connect, where casts are what the session says.
    """
    java, jvm = getattr(column, "_jc", None), SparkContext._jvm
    if java is None or jvm is None:
        raise UnsupportedSparkError(
            "over Spark Connect, values are not cast as without ANSI mode in a session that has it",
            help="set spark.sql.ansi.enabled to false, or spark.sql.storeAssignmentPolicy to ANSI",
        )
    package: Any = jvm.org.apache.spark.sql
    wanted = package.types.DataType.fromJson(target.json())
    expressions = package.catalyst.expressions
    # The zone of the session is put in when the expression is analysed.
    mode = expressions.EvalMode.LEGACY()
    return column_of(expressions.Cast(expression_of(java), wanted, jvm.scala.Option.empty(), mode))


def column_text(column: Any) -> str | None:
    """A column as Spark's plans write it, with the numbers of its attributes; ``None`` where that is not known."""
    java = getattr(column, "_jc", None)
    if java is None:
        return None
    try:
        return str(expression_of(java).toString())
    except Py4JError:
        return None
