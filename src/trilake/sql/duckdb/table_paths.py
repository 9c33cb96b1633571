"""Open the tables that a statement names by path, without Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trilake.common.lru_cache import LruCache
from trilake.common.option_values import Travel, split_travel
from trilake.common.text import quote_name, quote_parts
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.literals import literal, with_values
from trilake.sql.parser.tokens import path_tokens
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table.registry import DEFAULT, find_format, format_of_provider, has_log, open_table
from trilake.table.table import Table

# --- Cache of the newest versions of Delta tables that this process has queried ---------------------------------------
# Each query lists the log; if its files are those of the cached version, they are not read again.

#: Most cached versions, and most bytes of one's files and tombstones.
_MOST, _LARGEST = 32, 32 << 20
#: A younger log file may be replaced by one with the same time: some stores count in seconds.
_SETTLED_MS = 10_000


class SnapshotCache:
    """The newest known version of each table, by URI and storage options."""

    def __init__(self) -> None:
        self.versions = LruCache(_MOST, _MOST)

    def open(self, path: str, options: Mapping[str, str]) -> ArrowDeltaTable:
        store = open_store(path, dict(options))
        key = (store.uri, frozenset(options.items()))
        cached: Snapshot | None = self.versions.get(key)
        table = ArrowDeltaTable(store, standard_engine(), known=cached)
        opened = table.opened
        if opened is not cached and isinstance(opened, Snapshot) and _worth_keeping(opened):
            self.versions.put(key, opened, 1)
        return table


def _worth_keeping(version: Snapshot) -> bool:
    """Whether a version is small, and its log files are old enough to be identified by their times."""
    segment, state = version.segment, version.state
    settled = version.engine.runtime.clock_ms() - _SETTLED_MS
    files = (*segment.checkpoint_files, *(file for _, _, file in segment.commits))
    return all(file.modified_ms < settled for file in files) and state.adds.nbytes + state.removes.nbytes <= _LARGEST


_tables = SnapshotCache()


@dataclass(frozen=True)
class Context:
    """A statement's environment: storage options, DataFrames by name, and values of parameters."""

    options: Mapping[str, str] = field(default_factory=dict)
    frames: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def log(self, path: str) -> DeltaLog:
        return DeltaLog(self.store(path), standard_engine())

    def store(self, path: str) -> Store:
        return open_store(path, dict(self.options))

    def filled(self, sql: str) -> str:
        """Replace parameters with literals of Spark SQL."""
        return with_values(sql, self.values, literal) if self.values else sql

    def cursor(self, sql: str) -> Cursor:
        """A cursor over a statement, with its parameters filled in."""
        sql = self.filled(sql)
        return Cursor(sql, path_tokens(sql))


@dataclass(frozen=True)
class TablePath:
    """A table named by path, and the version after the path.  The format of a bare path is empty until detected."""

    format: str
    path: str
    at: Travel | None = None

    @property
    def display_name(self) -> str:
        return f"{self.format}.{quote_name(self.path)}" if self.format else quote_name(self.path)

    @property
    def has_log(self) -> bool:
        """Whether the table has, or until its format is detected may have, a Delta log."""
        return not self.format or has_log(self.format)

    def open(self, context: Context, version: int | None = None, timestamp: str | None = None) -> Table:
        """Open the table at a version.

        Raises ``TableNotFoundError``, ``VersionNotFoundError``, and ``InvalidArgumentError`` for two versions.
        """
        if self.at is not None:
            if version is not None or timestamp is not None:
                raise InvalidArgumentError(f"{self.display_name} names two versions", help="leave one of them out")
            version, timestamp = self.at
        if version is None and timestamp is None and self.has_log:
            try:
                return _tables.open(self.path, context.options)
            except TableNotFoundError:
                if self.format:
                    raise
        return open_table(context.store(self.path), self.format or None, version, timestamp)

    def delta(self, context: Context, what: str) -> ArrowDeltaTable:
        """Open the newest version of a Delta table, for the statement ``what``.

        Raises ``TableNotFoundError``, and ``InvalidArgumentError`` for another format or a version.
        """
        if not self.has_log:
            raise InvalidArgumentError(
                f"{what} needs a Delta table, but {self.display_name} is a {self.format} table", file=self.path
            )
        if self.at is not None:
            raise InvalidArgumentError(
                f"{what} needs the newest version, but {self.display_name} names a version",
                help="leave the version out",
            )
        return ArrowDeltaTable(context.store(self.path), standard_engine())


def find_table(context: Context, parts: tuple[str, ...], *, new: bool = False) -> TablePath:
    """Find the table of a name such as ``delta.`/path```, or of a bare path, and its format.

    A bare path without a table is a Delta table if it may be ``new``.  Raises ``TableNotFoundError``, also for a name
    in a catalog.
    """
    table_path = parse_table_path(context, parts)
    if table_path is None and new and len(parts) == 1 and "/" in parts[0]:
        table_path = TablePath("", parts[0])
    if table_path is None:
        raise unknown_name(quote_parts(parts))
    if table_path.format:
        return table_path
    try:
        return replace(table_path, format=find_format(context.store(table_path.path), None).name)
    except TableNotFoundError:
        if not new:
            raise
        return replace(table_path, format=DEFAULT)


def parse_table_path(context: Context, parts: tuple[str, ...], *, quoted: bool = False) -> TablePath | None:
    """Parse a name as a path; ``None`` for a name without a path.

    A bare path contains a slash, or is quoted and exists.
    """
    if len(parts) == 2 and (of := format_of_provider(parts[0])) is not None:
        format, path = of, parts[1]
    elif len(parts) == 1:
        format, path = "", parts[0]
    else:
        return None
    at, exists = split_travel(path), not format and os.path.exists(path)
    if not format and "/" not in path and not (quoted and (exists or (at and os.path.exists(at[0])))):
        return None
    whole = TablePath(format, path)
    if at is None or exists or (whole.has_log and context.log(path).exists()):
        return whole
    return TablePath(format, at[0], at[1])


def unknown_name(name: str) -> TableNotFoundError:
    """The error for a name without a path."""
    return TableNotFoundError(
        f"table {name} cannot be found: without Spark there is no catalog",
        help="name a table by its path, such as delta.`/lake/orders` or '/lake/orders', or pass a DataFrame or an open"
        " table by keyword: trilake.sql('SELECT * FROM orders', orders=df)",
    )
