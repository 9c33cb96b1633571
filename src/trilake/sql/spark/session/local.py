"""A query whose relations are private names, and the frames behind these."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from trilake.sql.parser.places import Edited


@dataclass(frozen=True)
class WithMetadata:
    """A relation whose frame shows the column about files: the place of its token, the name that it has in the query,
    and its other columns."""

    at: int
    alias: str
    columns: tuple[str, ...]


@dataclass
class Local:
    """A string whose relations are private names, and the frames that these stand for."""

    edited: Edited
    frames: dict[str, DataFrame] = field(default_factory=dict)
    #: What each private name stands for in the original text, for messages.
    names: dict[str, str] = field(default_factory=dict)
    with_metadata: list[WithMetadata] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text for Spark."""
        return self.edited.text

    @property
    def changed(self) -> bool:
        """Whether anything of trilake was named."""
        return bool(self.edited.edits)
