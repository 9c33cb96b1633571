"""SQL over tables of all formats without Spark, in DuckDB's own dialect.

A relation that the SQL names is a table under that very name, so paths need no rewriting of the text.  What a query
needs of a table is read as ``trilake.sql`` reads it: see :mod:`trilake.sql.duckdb.database`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from trilake.cli.tables import opened_with, split_version
from trilake.errors import InvalidArgumentError
from trilake.expr.terms.engine import QueryError, first_line, idle_connection
from trilake.table.table import Table

#: Rows of a batch of the result.
_ROWS = 10_000


def run_query(
    sql: str, named: Mapping[str, str], options: Mapping[str, str]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The rows of one ``SELECT``.

    Parameters
    ----------
    sql: in DuckDB's dialect; tables are named by path in quotes, with ``@v3`` behind it for a version.
    named: paths of tables by further names.
    options: of object stores.

    Raises ``QueryError`` for SQL that is wrong or fails on a value, ``InvalidArgumentError`` for anything but one
    query, and what opening and reading the tables raise.
    """
    import duckdb

    from trilake.sql.duckdb.database import batches_of

    try:
        relations = _relations(sql) - set(named)
        places = {**{name: name for name in relations if _is_path(name)}, **named}
        schema, batches = batches_of({name: _open(place, options) for name, place in places.items()}, sql, _ROWS)
    except duckdb.Error as e:
        raise _query_error(e) from e
    return schema, _results(batches)


def _results(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import duckdb

    try:
        yield from batches
    except duckdb.Error as e:
        raise _query_error(e) from e


def _query_error(error: Exception) -> QueryError:
    """What DuckDB says of a query."""
    unknown = re.match(r"Catalog Error: Table with name (.*) does not exist", str(error))
    if unknown:
        return QueryError(
            f"there is no table {unknown[1]!r}",
            help="name a table by its path in quotes, FROM '/data/t', or pass --table NAME=PATH",
        )
    return QueryError(first_line(error))


def _relations(sql: str) -> set[str]:
    """The names of the relations that a query reads, without those that it defines itself."""
    with idle_connection() as connection:
        kinds = [statement.type.name for statement in connection.extract_statements(sql)]
        if kinds != ["SELECT"]:
            raise InvalidArgumentError(
                f"a query is one SELECT, not {' and '.join(kinds) or 'nothing'}",
                help="trilake write, convert and the other commands change tables",
            )
        # Not get_table_names: it binds columns too, and fails on USING before there is any table.
        tree = orjson.loads(connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0])
    read: set[str] = set()
    defined: set[str] = set()
    left: list[Any] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += node
        elif isinstance(node, dict):
            if node.get("type") == "BASE_TABLE" and not node.get("schema_name") and not node.get("catalog_name"):
                read.add(str(node["table_name"]))
            if isinstance(node.get("cte_map"), dict):
                defined |= {str(entry["key"]) for entry in node["cte_map"].get("map", ())}
            left += node.values()
    return read - defined


def _is_path(name: str) -> bool:
    return "/" in name or os.path.exists(split_version(name)[0])


def _open(place: str, options: Mapping[str, str]) -> Table:
    path, version = split_version(place)
    return opened_with(path, options, version)
