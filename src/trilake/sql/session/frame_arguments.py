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
    formatter_class: Any = SQLStringFormatter
    if not session.classic:
        from pyspark.sql.connect.sql_formatter import SQLStringFormatter as formatter_class
    formatter = formatter_class(session.spark)
    try:
        yield formatter.format(text, **given)
    finally:
        formatter.clear()
