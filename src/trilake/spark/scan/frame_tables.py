"""Facts about the tables behind this process's DataFrames.

The roots of the tables identify Spark's errors about their files.  The table that a DataFrame shows as a whole is
attached to it because Spark's plan does not name it, and the number of rows so that a count reads no rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import DataFrame

from trilake.spark.scan.obstacles import decoded, hadoop_uri

_roots: set[str] = set()
_lock = threading.Lock()


def note_root(uri: str) -> None:
    """Remember that a DataFrame reads files of this table."""
    with _lock:
        _roots.add(decoded(hadoop_uri(uri)).rstrip("/") + "/")


def is_read(file: str) -> bool:
    """Whether a file is in the folder of a table in :func:`note_root`.

    >>> note_root("file:///data/a%20table")
    >>> is_read("file:/data/a%20table/part-0.parquet"), is_read("file:/data/part-0.parquet")
    (True, False)
    """
    path = decoded(file)
    with _lock:
        return any(path.startswith(root) for root in _roots)


def is_root(uri: str) -> bool:
    """Whether this is the URI of a table in :func:`note_root`.

    >>> note_root("file:///data/b%20table")
    >>> is_root("file:/data/b%20table"), is_root("file:/data/b")
    (True, False)
    """
    with _lock:
        return decoded(hadoop_uri(uri)).rstrip("/") + "/" in _roots


#: The prefix of attributes with facts about a DataFrame.
_NOTE = "_trilake_"
V = TypeVar("V")


def note(frame: DataFrame, fact: object) -> DataFrame:
    """Attach a fact to a DataFrame, unless it is ``None``; returns the DataFrame.  Derived ones do not have it."""
    if fact is not None:
        frame.__dict__[_NOTE + type(fact).__name__] = fact
    return frame


def noted(frame: object, kind: type[V]) -> V | None:
    """The fact of this class that is attached to a DataFrame, if any."""
    fact = getattr(frame, "__dict__", {}).get(_NOTE + kind.__name__)
    return fact if isinstance(fact, kind) else None


@dataclass(frozen=True)
class WholeTable:
    """The table whose rows and columns a frame shows completely: its format, and its path as the user wrote it."""

    format: str
    path: str


@dataclass(frozen=True)
class RowCount:
    """How to count rows: as ``stated``, or those of ``stored`` (``None`` if that is no faster) minus ``deleted``."""

    stored: DataFrame | None
    deleted: int = 0
    stated: Callable[[], int | None] | None = None

    def count(self) -> int | None:
        """The number of rows, without reading columns; ``None`` if only the DataFrame can count them."""
        rows = None if self.stated is None else self.stated()
        if rows is None and self.stored is not None:
            return self.stored.count() - self.deleted
        return rows
