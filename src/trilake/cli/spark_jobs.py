"""The option ``--spark``: run commands as Spark jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from trilake.api import read
from trilake.cli.options import split_version
from trilake.errors import InvalidArgumentError, MissingDependencyError, TrilakeError
from trilake.expr.terms.engine import QueryError
from trilake.storage.base import Store


def session_here() -> Any:
    """A Spark session on this machine.  Raises ``MissingDependencyError`` where PySpark is not installed."""
    try:
        from trilake.sql.spark.install import session
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise MissingDependencyError.of("pyspark", "spark", "Spark sessions") from e
    # PySpark logs whole stack traces of an error that it also raises.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return session("trilake")


def optimize_runner() -> Any:
    """A runner for OPTIMIZE in Spark tasks."""
    spark = session_here()
    from trilake.spark.delta.optimize import OptimizeRunner

    return OptimizeRunner(spark)


def many_runner(store: Store) -> Any:
    """A runner that deletes files in Spark tasks."""
    spark = session_here()
    from trilake.spark.delta.maintenance import ManyRunner

    return ManyRunner(spark, store, least=64)


def query_on_spark(
    sql: str, tables: Mapping[str, str], options: Mapping[str, str]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Run a query in Spark SQL; ``tables`` become temporary views.

    Raises ``InvalidArgumentError`` for anything but a query, ``QueryError`` for Spark's errors, and what reading the
    tables raises.
    """
    spark = session_here()
    from pyspark.errors import PySparkException

    from trilake.spark.session.compat import to_arrow
    from trilake.spark.session.job_errors import short_cause

    if sql.lstrip("( \t\n").partition(" ")[0].split("\n")[0].lower() not in ("select", "with", "from", "values"):
        raise InvalidArgumentError("expected one SELECT", help="use other commands to change tables")
    try:
        for name, place in tables.items():
            path, version = split_version(place)
            read(spark, path, version=version, storage_options=options).createOrReplaceTempView(name)
        rows = to_arrow(spark.sql(sql))
    except PySparkException as e:
        error: Any = e  # trilake's errors may be Spark's, too
        if isinstance(error, TrilakeError):
            raise
        raise QueryError(short_cause(e)) from e
    return rows.schema, iter(rows.to_batches())
