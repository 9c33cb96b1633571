"""The row count of a whole table, without reading any row.

To skip deleted rows, Spark must number the rows of each file, even for a count.  Instead, the row counts in the files'
footers are added up, minus the rows in deletion vectors.  For tables with very many files, the log is used first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

_ATTRIBUTE = "_trilake_row_count"


@dataclass(frozen=True)
class RowCount:
    """How to count the rows of a frame.

    Parameters
    ----------
    stored: the rows of the frame, including deleted ones; ``None`` if counting them is no faster.
    deleted: the number of deleted rows.
    stated: the count in the log, if it has one.
    """

    stored: DataFrame | None
    deleted: int = 0
    stated: Callable[[], int | None] | None = None

    def count(self) -> int | None:
        """The number of rows, from the log or a query that reads no column; ``None`` if only the frame can count
        them.
        """
        rows = None if self.stated is None else self.stated()
        if rows is None and self.stored is not None:
            return self.stored.count() - self.deleted
        return rows


def note_row_count(frame: DataFrame, count: RowCount | None) -> DataFrame:
    """Attach a row count to a frame; returns the frame."""
    if count is not None:
        frame.__dict__[_ATTRIBUTE] = count
    return frame


def row_count(frame: DataFrame) -> RowCount | None:
    """The row count attached to a frame, if any."""
    count = getattr(frame, "__dict__", {}).get(_ATTRIBUTE)
    return count if isinstance(count, RowCount) else None
