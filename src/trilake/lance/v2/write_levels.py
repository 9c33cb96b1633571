"""Shred nested arrays into leaves: the values of one column, and the levels that place them in rows.

The walk goes from the rows inwards.  On the way each entry has a *mark*: 0 while it leads to a value, ``2i + 1`` if
layer ``i``, counted from the outside, is null, ``2i + 2`` if it is an empty list.  Definition levels count from the
inside, so each leaf translates the marks once, by a table.  Repetition levels count from the outside during the walk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.common.jit import jit
from trilake.lance.proto import encodings21_pb2 as pb

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
I64 = npt.NDArray[np.int64]

_NO_BYTES = np.empty(0, np.uint8)


@dataclass(frozen=True)
class Layer:
    """One layer of nesting, and whether it has nulls or empty lists."""

    is_list: bool
    nulls: bool
    empties: bool = False


@dataclass(frozen=True)
class Levels:
    """The entries on the path from the rows down to a layer."""

    #: slots of the array at this layer, one for each entry that reaches it
    slots: int
    marks: U8 | None = None
    repetition: U8 | None = None
    #: an entry with a mark from 1 to this one ended above a list, and has no slot
    ended: int = 0
    layers: tuple[Layer, ...] = ()

    def item(self, array: pa.Array) -> Levels:
        """Pass an item layer: a leaf, a struct, or a fixed-size list of structs."""
        return self.nulls(*validity(array))

    def nulls(self, bitmap: U8 | None, offset: int) -> Levels:
        """Pass an item layer whose nulls are the zeros of a bitmap; ``None`` means no nulls."""
        marks, marked = self.marks, False
        if bitmap is not None:
            marks = np.zeros(self.slots, np.uint8) if self.marks is None else self.marks.copy()
            marked = bool(mark_nulls(marks, self.ended, bitmap, offset, 2 * len(self.layers) + 1))
        # pylance reads a field alone without the nulls of its struct, so the field must be nullable as well.
        nullable = marked or (self.marks is not None and bool((self.marks > self.ended).any()))
        return replace(self, marks=marks if marked else self.marks, layers=(*self.layers, Layer(False, nullable)))

    def repeat(self, times: int) -> Levels:
        """Enter a fixed-size list: each entry becomes ``times`` entries."""
        marks = None if self.marks is None else np.repeat(self.marks, times)
        return replace(self, slots=self.slots * times, marks=marks)

    def lists(self, array: pa.Array) -> tuple[Levels, pa.Array]:
        """Enter lists; also return the items that have slots."""
        bitmap, offset = validity(array)
        mark = 2 * len(self.layers) + 1
        depth = 1 + sum(layer.is_list for layer in self.layers)
        offsets = array.offsets.to_numpy()
        marks = np.zeros(self.slots, np.uint8) if self.marks is None else self.marks
        repetition = np.zeros(len(marks), np.uint8) if self.repetition is None else self.repetition
        present = _NO_BYTES if bitmap is None else bitmap
        entries, items, nulls, empties, first = measure_lists(marks, self.ended, present, offset, offsets)
        new_marks, new_repetition = np.empty(entries, np.uint8), np.empty(entries, np.uint8)
        picks = np.empty(items if first < 0 else 0, np.int64)
        new = new_marks, new_repetition, picks
        expand_lists(marks, repetition, self.ended, present, offset, offsets, mark, depth, *new)
        values = array.values.slice(first, items) if first >= 0 else array.values.take(pa.array(picks))
        layer = Layer(True, bool(nulls), bool(empties))
        return Levels(items, new_marks, new_repetition, mark + 1, (*self.layers, layer)), values

    def leaf(self, values: pa.Array, rows: int) -> Leaf:
        """Finish at a leaf, whose item layer is the last one passed."""
        numbers, level, visible = np.zeros(2 * len(self.layers) + 1, np.uint16), 0, -1
        kinds: list[pb.Layer] = []
        for i in reversed(range(len(self.layers))):
            layer = self.layers[i]
            if layer.is_list and visible < 0:
                visible = level
            if layer.nulls:
                numbers[2 * i + 1] = level = level + 1
            if layer.empties:
                numbers[2 * i + 2] = level = level + 1
            kinds.append(_kind(layer))
        lists = sum(layer.is_list for layer in self.layers)
        return Leaf(
            values,
            rows,
            tuple(kinds),
            repetition=None if self.repetition is None else np.uint16(lists) - self.repetition,
            definition=None if self.marks is None or not level else numbers[self.marks],
            visible=level if visible < 0 else visible,
            lists=lists,
        )


@dataclass(frozen=True)
class Leaf:
    """Rows of one column: ``values`` of the visible entries, and the levels of all entries, which say which are null.

    ``rows`` is the number of top-level rows; ``layers`` are the kinds of layers, innermost first, of which ``lists``
    are lists; ``repetition`` and ``definition`` are ``None`` if all are 0; ``visible`` is the highest definition level
    of an entry with a value.
    """

    values: Any
    rows: int
    layers: tuple[pb.Layer, ...]
    repetition: U16 | None = None
    definition: U16 | None = None
    visible: int = 0
    lists: int = 0

    @property
    def entries(self) -> int:
        """The number of levels, or of values if there are no levels."""
        for levels in (self.repetition, self.definition):
            if levels is not None:
                return len(levels)
        return len(self.values)

    @property
    def length(self) -> int:
        """The length of a page with these rows; each struct in a fixed-size list counts."""
        return self.rows if self.repetition is not None else self.entries

    def visible_before(self, entry: int) -> int:
        """The number of entries before this one that have a value."""
        if self.definition is None or not self.lists:
            return entry
        return int(np.count_nonzero(self.definition[:entry] <= self.visible))

    def halves(self) -> tuple[Leaf, Leaf]:
        """Split at least two rows into halves."""
        rows = self.rows // 2
        if self.repetition is None:
            entry = self.entries // self.rows * rows
        else:
            entry = int(np.flatnonzero(self.repetition == self.lists)[rows])
        value = self.visible_before(entry)

        def part(entries: slice, values: Any, rows: int) -> Leaf:
            return replace(
                self,
                values=values,
                rows=rows,
                repetition=None if self.repetition is None else self.repetition[entries],
                definition=None if self.definition is None else self.definition[entries],
            )

        return (
            part(slice(0, entry), self.values.slice(0, value), rows),
            part(slice(entry, None), self.values.slice(value), self.rows - rows),
        )


def validity(array: pa.Array) -> tuple[U8 | None, int]:
    """Return the validity bitmap and its bit offset; ``None`` if nothing is null."""
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        values = array.dictionary.is_valid().take(array.indices).fill_null(False)
        return np.packbits(values.to_numpy(zero_copy_only=False), bitorder="little"), 0
    if not array.null_count:
        return None, 0
    if pa.types.is_null(array.type):
        return np.zeros(-(-len(array) // 8), np.uint8), 0
    return np.frombuffer(array.buffers()[0], np.uint8), array.offset


def _kind(layer: Layer) -> pb.Layer:
    if not layer.is_list:
        return pb.NULLABLE_ITEM if layer.nulls else pb.ALL_VALID_ITEM
    if layer.empties:
        return pb.NULL_AND_EMPTY_LIST if layer.nulls else pb.EMPTYABLE_LIST
    return pb.NULLABLE_LIST if layer.nulls else pb.ALL_VALID_LIST


@jit
def mark_nulls(marks: Any, ended: int, bitmap: Any, offset: int, mark: int) -> int:
    """Mark the unmarked entries whose slot is null; return their number."""
    slot, marked = offset, 0
    for i in range(len(marks)):
        before = marks[i]
        if before == 0:
            if (bitmap[slot >> 3] >> (slot & 7)) & 1 == 0:
                marks[i] = mark
                marked += 1
            slot += 1
        elif before > ended:
            slot += 1
    return marked


@jit
def measure_lists(marks: Any, ended: int, bitmap: Any, offset: int, offsets: Any) -> Any:
    """Count entries, items, null and empty lists; also return the first item, -1 if the items are not one range."""
    slot, entries, items, nulls, empties = 0, 0, 0, 0, 0
    first, last = -1, -1
    one_range = True
    for i in range(len(marks)):
        size = 0
        if marks[i] == 0:
            if len(bitmap) > 0 and (bitmap[(offset + slot) >> 3] >> ((offset + slot) & 7)) & 1 == 0:
                nulls += 1
            else:
                size = offsets[slot + 1] - offsets[slot]
                if size == 0:
                    empties += 1
                elif first < 0:
                    first, last = offsets[slot], offsets[slot + 1]
                else:
                    one_range = one_range and offsets[slot] == last
                    last = offsets[slot + 1]
        elif marks[i] > ended:
            nulls += 1  # readers expect lists in null structs to be nullable
        if marks[i] == 0 or marks[i] > ended:
            slot += 1
        entries += max(size, 1)
        items += size
    return entries, items, nulls, empties, (max(first, 0) if one_range else -1)


@jit
def expand_lists(
    marks: Any,
    repetition: Any,
    ended: int,
    bitmap: Any,
    offset: int,
    offsets: Any,
    null_mark: int,
    depth: int,
    new_marks: Any,
    new_repetition: Any,
    picks: Any,
) -> None:
    """Fill in the entries below lists, and the numbers of their items if ``picks`` has room for them."""
    slot, at, item = 0, 0, 0
    for i in range(len(marks)):
        mark = marks[i]
        size = 0
        if mark == 0:
            if len(bitmap) > 0 and (bitmap[(offset + slot) >> 3] >> ((offset + slot) & 7)) & 1 == 0:
                mark = np.uint8(null_mark)
            else:
                size = offsets[slot + 1] - offsets[slot]
                if size == 0:
                    mark = np.uint8(null_mark + 1)
        if len(picks) > 0:
            for j in range(size):
                picks[item + j] = offsets[slot] + j
            item += size
        if marks[i] == 0 or marks[i] > ended:
            slot += 1
        new_marks[at] = mark
        new_repetition[at] = repetition[i]
        at += 1
        for _ in range(size - 1):
            new_marks[at] = mark
            new_repetition[at] = depth
            at += 1
