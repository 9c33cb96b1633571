"""Layers and levels: what is null, which list is empty, and where lists begin, as numbers beside the values.

Layers go from the innermost, that of the leaf, to the outermost.  Definition level 0 is a value; bigger ones are nulls
and empty lists, further out the bigger they are.  Repetition level 0 goes on with the innermost list, the number of
list layers begins a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trilake.lance.file.sources import Int64s, PlacedJob
from trilake.lance.v2.values import DamagedPage, Values

Uint16s = npt.NDArray[np.uint16]
#: Rows that ascend: a run of them, or single ones.
Rows = range | Int64s

ALL_VALID_ITEM, ALL_VALID_LIST, NULLABLE_ITEM, NULLABLE_LIST, EMPTYABLE_LIST, NULL_AND_EMPTY_LIST = range(1, 7)
#: Definition levels that each kind of layer has.
_LEVELS = {
    ALL_VALID_ITEM: 0,
    ALL_VALID_LIST: 0,
    NULLABLE_ITEM: 1,
    NULLABLE_LIST: 1,
    EMPTYABLE_LIST: 1,
    NULL_AND_EMPTY_LIST: 2,
}
ITEMS = frozenset({ALL_VALID_ITEM, NULLABLE_ITEM})


@dataclass(frozen=True)
class Layers:
    """The layers of a page, from the innermost."""

    kinds: tuple[int, ...]

    @classmethod
    def of(cls, kinds: Sequence[int]) -> Layers:
        """Raises ``DamagedPage``."""
        layers = cls(tuple(kinds))
        if not layers.kinds or any(kind not in _LEVELS for kind in layers.kinds) or layers.kinds[0] not in ITEMS:
            raise DamagedPage(f"the layers {list(kinds)} are not those of a column")
        return layers

    @cached_property
    def lists(self) -> int:
        """The number of list layers."""
        return sum(kind not in ITEMS for kind in self.kinds)

    @cached_property
    def max_visible(self) -> int:
        """The highest definition level of an entry that has a value."""
        return self.visible_from(0)

    @cached_property
    def max_level(self) -> int:
        """The highest definition level."""
        return sum(map(self.levels, range(len(self.kinds))))

    def visible_from(self, layer: int) -> int:
        """The levels of the item layers from one on up to the next list layer."""
        total = 0
        for kind in self.kinds[layer:]:
            if kind not in ITEMS:
                break
            total += _LEVELS[kind]
        return total

    def levels(self, layer: int) -> int:
        """The definition levels of a layer."""
        return _LEVELS[self.kinds[layer]]

    def null_level(self, layer: int, base: int) -> int:
        """The level of null lists of a layer above ``base`` levels; -1 where there are none."""
        return base + 1 if self.kinds[layer] in (NULLABLE_LIST, NULL_AND_EMPTY_LIST) else -1

    def widest(self) -> Layers:
        """The layers with everything that may be null or empty."""
        return Layers(tuple(NULLABLE_ITEM if kind in ITEMS else NULL_AND_EMPTY_LIST for kind in self.kinds))

    def to_widest(self) -> Uint16s:
        """The level of :meth:`widest` for each level."""
        table = [0]
        base = 0
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


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of one page: the visible values, and levels of all entries where there are any."""

    values: Values
    rep: Uint16s | None
    definition: Uint16s | None
    layers: Layers


class ReadablePage(Protocol):
    """A page of any layout."""

    def read(self, rows: Rows) -> PlacedJob[Part]:
        """The values of some rows, which ascend, and their levels."""


def ranges(begin: Int64s, end: Int64s) -> Int64s:
    """The numbers of all ranges, one after another."""
    lengths = np.maximum(end - begin, 0)
    stops = np.cumsum(lengths)
    numbers: Int64s = np.arange(int(stops[-1]) if len(stops) else 0) + np.repeat(begin - (stops - lengths), lengths)
    return numbers
