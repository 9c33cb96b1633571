"""SQL over tables of all formats without Spark: DuckDB runs it, each table's own scan reads the rows.

DuckDB opens no file: a relation that the SQL names is a table registered under that very name, so paths need no
rewriting of the text.  Columns and conditions that a query needs go down to the scan, which skips files by them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from trilake.cli.tables import opened_with, split_version
from trilake.errors import InvalidArgumentError, TrilakeError
from trilake.expr.terms.engine import QueryError, first_line, open_database
from trilake.relations.dataset import TableDataset, WatchedRows
from trilake.table import Table

if TYPE_CHECKING:
    import duckdb

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

    errors: list[TrilakeError] = []
    connection = open_database(os.cpu_count() or 1)
    try:
        kinds = [statement.type.name for statement in connection.extract_statements(sql)]
        if kinds != ["SELECT"]:
            raise InvalidArgumentError(
                f"a query is one SELECT, not {' and '.join(kinds) or 'nothing'}",
                help="trilake write, convert and the other commands change tables",
            )
        relations = {name: name for name in _relations(connection, sql) if _is_path(name) and name not in named}
        for name, place in {**relations, **named}.items():
            table = _open(place, options)
            connection.register(name, TableDataset(WatchedRows(table, errors)))
        result = connection.sql(sql).to_arrow_reader(_ROWS)
    except duckdb.Error as e:
        raise _query_error(e, errors) from e
    return result.schema, _results(connection, result, errors)


def _results(
    connection: duckdb.DuckDBPyConnection, result: pa.RecordBatchReader, errors: list[TrilakeError]
) -> Iterator[pa.RecordBatch]:
    import duckdb

    try:
        yield from result
    except (duckdb.Error, pa.ArrowException) as e:
        raise _query_error(e, errors) from e
    finally:
        connection.close()


def _query_error(error: Exception, errors: list[TrilakeError]) -> TrilakeError:
    """The error that a table raised, or what DuckDB says of the query."""
    if errors:
        return errors[0]
    unknown = re.match(r"Catalog Error: Table with name (.*) does not exist", str(error))
    if unknown:
        return QueryError(
            f"there is no table {unknown[1]!r}",
            help="name a table by its path in quotes, FROM '/data/t', or pass --table NAME=PATH",
        )
    return QueryError(first_line(error))


def _relations(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """The names of the relations that a query reads, without those that it defines itself."""
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
    return "/" in name or os.path.exists(name)


def _open(place: str, options: Mapping[str, str]) -> Table:
    path, version = split_version(place)
    return opened_with(path, options, version)
