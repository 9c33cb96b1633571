"""Run DuckDB over Arrow tables: one database per process, one connection per running query.

The database reads no files and loads no extensions, since :class:`~trilake.storage.Store` does I/O.  User input never
reaches it as SQL.

>>> import pyarrow as pa
>>> query("SELECT n + 1 AS m FROM t WHERE n > 1", t=pa.table({"n": [1, 2, 3]}))["m"].to_pylist()
[3, 4]
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from trilake.errors import InvalidArgumentError, TrilakeError

if TYPE_CHECKING:
    import duckdb

#: Threads per process; few, as Spark runs several Python workers per machine.
MAX_THREADS = 4


class Query(Protocol):
    """The signature of :func:`query`."""

    def __call__(self, sql: str, **tables: pa.Table) -> pa.Table:
        """Return the rows.  Raises :class:`QueryError`."""


class QueryError(TrilakeError):
    """DuckDB rejected a query or failed on a value; the cause is DuckDB's exception."""

    code = "QUERY"


def open_database(threads: int, files: Sequence[str] = ()) -> duckdb.DuckDBPyConnection:
    """Open a new in-memory database in UTC that can open only the given files and loads no extensions."""
    import tempfile

    import duckdb  # late: takes a fifth of a second

    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": threads,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
            "preserve_insertion_order": True,
            "temp_directory": os.path.join(tempfile.gettempdir(), f"trilake-duckdb-{os.getpid()}"),
        },
    )
    connection.execute("SET GLOBAL allowed_paths = ?", [list(files)])
    connection.execute("SET GLOBAL enable_external_access = false")
    connection.execute("SET GLOBAL parquet_metadata_cache = true")  # footers are checked before files are read
    # The time zone is a setting of ICU, which is loaded with the database.
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


_database: duckdb.DuckDBPyConnection | None = None
_lock = threading.Lock()


def never_destroyed(database: object) -> None:
    """Never destroy a parent's database in a forked child.

    The destructor would wait forever for DuckDB's threads, which do not exist in the child.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))


def _forget_after_fork() -> None:
    global _database, _lock
    if _database is not None:
        never_destroyed(_database)
    _database, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)


#: Spark's names of DuckDB's integers, in messages about values.
_INTEGERS = {"8": "tinyint", "16": "smallint", "32": "int", "64": "bigint"}


def _in_spark_words(message: str) -> str:
    """A message about a value without the names of generated columns, and with Spark's types.

    >>> _in_spark_words("Overflow in addition of INT32 (2147483647 + 1)!")
    'Overflow in addition of int (2147483647 + 1)'
    """
    message = re.sub(r" when casting from source column \w+$", "", message)
    message = re.sub(r"(\)|range)!$", r"\1", message)
    return re.sub(r"\b([Tt]ype|of) INT(8|16|32|64)\b", lambda m: f"{m[1]} {_INTEGERS[m[2]]}", message)


def first_line(error: Exception) -> str:
    """DuckDB's error message without the category: ``Conversion Error: ...``."""
    return re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", str(error).split("\n", 1)[0])


@contextmanager
def new_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for the block, which cannot open files."""
    global _database  # noqa: PLW0603 - one database a process
    with _lock:
        _database = _database or open_database(min(MAX_THREADS, os.cpu_count() or 1))
        cursor = _database.cursor()
    with closing(cursor):
        yield cursor


@contextmanager
def _session(tables: dict[str, pa.Table | pa.RecordBatch]) -> Iterator[duckdb.DuckDBPyConnection]:
    import duckdb

    with new_connection() as cursor:
        try:
            for name, data in tables.items():
                if not isinstance(data, pa.Table | pa.RecordBatch):
                    raise InvalidArgumentError(f"table {name!r} must be Arrow data, got {type(data).__name__}")
                cursor.register(name, data)
            yield cursor
        except duckdb.Error as error:
            raise QueryError(_in_spark_words(first_line(error))) from error


def query(sql: str, **tables: pa.Table) -> pa.Table:
    """Run one ``SELECT`` in DuckDB's SQL over Arrow tables or record batches by name.

    A projection or filter of one table keeps its row order.  Raises :class:`QueryError` with DuckDB's first line.
    """
    with _session(tables) as cursor:
        statements = cursor.extract_statements(sql)
        kinds = [statement.type.name for statement in statements]
        if kinds != ["SELECT"]:
            raise InvalidArgumentError(f"expected one SELECT, got {' and '.join(kinds) or 'nothing'}")
        result: pa.Table = cursor.sql(statements[0]).to_arrow_table()
        return result


def result_types(sql: str, **tables: pa.Table) -> list[str]:
    """DuckDB's names of the column types of ``sql``, without running it.

    >>> result_types("SELECT 1 AS a, 'x' AS b")
    ['INTEGER', 'VARCHAR']
    """
    with _session(tables) as cursor:
        return [str(t) for t in cursor.sql(sql).types]
