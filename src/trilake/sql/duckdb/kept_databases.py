"""Cache of DuckDB databases for queries over the same files: opening and closing one takes 15 ms.

Each may open only its own files, see :func:`trilake.expr.terms.engine.open_database`.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

import duckdb

from trilake.common.text import double_quoted
from trilake.expr.terms.engine import never_destroyed, open_database

#: Each database has a thread per processor; this is the most for idle databases.
_MOST_THREADS = 64
_MOST_IDLE = max(2, _MOST_THREADS // (os.cpu_count() or 1))
#: Most cached queries of one database, and most characters of each.
_MOST_RELATIONS, _LONGEST = 16, 40_000


class FileState(NamedTuple):
    """Identifies a file's content: another one at the same path differs."""

    path: str
    inode: int
    size: int
    changed_ns: int


def file_states(paths: Sequence[str]) -> tuple[FileState, ...]:
    """The files' current states.  Raises ``OSError`` for a missing one."""
    return tuple(FileState(p, s.st_ino, s.st_size, s.st_mtime_ns) for p, s in zip(paths, map(os.stat, paths)))


class Database:
    """A DuckDB database that may open ``files``, with its views and a cache of queries over them."""

    def __init__(self, files: frozenset[FileState]) -> None:
        self.files = files
        self.connection = open_database(os.cpu_count() or 1, sorted(file.path for file in files))
        self._views: dict[tuple[str, ...], str] = {}
        self._relations: OrderedDict[str, duckdb.DuckDBPyRelation] = OrderedDict()

    def relation(self, query: str) -> duckdb.DuckDBPyRelation:
        """A query over the views; cached, as making a relation parses and binds the query."""
        cached = self._relations.get(query)
        if cached is not None:
            self._relations.move_to_end(query)
            return cached
        relation_ = self.connection.sql(query)
        if len(query) <= _LONGEST:
            self._relations[query] = relation_
            if len(self._relations) > _MOST_RELATIONS:
                self._relations.popitem(last=False)
        return relation_

    def set_views(self, connection: duckdb.DuckDBPyConnection, views: Mapping[tuple[str, ...], str]) -> None:
        """Create these views, and drop all others; a name of two parts is a schema and a view."""
        if views != self._views:
            self._relations.clear()
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


class KeptDatabases:
    """The process's idle databases, least recently used first."""

    def __init__(self) -> None:
        self.idle: list[Database] = []
        self.lock = threading.Lock()

    @contextmanager
    def of(self, files: frozenset[FileState]) -> Iterator[tuple[Database, duckdb.DuckDBPyConnection]]:
        """Take a database that may open ``files`` for the block, with a new connection; after an error, close it."""
        database = self._taken(files) or Database(files)
        try:
            with closing(database.connection.cursor()) as connection:
                yield database, connection
        except BaseException:
            database.connection.close()
            raise
        self._give_back(database)

    def _taken(self, files: frozenset[FileState]) -> Database | None:
        with self.lock:
            for place, database in enumerate(self.idle):
                if database.files == files:
                    return self.idle.pop(place)
        return None

    def _give_back(self, database: Database) -> None:
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
