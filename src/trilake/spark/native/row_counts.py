"""The number of rows of a scan with deletion vectors, found without a look at any row.

To leave deleted rows out, Spark must number the rows of each file, even where a query only counts them.  The footers
of the files know how many rows there are, and the vectors how many of them are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

_KEPT = "_trilake_row_count"


@dataclass(frozen=True)
class RowCount:
    """How the rows of a frame are counted.

    Parameters
    ----------
    stored: the rows of the frame, and those that are deleted.
    deleted: how many of them are deleted.
    """

    stored: DataFrame
    deleted: int

    def count(self) -> int:
        """The number of rows, by a query of Spark's that reads no column."""
        return self.stored.count() - self.deleted


def note_row_count(frame: DataFrame, count: RowCount | None) -> DataFrame:
    """Remember how the rows of a frame are counted; the frame itself."""
    if count is not None:
        frame.__dict__[_KEPT] = count
    return frame


def row_count(frame: DataFrame) -> RowCount | None:
    """How the rows of a frame are counted, where that was noted of it."""
    kept = getattr(frame, "__dict__", {}).get(_KEPT)
    return kept if isinstance(kept, RowCount) else None
