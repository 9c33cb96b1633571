"""The formats of this process: their Python data sources, and the registered formats by name."""

from __future__ import annotations

from functools import cache

from trilake.spark.session.format import SparkFormat, spark_format_named
from trilake.spark.session.sources.api import DataSource
from trilake.table.registry import rows

#: The formats by registered name; ``delta`` is missing if delta-spark's jar owns that name.
FORMATS: dict[str, SparkFormat] = {}


@cache
def sources() -> tuple[type[DataSource], ...]:
    """The data sources of all formats that Spark can use, each with the format's name and with ``trilake-<name>``."""
    return tuple(source for row in rows() if row.spark for source in spark_format_named(row.name).sources())


def registered(format: str) -> str | None:
    """The name under which a format is registered; ``None`` if this session leaves it to another implementation."""
    return next((name for name in (format, f"trilake-{format}") if name in FORMATS), None)
