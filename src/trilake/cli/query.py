"""Run the command ``query``, with or without Spark, and start the session for ``--spark``."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from trilake import api
from trilake.errors import InvalidArgumentError, MissingDependencyError, TrilakeError
from trilake.expr.terms.engine import QueryError, first_line
from trilake.sql.duckdb.table_paths import Context
from trilake.sql.parser.cursor import SqlTextError

#: Rows per batch.
_ROWS = 10_000
_VERSION = re.compile(r"(?s)(.+)@v(\d+)")


def run_query(
    sql: str, tables: Mapping[str, str], options: Mapping[str, str]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Run one ``SELECT``; ``tables`` are paths by name, ``options`` those of object stores.

    Raises ``QueryError`` for an error in the SQL or a value, ``InvalidArgumentError`` for anything but one query, and
    the errors of opening and reading the tables.
    """
    import duckdb

    from trilake.sql.duckdb.query import open_query, unknown_table

    versions = {name: _split_version(uri) for name, uri in tables.items()}
    frames = {n: api.open(path, version=v, storage_options=options) for n, (path, v) in versions.items()}
    try:
        schema, batches = open_query(Context(options, frames), sql, _ROWS)
    except SqlTextError as e:
        raise QueryError(f"{e.message} (line {e.context['line']}, position {e.context['position']})") from e
    except duckdb.Error as e:
        name = unknown_table(e)
        if name is None:
            raise QueryError(first_line(e)) from e
        raise QueryError(
            f"table {name!r} cannot be found",
            help="name a table by its path in quotes, as in FROM '/data/t', or pass --table NAME=PATH",
        ) from e
    return schema, _results(batches)


def _results(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import duckdb

    try:
        yield from batches
    except duckdb.Error as e:
        raise QueryError(first_line(e)) from e


def session_here() -> Any:
    """A Spark session on this machine.  Raises ``MissingDependencyError`` if PySpark is not installed."""
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


def query_on_spark(
    sql: str, tables: Mapping[str, str], options: Mapping[str, str]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Run a query in Spark SQL; ``tables`` become temporary views.

    Raises ``InvalidArgumentError`` for anything but a query, ``QueryError`` for Spark's errors, and the errors of
    reading the tables.
    """
    spark = session_here()
    from pyspark.errors import PySparkException

    from trilake.spark.session.compat import to_arrow
    from trilake.spark.session.job_errors import short_cause

    if sql.lstrip("( \t\n").partition(" ")[0].split("\n")[0].lower() not in ("select", "with", "from", "values"):
        raise InvalidArgumentError("expected one SELECT", help="use other commands to change tables")
    try:
        for name, uri in tables.items():
            path, version = _split_version(uri)
            api.read(spark, path, version=version, storage_options=options).createOrReplaceTempView(name)
        rows = to_arrow(spark.sql(sql))
    except PySparkException as e:
        error: Any = e  # trilake's errors may be Spark's, too
        if isinstance(error, TrilakeError):
            raise
        raise QueryError(short_cause(e)) from e
    return rows.schema, iter(rows.to_batches())


def _split_version(uri: str) -> tuple[str, int | None]:
    """Split a path and its version ``@v3``; an existing path has none.

    >>> _split_version("/no/such/table@v3"), _split_version("s3://b/t")
    (('/no/such/table', 3), ('s3://b/t', None))
    """
    match = _VERSION.fullmatch(uri)
    if match is None or os.path.exists(uri):
        return uri, None
    return match[1], int(match[2])
