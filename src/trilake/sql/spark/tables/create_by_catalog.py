"""``spark.catalog.createTable`` for a trilake table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.spark.delta.table_builder import described_schema
from trilake.sql.parser.create import Create
from trilake.sql.parser.descriptions import with_options
from trilake.sql.spark.session.relations import frame_of_name
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import not_found, resolve
from trilake.sql.spark.tables.create_table import create_plain


def create_by_catalog(
    session: SqlSession,
    parts: tuple[str, ...],
    format: str,
    schema: Any,
    comment: str | None,
    options: Mapping[str, str],
    spark_says: Callable[[], DataFrame],
) -> DataFrame:
    """Create a table, or an entry for the one at the options' path; return its rows.

    ``spark_says`` is Spark's own method, which raises for an invalid ``schema``.  Raises as
    :func:`trilake.sql.spark.tables.create_table.create_plain`.
    """
    if not isinstance(schema, T.StructType | None):
        return spark_says()
    call = Create(parts, create=True, replace=False, if_not_exists=False, comment=comment, options=dict(options))
    create_plain(session, with_options(call, format), format, described_schema(schema or T.StructType()))
    target = resolve(session, parts)
    if target is None:  # dropped since
        raise not_found(parts)
    return frame_of_name(session, target)
