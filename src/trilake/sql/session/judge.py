"""Statements that Spark parses, conditions and values that it resolves, before anything runs.

Wrong ones are refused for an empty table too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trilake.delta.protocol.schema import StructType
from trilake.errors import InvalidArgumentError
from trilake.spark.native.columns import empty_frame
from trilake.spark.session.compat import error_condition
from trilake.sql.session import jvm
from trilake.sql.session.problems import without_prefix
from trilake.sql.session.session import SqlSession

_log = logging.getLogger("trilake.sql")
_NON_DETERMINISTIC = "INVALID_NON_DETERMINISTIC_EXPRESSIONS"
#: What lets a Connect server parse a statement, and do nothing else with it.
_EXPLAIN = "EXPLAIN "


def check_statement(session: SqlSession, text: str) -> None:
    """Let Spark's parser refuse a statement that it does not know.  Raises ``ParseException``."""
    if session.classic:
        jvm.parse_plan(session.parser, text)
        return
    try:
        session.run(_EXPLAIN + text)
    except ParseException as e:
        raise without_prefix(e, _EXPLAIN) from None
    except PySparkException as e:  # it knows no tables of ours, and no parameters
        _log.debug("the server explains a statement of ours: %s", e)


def check_condition(session: SqlSession, schema: StructType, alias: str | None, text: str) -> None:
    """See that a condition can be resolved, and is the same each time.

    Raises what Spark raises, and ``InvalidArgumentError`` for a condition such as ``rand() > 0.5``.
    """
    empty = _empty(session, schema, alias)
    frame = resolved(session, empty.where(F.expr(text)))
    if not _is_deterministic(session, empty, frame, text):
        raise InvalidArgumentError(
            f"[{_NON_DETERMINISTIC}] the condition may be another each time: {text}",
            help="store what it gives in a column first, and use that",
        )


def check_values(session: SqlSession, schema: StructType, alias: str | None, texts: Iterable[str]) -> DataFrame:
    """See that values can be resolved; a frame with their types.  Raises what Spark raises."""
    values = (F.expr(t).alias(f"v{i}") for i, t in enumerate(texts))
    return resolved(session, _empty(session, schema, alias).select(*values))


def resolved(session: SqlSession, frame: DataFrame) -> DataFrame:
    """A frame that Spark has resolved, which a Connect server does no sooner than it is asked for something.

    Raises what Spark raises.
    """
    if not session.classic:
        _ = frame.schema
    return frame


def _is_deterministic(session: SqlSession, empty: DataFrame, frame: DataFrame, text: str) -> bool:
    """Whether a condition, by which ``frame`` is filtered, is the same each time."""
    if session.classic:
        return bool(frame._jdf.queryExecution().analyzed().condition().deterministic())
    try:  # a Connect server does not show conditions, but refuses such a one for a join
        _ = empty.join(session.spark.range(0).toDF("__trilake_other"), F.expr(text)).schema
    except AnalysisException as e:
        return error_condition(e) != _NON_DETERMINISTIC
    return True


def _empty(session: SqlSession, schema: StructType, alias: str | None) -> DataFrame:
    frame: DataFrame = empty_frame(session.spark, schema)
    return frame if alias is None else frame.alias(alias)
