"""The registry of formats.

Another package adds a format with an entry point in the group ``trilake.formats`` that refers to a :class:`FormatRow`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trilake.errors import InvalidArgumentError, MissingDependencyError, TableNotFoundError

if TYPE_CHECKING:
    from trilake.common.timestamps import TimestampLike
    from trilake.storage.base import Store
    from trilake.table.format import Format
    from trilake.table.table import Table


@dataclass(frozen=True)
class FormatRow:
    """A format, with its adapters as ``module:attribute``, which are loaded on demand.

    Parameters
    ----------
    name: the format's name.
    adapter: a :class:`~trilake.table.format.Format`.
    spark: the adapter for Spark sessions; empty if the format has none.
    data_suffix: suffix of its data files inside tables of another format.
    has_log: whether its tables have a Delta log.  SQL and Spark's writers change rows, columns and properties through
        the log; for tables of other formats, they only use the adapters.
    """

    name: str
    adapter: str
    spark: str = ""
    data_suffix: str = ""
    has_log: bool = False

    def load(self) -> Format:
        format: Format = _loaded(self.adapter)
        return format

    def load_spark(self) -> Any:
        """The adapter for Spark, a ``trilake.spark.session.format.SparkFormat``.  Raises ``InvalidArgumentError``."""
        if not self.spark:
            raise InvalidArgumentError(
                f"{self.name} tables cannot be read or written by Spark: the format has no adapter for it",
                help="use trilake.open and trilake.write with Arrow tables",
            )
        return _loaded(self.spark)


BUILT_IN = (
    FormatRow("delta", "trilake.delta.format:DELTA", "trilake.spark.delta.format:DELTA", has_log=True),
    FormatRow("lance", "trilake.lance.format:LANCE", "trilake.spark.lance.format:LANCE", ".lance"),
    FormatRow("trevni", "trilake.trevni.format:TREVNI", "trilake.spark.trevni.format:TREVNI", ".trv"),
)
#: The format of new tables and of paths in SQL that do not name one.
DEFAULT = "delta"
GROUP = "trilake.formats"


@cache
def _loaded(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


@cache
def _others() -> tuple[FormatRow, ...]:
    from importlib.metadata import entry_points  # takes 10 ms to load

    names = {row.name for row in BUILT_IN}
    rows: list[FormatRow] = [point.load() for point in entry_points(group=GROUP)]
    return tuple(row for row in rows if row.name not in names)


def rows() -> Iterator[FormatRow]:
    """All formats, in the order in which a location is checked; formats of other packages come last."""
    yield from BUILT_IN
    yield from _others()


def names() -> list[str]:
    """The names of all formats.

    >>> names()
    ['delta', 'lance', 'trevni']
    """
    return sorted(row.name for row in rows())


def format_of_provider(provider: str | None) -> str | None:
    """The format of a name in SQL, with or without ``trilake-``; ``None`` for any other name.

    >>> format_of_provider("Trilake-Delta"), format_of_provider("parquet")
    ('delta', None)
    """
    row = _row_of_provider(provider)
    return None if row is None else row.name


def has_log(name: str) -> bool:
    """Whether tables of a format, named as in :func:`format_of_provider`, have a Delta log.

    >>> has_log("trilake-delta"), has_log("lance")
    (True, False)
    """
    row = _row_of_provider(name)
    return row is not None and row.has_log


def _row_of_provider(provider: str | None) -> FormatRow | None:
    name = (provider or "").lower().removeprefix("trilake-")
    return next((row for row in rows() if row.name == name), None)


def row_named(name: str) -> FormatRow:
    """The registry entry of a format.  Raises ``InvalidArgumentError``."""
    row = next((row for row in rows() if row.name == name.lower()), None)
    if row is None:
        raise InvalidArgumentError(f"unknown format {name!r}", help=f"use one of {', '.join(names())}")
    return row


def format_named(name: str) -> Format:
    """The format of that name.  Raises ``InvalidArgumentError``."""
    return row_named(name).load()


def data_file_rows() -> tuple[FormatRow, ...]:
    """The formats with data files inside tables of other formats."""
    return tuple(row for row in BUILT_IN if row.data_suffix)


def open_table(
    store: Store, format: str | None, version: int | None = None, timestamp: TimestampLike | None = None
) -> Table:
    """Open the table at the store's root, of the given or detected format.

    Formats are tried by opening, as checking first would list the same folder twice.  Raises ``TableNotFoundError`` if
    there is no table, and the errors of the format's ``open``.
    """
    if format is not None:
        return format_named(format).open(store, version, timestamp)
    for row in rows():
        candidate = row.load()
        if candidate.tells_by_opening:
            try:
                return candidate.open(store, version, timestamp)
            except TableNotFoundError:
                continue
            except MissingDependencyError:  # only relevant to tables of this format
                if candidate.detect(store):
                    raise
        elif candidate.detect(store):
            return candidate.open(store, version, timestamp)
    raise _nothing_at(store)


def find_format(store: Store, format: str | None) -> Format:
    """The given format, or that of the table in a store.  Raises ``TableNotFoundError`` if there is no table."""
    if format is not None:
        return format_named(format)
    found = next((candidate for row in rows() if (candidate := row.load()).detect(store)), None)
    if found is None:
        raise _nothing_at(store)
    return found


def _nothing_at(store: Store) -> TableNotFoundError:
    *formats, last = (row.name.title() for row in rows())
    return TableNotFoundError(
        f"no {', '.join(formats)} or {last} table found",
        help="check the path; trilake.write creates a table",
        file=store.uri,
    )
