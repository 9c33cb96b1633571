"""One column of a file of 2.1 or later: read values and levels of rows from its pages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from trilake.lance.file import types
from trilake.lance.file.sources import Int64s, Job, Pieces, together
from trilake.lance.proto import encodings21_pb2, encodings23_pb2
from trilake.lance.v2.codecs import MAX_UNBACKED, flat_block
from trilake.lance.v2.container import ColumnPages, Page
from trilake.lance.v2.fullzip import FullZipPage
from trilake.lance.v2.layers import ITEMS, Layers, Part, ReadablePage, Rows, Uint16s, ranges, repeated, split
from trilake.lance.v2.miniblock import MiniBlockPages, joinable
from trilake.lance.v2.nesting import Leaf, merge
from trilake.lance.v2.planar import SparsePage, level_layout
from trilake.lance.v2.values import Bytes, DamagedPage, Flat, Indexed, Nothing, UnsupportedPage, Values, Variable, fixed
from trilake.lance.v2.values import Rows as PackedRows

#: Columns of at most this many bytes and rows are read together, up to ``_MOST`` bytes.
_SMALL = 1 << 16
_MOST = 1 << 22
#: Maximum bytes of repeated constants in one read.
_MAX_BYTES = 1 << 31


class ConstantPage:
    """A constant page of a column of type ``arrow``."""

    def __init__(self, page: Page, layout: Any, arrow: pa.DataType) -> None:
        self._page, self._layout, self._arrow = page, layout, arrow
        self._layers = Layers.of(layout.layers)
        buffers = list(page.buffers)
        if len(buffers) > 3:
            raise DamagedPage(f"a constant page has {len(buffers)} buffers")
        inline = layout.HasField("inline_value")
        self._value_at = buffers.pop(0) if len(buffers) % 2 and not inline else None
        self._levels_at = buffers
        self._all_null = self._value_at is None and not inline
        self._loaded: tuple[Values | None, Uint16s | None, Uint16s | None, Int64s | None] | None = None

    def read(self, rows: Rows) -> Job[Part]:
        if self._loaded is None:
            self._loaded = yield from self._load()
        item, rep, definition, starts = self._loaded
        entries: Any
        if starts is None:
            entries, number = slice(rows.start, rows.stop) if isinstance(rows, range) else rows, len(rows)
        elif isinstance(rows, range):
            low, high = (int(starts[rows.start]), int(starts[rows.stop])) if len(rows) else (0, 0)
            entries, number = slice(low, high), high - low
        else:
            entries = ranges(starts[rows], starts[rows + 1])
            number = len(entries)
        rep = None if rep is None else rep[entries]
        if definition is not None:
            definition = definition[entries]
            number = int(np.count_nonzero(definition <= self._layers.max_visible))
        if number > MAX_UNBACKED and rep is None and definition is None:
            raise DamagedPage(f"{number} constants in one read are too many; read fewer rows")
        return Part(self._values(item, number), rep, definition, self._layers)

    def _values(self, item: Values | None, number: int) -> Values:
        if item is None:
            return Nothing(number)
        if isinstance(item, Variable) and number * len(item.data) > _MAX_BYTES:
            raise DamagedPage("constants of more than 2 GiB in one read are too many; read fewer rows")
        zeros = Flat(np.zeros(number, np.uint8), 8, number)
        return Indexed(zeros, item) if isinstance(item, Variable) else item.take(np.zeros(number, np.int64))

    def _load(self) -> Job[Any]:
        layout, page = self._layout, self._page
        buffers = [*([self._value_at] if self._value_at else []), *self._levels_at]
        answers = yield [Pieces(np.array([a], np.int64), n) for a, n in buffers]
        parts = [p.data[p.at[0] : p.at[0] + n] for p, (_, n) in zip(answers, buffers, strict=True)]
        item = None
        if layout.HasField("inline_value"):
            item = fixed(np.frombuffer(layout.inline_value, np.uint8), 1, self._arrow)
        elif self._value_at:
            item = _item(parts.pop(0), self._arrow)
        rep, definition = parts or (None, None)
        reps = _levels(layout, "rep", rep)
        definitions = _levels(layout, "def", definition)
        if not self._layers.lists:
            reps = None
            if definitions is not None and len(definitions) != page.length:
                raise DamagedPage(f"a page of {page.length} rows has {len(definitions)} levels")
            return item, reps, definitions, None
        if reps is None or (definitions is not None and len(definitions) != len(reps)):
            raise DamagedPage("a page with lists has different numbers of repetition and definition levels")
        starts = np.append(np.flatnonzero(reps == self._layers.lists), len(reps))
        if len(starts) != page.length + 1:
            raise DamagedPage(f"repetition levels begin {len(starts) - 1} rows, not {page.length}")
        return item, reps, definitions, starts


def _levels(layout: Any, kind: str, data: Bytes | None) -> Uint16s | None:
    if data is None:
        return None
    if layout.HasField(f"{kind}_compression"):
        count = getattr(layout, f"num_{kind}_values")
        levels = flat_block(getattr(layout, f"{kind}_compression"), data, count, "levels")
        if levels.bits != 16:
            raise DamagedPage(f"levels have {levels.bits} bits, not 16")
        return levels.typed() if count else None
    if len(data) % 2:
        raise DamagedPage("levels have an odd number of bytes")
    return np.frombuffer(data.tobytes(), "<u2") if len(data) else None


def _item(data: Bytes, arrow: pa.DataType) -> Values:
    """Decode a value from a buffer: the number of its buffers, their sizes, the buffers."""
    count = int.from_bytes(data[:4].tobytes(), "little") if len(data) >= 4 else 0
    if not 1 <= count <= 2 or len(data) < 4 + 4 * count:
        raise DamagedPage(f"a constant has {count} buffers")
    sizes = np.frombuffer(data[4 : 4 + 4 * count].tobytes(), "<u4").tolist()
    at = 4 + 4 * count
    if at + sum(sizes) > len(data):
        raise DamagedPage("a constant extends beyond its buffer")
    first = data[at : at + sizes[0]]
    if count == 1:
        return fixed(first, 1, arrow)
    content = data[at + sizes[0] : at + sum(sizes)]
    if len(first) not in (8, 16):
        raise DamagedPage(f"the offsets of a constant have {len(first)} bytes")
    offsets = np.frombuffer(first.tobytes(), f"<i{len(first) // 2}")
    if not 0 <= offsets[0] <= offsets[1] <= len(content):
        raise DamagedPage("the offsets of a constant point outside it")
    if not types.is_variable(arrow) and not pt.is_dictionary(arrow):
        raise DamagedPage(f"strings or bytes cannot be read as {arrow}")
    return Variable(offsets, content)


class Column:
    """A column of values of type ``stored``, read from its pages."""

    def __init__(self, stored: pa.DataType, pages: Sequence[Page]) -> None:
        self._stored = stored
        self._runs = _runs(_with_levels(pages, stored))
        self._firsts = np.array([run[0].first for run in self._runs], np.int64)
        self._count = pages[-1].first + pages[-1].length if pages else 0
        self._open: dict[int, ReadablePage] = {}

    def read(self, rows: Rows, items: int) -> Job[Leaf]:
        """Read ascending rows of ``items`` entries each (structs of fixed-size lists).  Raises ``DamagedPage``."""
        rows = rows if items == 1 else repeated(rows, items)
        jobs = [self._run(number).read(inside) for number, inside in split(self._firsts, self._count, rows)]
        if not jobs:
            raise DamagedPage("a column has no pages")
        parts = [(yield from jobs[0])] if len(jobs) == 1 else (yield from together(jobs))
        return merge(parts, self._stored)

    def _run(self, number: int) -> ReadablePage:
        opened = self._open.get(number)
        if opened is None:
            run = self._runs[number]
            if len(run) == 1:
                opened = open_page(run[0], run[0].encoding, self._stored)
            else:
                opened = MiniBlockPages(run, [page.encoding.mini_block_layout for page in run])
            self._open[number] = opened
        return opened


class AlikeColumns:
    """Columns of equal layout and length, read like one column with the rows of each after those of the one before."""

    def __init__(self, stored: pa.DataType, columns: Sequence[ColumnPages]) -> None:
        self._count, self._length = len(columns), columns[0].end
        self._column = Column(
            stored, [replace(p, first=p.first + i * c.end) for i, c in enumerate(columns) for p in c.pages]
        )

    def read(self, rows: Rows, items: int) -> Job[list[Leaf]]:
        """Read the same rows of each column, see :meth:`Column.read`."""
        rows = rows if items == 1 else repeated(rows, items)
        number, everything = len(rows), range(self._count * self._length)
        if number < self._length:
            rows = np.asarray(rows, np.int64)
            rows = (np.arange(self._count)[:, np.newaxis] * self._length + rows).reshape(-1)
        leaf = yield from self._column.read(rows if number < self._length else everything, 1)
        parts = [slice(i * number, (i + 1) * number) for i in range(self._count)]
        levels = leaf.definition
        return [leaf._replace(array=leaf.array[p], definition=None if levels is None else levels[p]) for p in parts]


def group_alike(columns: Sequence[tuple[pa.DataType, int, ColumnPages]], rows: int) -> list[list[int]]:
    """Group the columns that :class:`AlikeColumns` can read: small ones of equal type, layout and entries per row.

    ``columns`` are the stored type, the entries per row and the pages of each; a group is a list of their indexes.
    """
    groups: list[list[int]] = []
    last: dict[Hashable, tuple[list[int], int]] = {}
    keys: dict[tuple[int, pa.DataType], bytes] = {}
    for i, (stored, items, column) in enumerate(columns):
        is_small = column.size <= _SMALL and column.end == rows * items <= _SMALL
        key = _common_key(column, stored, keys) if is_small else b""
        group, size = last.get((key, stored, items), ([], 0))
        if not key or not group or size + column.size > _MOST:
            group, size = [], 0
            groups.append(group)
        group.append(i)
        last[key, stored, items] = group, size + column.size
    return groups


def _common_key(column: ColumnPages, stored: pa.DataType, keys: dict[tuple[int, pa.DataType], bytes]) -> bytes:
    """The layout of all pages of a column without lists; empty if they differ, or cannot be read with other columns."""
    if pt.is_nested(stored) or pt.is_dictionary(stored):
        return b""
    found = set()
    for page in column.pages:
        kind = id(page.encoding), stored
        if kind not in keys:
            keys[kind] = _key_without_lists(page, stored)
        found.add(keys[kind])
    return found.pop() if len(found) == 1 else b""


def _key_without_lists(page: Page, stored: pa.DataType) -> bytes:
    try:
        (leveled,) = _with_levels([page], stored)
    except DamagedPage:  # reading the column alone says so
        return b""
    key = _layout_key(leveled)
    return key if key and ITEMS.issuperset(leveled.encoding.mini_block_layout.layers) else b""


def _with_levels(pages: Sequence[Page], arrow: pa.DataType) -> Sequence[Page]:
    """Describe pages of 2.3 as those of 2.1, if they have levels."""
    if not any(isinstance(page.encoding, encodings23_pb2.PlanarLayout) for page in pages):
        return pages
    layouts = {id(page.encoding): page.encoding for page in pages}
    leveled = {
        key: level_layout(layout, arrow) if isinstance(layout, encodings23_pb2.PlanarLayout) else None
        for key, layout in layouts.items()
    }
    return [page if (new := leveled[id(page.encoding)]) is None else replace(page, encoding=new) for page in pages]


def _runs(pages: Sequence[Page]) -> list[Sequence[Page]]:
    """Group adjacent pages that can be read as one."""
    runs: list[Sequence[Page]] = []
    keys = {id(page.encoding): page for page in pages}  # the pages of small files share their descriptions
    layouts = {each: _layout_key(page) for each, page in keys.items()}
    for layout, alike in groupby(pages, lambda page: layouts[id(page.encoding)]):
        run = list(alike)
        runs += [run] if layout else [[page] for page in run]
    return runs


def _layout_key(page: Page) -> bytes:
    """A key that is equal for pages that can be read as one; empty for pages that are read alone."""
    if isinstance(page.encoding, encodings23_pb2.PlanarLayout):
        return b""
    if page.encoding.WhichOneof("layout") != "mini_block_layout" or not joinable(page.encoding.mini_block_layout):
        return b""
    layout = encodings21_pb2.MiniBlockLayout()
    layout.CopyFrom(page.encoding.mini_block_layout)
    layout.ClearField("num_items")
    return layout.SerializeToString(deterministic=True)


def open_page(page: Page, layout: Any, arrow: pa.DataType) -> ReadablePage:
    """Open a page of a column of type ``arrow``.  Raises ``DamagedPage``."""
    if isinstance(layout, encodings23_pb2.PlanarLayout):
        return SparsePage(page, layout, lambda plane, levels: open_page(plane, levels, arrow))
    kind = layout.WhichOneof("layout")
    if kind == "mini_block_layout":
        return MiniBlockPages([page], [layout.mini_block_layout])
    if kind == "constant_layout":
        return ConstantPage(page, layout.constant_layout, arrow)
    if kind == "full_zip_layout":
        return FullZipPage(page, layout.full_zip_layout)
    if kind == "blob_layout":
        inner = open_page(page, layout.blob_layout.inner_layout, arrow)
        return BlobPage(inner, Layers.of(layout.blob_layout.layers))
    raise UnsupportedPage("the layout of a page is not supported")


class BlobPage:
    """A page of blobs in 2.1: byte ranges in an inner page; the position of an empty range holds a definition level."""

    def __init__(self, inner: ReadablePage, layers: Layers) -> None:
        if layers.lists:
            raise UnsupportedPage("blobs in lists are not supported")
        self._inner, self._layers = inner, layers

    def read(self, rows: Rows) -> Job[Part]:
        part = yield from self._inner.read(rows)
        values = part.values
        if not isinstance(values, PackedRows) or list(values.widths) != [64, 64]:
            raise DamagedPage("blob positions are not pairs of integers")
        position, size = values.data.data[: 16 * values.count].view("<u8").reshape(-1, 2).T
        levels = np.where(size == 0, position >> 16, 0)
        if levels.max(initial=0) > self._layers.max_level:
            raise DamagedPage(f"definition level {levels.max()} exceeds the maximum of {self._layers.max_level}")
        return Part(values, None, levels.astype(np.uint16) if levels.any() else None, self._layers)
