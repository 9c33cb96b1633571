"""Parse the footers of many Parquet files with one schema, with numpy: each step reads one field of all footers.

The footers of a folder differ in numbers and bounds, rarely in layout.  An array holds the current position in each
footer.  If the next field is the same in all, one step reads it; otherwise each branch continues to the end of the
struct.  Footers in rare branches are rejected: :func:`trilake.parquet.files.checked_footer` reads those one by one and
reports errors.

Accepted footers pass the checks of Arrow's reader: fields have their types, and required ones are present.  Footers
with rare fields are rejected, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trilake.parquet.files import TYPES, Leaf
from trilake.parquet.thrift import BYTE, DOUBLE, I32, I64, INTEGERS, LIST, STRUCT, TEXT

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: A step costs about as much as reading ten fields one by one: smaller branches are rejected.
FEWEST = 12
#: A missing number; others have at most 62 bits.
ABSENT = -(1 << 63)
#: Most elements of a list, and so most columns.
_MOST = 10_000


class Bounds(NamedTuple):
    """The byte range of a bound in each footer, or ``ABSENT``."""

    start: Int64s
    length: Int64s


@dataclass(frozen=True)
class Chunks:
    """One column of one row group in each footer."""

    codec: Int64s
    values: Int64s
    #: Uncompressed and compressed bytes.
    plain_size: Int64s
    stored_size: Int64s
    #: Positions of the first data page and the dictionary; the latter is unchecked or ``ABSENT``.
    pages: Int64s
    dictionary: Int64s
    #: Whether there are statistics.
    stated: Flags
    null_counts: Int64s
    low: Bounds
    high: Bounds


@dataclass(frozen=True)
class Groups:
    """One row group of each footer that has it."""

    rows: Int64s
    columns: Sequence[Chunks]


@dataclass(frozen=True)
class FooterTable:
    """The content of footers; only valid for ``sound`` ones."""

    data: bytes
    sound: Flags
    rows: Int64s
    group_counts: Int64s
    groups: Sequence[Groups]
    #: The bytes after the row groups: key-value metadata, the writer's name, column orders.
    rests: Sequence[bytes]


def walk_alike(footers: Sequence[bytes], sizes: Sequence[int], start: int, leaves: Sequence[Leaf]) -> FooterTable:
    """Parse the row groups in the footers of files with these ``sizes`` and one schema, which ends at ``start``."""
    cursor = _FooterCursor(footers, start)
    fields = _Fields(len(footers))
    cursor.struct(np.arange(len(footers)), _FILE, fields, last=2, until=4)
    counts, elements = fields.list(4)
    cursor.sound &= (fields.number(3) >= 0) & (counts >= 0) & (cursor.at <= cursor.end)
    file_sizes = np.asarray(sizes, np.int64)
    groups = [_checked_group(cursor, counts > g, group, leaves, file_sizes) for g, group in enumerate(elements)]
    rests = [cursor.bytes[a:b] for a, b in zip(cursor.at.tolist(), cursor.end.tolist(), strict=True)]
    return FooterTable(cursor.bytes, cursor.sound, fields.number(3), counts, groups, rests)


# --- checks ----------------------------------------------------------------------------------------------------------


def _checked_group(
    cursor: _FooterCursor, there: Flags, group: _Fields, leaves: Sequence[Leaf], sizes: Int64s
) -> Groups:
    counts, chunks = group.list(1)
    rows = group.number(3)
    cursor.sound &= ~there | ((counts == len(leaves)) & (rows >= 0) & (group.number(2) != ABSENT))
    if len(chunks) < len(leaves):  # no footer has this row group
        return Groups(rows, ())
    columns = []
    for leaf, chunk in zip(leaves, chunks, strict=False):
        sound, column = _checked_chunk(cursor, chunk, leaf, rows, sizes)
        cursor.sound &= ~there | sound
        columns.append(column)
    return Groups(rows, columns)


def _checked_chunk(
    cursor: _FooterCursor, chunk: _Fields, leaf: Leaf, rows: Int64s, sizes: Int64s
) -> tuple[Flags, Chunks]:
    described, meta = chunk.struct(3)
    values, plain, compressed_size = meta.number(5), meta.number(6), meta.number(7)
    sound = described & (chunk.number(2) != ABSENT) & (chunk.bytes(9).start < 0)
    for field_id in (2, 4, 9):
        sound &= meta.number(field_id) != ABSENT
    sound &= (meta.number(1) == TYPES.index(leaf.physical_type)) & cursor.same(meta.bytes(3), names_of(leaf.path))
    sound &= (plain >= 0) & (values >= 0) & (compressed_size >= 0) & (compressed_size <= sizes)
    if not leaf.repeated:
        sound &= values == rows
    counts, pages = meta.list(13)
    for number, page in enumerate(pages):
        for field_id in _PAGES:
            sound &= (counts <= number) | (page.number(field_id) != ABSENT)
    has_statistics, statistics = meta.struct(12)
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
    places = (meta.number(4), values, plain, compressed_size, meta.number(9), meta.number(11))
    return sound, Chunks(*places, has_statistics, nulls, bounds[6], bounds[5])


def names_of(path: str) -> bytes | None:
    """A column's path as encoded in a footer; ``None`` if it is ambiguous or long."""
    names = [name.encode() for name in path.split(".")]
    if len(names) > 14 or any(len(name) > 127 for name in names):
        return None
    return bytes([len(names) << 4 | TEXT]) + b"".join(bytes([len(name)]) + name for name in names)


