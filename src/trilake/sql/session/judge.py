"""Conditions and values that Spark resolves before anything runs: wrong ones are refused for an empty table too."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trilake.delta.protocol.schema import StructType
from trilake.errors import InvalidArgumentError
from trilake.spark.native.columns import empty_frame
from trilake.sql.session.session import SqlSession


def check_condition(session: SqlSession, schema: StructType, alias: str | None, text: str) -> None:
    """See that a condition can be resolved, and is the same each time.

    Raises what Spark raises, and ``InvalidArgumentError`` for a condition such as ``rand() > 0.5``.
    """
    frame = _empty(session, schema, alias).where(F.expr(text))
    if session.classic and not frame._jdf.queryExecution().analyzed().condition().deterministic():
        raise InvalidArgumentError(
            f"[INVALID_NON_DETERMINISTIC_EXPRESSIONS] the condition may be another each time: {text}",
            help="store what it gives in a column first, and use that",
        )


def check_values(session: SqlSession, schema: StructType, alias: str | None, texts: Iterable[str]) -> DataFrame:
    """See that values can be resolved; a frame with their types.  Raises what Spark raises."""
    return _empty(session, schema, alias).select(*(F.expr(t).alias(f"v{i}") for i, t in enumerate(texts)))


def _empty(session: SqlSession, schema: StructType, alias: str | None) -> DataFrame:
    frame: DataFrame = empty_frame(session.spark, schema)
    return frame if alias is None else frame.alias(alias)
