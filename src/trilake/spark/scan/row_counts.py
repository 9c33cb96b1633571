"""The number of rows of a whole table, found without a look at any row.

To leave deleted rows out, Spark must number the rows of each file, even where a query only counts them.  The footers
of the files know how many rows there are, and the vectors how many of them are deleted.  Of a table of very many files,
which Spark would have to list for that, the log says it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

_KEPT = "_trilake_row_count"


@dataclass(frozen=True)
class RowCount:
    """How the rows of a frame are counted.

    Parameters
    ----------
    stored: the rows of the frame, and those that are deleted; ``None`` where that is no shorter way.
    deleted: how many of them are deleted.
    stated: asks the log, which may not know.
    """

    stored: DataFrame | None
    deleted: int = 0
    stated: Callable[[], int | None] | None = None

    def count(self) -> int | None:
        """The number of rows, by the log or a query of Spark's that reads no column; ``None`` where only the frame
        itself tells."""
        rows = None if self.stated is None else self.stated()
        if rows is None and self.stored is not None:
            return self.stored.count() - self.deleted
        return rows


def note_row_count(frame: DataFrame, count: RowCount | None) -> DataFrame:
    """Remember how the rows of a frame are counted; the frame itself."""
    if count is not None:
        frame.__dict__[_KEPT] = count
    return frame


def row_count(frame: DataFrame) -> RowCount | None:
    """How the rows of a frame are counted, where that was noted of it."""
    kept = getattr(frame, "__dict__", {}).get(_KEPT)
    return kept if isinstance(kept, RowCount) else None
