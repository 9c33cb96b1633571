"""The tables that a statement names by their place, opened without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trilake.common.text import quote_name, quote_parts
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.sql.duckdb.known_tables import KnownTables
from trilake.sql.parser.paths import named_path, version_behind
from trilake.storage import open_store
from trilake.table.registry import format_named, format_of_provider
from trilake.table.table import Table

_known = KnownTables()


@dataclass(frozen=True)
class Context:
    """What a statement runs in: options of object stores, and rows that it may name."""

    options: Mapping[str, str] = field(default_factory=dict)
    frames: Mapping[str, Any] = field(default_factory=dict)

    def log(self, path: str) -> DeltaLog:
        """The log of a Delta table, whether it is there or not."""
        return DeltaLog(open_store(path, dict(self.options)), standard_engine())


@dataclass(frozen=True)
class Place:
    """A table that a statement names: its format, its path, and the version behind the path."""

    format: str
    path: str
    at: str | None = None

    @property
    def shown(self) -> str:
        """The name, for messages."""
        return f"{self.format}.{quote_name(self.path)}"

    def uri(self, context: Context) -> str:
        """The place as a store names it."""
        return open_store(self.path, dict(context.options)).uri

    def open(self, context: Context, version: int | None = None, timestamp: str | None = None) -> Table:
        """The table at a version.

        Raises ``TableNotFoundError``, ``VersionNotFoundError``, and ``InvalidArgumentError`` where two are named.
        """
        if self.at is not None:
            if version is not None or timestamp is not None:
                raise InvalidArgumentError(f"{self.shown} names two versions", help="name the version once")
            if self.at[:1] in "vV":
                version = int(self.at[1:])
            else:
                moment = dt.datetime.strptime(f"{self.at}000", "%Y%m%d%H%M%S%f").replace(tzinfo=dt.UTC)
                timestamp = moment.isoformat()
        if self.format == "delta" and version is None and timestamp is None:
            return _known.open(self.path, context.options)
        return format_named(self.format).open(open_store(self.path, dict(context.options)), version, timestamp)

    def delta(self, context: Context, what: str) -> ArrowDeltaTable:
        """The newest version of a Delta table that ``what`` works on.

        Raises ``TableNotFoundError``, and ``InvalidArgumentError`` for another table or an older version.
        """
        if self.format != "delta":
            raise InvalidArgumentError(f"{what} is for Delta tables, and {self.shown} is none", file=self.path)
        if self.at is not None:
            raise InvalidArgumentError(
                f"{self.shown} names a version, which cannot be changed", help="leave the version out"
            )
        return ArrowDeltaTable(open_store(self.path, dict(context.options)), standard_engine())


def place_of(context: Context, parts: tuple[str, ...]) -> Place:
    """The table of a name such as ``delta.`/path```, or of a path alone.

    Raises ``TableNotFoundError`` for a name that only a session's catalogue could know.
    """
    if len(parts) == 1 and "/" in parts[0]:
        parts = ("delta", parts[0])
    named = named_path(parts)
    if named is None and len(parts) == 2 and (of := format_of_provider(parts[0])) is not None:
        named = of, parts[1]  # there are no databases here that could be called like a format
    if named is None:
        raise TableNotFoundError(
            f"the table {quote_parts(parts)} cannot be found: without Spark there is no catalogue",
            help=f"name the table by its path, such as delta.{quote_name(parts[-1])} or delta.`/lake/orders`; a frame"
            " or table of this process is named by a keyword: trilake.sql(text, orders=frame)",
        )
    format, path = named
    at = version_behind(path)
    if at is None or (format == "delta" and context.log(path).exists()):
        return Place(format, path)
    return Place(format, at[0], at[1])
