"""Run a query in DuckDB, which reads plain Parquet files itself; all other rows come from the tables' scans.

DuckDB may open only those files.  If that fails, the query runs again with all rows from the scans, so that errors
about files are those of the scan.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

import duckdb
import pyarrow as pa

from trilake.common.lru_cache import LruCache
from trilake.common.text import double_quoted
from trilake.errors import TrilakeError
from trilake.expr.terms.engine import never_destroyed, new_connection, open_database
from trilake.table.relations.dataset import TableDataset, WatchedRows
from trilake.table.relations.parquet import parquet_relation
from trilake.table.table import Table

# --- Cache of DuckDB databases for queries over the same files: opening and closing one takes 15 ms -------------------
# Each may open only its own files, see :func:`trilake.expr.terms.engine.open_database`.

#: Most threads of all idle databases; each database has one per processor.
_MOST_THREADS = 64
_MOST_IDLE = max(2, _MOST_THREADS // (os.cpu_count() or 1))


class FileState(NamedTuple):
    """Identifies a file's content: another file at the same path has another state."""

    path: str
    inode: int
    size: int
    changed_ns: int


def file_states(paths: Sequence[str]) -> tuple[FileState, ...]:
    """The files' current states.  Raises ``OSError`` for a missing one."""
    return tuple(FileState(p, s.st_ino, s.st_size, s.st_mtime_ns) for p, s in zip(paths, map(os.stat, paths)))


class Database:
    """A DuckDB database that may open ``files``, with its views."""

    def __init__(self, files: frozenset[FileState]) -> None:
        self.files = files
        self.connection = open_database(os.cpu_count() or 1, sorted(file.path for file in files))
        self._views: dict[tuple[str, ...], str] = {}

    def set_views(self, connection: duckdb.DuckDBPyConnection, views: Mapping[tuple[str, ...], str]) -> None:
        """Create these views, and drop all others; a name of two parts is a schema and a view."""
        for name in self._views.keys() - views.keys():
            connection.execute(f"DROP VIEW {_quoted(name)}")
            del self._views[name]
        for name, query in views.items():
            if self._views.get(name) != query:
                if len(name) > 1:
                    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {double_quoted(name[0])}")
                connection.execute(f"CREATE OR REPLACE VIEW {_quoted(name)} AS {query}")
                self._views[name] = query


def _quoted(name: tuple[str, ...]) -> str:
    return ".".join(map(double_quoted, ("main", *name)[-2:]))


class DatabasePool:
    """Idle databases of this process, least recently used first."""

    def __init__(self) -> None:
        self.idle: list[Database] = []
        self.lock = threading.Lock()

    @contextmanager
    def of(self, files: frozenset[FileState]) -> Iterator[tuple[Database, duckdb.DuckDBPyConnection]]:
        """Lend a database that may open ``files``, with a new connection; close it after an error."""
        database = self._take(files) or Database(files)
        try:
            with closing(database.connection.cursor()) as connection:
                yield database, connection
        except BaseException:
            database.connection.close()
            raise
        self._return(database)

    def _take(self, files: frozenset[FileState]) -> Database | None:
        with self.lock:
            for place, database in enumerate(self.idle):
                if database.files == files:
                    return self.idle.pop(place)
        return None

    def _return(self, database: Database) -> None:
        with self.lock:
            self.idle.append(database)
            surplus, self.idle = self.idle[:-_MOST_IDLE], self.idle[-_MOST_IDLE:]
        for old in surplus:
            old.connection.close()

    def forget(self) -> None:
        """Drop the parent's databases in a forked child, without closing them."""
        for database in self.idle:
            never_destroyed(database.connection)
        self.idle, self.lock = [], threading.Lock()


Source: TypeAlias = Table | pa.Table
#: The relations of a query by name.
Sources = Mapping[tuple[str, ...], Source]
#: Files that DuckDB reads itself, by their table's name.
_Files = Mapping[tuple[str, ...], Sequence[FileState]]
#: Makes names unique: DuckDB caches the columns of views.
_numbers = itertools.count()
#: Most entries of the cache of queries over files.
_MOST_FILE_QUERIES = 256


