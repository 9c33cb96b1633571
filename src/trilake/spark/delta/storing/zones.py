"""Translate predicates on timestamps from the session's time zone to UTC, which the embedded engine uses."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.protocol.schema import StructType
from trilake.delta.rules.constraints import may_depend_on_zone
from trilake.delta.scan.scan import read_schema
from trilake.errors import FilterError, InvalidArgumentError
from trilake.expr import parse_filter
from trilake.expr.terms.predicate import Opaque
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import active_session, java_frame, java_session, jvm, query_execution
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.settings import ZONE, is_utc, session_zone

#: A cast that depends on the session's time zone, for example from a date to an instant.
_CAST_TO_INSTANT = re.compile(r"\bAS TIMESTAMP\b")


def predicate_in_utc(spark: SparkSession, sql: str, schema: StructType) -> str:
    """A predicate on rows of a table that means in UTC what ``sql`` means in the session's time zone.

    Spark converts its constants to instants.  Raises ``InvalidArgumentError`` for a predicate that depends on the zone
    in another way, such as ``to_date(t) = DATE'2024-01-01'``, and on Spark Connect for any predicate on instants.
    """
    if is_utc(spark):
        return sql
    columns = read_schema(schema)
    try:
        parsed = parse_filter(sql, filter_schema(columns))
    except FilterError:
        return sql  # the write raises the error
    if parsed is None or not may_depend_on_zone(sql, columns, parsed.columns):
        return sql
    in_utc = None if is_connect(spark) else _folded(spark, sql, columns)
    if in_utc is not None:
        parsed = parse_filter(in_utc, filter_schema(columns))
    opaque = parsed is None or any(isinstance(n, Opaque) for n in parsed.predicate.walk())
    if in_utc is None or opaque or _CAST_TO_INSTANT.search(in_utc):
        raise InvalidArgumentError(
            f"cannot select the rows to replace by {sql} in a session with the time zone {session_zone(spark)}",
            help="compare columns with constants in a classic session, or set spark.sql.session.timeZone to UTC",
        )
    return in_utc


def _folded(spark: SparkSession, sql: str, columns: StructType) -> str | None:
    """The predicate with its constants as Spark computes them, and with instants in UTC."""
    try:
        frame = _of_unknown_rows(spark, columns).where(F.expr(sql))
        plan = query_execution(frame).optimizedPlan()
        other = spark.newSession()
        other.conf.set(ZONE, "UTC")
        with active_session(other):  # SQL shows literals in the zone of this session
            return str(plan.condition().sql())
    except Py4JError:
        return None


def _of_unknown_rows(spark: SparkSession, columns: StructType) -> DataFrame:
    """An empty DataFrame that the optimizer cannot recognise as empty."""
    rows = jvm(spark).org.apache.spark.api.java.JavaSparkContext(java_session(spark).sparkContext()).emptyRDD()
    java = java_session(spark)
    return java_frame(spark, java.createDataFrame(rows, java.parseDataType(to_spark(columns).json())))
