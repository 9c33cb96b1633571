"""SQL with private names for relations, and the DataFrames behind these names."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from trilake.sql.parser.places import Edited


@dataclass(frozen=True)
class WithMetadata:
    """A relation whose DataFrame includes ``_metadata``: index of its token, its alias, and its other columns."""

    at: int
    alias: str
    columns: tuple[str, ...]


@dataclass
class Local:
    """SQL with private names for relations, and their DataFrames."""

    edited: Edited
    frames: dict[str, DataFrame] = field(default_factory=dict)
    #: What each private name replaces, for messages.
    names: dict[str, str] = field(default_factory=dict)
    with_metadata: list[WithMetadata] = field(default_factory=list)

    @property
    def sql(self) -> str:
        """The SQL for Spark."""
        return self.edited.sql

    @property
    def changed(self) -> bool:
        """Whether a name was replaced."""
        return bool(self.edited.edits)
