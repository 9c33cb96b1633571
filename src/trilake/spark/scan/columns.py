"""Conditions and values that users pass to Spark: a SQL string or a ``Column``.

Spark evaluates them.  If possible, conditions are also translated to SQL, so that they skip files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.text import quote_name
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.protocol.schema import StructType
from trilake.delta.scan.generated import STATEMENT_WORDS
from trilake.delta.scan.scan import read_schema
from trilake.errors import FilterError
from trilake.expr import Filter, parse_filter
from trilake.expr.terms.bind import char_length
from trilake.expr.terms.predicate import Opaque
from trilake.spark.scan.connect_columns import connect_sql
from trilake.spark.scan.resolution import column_errors, resolving
from trilake.spark.session.compat import error_condition, is_column, is_connect
from trilake.spark.session.internals import (
    SPARK_ERRORS,
    java_column,
    java_frame,
    java_session,
    jvm,
    query_execution,
    say_once,
    select_expressions,
)
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.settings import is_ansi, is_utc, reads_quotes_plainly

#: Prefix of the names of columns that are selected under another name.
_TERM = "__trilake_term_"
#: The package of Spark's expressions; any other class is a user's function.
_BUILT_IN = "org.apache.spark.sql.catalyst.expressions."
#: Spark's error condition for non-deterministic expressions.
_NON_DETERMINISTIC = "INVALID_NON_DETERMINISTIC_EXPRESSIONS"
#: Functions whose value may change before Spark evaluates them.
_CLOCK = re.compile(
    rf"(?i)\b(?:{STATEMENT_WORDS})\b"
    r"|\b(?:now|curdate|unix_timestamp|rand|randn|random|uuid)\s*\("
)
#: Characters whose meaning depends on settings of the session.
_QUOTED = re.compile(r'["\\]')
#: The id of a column or a subquery in an expression that Spark prints.
_PRINTED_ID = re.compile(r"#\d+L?\b")
#: The default of ``spark.sql.debug.maxToStringFields``: how many values of an IN are printed.
_PRINTED_FIELDS = 25
#: Cases in which only Spark can compare ``char(n)``: BETWEEN, and constants that are calls.
_LEFT_TO_SPARK = re.compile(r"(?i)\bbetween\b|\b(?!(?:in|and|or|not)\b)\w+\s*\(")


def as_column(value: str | Column) -> Column:
    """A column; strings are parsed as SQL expressions."""
    return F.expr(value) if isinstance(value, str) else value


def select_terms(df: DataFrame, terms: Sequence[str | Column]) -> DataFrame:
    """Select SQL strings, each with its ``AS``, which the JVM parses in one call, and columns, a dozen calls each."""
    expressions = [t for t in terms if isinstance(t, str)]
    if len(expressions) < len(terms):
        return df.select(*(F.expr(t) if isinstance(t, str) else t for t in terms))
    if not expressions or is_connect(df.sparkSession):
        return df.selectExpr(*expressions)
    try:
        return select_expressions(df, expressions)
    except Py4JError as e:
        say_once("columns are selected one by one", e)
    return df.selectExpr(*expressions)


def select_named(df: DataFrame, values: Mapping[str, str | Column], carried: Sequence[str] = ()) -> DataFrame:
    """Select values by name and, after them, other columns of ``df``; see :func:`select_terms`."""
    computed = {f"{_TERM}{i}": value for i, value in enumerate(values.values()) if not isinstance(value, str)}
    if computed:
        df = df.withColumns(computed)
    sources = [value if isinstance(value, str) else f"{_TERM}{i}" for i, value in enumerate(values.values())]
    return select_terms(df, [*(f"{sql} AS {quote_name(n)}" for n, sql in zip(values, sources, strict=True)), *carried])


def checked_condition(condition: object) -> str | Column | None:
    """Raise ``TypeError`` unless the condition is a string, a column or ``None``."""
    if condition is None or isinstance(condition, str) or is_column(condition):
        return cast("str | Column | None", condition)
    raise TypeError(
        "'condition' must be a Spark SQL Column or a string (expression in SQL syntax),"
        f" found to be of type {type(condition)}"
    )


def assignment_columns(assignments: object, argument: str = "'set'") -> dict[str, Column]:
    """Values by the name of the column to which they are assigned.  Raises ``ValueError`` for ``None`` and
    ``TypeError`` for anything but a dict of strings to strings or columns."""
    if assignments is None:
        raise ValueError(f"{argument} cannot be None")
    if not isinstance(assignments, dict):
        raise TypeError(f"{argument} must be a dict, found to be {type(assignments)}")
    out: dict[str, Column] = {}
    for name, value in assignments.items():
        if not isinstance(name, str):
            raise TypeError(
                f"Keys of dict in {argument} must contain only strings with column names,"
                f" found '{name}' of type '{type(name)}'"
            )
        if not (isinstance(value, str) or is_column(value)):
            raise TypeError(
                f"Values of dict in {argument} must contain only Spark SQL Columns"
                f" or strings (expressions in SQL syntax) as values, found '{value}' of type '{type(value)}'"
            )
        out[name] = as_column(cast("str | Column", value))
    return out


@dataclass(frozen=True)
class Condition:
    """A condition for Spark, as SQL, and as a filter that skips files: true for exactly the rows for which Spark
    finds it true, or ``None`` if that is uncertain (UDFs, values that change, timestamps in a zone other than UTC).

    ``printed`` is the text for the log.
    """

    column: Column
    sql: str
    printed: str
    filter: Filter | None = None


def read_condition(
    spark: SparkSession,
    condition: str | Column,
    schema: StructType,
    *,
    alias: str | None = None,
    now: bool = False,
    settled: bool = False,
) -> Condition:
    """Read a condition on the columns of a table with this ``schema``, optionally qualified with ``alias``.  Raises
    ``FilterError`` if it cannot be resolved (on Spark Connect only with ``now``), or is not deterministic, unless that
    is ``settled``."""
    column = as_column(condition)
    sql = printed = None
    with resolving(column_errors(schema.names, alias, FilterError), FilterError, of_table=True):
        if not is_connect(spark):
            resolved = query_execution(empty_frame(spark, schema, alias).where(column)).analyzed()
            settled = settled or bool(resolved.condition().deterministic())
            sql, printed = built_in_sql(resolved.condition), print_analysed(resolved)
        elif now or not settled:
            frame = empty_frame(spark, schema, alias)
            settled = settled or _is_deterministic_over_connect(frame, column)
            if now:
                _ = frame.where(column).schema
    if sql is not None and alias is not None:
        quoted = re.escape(quote_name(alias))
        pattern = rf"(?i)(?<![\w`.'\"])(?:{re.escape(alias)}|{quoted})\.(?=[`\w])"
        parts = re.split(r"('(?:[^'\\]|\\.)*')", sql)
        sql = "".join(p if p.startswith("'") else re.sub(pattern, "", p) for p in parts)
    if not settled:
        display = condition if isinstance(condition, str) else column_sql(column) or str(column)
        raise FilterError(
            f"a condition must be deterministic, got {display}",
            help="compute it in a column first, and use that column",
            condition=_NON_DETERMINISTIC,
        )
    analysed = sql
    if isinstance(condition, str) and alias is None and reads_quotes_plainly(spark):
        sql = condition
    elif sql is None and alias is None and is_connect(spark):
        sql = connect_sql(spark, column)
    display = condition if isinstance(condition, str) else sql or column_sql(condition) or str(condition)
    filter = None if sql is None else _certain_filter(spark, sql, schema, analysed=analysed)
    return Condition(column, display, printed or display, filter)


def plain_text(spark: SparkSession, source: str, schema: StructType) -> str:
    """A condition as SQL that means the same under Spark's default settings for strings, names and casts.  Raises
    ``FilterError`` if it cannot be resolved or translated."""
    quoted = not reads_quotes_plainly(spark) and _QUOTED.search(source) is not None
    if not quoted and (is_ansi(spark) or not _assumes_ansi(source, schema)):
        return source
    sql = None
    if not is_connect(spark):
        with resolving(column_errors(schema.names, None, FilterError), FilterError, of_table=True):
            frame = empty_frame(spark, schema).where(source)
            sql = built_in_sql(query_execution(frame).analyzed().condition)
    if sql is None:
        what, help = _NOT_QUOTED if quoted else _NOT_CAST
        raise FilterError(f"cannot rewrite {source}: {what}", help=help)
    return sql


#: Why :func:`plain_text` fails, and what to do.
_NOT_QUOTED = (
    "the session's settings for strings or quoted names are not supported",
    "unset spark.sql.ansi.doubleQuotedIdentifiers and spark.sql.parser.escapedStringLiterals",
)
_NOT_CAST = (
    "without ANSI mode, it compares strings with other types in Spark's own way",
    "write constants of the columns' types, such as 7 or DATE'2024-01-31', or set spark.sql.ansi.enabled to true",
)


def _assumes_ansi(source: str, schema: StructType) -> bool:
    try:
        parsed = parse_filter(source, filter_schema(read_schema(schema)))
    except FilterError:
        return False  # the write raises the error
    return parsed is not None and parsed.assumes_ansi


def column_sql(column: Column) -> str | None:
    """A column as Spark prints it, which may not be valid SQL; ``None`` on Spark Connect."""
    try:
        return str(java_column(column).toString())
    except Py4JError:
        return None


def _certain_filter(spark: SparkSession, sql: str, schema: StructType, *, analysed: str | None) -> Filter | None:
    """The filter for a condition; without ANSI mode that for its ``analysed`` SQL, with all casts, if they matter."""
    if _CLOCK.search(sql):
        return None
    try:
        parsed = parse_filter(sql, filter_schema(read_schema(schema)))
    except FilterError:
        parsed = None
    if sql != analysed and analysed is not None and (parsed is None or parsed.assumes_ansi) and not is_ansi(spark):
        return _certain_filter(spark, analysed, schema, analysed=analysed)
    return parsed if parsed is not None and is_certain(spark, parsed, analysed=sql == analysed) else None


def is_certain(spark: SparkSession, filter: Filter, *, analysed: bool = False) -> bool:
    """Whether a filter means the same in this session as outside Spark, now and whenever it is evaluated;
    ``analysed`` means that it has all casts that Spark adds."""
    of_spark = filter.expression is None
    if not analysed and filter.assumes_ansi and not is_ansi(spark):
        return False
    if of_spark and (_CLOCK.search(filter.sql) or (_depends_on_zone(filter) and not is_utc(spark))):
        return False
    if all(char_length(filter.schema.field(name)) is None for name in filter.columns):
        return True
    return filter.expression is None and _LEFT_TO_SPARK.search(filter.sql) is None


def _depends_on_zone(filter: Filter) -> bool:
    if any(isinstance(node, Opaque) for node in filter.predicate.walk()):
        return True
    if any(c.instants for c in filter.conjuncts):
        return True  # for example a date compared with a timestamp
    types = [filter.schema.field(name).type for name in filter.columns]
    return any(pa.types.is_timestamp(t) or pa.types.is_nested(t) for t in types)


def join_on(frame: DataFrame, condition: Column) -> DataFrame:
    """A join on a condition over one DataFrame; its analysis fails if the condition is not deterministic."""
    return frame.join(frame.sparkSession.range(0).toDF("__trilake_other"), condition)


def _is_deterministic_over_connect(frame: DataFrame, condition: Column) -> bool:
    try:
        _ = join_on(frame, condition).schema
    except AnalysisException as e:
        return error_condition(e) != _NON_DETERMINISTIC
    return True


def built_in_sql(expression: Callable[[], Any]) -> str | None:
    """The SQL of an analysed expression; ``None`` if it has none, for example with a subquery, or contains a UDF."""
    try:
        analysed = expression()
        nodes = orjson.loads(analysed.toJSON())
        sql = str(analysed.sql())
    except (*SPARK_ERRORS, orjson.JSONDecodeError):
        return None
    names = [str(n.get("class", "")) for n in nodes]
    return None if any(not n.startswith(_BUILT_IN) or "UDF" in n or "Subquery" in n for n in names) else sql


def print_analysed(plan: Any) -> str | None:
    """The condition of an analysed filter or join as Spark prints it, which delta-spark records in the history, but
    without the ids of columns; ``None`` if other ids remain, as with subqueries."""
    try:
        condition = plan.expressions().head()
        ids = {i[0] for i in _PRINTED_ID.finditer(str(condition.references().toString()))}
        printed = str(condition.simpleString(_PRINTED_FIELDS))
    except SPARK_ERRORS:
        return None
    printed = _PRINTED_ID.sub(lambda i: "" if i[0] in ids else i[0], printed)
    return None if _PRINTED_ID.search(printed) else printed


def empty_frame(spark: SparkSession, schema: StructType, alias: str | None = None) -> DataFrame:
    """An empty DataFrame with the columns and the alias of a table, against which names are resolved."""
    frame = no_rows(spark, to_spark(read_schema(schema)))
    return frame if alias is None else frame.alias(alias)


def no_rows(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """An empty DataFrame with this schema."""
    if is_connect(spark):
        return spark.createDataFrame([], schema)
    java, rows = java_session(spark), jvm(spark).java.util.ArrayList()  # 1 ms, instead of 30 ms with createDataFrame
    return java_frame(spark, java.createDataFrame(rows, java.parseDataType(schema.json())))
