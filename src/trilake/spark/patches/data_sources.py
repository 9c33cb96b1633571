"""The Python data sources of all formats, each under the format's name and under ``trilake-<name>``."""

from __future__ import annotations

from trilake.spark.session.format import spark_format_named
from trilake.spark.session.sources.api import DataSource
from trilake.table.registry import rows

SOURCES: tuple[type[DataSource], ...] = tuple(
    source for row in rows() for source in spark_format_named(row.name).sources()
)
