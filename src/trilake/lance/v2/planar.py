"""Pages of 2.3: a structural plane, which has the nulls and lists, and a plane of values.

A dense structural plane has levels beside the values: such a page is translated to its layout in 2.1.  A sparse plane
has the positions of nulls and of lists that are not empty, from the outermost layer to the innermost; here, they become
levels, and the values are read as a page without nulls or lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from trilake.lance.file.sources import Int64s, Job, Pieces
from trilake.lance.proto import encodings21_pb2
from trilake.lance.v2.codecs import MAX_UNBACKED, flat_block, has_payload
from trilake.lance.v2.container import Page
from trilake.lance.v2.layers import (
    ALL_VALID_ITEM,
    CONTINUED,
    NULL_AND_EMPTY_LIST,
    NULLABLE_ITEM,
    Layers,
    Part,
    ReadablePage,
    Rows,
    Uint16s,
    ranges,
)
from trilake.lance.v2.values import DamagedPage, Nothing, UnsupportedPage

#: ``ValiditySet.Meaning``: the positions are those of nulls, or of the other values.
_NULLS, _VALID = 1, 2


def level_layout(planar: Any, arrow: pa.DataType) -> Any:
    """Translate a page with levels, or without any nulls and lists, to a ``PageLayout``; ``None`` for other pages."""
    if planar.structure.WhichOneof("plane") == "dense":
        return _layout(planar.values, planar.structure.dense.layers)
    layers = planar.structure.sparse.layers
    if len(layers) != 1 or layers[0].WhichOneof("layer") != "validity" or layers[0].validity.num_positions:
        return None
    if layers[0].validity.meaning == _NULLS:
        return _layout(planar.values, [ALL_VALID_ITEM])
    if pt.is_struct(arrow):  # a constant page of empty structs has no nulls
        return None
    return encodings21_pb2.PageLayout(
        constant_layout=encodings21_pb2.ConstantLayout(layers=[encodings21_pb2.NULLABLE_ITEM])
    )


def _layout(values: Any, layers: Any, items: int = 0) -> Any:
    """Translate a plane of values; ``items`` is their number where the plane does not state it."""
    kind, message = values.WhichOneof("plane"), encodings21_pb2.PageLayout()
    if kind == "chunked":
        plane, block = values.chunked, message.mini_block_layout
        block.layers.extend(layers)
        block.value_compression.CopyFrom(plane.value)
        for name, level in (("repetition", block.rep_compression), ("definition", block.def_compression)):
            if plane.levels.HasField(name):
                level.CopyFrom(getattr(plane.levels, name))
        if plane.HasField("dictionary"):
            block.dictionary.CopyFrom(plane.dictionary)
        block.num_dictionary_items, block.num_buffers = plane.num_dictionary_items, plane.num_buffers
        block.repetition_index_depth = plane.levels.repetition_index_depth
        block.num_items, block.has_large_chunk = plane.num_items or items, True
    elif kind == "zipped":
        plane, full = values.zipped, message.full_zip_layout
        full.layers.extend(layers)
        full.bits_rep, full.bits_def = plane.levels.bits_repetition, plane.levels.bits_definition
        details = plane.WhichOneof("details")
        if details is not None:
            setattr(full, details, getattr(plane, details))
        full.num_items, full.num_visible_items = plane.num_items or items, plane.num_visible_items or items
        full.value_compression.CopyFrom(plane.value)
    elif kind in ("constant", "none"):
        message.constant_layout.layers.extend(layers)
        if kind == "constant":
            message.constant_layout.inline_value = values.constant.scalar
    else:
        raise UnsupportedPage(f"values of kind {kind or 'none'!r} are not supported")
    return message


class _Levels(NamedTuple):
    """The structure of a page: levels of its entries, the first entry of each row, and the values before each entry."""

    layers: Layers
    rep: Uint16s | None
    definition: Uint16s | None
    starts: Int64s
    #: Number of values in the plane before each entry, and in all.
    values: Int64s
    #: How often a row counts: the sizes of fixed-size lists in lists, multiplied.
    scale: int


class SparsePage:
    """A page with a sparse structural plane; ``open_plane`` opens its values, as a page without nulls and lists."""

    def __init__(self, page: Page, planar: Any, open_plane: Callable[[Page, Any], ReadablePage]) -> None:
        self._page, self._planar, self._open_plane = page, planar, open_plane
        self._loaded: tuple[_Levels, ReadablePage | None] | None = None

    def read(self, rows: Rows) -> Job[Part]:
        if self._loaded is None:
            self._loaded = yield from self._load()
        levels, plane = self._loaded
        if levels.scale > 1:
            rows = (
                range(*(n // levels.scale for n in (rows.start, rows.stop)))
                if isinstance(rows, range)
                else rows[:: levels.scale] // levels.scale
            )
        if isinstance(rows, range):
            entries: Any = slice(int(levels.starts[rows.start]), int(levels.starts[rows.stop]))
            first, last = int(levels.values[entries.start]), int(levels.values[entries.stop])
            stored: Rows = range(first, last)
            count = entries.stop - entries.start
        else:
            entries = ranges(levels.starts[rows], levels.starts[rows + 1])
            begin, count = levels.values[entries], len(entries)
            stored = begin[levels.values[entries + 1] > begin]
        rep = None if levels.rep is None else levels.rep[entries]
        definition = None if levels.definition is None else levels.definition[entries]
        visible = count if definition is None else int(np.count_nonzero(definition <= levels.layers.max_visible))
        if plane is None or not len(stored):
            return Part(Nothing(visible), rep, definition, levels.layers)
        values = (yield from plane.read(stored)).values
        if len(stored) != visible:  # nulls are not in the plane; they take any value
            assert definition is not None
            here = np.cumsum(definition[definition <= levels.layers.max_visible] == 0) - 1
            values = values.take(np.clip(here, 0, None))
        return Part(values, rep, definition, levels.layers)

    def _load(self) -> Job[tuple[_Levels, ReadablePage | None]]:
        sparse, values = self._planar.structure.sparse, self._planar.values
        sets = [each for layer in sparse.layers for each in _encodings(layer)]
        stored = [encoding for encoding, count in sets if count and has_payload(encoding)]
        own = len(self._page.buffers) - len(stored)
        if own < 0:
            raise DamagedPage(f"a page of {len(stored)} sets of positions has {len(self._page.buffers)} buffers")
        places = self._page.buffers[own:]
        parts: list[Any] = []
        if places:
            at = np.array([a for a, _ in places], np.int64)
            size = np.array([n for _, n in places], np.int64)
            (answer,) = yield [Pieces(at, size)]
            parts = [answer.data[a : a + n] for a, n in zip(answer.at.tolist(), size.tolist(), strict=True)]
        empty = np.empty(0, np.uint8)
        numbers = [
            _numbers(encoding, parts.pop(0) if count and has_payload(encoding) else empty, count)
            for encoding, count in sets
        ]
        zipped = values.WhichOneof("plane") == "zipped"
        levels = _levels(sparse.layers, numbers, self._page.length, leave_out_nulls=zipped)
        count = int(levels.values[-1])
        if values.WhichOneof("plane") == "none" or not count:
            return levels, None
        inner = replace(self._page, first=0, length=count, buffers=self._page.buffers[:own])
        layout = _layout(values, [ALL_VALID_ITEM], count)
        return levels, self._open_plane(inner, layout)


def _encodings(layer: Any) -> list[tuple[Any, int]]:
    """The sets of positions and counts of a layer, in the order of their buffers, with their sizes."""
    validity = _validity(layer)
    sets = [(validity.positions, int(validity.num_positions))]
    if layer.HasField("list"):
        count = int(layer.list.num_non_empty)
        sets = [(layer.list.non_empty_positions, count), (layer.list.counts, count), *sets]
    return sets


def _validity(layer: Any) -> Any:
    kind = layer.WhichOneof("layer")
    if kind is None:
        raise UnsupportedPage("a layer of a sparse page has a kind that is not supported")
    return layer.validity if kind == "validity" else getattr(layer, kind).validity


def _numbers(encoding: Any, data: Any, count: int) -> Int64s:
    if not count:
        return np.empty(0, np.int64)
    numbers = flat_block(encoding, data, count, "positions")
    if numbers.bits != 64:
        raise DamagedPage(f"positions have {numbers.bits} bits, not 64")
    signed: Int64s = numbers.typed().astype(np.int64)
    return signed


def _nulls(validity: Any, positions: Int64s, slots: int) -> Int64s:
    _check_positions(positions, slots)
    if validity.meaning == _NULLS:
        return positions
    if validity.meaning != _VALID:
        raise UnsupportedPage(f"positions with the meaning {validity.meaning} is not supported")
    null = np.ones(slots, np.bool_)
    null[positions] = False
    return np.flatnonzero(null)


def _check_positions(positions: Int64s, slots: int) -> None:
    if len(positions) and (positions[0] < 0 or positions[-1] >= slots or (np.diff(positions) <= 0).any()):
        raise DamagedPage(f"the positions of a sparse page are not in ascending order, or exceed {slots}")


def _levels(layers: Any, numbers: list[Int64s], rows: int, *, leave_out_nulls: bool) -> _Levels:
    """Build the levels of a page from its sets of positions."""
    numbers = list(numbers)
    result = Layers.of([NULL_AND_EMPTY_LIST if layer.HasField("list") else NULLABLE_ITEM for layer in layers][::-1])
    base, lists = result.max_level, result.lists
    scale, inside = 1, False
    for layer in layers:  # the length of a page counts the items of fixed-size lists
        size = max(int(layer.fixed_size_list.dimension), 1)
        inside |= layer.HasField("list")
        scale *= size if inside else 1
        rows //= size
    _check_size(rows)
    # The levels of the entries so far, and the entry of each slot of the layer.
    rep = np.full(rows, lists, np.uint16)
    definition = np.zeros(rows, np.uint16)
    slots: Int64s = np.arange(rows)
    for layer in layers:
        if not layer.HasField("list"):
            base -= 1
            null = slots[_nulls(_validity(layer), numbers.pop(0), len(slots))]
            definition[null] = np.maximum(definition[null], base + 1)
            if layer.HasField("fixed_size_list"):
                if (rep >= CONTINUED).any():
                    raise UnsupportedPage("nested fixed-size lists of structs are not supported inside lists")
                size = int(layer.fixed_size_list.dimension)
                _check_size(len(rep) + len(slots) * size)
                repeats = np.ones(len(rep), np.int64)
                repeats[slots] = size
                begin = (np.cumsum(repeats) - repeats)[slots]
                rep, definition = np.repeat(rep, repeats), np.repeat(definition, repeats)
                slots = ranges(begin, begin + size)
                if lists != result.lists:
                    rep[np.setdiff1d(slots, begin, assume_unique=True)] = CONTINUED + lists
            continue
        base, lists = base - 2, lists - 1
        positions, counts = numbers.pop(0), numbers.pop(0)
        null = slots[_nulls(layer.list.validity, numbers.pop(0), len(slots))]
        _check_positions(positions, len(slots))
        if len(counts) and (counts.min() < 1 or counts.max() > MAX_UNBACKED):
            raise DamagedPage("the lists of a sparse page have invalid lengths")
        below = int(counts.sum())
        if below != layer.list.num_child_slots:
            raise DamagedPage(f"lists have {below} items, but their page says {layer.list.num_child_slots}")
        full = slots[positions]
        empty = np.ones(len(rep), np.bool_)
        empty[full] = False
        definition[slots] = np.maximum(definition[slots], np.where(empty[slots], base + 2, 0))
        # The level of null is lower than that of empty, but higher than those further in.
        unset = definition[null] <= base + 2
        definition[null[unset]] = base + 1
        if definition[full].any():
            raise DamagedPage("a list of a sparse page is null, and has items")
        repeats = np.ones(len(rep), np.int64)
        repeats[full] = counts
        _check_size(len(rep) + below)
        begin = np.cumsum(repeats) - repeats
        old = rep
        rep = np.full(int(repeats.sum()), lists, np.uint16)
        rep[begin] = old
        definition = np.repeat(definition, repeats)
        slots = ranges(begin[full], begin[full] + counts)
    if len(slots) != int(np.count_nonzero(definition <= result.max_visible)):
        raise DamagedPage(f"a sparse page has {len(slots)} values that its levels do not account for")
    starts = np.append(np.flatnonzero(rep == result.lists) if result.lists else slots, len(rep))
    valued = definition == 0 if leave_out_nulls else definition <= result.max_visible
    values = np.zeros(len(rep) + 1, np.int64)
    np.cumsum(valued, out=values[1:])
    nested = rep if result.lists else None
    return _Levels(result, nested, definition if definition.any() else None, starts, values, scale)


def _check_size(entries: int) -> None:
    if entries > MAX_UNBACKED:
        raise DamagedPage(f"a sparse page of {entries} entries is too large")
