"""Frames that show a whole table, as it was read by nothing but its place: which table that is.

Spark's plan of such a frame has files of one version and says no more of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

_KEPT = "_trilake_whole_table"


@dataclass(frozen=True)
class WholeTable:
    """The table of a frame: its format, and its place as it was given."""

    format: str
    path: str


def note_whole_table(frame: DataFrame, format: str, path: str) -> DataFrame:
    """Remember that a frame shows all rows and columns of a table; the frame itself."""
    frame.__dict__[_KEPT] = WholeTable(format, path)
    return frame


def whole_table(frame: DataFrame) -> WholeTable | None:
    """The table that a frame shows; ``None`` for any other frame, one that is made of such a frame among them."""
    known = getattr(frame, "__dict__", {}).get(_KEPT)
    return known if isinstance(known, WholeTable) else None
