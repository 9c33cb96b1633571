"""Check statements, conditions and values with Spark's parser and analyzer before anything runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trilake.delta.protocol.schema import StructType
from trilake.spark.scan.columns import empty_frame
from trilake.sql.spark.session import jvm
from trilake.sql.spark.session.problems import without_prefix
from trilake.sql.spark.session.session import SqlSession

_log = logging.getLogger("trilake.sql")
#: Makes a Connect server parse a statement without running it.
_EXPLAIN = "EXPLAIN "


def check_statement(session: SqlSession, sql: str) -> None:
    """Check a statement with Spark's parser.  Raises ``ParseException``."""
    if session.classic:
        jvm.parse_plan(session.parser, sql)
        return
    try:
        session.run(_EXPLAIN + sql)
    except ParseException as e:
        raise without_prefix(e, _EXPLAIN) from None
    except PySparkException as e:  # it does not know trilake tables and parameters
        _log.debug("the server cannot explain a statement over trilake tables: %s", e)


def check_condition(session: SqlSession, schema: StructType, alias: str | None, sql: str) -> None:
    """Check that Spark can resolve a condition."""
    resolved(session, _empty(session, schema, alias).where(F.expr(sql)))


def check_values(session: SqlSession, schema: StructType, alias: str | None, expressions: Iterable[str]) -> DataFrame:
    """Check that Spark can resolve values; return a DataFrame with their types."""
    values = (F.expr(t).alias(f"v{i}") for i, t in enumerate(expressions))
    return resolved(session, _empty(session, schema, alias).select(*values))


def resolved(session: SqlSession, frame: DataFrame) -> DataFrame:
    """Resolve a DataFrame now, also in a Connect session."""
    if not session.classic:
        _ = frame.schema
    return frame


def _empty(session: SqlSession, schema: StructType, alias: str | None) -> DataFrame:
    frame: DataFrame = empty_frame(session.spark, schema)
    return frame if alias is None else frame.alias(alias)
