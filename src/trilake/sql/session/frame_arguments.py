"""Frames, columns and values given by keyword: ``spark.sql("SELECT * FROM {a}", a=df)``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from trilake.sql.session.session import SqlSession


@contextmanager
def formatted(session: SqlSession, text: str, given: Mapping[str, Any]) -> Iterator[str]:
    """The text with names of temporary views for frames, as PySpark itself puts them in, for the time of the block."""
    if not given:
        yield text
        return
    if session.classic:
        from pyspark.sql.sql_formatter import SQLStringFormatter

        spark: Any = session.spark
        formatter: Any = SQLStringFormatter(spark)
        try:
            yield formatter.format(text, **given)
        finally:
            formatter.clear()
        return
    from pyspark.sql.connect.sql_formatter import SQLStringFormatter as ConnectFormatter  # type: ignore[import-not-found,unused-ignore]

    remote: Any = session.spark
    connect: Any = ConnectFormatter(remote)
    try:
        yield connect.format(text, **given)
    finally:
        connect.clear()
