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

#: Each database has as many threads as there are processors; those of the idle ones sleep, and are as many at most.
_MOST_THREADS = 64
_MOST_IDLE = max(2, _MOST_THREADS // (os.cpu_count() or 1))
#: Queries that one database keeps, and the characters of each.
_MOST_RELATIONS, _LONGEST = 16, 40_000


class FileState(NamedTuple):
    """What tells a file from one that was written in its place."""

    path: str
    inode: int
    size: int
    changed_ns: int


def file_states(paths: Sequence[str]) -> tuple[FileState, ...]:
    """The files as they are now; raises ``OSError`` for one that is not there."""
    return tuple(FileState(p, s.st_ino, s.st_size, s.st_mtime_ns) for p, s in zip(paths, map(os.stat, paths)))


class Database:
    """One that may open ``files``, its views, which all of its connections see, and the last queries of these alone."""

    def __init__(self, files: frozenset[FileState]) -> None:
        self.files = files
        self.connection = open_database(os.cpu_count() or 1, sorted(file.path for file in files))
        self._views: dict[tuple[str, ...], str] = {}
        self._relations: OrderedDict[str, duckdb.DuckDBPyRelation] = OrderedDict()

    def relation(self, query: str) -> duckdb.DuckDBPyRelation:
        """A query of the views, which is planned and run each time that its rows are taken.

        DuckDB's Python interface parses and binds a query to make a relation of it, and once more to run it.
        """
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
        """Make these views, by their queries, and leave no others; a name of two parts is a schema and a view."""
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
    """The idle databases of a process; the one that was used last comes last."""

    def __init__(self) -> None:
        self.idle: list[Database] = []
        self.lock = threading.Lock()

    @contextmanager
    def of(self, files: frozenset[FileState]) -> Iterator[tuple[Database, duckdb.DuckDBPyConnection]]:
        """A database that may open ``files``, for the time of the block and no one else, and a new connection to it.

        What is made on the connection goes with it; after an error the database goes, too.
        """
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
        """Leave a parent's databases alone, in a forked child."""
        for database in self.idle:
            never_destroyed(database.connection)
        self.idle, self.lock = [], threading.Lock()
