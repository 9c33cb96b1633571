"""``trilake.sql``: run one statement and return an Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.sql.duckdb.changes import run_delete, run_merge, run_truncate, run_update
from trilake.sql.duckdb.insert import run_insert
from trilake.sql.duckdb.maintenance import run_analyze, run_maintenance
from trilake.sql.duckdb.places import Context, place_of
from trilake.sql.duckdb.query import run_query
from trilake.sql.duckdb.tables import run_alter, run_create, run_describe
from trilake.sql.parser.cursor import Cursor, SyntaxProblem
from trilake.sql.parser.kinds import kind
from trilake.sql.parser.literals import Args, with_values
from trilake.sql.parser.maintenance import parse_maintenance
from trilake.sql.parser.problems import SqlTextError
from trilake.sql.parser.tokens import path_tokens
from trilake.table.registry import find_format

_Handler = Callable[[Context, str], pa.Table]
#: Characters of a string that is remembered.
_LONGEST = 40_000


def sql(text: str, args: Args = None, *, storage_options: Mapping[str, str] | None = None, **frames: Any) -> pa.Table:
    """Run one statement of SQL over tables by path, without Spark; its rows as an Arrow table.

    Parameters
    ----------
    text: a query in DuckDB's SQL over ``'/path'``, ``delta.`/path```, ``lance.`/path``` and ``trevni.`/path```, with
        ``@v3`` behind the path, ``VERSION AS OF``, ``TIMESTAMP AS OF`` and ``table_changes_by_path``; or ``INSERT``,
        ``DELETE``, ``UPDATE``, ``MERGE``, ``TRUNCATE``, ``CREATE TABLE``, ``ALTER TABLE``, ``ANALYZE TABLE``,
        ``DESCRIBE``, ``OPTIMIZE``, ``VACUUM``, ``RESTORE``, ``CONVERT TO DELTA``, ``GENERATE``, ``REORG``,
        ``FSCK REPAIR``.
    args: values of the parameters ``?``, ``:name`` and ``$name``.
    storage_options: credentials, region and endpoint of an object store.
    frames: rows that the statement may name: open tables, Arrow data, frames of pandas or polars.

    DuckDB runs the queries, and reads of a table the columns and files that a query needs; times are in UTC.
    Conditions and values of ``DELETE``, ``UPDATE`` and ``MERGE`` follow Spark's rules, as the table's checks do.

    Raises ``SqlTextError`` with the place in the SQL, ``InvalidArgumentError`` for statements that need Spark, and
    what opening and changing tables raises.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.sql("CREATE TABLE delta.`memory://doc-sql` (id BIGINT, note STRING)")
    >>> trilake.sql("INSERT INTO delta.`memory://doc-sql` VALUES (1, 'a'), (2, 'b')").to_pylist()
    [{'num_affected_rows': 2, 'num_inserted_rows': 2}]
    >>> trilake.sql("SELECT note FROM delta.`memory://doc-sql` WHERE id > :n", {"n": 1}).to_pylist()
    [{'note': 'b'}]
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"a statement must be a string, got {type(text).__name__}")
    values: dict[str, Any] = {}

    def parameter(value: Any) -> str:
        name = f"p{len(values)}"
        values[name] = value
        return f"${name}"

    try:
        numbered = with_values(text, args, parameter)
        return _run(Context(dict(storage_options or {}), frames, values), numbered)
    except SyntaxProblem as e:
        raise SqlTextError.at(text, e) from None


def query(text: str, frames: Mapping[str, Any]) -> pa.Table:
    """Run a query over ``frames``, rows by the names that it has for them, and no other statement.

    Raises ``SqlTextError`` with the place in the text, ``InvalidArgumentError`` for another statement, and as
    :func:`trilake.sql.duckdb.query.run_query` does.
    """
    try:
        cursor = Cursor(text)
        if kind(cursor.tokens) in _HANDLERS or parse_maintenance(cursor) is not None:
            raise InvalidArgumentError(
                "the statement is not a query",
                help="pass a SELECT; trilake.sql runs other statements over tables by path",
            )
        return run_query(Context(frames=frames), text, json=True)
    except SyntaxProblem as e:
        raise SqlTextError.at(text, e) from None


def _run(context: Context, text: str) -> pa.Table:
    return (_known_handler if len(text) <= _LONGEST else _handler)(text)(context, text)


def _handler(text: str) -> _Handler:
    """What runs a statement."""
    cursor = Cursor(text)
    if parse_maintenance(cursor) is not None:
        return _maintain
    return _HANDLERS.get(kind(cursor.tokens), run_query)


def _maintain(context: Context, text: str) -> pa.Table:
    text = context.filled(text)
    statement = parse_maintenance(Cursor(text, path_tokens(text)))
    assert statement is not None
    return run_maintenance(context, statement)


#: For strings that ran before, whose tokens are not told apart again.
_known_handler = lru_cache(maxsize=128)(_handler)


def _drop(context: Context, text: str) -> pa.Table:
    cursor = Cursor(text, path_tokens(text))
    cursor.expect("DROP", "TABLE")
    unless = cursor.accept("IF", "EXISTS")
    place = place_of(context, cursor.name(), new=True)
    if find_format(context.store(place.path), place.format).detect(context.store(place.path)):
        raise InvalidArgumentError(
            f"a table that is named by its path cannot be dropped: {place.path}",
            help="DELETE FROM takes its rows away, and its folder can be removed",
        )
    if not unless:
        raise TableNotFoundError("there is no table to drop", help="write IF EXISTS", file=place.path)
    return pa.table({})


_HANDLERS: dict[str, _Handler] = {
    "INSERT": run_insert,
    "DELETE": run_delete,
    "UPDATE": run_update,
    "MERGE": run_merge,
    "TRUNCATE": run_truncate,
    **dict.fromkeys(("CREATE", "REPLACE"), run_create),
    "ALTER": run_alter,
    **dict.fromkeys(("DESCRIBE", "DESC"), run_describe),
    "DROP": _drop,
    "ANALYZE": run_analyze,
}
