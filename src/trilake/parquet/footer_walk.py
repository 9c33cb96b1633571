"""Walks the footers of many Parquet files of one schema at once, a field of all of them in a step of numpy.

The footers of a folder differ in numbers and bounds, hardly in layout.  So the place in each footer is an element of an
array, and where all of them have the same field next, one step takes it in all.  Where they part, each branch goes its
way to the end of the struct, and a branch that few take is given up: those footers are for
:func:`trilake.parquet.files.checked_footer`, which takes one at a time and says what is wrong with it.

What is taken here has passed the same checks, and those of Arrow's reader of footers, which has not seen it: fields
have their types, none is missing that must be there.  Fields that are rare are left to Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trilake.parquet.files import TYPES, Leaf

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: A step costs about as much as ten fields read one by one: a branch of fewer footers is given up.
FEWEST = 12
#: What a number is where a footer states none; stated ones have 62 bits at most.
ABSENT = -(1 << 63)
#: Elements of a list in a footer that is taken here, which has no more than 10,000 columns.
_MOST = 10_000
_BYTE, _INTEGERS, _DOUBLE, _TEXT, _LIST, _STRUCT = 3, (4, 5, 6), 7, 8, 9, 12


class Bounds(NamedTuple):
    """Where in the data the bytes of a bound are, of each footer; ``ABSENT`` where it has none."""

    start: Places
    length: Places


@dataclass(frozen=True)
class Chunks:
    """One column of one row group, of each footer."""

    codec: Places
    values: Places
    #: Bytes before compression and behind it.
    plain_size: Places
    stored_size: Places
    #: Where the first page of values is, and that of the dictionary; the latter may be ``ABSENT`` or anything.
    pages: Places
    dictionary: Places
    #: Whether there are statistics.
    stated: Flags
    null_counts: Places
    low: Bounds
    high: Bounds


@dataclass(frozen=True)
class Groups:
    """One row group of each footer that has as many."""

    rows: Places
    columns: Sequence[Chunks]


@dataclass(frozen=True)
class Walked:
    """What some footers say; only those that are ``sound`` say it."""

    data: bytes
    sound: Flags
    rows: Places
    group_counts: Places
    groups: Sequence[Groups]
    #: The bytes behind the row groups: notes, the writer's name, the order of columns.
    rests: Sequence[bytes]


def walk_alike(footers: Sequence[bytes], sizes: Sequence[int], start: int, leaves: Sequence[Leaf]) -> Walked:
    """What the footers of files of one schema say of their row groups.

    Parameters
    ----------
    footers: the bytes of each.
    sizes: bytes of the file of each.
    start: where the field behind the schema begins; before it, all footers have the same bytes.
    leaves: the columns of that schema.
    """
    lanes = _Lanes(footers, start)
    fields = _Fields(len(footers))
    lanes.struct(np.arange(len(footers)), _FILE, fields, last=2, until=4)
    counts, elements = fields.list(4)
    lanes.sound &= (fields.number(3) >= 0) & (counts >= 0) & (lanes.at <= lanes.end)
    stored = np.asarray(sizes, np.int64)
    groups = [_checked_group(lanes, counts > g, group, leaves, stored) for g, group in enumerate(elements)]
    data = lanes.buffer.tobytes()
    rests = [data[a:b] for a, b in zip(lanes.at.tolist(), lanes.end.tolist(), strict=True)]
    return Walked(data, lanes.sound, fields.number(3), counts, groups, rests)


# --- checks ----------------------------------------------------------------------------------------------------------


def _checked_group(lanes: _Lanes, there: Flags, group: _Fields, leaves: Sequence[Leaf], sizes: Places) -> Groups:
    counts, chunks = group.list(1)
    rows = group.number(3)
    lanes.sound &= ~there | ((counts == len(leaves)) & (rows >= 0) & (group.number(2) != ABSENT))
    if len(chunks) < len(leaves):  # in none of the footers are there as many
        return Groups(rows, ())
    columns = []
    for leaf, chunk in zip(leaves, chunks, strict=False):
        sound, column = _checked_chunk(lanes, chunk, leaf, rows, sizes)
        lanes.sound &= ~there | sound
        columns.append(column)
    return Groups(rows, columns)


def _checked_chunk(lanes: _Lanes, chunk: _Fields, leaf: Leaf, rows: Places, sizes: Places) -> tuple[Flags, Chunks]:
    described, meta = chunk.struct(3)
    values, plain, stored = meta.number(5), meta.number(6), meta.number(7)
    sound = described & (chunk.number(2) != ABSENT) & (chunk.bytes(9).start < 0)
    for needed in (2, 4, 9):
        sound &= meta.number(needed) != ABSENT
    sound &= (meta.number(1) == TYPES.index(leaf.physical_type)) & lanes.same(meta.bytes(3), names_of(leaf.path))
    sound &= (plain >= 0) & (values >= 0) & (stored >= 0) & (stored <= sizes)
    if not leaf.repeated:
        sound &= values == rows
    counts, pages = meta.list(13)
    for number, page in enumerate(pages):
        for needed in _PAGES:
            sound &= (counts <= number) | (page.number(needed) != ABSENT)
    stated, statistics = meta.struct(12)
    bounds = {key: statistics.bytes(key) for key in (1, 2, 5, 6)}
    if leaf.width is not None:
        for bound in bounds.values():
            sound &= (bound.start < 0) | (bound.length == leaf.width)
    nulls = statistics.number(3)
    sound &= (nulls == ABSENT) | ((nulls >= 0) & (nulls <= values))
    sizing, levels = meta.struct(16)
    if sizing.any():
        for key, level in zip((2, 3), leaf.levels, strict=True):
            histogram = levels.number(key)
            sound &= (histogram <= 0) | (histogram == level + 1)
        if leaf.physical_type != "BYTE_ARRAY":
            sound &= levels.number(1) == ABSENT
    places = (meta.number(4), values, plain, stored, meta.number(9), meta.number(11))
    return sound, Chunks(*places, stated, nulls, bounds[6], bounds[5])


def names_of(path: str) -> bytes | None:
    """A column's path as a footer has it; ``None`` where that cannot be told from the path, or is long."""
    names = [name.encode() for name in path.split(".")]
    if len(names) > 14 or any(len(name) > 127 for name in names):
        return None
    return bytes([len(names) << 4 | _TEXT]) + b"".join(bytes([len(name)]) + name for name in names)


