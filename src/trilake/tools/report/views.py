"""The content of the page: sections with figures and tables of formatted strings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A table of strings: the first column holds row headers, ``numbers`` are right-aligned columns."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()
    #: Columns in a code font: names, paths, types.
    code: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Figure:
    """A chart, its legend (CSS class and label), and its data as a table."""

    key: str
    title: str
    svg: str
    data: Grid
    legend: tuple[tuple[str, str], ...] = ()
    note: str | None = None
    wide: bool = True


@dataclass(frozen=True)
class Section:
    """A part of the page under one heading."""

    key: str
    heading: str
    lead: str
    figures: tuple[Figure, ...] = ()
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tile:
    """A number at the top of the page, with its label."""

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
    """A grid of any values; ``None`` becomes an empty cell."""
    cells = tuple(tuple("" if v is None else str(v) for v in row) for row in rows)
    return Grid(caption, tuple(head), cells, frozenset(numbers), frozenset(code))
