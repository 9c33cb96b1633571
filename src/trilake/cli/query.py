"""The command ``query`` without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from trilake.cli.options import opened_with, split_version
from trilake.expr.terms.engine import QueryError, first_line
from trilake.sql.duckdb.places import Context
from trilake.sql.parser.cursor import SqlTextError

#: Rows per batch.
_ROWS = 10_000


def run_query(
    sql: str, tables: Mapping[str, str], options: Mapping[str, str]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Run one ``SELECT``; ``tables`` are paths by name, ``options`` those of object stores.

    Raises ``QueryError`` for an error in the SQL or a value, ``InvalidArgumentError`` for anything but one query, and
    what opening and reading the tables raise.
    """
    import duckdb

    from trilake.sql.duckdb.query import open_query, unknown_table

    places = {name: split_version(place) for name, place in tables.items()}
    frames = {name: opened_with(path, options, version) for name, (path, version) in places.items()}
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