# --- the walk --------------------------------------------------------------------------------------------------------

_I32, _I64, _BYTES, _NAMES, _I32S, _I64S = "i32", "i64", "bytes", "names", "i32 list", "i64 list"
#: Fields of ``FileMetaData`` as the format has them: those that Arrow needs or looks at; a list of what its elements
#: have.  Other fields are passed over where they are single values; a footer with others is given up.
_STATISTICS = {**dict.fromkeys((1, 2, 5, 6), _BYTES), 3: _I64}
_PAGES = {1: _I32, 2: _I32, 3: _I32}
_SIZES = {1: _I64, 2: _I64S, 3: _I64S}
_META = {1: _I32, 2: _I32S, 3: _NAMES, 4: _I32, **dict.fromkeys((5, 6, 7, 9, 11), _I64)}
_COLUMN = {**_META, 12: _STATISTICS, 13: [_PAGES], 16: _SIZES}
_CHUNK = {2: _I64, 3: _COLUMN, 9: _BYTES}
_FILE = {3: _I64, 4: [{1: [_CHUNK], 2: _I64, 3: _I64}]}
#: The type of each, and of the elements of a list.
_TYPES_OF = {
    _I32: (5, 0),
    _I64: (6, 0),
    _BYTES: (_TEXT, 0),
    _NAMES: (_LIST, _TEXT),
    _I32S: (_LIST, 5),
    _I64S: (_LIST, 6),
}