# --- the walk --------------------------------------------------------------------------------------------------------

_I32, _I64, _BYTES, _NAMES, _I32S, _I64S = "i32", "i64", "bytes", "names", "i32 list", "i64 list"
#: Fields of ``FileMetaData`` that Arrow reads; for lists, those of the elements.  Other scalars are skipped; footers
#: with other fields are rejected.
_STATISTICS = {**dict.fromkeys((1, 2, 5, 6), _BYTES), 3: _I64}
_PAGES = {1: _I32, 2: _I32, 3: _I32}
_SIZES = {1: _I64, 2: _I64S, 3: _I64S}
_META = {1: _I32, 2: _I32S, 3: _NAMES, 4: _I32, **dict.fromkeys((5, 6, 7, 9, 11), _I64)}
_COLUMN = {**_META, 12: _STATISTICS, 13: [_PAGES], 16: _SIZES}
_CHUNK = {2: _I64, 3: _COLUMN, 9: _BYTES}
_FILE = {3: _I64, 4: [{1: [_CHUNK], 2: _I64, 3: _I64}]}
#: The type of each field, and of a list's elements.
_TYPES_OF = {
    _I32: (I32, 0),
    _I64: (I64, 0),
    _BYTES: (TEXT, 0),
    _NAMES: (LIST, TEXT),
    _I32S: (LIST, I32),
    _I64S: (LIST, I64),
}


