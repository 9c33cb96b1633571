"""Frames that show a whole table and were read only by path, with that table.

Spark's plan of such a frame has the files of one version and does not name the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

_ATTRIBUTE = "_trilake_whole_table"


@dataclass(frozen=True)
class WholeTable:
    """The table of a frame: its format, and its path as the user wrote it."""

    format: str
    path: str


def note_whole_table(frame: DataFrame, format: str, path: str) -> DataFrame:
    """Note that a frame shows all rows and columns of a table; returns the frame."""
    frame.__dict__[_ATTRIBUTE] = WholeTable(format, path)
    return frame


def whole_table(frame: DataFrame) -> WholeTable | None:
    """The table that a frame shows; ``None`` for any other frame, including derived ones."""
    table = getattr(frame, "__dict__", {}).get(_ATTRIBUTE)
    return table if isinstance(table, WholeTable) else None
