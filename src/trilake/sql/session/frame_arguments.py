"""Frames, columns and values given by keyword: ``spark.sql("SELECT * FROM {a}", a=df)``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql.sql_formatter import SQLStringFormatter

from trilake.sql.session.session import SqlSession


@contextmanager
def formatted(session: SqlSession, text: str, given: Mapping[str, Any]) -> Iterator[str]:
    """The text with names of temporary views for frames, as PySpark itself puts them in, for the time of the block."""
    if not given:
        yield text
        return
    if not session.classic:
        yield from _over_connect(session, text, given)
        return
    formatter = SQLStringFormatter(session.spark)
    try:
        yield formatter.format(text, **given)
    finally:
        formatter.clear()


def _over_connect(session: SqlSession, text: str, given: Mapping[str, Any]) -> Iterator[str]:
    """The same where PySpark makes no views of the frames, but would send them along."""
    from pyspark.sql.connect.sql_formatter import SQLStringFormatter as Formatter  # late: needs gRPC

    spark: Any = session.spark
    formatter: Any = Formatter(spark)
    plain = formatter.format(text, **given)
    with session.private_views({name: frame for frame, name in formatter._temp_views}):
        yield plain
