"""Conditions and values as users of Spark give them: a string of SQL, or a ``Column``.

Spark evaluates them.  The text of a condition is looked for as well, because files can be left out by it; where none is
known, nothing is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import orjson
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
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
from trilake.expr.terms.char_padding import char_length
from trilake.expr.terms.predicate import Opaque
from trilake.spark.scan.connect_columns import connect_sql
from trilake.spark.scan.resolution import column_errors, resolving
from trilake.spark.session.compat import error_condition, is_column, is_connect
from trilake.spark.session.internals import java_column, java_session, jvm, query_execution
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.settings import is_utc, reads_quotes_plainly

#: Adds the columns to a frame that expressions name apart from its own.
Extend = Callable[[DataFrame, Iterable[object]], DataFrame]
#: Where Spark's own expressions are; what is elsewhere is someone's function.
_BUILT_IN = "org.apache.spark.sql.catalyst.expressions."
#: How Spark refuses what may be another each time.
_NON_DETERMINISTIC = "INVALID_NON_DETERMINISTIC_EXPRESSIONS"
#: What may have another value when Spark evaluates it a little later.
_CLOCK = re.compile(
    rf"(?i)\b(?:{STATEMENT_WORDS})\b"
    r"|\b(?:now|curdate|unix_timestamp|rand|randn|random|uuid)\s*\("
)
#: What settings of a session read otherwise.
_QUOTED = re.compile(r'["\\]')
#: Where it is left to Spark what a ``char(n)`` is compared with: in BETWEEN, and with constants that are calls.
_LEFT_TO_SPARK = re.compile(r"(?i)\bbetween\b|\b(?!(?:in|and|or|not)\b)\w+\s*\(")


def as_column(value: str | Column) -> Column:
    """A SQL expression, or a column as it is."""
    return F.expr(value) if isinstance(value, str) else value


def checked_condition(condition: object, argument: str = "'condition'") -> str | Column | None:
    """A condition as it is.  Raises ``TypeError`` for what is neither text nor column."""
    if condition is None or isinstance(condition, str) or is_column(condition):
        return cast("str | Column | None", condition)
    raise TypeError(
        f"{argument} must be a Spark SQL Column or a string (expression in SQL syntax),"
        f" found to be of type {type(condition)}"
    )


def assignment_columns(assignments: object, argument: str = "'set'") -> dict[str, Column]:
    """Values by the name of the column that they go to.

    Raises ``ValueError`` for ``None`` and ``TypeError`` for what is not a dict of strings to strings or columns.
    """
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


# --- what a condition says, for pruning ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """A condition as Spark evaluates it, as the log names it, and as a filter that chooses files.

    ``filter`` is true for the rows for which Spark finds the condition true, and for no others.  It is ``None`` where
    that is not certain: for what the embedded engine does not know, functions of users, values that change while one
    looks, and times in a session whose zone is not UTC.
    """

    column: Column
    text: str
    filter: Filter | None = None


def read_condition(
    spark: SparkSession,
    condition: str | Column,
    schema: StructType,
    *,
    alias: str | None = None,
    extend: Extend | None = None,
    now: bool = False,
    settled: bool = False,
) -> Condition:
    """A condition over the columns of a table of this ``schema``, under the name ``alias`` if there is one.

    ``extend`` gives a frame of the table the columns that the condition names in addition.  ``settled`` says that it is
    known to be the same each time.

    Raises ``FilterError`` for one that may be another each time, as ``rand() > 0.5``, and where it cannot be resolved;
    on Spark Connect that comes with the rows, if not asked for ``now``.
    """
    column = as_column(condition)
    text = None
    with resolving(column_errors(schema.names, alias, FilterError), FilterError, of_table=True):
        if not is_connect(spark):
            resolved = query_execution(_without_rows(spark, column, schema, alias, extend).where(column)).analyzed()
            settled = settled or bool(resolved.condition().deterministic())
            text = built_in_text(resolved.condition)
        elif now or not settled:
            frame = _without_rows(spark, column, schema, alias, extend)
            settled = settled or _joins(frame, column)
            if now:
                _ = frame.where(column).schema
    if text is not None and alias is not None:
        text = _without_alias(text, alias)
    if not settled:
        shown = condition if isinstance(condition, str) else column_sql(column) or str(column)
        raise FilterError(
            f"the condition may be another each time: {shown}",
            help="store what it gives in a column first, and use that",
            condition=_NON_DETERMINISTIC,
        )
    if isinstance(condition, str) and alias is None and reads_quotes_plainly(spark):
        text = condition
    elif text is None and alias is None and is_connect(spark):
        text = connect_sql(spark, column)
    shown = condition if isinstance(condition, str) else text or column_sql(condition) or str(condition)
    return Condition(column, shown, None if text is None else _certain_filter(spark, text, schema))


def plain_text(spark: SparkSession, text: str, schema: StructType) -> str:
    """A condition over the columns of a table, as it is written where no setting says how to read strings and names.

    Raises ``FilterError`` for one that cannot be resolved, or not be told so.
    """
    if reads_quotes_plainly(spark) or not _QUOTED.search(text):
        return text
    said = None
    if not is_connect(spark):
        with resolving(column_errors(schema.names, None, FilterError), FilterError, of_table=True):
            frame = empty_frame(spark, schema).where(text)
            said = built_in_text(query_execution(frame).analyzed().condition)
    if said is None:
        raise FilterError(
            f"cannot write with this session's settings for strings and names: {text}",
            help="unset spark.sql.ansi.doubleQuotedIdentifiers and spark.sql.parser.escapedStringLiterals",
        )
    return said


def column_sql(column: Column) -> str | None:
    """The text of a column as Spark shows it, which may be no SQL; ``None`` on Spark Connect."""
    try:
        return str(java_column(column).toString())
    except Py4JError:
        return None


def _certain_filter(spark: SparkSession, text: str, schema: StructType) -> Filter | None:
    if _CLOCK.search(text):
        return None  # which need not be parsed
    try:
        parsed = parse_filter(text, filter_schema(read_schema(schema)))
    except FilterError:
        return None
    assert parsed is not None
    return parsed if is_certain(spark, parsed) else None


def is_certain(spark: SparkSession, filter: Filter) -> bool:
    """Whether a filter means in a session what it means without Spark, now and whenever it is evaluated."""
    of_spark = filter.expression is None
    if of_spark and (_CLOCK.search(filter.text) or (_depends_on_zone(filter) and not is_utc(spark))):
        return False
    return _is_certain_of_chars(filter)


def _is_certain_of_chars(filter: Filter) -> bool:
    """The same where it reads columns of type ``char(n)``.

    An expression of pyarrow sees what Spark shows, filled up, and is evaluated there.
    """
    if all(char_length(filter.schema.field(name)) is None for name in filter.columns):
        return True
    return filter.expression is None and _LEFT_TO_SPARK.search(filter.text) is None


def _depends_on_zone(filter: Filter) -> bool:
    """Whether the zone of a session may decide what the filter means."""
    if any(isinstance(node, Opaque) for node in filter.predicate.walk()):
        return True
    if any(c.instants for c in filter.conjuncts):
        return True  # such as a day that is compared with a time: it begins where the session is
    types = [filter.schema.field(name).type for name in filter.columns]
    return any(pa.types.is_timestamp(t) or pa.types.is_nested(t) for t in types)


def _without_rows(
    spark: SparkSession, column: Column, schema: StructType, alias: str | None, extend: Extend | None
) -> DataFrame:
    """A frame without rows, of what a condition over a table can name."""
    frame = empty_frame(spark, schema)
    named: DataFrame = frame if alias is None else frame.alias(alias)
    return named if extend is None else extend(named, [column])


def _joins(frame: DataFrame, condition: Column) -> bool:
    """Whether a server may join a frame by a condition, for all that it says of conditions which may be another each
    time.  What else is wrong with one is left to who uses it."""
    try:
        _ = frame.join(frame.sparkSession.range(0).toDF("__trilake_other"), condition).schema
    except AnalysisException as e:
        return error_condition(e) != _NON_DETERMINISTIC
    return True


def built_in_text(expression: Callable[[], Any]) -> str | None:
    """The text of an expression of an analysed plan, which Spark's parser reads again; ``None`` where it is not
    described, such as one with a subquery, or holds a function of users."""
    try:
        analysed = expression()
        nodes = orjson.loads(analysed.toJSON())
        text = str(analysed.sql())
    except (Py4JError, PySparkException, orjson.JSONDecodeError):
        return None
    names = [str(n.get("class", "")) for n in nodes]
    return None if any(not n.startswith(_BUILT_IN) or "UDF" in n or "Subquery" in n for n in names) else text


def empty_frame(spark: SparkSession, schema: StructType):  # type: ignore[no-untyped-def]  # DataFrame of either kind
    """No rows, with the columns of a table: to resolve names against."""
    return no_rows(spark, to_spark(read_schema(schema)))


def no_rows(spark: SparkSession, wanted: T.StructType):  # type: ignore[no-untyped-def]  # as above
    """No rows, with columns as Spark describes them."""
    if is_connect(spark):
        return spark.createDataFrame([], wanted)
    from pyspark.sql import DataFrame  # the classic one: its Java frame costs a millisecond, createDataFrame thirty

    java = java_session(spark)
    rows = jvm(spark).java.util.ArrayList()
    return DataFrame(java.createDataFrame(rows, java.parseDataType(wanted.json())), spark)


def _without_alias(text: str, alias: str) -> str | None:
    """The text with ``alias.`` taken from the front of columns; ``None`` where that cannot be told from other text."""
    quoted = re.escape(quote_name(alias))
    pattern = rf"(?i)(?<![\w`.'\"])(?:{re.escape(alias)}|{quoted})\.(?=[`\w])"
    parts = re.split(r"('(?:[^'\\]|\\.)*')", text)
    return "".join(p if p.startswith("'") else re.sub(pattern, "", p) for p in parts)
