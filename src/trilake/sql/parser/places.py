"""Positions in a string: line and column, also after pieces were replaced."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A place in a string: lines count from 1, positions in a line from 0, as Spark counts them."""

    line: int
    position: int
    index: int


def place_of(sql: str, index: int) -> Place:
    r"""The place of a character.

    >>> place_of("ab\ncd", 4)
    Place(line=2, position=1, index=4)
    """
    before = sql[:index]
    return Place(before.count("\n") + 1, index - (before.rfind("\n") + 1), index)


@dataclass(frozen=True)
class Edit:
    """A part of a string, by its positions, and its replacement."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Edited:
    """A string with edits applied, which maps positions back to the original."""

    original: str
    edits: tuple[Edit, ...]
    text: str

    @classmethod
    def of(cls, original: str, edits: Iterable[Edit]) -> Edited:
        """Apply edits, which must not overlap."""
        ordered = tuple(sorted(edits, key=lambda e: (e.start, e.end)))
        out, at = [], 0
        for e in ordered:
            assert e.start >= at, "edits overlap"
            out += [original[at : e.start], e.text]
            at = e.end
        return cls(original, ordered, "".join([*out, original[at:]]))

    def source_index(self, index: int) -> int:
        """The original index of a character; that of the edit's start inside of a replacement.

        >>> Edited.of("a bc d", [Edit(2, 4, "12345")]).source_index(8)
        5
        """
        shift = 0
        for e in self.edits:
            begin = e.start + shift
            if index < begin:
                break
            if index < begin + len(e.text):
                return e.start
            shift += len(e.text) - (e.end - e.start)
        return index - shift

    def source_place(self, line: int, position: int) -> Place:
        """The place in the original for a line and position in the result."""
        lines = self.text.split("\n")
        index = sum(len(x) + 1 for x in lines[: line - 1]) + position
        return place_of(self.original, self.source_index(index))
