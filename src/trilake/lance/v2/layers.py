"""Layers and levels: how nulls, empty lists and list boundaries are stored next to the values.

Layers go from the innermost, the leaf's own, to the outermost.  Definition level 0 is a value; higher levels are nulls
and empty lists, further out the higher they are.  Repetition level 0 continues the innermost list; the level that
equals the number of list layers begins a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from trilake.lance.file.sources import Int64s, Job
from trilake.lance.v2.values import DamagedPage, Values

Uint16s = npt.NDArray[np.uint16]
#: Ascending rows: a range, or row numbers.
Rows = range | Int64s

ALL_VALID_ITEM, ALL_VALID_LIST, NULLABLE_ITEM, NULLABLE_LIST, EMPTYABLE_LIST, NULL_AND_EMPTY_LIST = range(1, 7)
#: Number of definition levels by kind of layer.
_LEVELS = dict(zip(range(1, 7), (0, 0, 1, 1, 1, 2), strict=True))
#: Added to the repetition level of an entry that continues a fixed-size list in a list.
CONTINUED = 1 << 15
ITEMS = frozenset({ALL_VALID_ITEM, NULLABLE_ITEM})


@dataclass(frozen=True)
class Layers:
    """The layers of a page, innermost first."""

    kinds: tuple[int, ...]

    @classmethod
    def of(cls, kinds: Sequence[int]) -> Layers:
        """Check the layers of a page.  Raises ``DamagedPage``."""
        if not kinds or any(kind not in _LEVELS for kind in kinds) or kinds[0] not in ITEMS:
            raise DamagedPage(f"invalid layers of a column: {list(kinds)}")
        return cls(tuple(kinds))

    @cached_property
    def lists(self) -> int:
        """The number of list layers."""
        return sum(kind not in ITEMS for kind in self.kinds)

    @cached_property
    def max_visible(self) -> int:
        """The highest definition level of an entry with a value."""
        return self.visible_from(0)

    @cached_property
    def max_level(self) -> int:
        return sum(map(self.levels, range(len(self.kinds))))

    def visible_from(self, layer: int) -> int:
        """The number of definition levels of the item layers from ``layer`` up to the next list layer."""
        return sum(_LEVELS[kind] for kind in takewhile(ITEMS.__contains__, self.kinds[layer:]))

    def levels(self, layer: int) -> int:
        return _LEVELS[self.kinds[layer]]

    def null_level(self, layer: int, base: int) -> int:
        """The level of a null list in a layer above ``base`` levels; -1 if the lists have no nulls."""
        return base + 1 if self.kinds[layer] in (NULLABLE_LIST, NULL_AND_EMPTY_LIST) else -1

    def widest(self) -> Layers:
        """The same layers, each with nulls and empty lists."""
        return Layers(tuple(NULLABLE_ITEM if kind in ITEMS else NULL_AND_EMPTY_LIST for kind in self.kinds))

    def to_widest(self) -> Uint16s:
        """Map each level to its level in :meth:`widest`."""
        table, base = [0], 0
        for kind in self.kinds:
            if kind in ITEMS:
                table += [base + 1] * _LEVELS[kind]
                base += 1
            else:
                null, empty = base + 1, base + 2
                lists = {NULLABLE_LIST: [null], EMPTYABLE_LIST: [empty], NULL_AND_EMPTY_LIST: [null, empty]}
                table += lists.get(kind, [])
                base += 2
        return np.array(table, np.uint16)


class Part(NamedTuple):
    """Some rows of one page: the visible values, and the levels of all entries if there are any."""

    values: Values
    rep: Uint16s | None
    definition: Uint16s | None
    layers: Layers


class ReadablePage(Protocol):
    """A page of any layout."""

    def read(self, rows: Rows) -> Job[Part]:
        """Read the values and levels of ascending rows."""


def ranges(begin: Int64s, end: Int64s) -> Int64s:
    """Concatenate the numbers of all ranges."""
    lengths = np.maximum(end - begin, 0)
    stops = np.cumsum(lengths)
    numbers: Int64s = np.arange(int(stops[-1]) if len(stops) else 0) + np.repeat(begin - (stops - lengths), lengths)
    return numbers


def repeated(rows: Rows, size: int) -> Rows:
    """The numbers of the items of rows with ``size`` items each."""
    if isinstance(rows, range):
        return range(rows.start * size, rows.stop * size)
    return (rows[:, None] * size + np.arange(size)).reshape(-1)


def split(firsts: Int64s, count: int, rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Split ascending rows by page; yield page numbers, and rows counted from the page's first.

    The pages begin at ``firsts`` and have ``count`` rows; rows outside all pages are dropped.
    """
    if isinstance(rows, range):
        for number in range(max(int(firsts.searchsorted(rows.start, "right")) - 1, 0), len(firsts)):
            first = int(firsts[number])
            if first >= rows.stop:
                break
            end = int(firsts[number + 1]) if number + 1 < len(firsts) else count
            inside = range(max(rows.start, first) - first, min(rows.stop, end) - first)
            if len(inside):
                yield number, inside
        return
    if len(firsts) == 1 and rows[-1] < count:
        yield 0, rows
        return
    cuts = rows.searchsorted(np.append(firsts, count))
    for number in np.flatnonzero(np.diff(cuts)).tolist():
        yield number, rows[cuts[number] : cuts[number + 1]] - firsts[number]
