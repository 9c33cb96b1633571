"""Edits of SQL, and positions in it as line and column, also after edits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


def line_and_position(sql: str, index: int) -> tuple[int, int]:
    r"""The line of a character, from 1, and its position in the line, from 0, as in Spark's errors.

    >>> line_and_position("ab\ncd", 4)
    (2, 1)
    """
    before = sql[:index]
    return before.count("\n") + 1, index - (before.rfind("\n") + 1)


def marked(sql: str, line: int, position: int) -> str:
    r"""SQL with a mark below a position, as in Spark's errors.

    >>> marked("ab\ncd", 1, 1)
    'ab\n-^^^\ncd'
    """
    lines = sql.split("\n")
    lines.insert(line, "-" * position + "^^^")
    return "\n".join(lines)


@dataclass(frozen=True)
class Edit:
    """Replaces ``sql[start:end]``."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True)
class Edited:
    """Edited SQL, which maps positions back to the original."""

    original: str
    edits: tuple[Edit, ...]
    sql: str

    @classmethod
    def of(cls, original: str, edits: Iterable[Edit]) -> Edited:
        """Apply edits, which must not overlap."""
        ordered = tuple(sorted(edits, key=lambda e: (e.start, e.end)))
        out, at = [], 0
        for e in ordered:
            assert e.start >= at, "edits overlap"
            out += [original[at : e.start], e.replacement]
            at = e.end
        return cls(original, ordered, "".join([*out, original[at:]]))

    def source_index(self, index: int) -> int:
        """The original index of a character; inside a replacement, that of the edit's start.

        >>> Edited.of("a bc d", [Edit(2, 4, "12345")]).source_index(8)
        5
        """
        shift = 0
        for e in self.edits:
            begin = e.start + shift
            if index < begin:
                break
            if index < begin + len(e.replacement):
                return e.start
            shift += len(e.replacement) - (e.end - e.start)
        return index - shift

    def source_line_and_position(self, line: int, position: int) -> tuple[int, int]:
        lines = self.sql.split("\n")
        index = sum(len(x) + 1 for x in lines[: line - 1]) + position
        return line_and_position(self.original, self.source_index(index))
