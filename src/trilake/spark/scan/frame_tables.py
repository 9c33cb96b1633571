"""The tables that this process's DataFrames read.

For each DataFrame it keeps the folders that it reads, to recognise Spark's errors about their files; if the DataFrame
shows a whole table, the table, which Spark's plan does not name; and the number of rows, so that a count reads none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.sql import DataFrame

from trilake.spark.scan.refusal import hadoop_uri

_roots: set[str] = set()
_lock = threading.Lock()


def note_root(uri: str) -> None:
    """Remember that a DataFrame reads files of this table."""
    with _lock:
        _roots.add(_plain(hadoop_uri(uri)).rstrip("/") + "/")


def is_read(file: str) -> bool:
    """Whether a file is in the folder of a table in :func:`note_root`.

    >>> note_root("file:///data/a%20table")
    >>> is_read("file:/data/a%20table/part-0.parquet"), is_read("file:/data/part-0.parquet")
    (True, False)
    """
    path = _plain(file)
    with _lock:
        return any(path.startswith(root) for root in _roots)


def is_root(uri: str) -> bool:
    """Whether this is the URI of a table in :func:`note_root`.

    >>> note_root("file:///data/b%20table")
    >>> is_root("file:/data/b%20table"), is_root("file:/data/b")
    (True, False)
    """
    with _lock:
        return _plain(hadoop_uri(uri)).rstrip("/") + "/" in _roots


def _plain(uri: str) -> str:
    """A decoded URI; a ``file:`` URI becomes a path with one leading slash."""
    decoded = unquote(uri)
    return "/" + decoded.removeprefix("file:").lstrip("/") if decoded.startswith("file:") else decoded


_ATTRIBUTE = "_trilake_whole_table"


@dataclass(frozen=True)
class WholeTable:
    """The table of a frame: its format, and its path as the user wrote it."""

    format: str
    path: str


def note_whole_table(frame: DataFrame, format: str, path: str) -> DataFrame:
    """Note that a DataFrame shows all rows and columns of a table; returns the DataFrame."""
    frame.__dict__[_ATTRIBUTE] = WholeTable(format, path)
    return frame


def whole_table(frame: DataFrame) -> WholeTable | None:
    """The table that a DataFrame shows; ``None`` for any other DataFrame, including derived ones."""
    table = getattr(frame, "__dict__", {}).get(_ATTRIBUTE)
    return table if isinstance(table, WholeTable) else None


_TABLE_ATTRIBUTE = "_trilake_row_count"


@dataclass(frozen=True)
class RowCount:
    """How to count the rows of a DataFrame.

    Parameters
    ----------
    stored: the rows of the DataFrame, including deleted ones; ``None`` if counting them is no faster.
    deleted: the number of deleted rows.
    stated: the count in the log, if it has one.
    """

    stored: DataFrame | None
    deleted: int = 0
    stated: Callable[[], int | None] | None = None

    def count(self) -> int | None:
        """The number of rows, from the log or a query that reads no column; ``None`` if only the DataFrame can count
        them.
        """
        rows = None if self.stated is None else self.stated()
        if rows is None and self.stored is not None:
            return self.stored.count() - self.deleted
        return rows


def note_row_count(frame: DataFrame, count: RowCount | None) -> DataFrame:
    """Attach a row count to a DataFrame; returns the DataFrame."""
    if count is not None:
        frame.__dict__[_TABLE_ATTRIBUTE] = count
    return frame


def row_count(frame: DataFrame) -> RowCount | None:
    """The row count attached to a DataFrame, if any."""
    count = getattr(frame, "__dict__", {}).get(_TABLE_ATTRIBUTE)
    return count if isinstance(count, RowCount) else None