def table_of(sources: Sources, query: str, parameters: dict[str, Any] | None = None, *, json: bool = False) -> pa.Table:
    """Run a query over ``sources``; with ``json``, columns of DuckDB's type JSON have Arrow's JSON type."""
    if not sources:
        with new_connection() as db:
            return _arrow(db.sql(query, params=parameters), json=json)

    def of(files: _Files) -> pa.Table:
        with _connection(sources, files) as db:
            return _arrow(db.sql(query, params=parameters), json=json)

    files = _files(sources)
    if files:
        with suppress(duckdb.Error):
            return of(files)
    return of({})


def _arrow(relation: duckdb.DuckDBPyRelation, *, json: bool) -> pa.Table:
    table: pa.Table = relation.to_arrow_table()
    for i in (i for i, kind in enumerate(relation.types) if json and str(kind) == "JSON"):
        table = table.set_column(i, table.schema.names[i], table.column(i).cast(pa.json_()))
    return table


def batches_of(sources: Sources, query: str, rows: int) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Run a query; return its schema, and its rows in batches of ``rows``.  Reading a batch may raise, too."""
    files = _files(sources)
    if files:
        with suppress(duckdb.Error):
            schema, batches = _reading(sources, files, query, rows)
            return schema, _or_again(batches, lambda: _reading(sources, {}, query, rows)[1])
    return _reading(sources, {}, query, rows)


def _reading(sources: Sources, files: _Files, query: str, rows: int) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    with ExitStack() as opened:
        reader = opened.enter_context(_connection(sources, files)).sql(query).to_arrow_reader(rows)
        return reader.schema, _batches(opened.pop_all(), reader)


def _batches(opened: ExitStack, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with opened:
        try:
            yield from reader
        except (pa.ArrowException, OSError) as e:  # Arrow's stream wraps DuckDB's errors
            raise duckdb.Error(str(e)) from e


def _or_again(
    batches: Iterator[pa.RecordBatch], again: Callable[[], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches; if the first fails, those of a second run."""
    sent = False
    try:
        for batch in batches:
            sent = True
            yield batch
    except duckdb.Error:
        if not sent:
            yield from again()
            return
        for _ in again():  # only for its error: its rows may come in another order
            pass
        raise


@contextmanager
def _connection(sources: Sources, files: _Files) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with a view over files, or registered Arrow rows, for each source.

    An error of a table's scan is raised instead of DuckDB's.
    """
    errors: list[TrilakeError] = []
    with _pool.of(frozenset(file for states in files.values() for file in states)) as (database, db):
        try:
            _relate(database, db, sources, files, errors)
            yield db
        except duckdb.Error:
            if errors:
                raise errors[0] from None
            raise


def _relate(
    database: Database, db: duckdb.DuckDBPyConnection, sources: Sources, files: _Files, errors: list[TrilakeError]
) -> None:
    queries = {name: _file_query(db, files[name], rows.schema) for name, rows in sources.items() if name in files}
    views = {name: query for name, query in queries.items() if query is not None}
    for name, rows in sources.items():
        if name not in views:
            relation = TableDataset(WatchedRows(rows, errors)) if isinstance(rows, Table) else rows
            private = name[0] if len(name) == 1 else f"__trilake_rows_{next(_numbers)}"
            db.register(private, relation)
            if len(name) > 1:
                views[name] = f"FROM temp.{double_quoted(private)}"
    database.set_views(db, views)


def _files(sources: Sources) -> _Files:
    files: dict[tuple[str, ...], Sequence[FileState]] = {}
    for name, rows in sources.items():
        paths = rows.plain_files() if isinstance(rows, Table) else None
        if paths:
            with suppress(OSError):  # the table's scan raises it
                files[name] = file_states(paths)
    return files


#: Queries over Parquet files: building one opens each file to check its columns.
_file_queries = LruCache(_MOST_FILE_QUERIES, _MOST_FILE_QUERIES)


def _file_query(db: duckdb.DuckDBPyConnection, files: Sequence[FileState], schema: pa.Schema) -> str | None:
    key = (schema.serialize().to_pybytes(), *files)
    if (cached := _file_queries.get(key)) is None:
        cached = (parquet_relation(db, [file.path for file in files], schema),)  # None is cached, too
        _file_queries.put(key, cached, 1)
    query: str | None = cached[0]
    return query


_pool = DatabasePool()
os.register_at_fork(after_in_child=_pool.forget)