class _Fields:
    """The fields of a struct, of each footer."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._values: dict[int, Any] = {}

    def put(self, field: int, which: Places, value: Places) -> None:
        self.number(field)[which] = value

    def put_bytes(self, field: int, which: Places, start: Places, length: Places) -> None:
        bounds = self.bytes(field)
        bounds.start[which] = start
        bounds.length[which] = length

    def number(self, field: int) -> Places:
        if field not in self._values:
            self._values[field] = np.full(self._count, ABSENT)
        values: Places = self._values[field]
        return values

    def bytes(self, field: int) -> Bounds:
        if field not in self._values:
            self._values[field] = Bounds(np.full(self._count, ABSENT), np.full(self._count, ABSENT))
        bounds: Bounds = self._values[field]
        return bounds

    def struct(self, field: int) -> tuple[Flags, _Fields]:
        if field not in self._values:
            self._values[field] = (np.zeros(self._count, np.bool_), _Fields(self._count))
        struct: tuple[Flags, _Fields] = self._values[field]
        return struct

    def list(self, field: int) -> tuple[Places, list[_Fields]]:
        """How many elements there are, and the fields of each."""
        if field not in self._values:
            self._values[field] = (np.full(self._count, ABSENT), [])
        elements: tuple[Places, list[_Fields]] = self._values[field]
        return elements


class _Lanes:
    """A place in each of some footers; those that are given up are no longer ``sound``."""

    def __init__(self, footers: Sequence[bytes], start: int) -> None:
        lengths = np.fromiter(map(len, footers), np.int64, len(footers))
        self.end = np.cumsum(lengths)
        self.at = self.end - lengths + start
        # Zeros end a struct and are not numbers: who runs past the last footer comes to a halt.
        self.bytes = b"".join((*footers, bytes(16)))
        self.buffer = np.frombuffer(self.bytes, np.uint8)
        self._windows = np.lib.stride_tricks.sliding_window_view(self.buffer, 8)
        self._last = len(self._windows) - 1
        self.sound = np.ones(len(footers), np.bool_)

    def same(self, place: Bounds, expected: bytes | None) -> Flags:
        if expected is None:
            return np.zeros(len(self.at), np.bool_)
        there = (place.start >= 0) & (place.length == len(expected))
        where = np.where(there, place.start, 0)[:, None] + np.arange(len(expected))
        equal = self.buffer.take(where, mode="clip") == np.frombuffer(expected, np.uint8)
        same: Flags = there & equal.all(axis=1)
        return same

    def struct(self, which: Places, wanted: Mapping[int, Any], out: _Fields, *, last: int = 0, until: int = 0) -> None:
        while len(which := which[self.sound[which]]):
            heads = self.buffer.take(self.at[which], mode="clip")
            head = int(heads[0])
            if (heads != head).any():
                for branch in np.unique(heads).tolist():
                    some = which[heads == branch]
                    if len(some) < FEWEST:
                        self.sound[some] = False
                    elif (field := self._field(some, branch, wanted, out, last)) and field != until:
                        self.struct(some, wanted, out, last=field, until=until)
                return
            last = self._field(which, head, wanted, out, last)
            if last in (0, until):
                return

    def _field(self, which: Places, head: int, wanted: Mapping[int, Any], out: _Fields, last: int) -> int:
        """Walk one field; its number, or 0 at the end of the struct."""
        self.at[which] += 1
        if head == 0:
            return 0
        kind, last = head & 0x0F, last + (head >> 4)
        if head < 0x10 or kind == 0:  # a field that is not behind the one before it, or of no type
            self.sound[which] = False
            return 0
        if kind <= 2:  # a truth value is in the head
            if last in wanted:
                self.sound[which] = False
            return last
        inside = wanted.get(last)
        if inside is None:
            self._skip(which, kind)
        elif isinstance(inside, str):
            self._leaf(which, kind, last, inside, out)
        elif isinstance(inside, list):
            self._elements(which, kind, inside[0], out.list(last))
        elif kind == _STRUCT:
            there, fields = out.struct(last)
            there[which] = True
            self.struct(which, inside, fields)
        else:
            self.sound[which] = False
        return last

    def _leaf(self, which: Places, kind: int, field: int, wanted: str, out: _Fields) -> None:
        expected, inner = _TYPES_OF[wanted]
        if kind != expected:
            self.sound[which] = False
        elif wanted in (_I32, _I64):
            number = self._varint(which)
            out.put(field, which, (number >> 1) ^ -(number & 1))
        elif wanted == _BYTES:
            length = self._varint(which)
            out.put_bytes(field, which, self.at[which], length)
            self._advance(which, length)
        else:
            start = self.at[which]
            kinds, counts = self._list(which)
            self.sound[which[kinds != inner]] = False
            for place in range(int(counts.max())):
                more = which[counts > place]
                more = more[self.sound[more]]
                if len(more) < FEWEST:
                    self.sound[more] = False
                    break
                self._skip(more, inner)
            if wanted == _NAMES:
                out.put_bytes(field, which, start, self.at[which] - start)
            else:
                out.put(field, which, counts)

    def _elements(self, which: Places, kind: int, wanted: Mapping[int, Any], out: tuple[Places, list[_Fields]]) -> None:
        """Walk a list of structs."""
        kinds, counts = self._list(which) if kind == _LIST else (np.zeros_like(which), np.zeros_like(which))
        refused = (kinds != _STRUCT) | (counts > _MOST)
        self.sound[which[refused]] = False
        which, counts = which[~refused], counts[~refused]
        out[0][which] = counts
        for number in range(int(counts.max(initial=0))):
            some = which[counts > number]
            some = some[self.sound[some]]
            if len(some) < FEWEST:
                self.sound[some] = False
                return
            if len(out[1]) <= number:
                out[1].append(_Fields(len(self.at)))
            self.struct(some, wanted, out[1][number])

    def _skip(self, which: Places, kind: int) -> None:
        """Walk a single value that no one asked for."""
        if kind in _INTEGERS:
            self._varint(which)
        elif kind == _TEXT:
            self._advance(which, self._varint(which))
        elif kind in (_BYTE, _DOUBLE):
            self.at[which] += 1 if kind == _BYTE else 8
        else:
            self.sound[which] = False

    def _list(self, which: Places) -> tuple[Places, Places]:
        """The type of a list's elements, and how many there are."""
        heads = self.buffer.take(self.at[which], mode="clip").astype(np.int64)
        self.at[which] += 1
        counts = heads >> 4
        long = counts == 15
        if long.any():
            counts[long] = self._varint(which[long])
        wrong = counts > self.end[which] - self.at[which]
        if wrong.any():
            self.sound[which[wrong]] = False
            counts[wrong] = 0
        return heads & 0x0F, counts

    def _varint(self, which: Places) -> Places:
        """A number of up to 56 bits; a footer with a longer one is given up."""
        words = self._windows[np.minimum(self.at[which], self._last)].view(np.uint64)[:, 0]
        ends = ~words & _HIGH
        lowest = ends & -ends
        if not lowest.all():
            self.sound[which[lowest == 0]] = False
        # The bits below the highest of its last byte, in groups of seven; then pairs of groups are moved together.
        bits = words & (lowest - np.uint64(1)) & ~_HIGH
        bits = (bits & _SEVENS) | (bits & ~_SEVENS) >> np.uint64(1)
        bits = (bits & _FOURTEENS) | (bits & ~_FOURTEENS) >> np.uint64(2)
        bits = (bits & _TWENTY_EIGHT) | (bits & ~_TWENTY_EIGHT) >> np.uint64(4)
        # A power of two is one half times two to the exponent, which here is eight for each byte.
        self.at[which] += np.frexp(lowest.astype(np.float64))[1] // 8
        numbers: Places = bits.astype(np.int64)
        return numbers

    def _advance(self, which: Places, length: Places) -> None:
        inside = length <= self.end[which] - self.at[which]
        if not inside.all():
            self.sound[which[~inside]] = False
            length = np.where(inside, length, 0)
        self.at[which] += length


_HIGH = np.uint64(0x8080808080808080)
_SEVENS = np.uint64(0x007F007F007F007F)
_FOURTEENS = np.uint64(0x00003FFF00003FFF)
_TWENTY_EIGHT = np.uint64(0x000000000FFFFFFF)
