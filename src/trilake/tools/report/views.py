"""The content of the page: sections of figures and tables, with all values formatted as strings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A table of strings: the first column heads the rows; ``numbers`` are the columns that are set to the right."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()
    #: Columns whose strings are code: names, paths, types.
    code: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Figure:
    """A chart, the meaning of its colours (CSS class and words), and its data as a table."""

    key: str
    title: str
    svg: str
    data: Grid
    legend: tuple[tuple[str, str], ...] = ()
    note: str | None = None
    wide: bool = True


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own."""

    key: str
    heading: str
    lead: str
    figures: tuple[Figure, ...] = ()
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tile:
    """A number at the head of the page, and a word about it."""

    label: str
    value: str
    more: str = ""


def grid(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Iterable[int] = (),
    code: Iterable[int] = (),
) -> Grid:
    """A grid of any values; what is not there is empty."""
    cells = tuple(tuple("" if v is None else str(v) for v in row) for row in rows)
    return Grid(caption, tuple(head), cells, frozenset(numbers), frozenset(code))