class _Fields:
    """The fields of a struct in each footer."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._values: dict[int, Any] = {}

    def put(self, field: int, which: Int64s, value: Int64s) -> None:
        self.number(field)[which] = value

    def put_bytes(self, field: int, which: Int64s, start: Int64s, length: Int64s) -> None:
        bounds = self.bytes(field)
        bounds.start[which] = start
        bounds.length[which] = length

    def number(self, field: int) -> Int64s:
        if field not in self._values:
            self._values[field] = np.full(self._count, ABSENT)
        values: Int64s = self._values[field]
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

    def list(self, field: int) -> tuple[Int64s, list[_Fields]]:
        """The number of elements, and the fields of each."""
        if field not in self._values:
            self._values[field] = (np.full(self._count, ABSENT), [])
        elements: tuple[Int64s, list[_Fields]] = self._values[field]
        return elements


class _FooterCursor:
    """A position in each footer; ``sound`` is false for rejected footers."""

    def __init__(self, footers: Sequence[bytes], start: int) -> None:
        lengths = np.fromiter(map(len, footers), np.int64, len(footers))
        self.end = np.cumsum(lengths)
        self.at = self.end - lengths + start
        # Zeros end structs, so that reading past the last footer stops.
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

    def struct(
        self, which: Int64s, requested: Mapping[int, Any], out: _Fields, *, last: int = 0, until: int = 0
    ) -> None:
        while len(which := which[self.sound[which]]):
            heads = self.buffer.take(self.at[which], mode="clip")
            head = int(heads[0])
            if (heads != head).any():
                for branch in np.unique(heads).tolist():
                    some = which[heads == branch]
                    if len(some) < FEWEST:
                        self.sound[some] = False
                    elif (field := self._field(some, branch, requested, out, last)) and field != until:
                        self.struct(some, requested, out, last=field, until=until)
                return
            last = self._field(which, head, requested, out, last)
            if last in (0, until):
                return

    def _field(self, which: Int64s, head: int, requested: Mapping[int, Any], out: _Fields, last: int) -> int:
        """Read one field; return its number, or 0 at the end of the struct."""
        self.at[which] += 1
        if head == 0:
            return 0
        kind, last = head & 0x0F, last + (head >> 4)
        if head < 0x10 or kind == 0:  # unordered ids, or a missing type
            self.sound[which] = False
            return 0
        if kind <= 2:  # a boolean is in the header
            if last in requested:
                self.sound[which] = False
            return last
        inside = requested.get(last)
        if inside is None:
            self._skip(which, kind)
        elif isinstance(inside, str):
            self._leaf(which, kind, last, inside, out)
        elif isinstance(inside, list):
            self._elements(which, kind, inside[0], out.list(last))
        elif kind == STRUCT:
            there, fields = out.struct(last)
            there[which] = True
            self.struct(which, inside, fields)
        else:
            self.sound[which] = False
        return last

    def _leaf(self, which: Int64s, kind: int, field: int, requested: str, out: _Fields) -> None:
        expected, inner = _TYPES_OF[requested]
        if kind != expected:
            self.sound[which] = False
        elif requested in (_I32, _I64):
            number = self._varint(which)
            out.put(field, which, (number >> 1) ^ -(number & 1))
        elif requested == _BYTES:
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
            if requested == _NAMES:
                out.put_bytes(field, which, start, self.at[which] - start)
            else:
                out.put(field, which, counts)

    def _elements(
        self, which: Int64s, kind: int, requested: Mapping[int, Any], out: tuple[Int64s, list[_Fields]]
    ) -> None:
        kinds, counts = self._list(which) if kind == LIST else (np.zeros_like(which), np.zeros_like(which))
        rejected = (kinds != STRUCT) | (counts > _MOST)
        self.sound[which[rejected]] = False
        which, counts = which[~rejected], counts[~rejected]
        out[0][which] = counts
        for number in range(int(counts.max(initial=0))):
            some = which[counts > number]
            some = some[self.sound[some]]
            if len(some) < FEWEST:
                self.sound[some] = False
                return
            if len(out[1]) <= number:
                out[1].append(_Fields(len(self.at)))
            self.struct(some, requested, out[1][number])

    def _skip(self, which: Int64s, kind: int) -> None:
        if kind in INTEGERS:
            self._varint(which)
        elif kind == TEXT:
            self._advance(which, self._varint(which))
        elif kind in (BYTE, DOUBLE):
            self.at[which] += 1 if kind == BYTE else 8
        else:
            self.sound[which] = False

    def _list(self, which: Int64s) -> tuple[Int64s, Int64s]:
        """The element type and length of a list."""
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

    def _varint(self, which: Int64s) -> Int64s:
        """Read a number of up to 56 bits; reject footers with longer ones."""
        words = self._windows[np.minimum(self.at[which], self._last)].view(np.uint64)[:, 0]
        ends = ~words & _HIGH
        lowest = ends & -ends
        if not lowest.all():
            self.sound[which[lowest == 0]] = False
        # Keep seven bits per byte up to the last byte, then shift neighbouring groups together.
        bits = words & (lowest - np.uint64(1)) & ~_HIGH
        bits = (bits & _SEVENS) | (bits & ~_SEVENS) >> np.uint64(1)
        bits = (bits & _FOURTEENS) | (bits & ~_FOURTEENS) >> np.uint64(2)
        bits = (bits & _TWENTY_EIGHT) | (bits & ~_TWENTY_EIGHT) >> np.uint64(4)
        # frexp gives the exponent of a power of two: eight per byte.
        self.at[which] += np.frexp(lowest.astype(np.float64))[1] // 8
        numbers: Int64s = bits.astype(np.int64)
        return numbers

    def _advance(self, which: Int64s, length: Int64s) -> None:
        inside = length <= self.end[which] - self.at[which]
        if not inside.all():
            self.sound[which[~inside]] = False
            length = np.where(inside, length, 0)
        self.at[which] += length


_HIGH = np.uint64(0x8080808080808080)
_SEVENS = np.uint64(0x007F007F007F007F)
_FOURTEENS = np.uint64(0x00003FFF00003FFF)
_TWENTY_EIGHT = np.uint64(0x000000000FFFFFFF)
