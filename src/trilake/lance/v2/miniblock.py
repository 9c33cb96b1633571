"""Mini-block pages: chunks of up to a few thousand small values, each with its levels and buffers.

Adjacent pages of one layout are read as one: a single kernel call decodes the chunks that contain the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trilake.lance.file.sources import Int64s, Job, Pieces
from trilake.lance.v2.codecs import (
    DENSEST,
    MAX_UNBACKED,
    Buffers,
    Pick,
    block,
    codec,
    flat_block,
    kind_of,
    packed_width,
    run_width,
    unsupported,
)
from trilake.lance.v2.container import Page
from trilake.lance.v2.layers import Layers, Part, Rows, Uint16s, ranges
from trilake.lance.v2.values import Bytes, DamagedPage, Flat, Indexed, UnsupportedPage, Values, kernels

#: Chunks of at most this many bytes are read with the page's metadata: another request would take longer.
_SMALL = 1 << 17
_WRONG_INDEX = "the repetition index does not match the repetition levels"


@dataclass(frozen=True, slots=True)
class _Index:
    """The chunks of some pages."""

    at: Int64s
    size: Int64s
    #: The number of values in each chunk.
    counts: Int64s
    #: Number of rows that begin, and that end, before each chunk; without lists, both are its first row.
    begun: Int64s
    ended: Int64s
    #: The page of each chunk.
    page: Int64s

    def merged(self, other: _Index) -> _Index:
        """Merge the index of other pages."""
        order = np.argsort(np.concatenate([self.page, other.page]), kind="stable")
        return _Index(*(np.concatenate([getattr(self, n), getattr(other, n)])[order] for n in self.__slots__))


@dataclass(frozen=True, slots=True)
class _Data:
    """Fetched pages; ``shift`` is the position of each page in ``data`` minus its position in the file."""

    data: Bytes
    shift: Int64s


def joinable(layout: Any) -> bool:
    """Whether pages of this layout can be read as one."""
    indexed = layout.repetition_index_depth > 0 or not layout.HasField("rep_compression")
    return indexed and not layout.HasField("dictionary")


def _buffers(pages: Sequence[Page], number: int) -> Pieces:
    starts, lengths = np.array([page.buffers[number] for page in pages], np.int64).T
    return Pieces(starts, lengths)


def _within(sums: Int64s, first: Int64s, page: Int64s) -> Int64s:
    """Turn running sums over all chunks into running sums over those of each page."""
    inside: Int64s = sums - np.append(0, sums)[first[page]]
    return inside


class MiniBlockPages:
    """Mini-block pages whose layouts differ only in ``num_items``; several pages must be :func:`joinable`."""

    def __init__(self, pages: Sequence[Page], layouts: Sequence[Any]) -> None:
        layout = layouts[0]
        self._pages, self._items = pages, [int(each.num_items) for each in layouts]
        self._firsts = np.array([page.first for page in pages], np.int64) - pages[0].first
        self._layers = Layers.of(layout.layers)
        self.wide, self.buffers = bool(layout.has_large_chunk), int(layout.num_buffers)
        self._depth, self._entries = int(layout.repetition_index_depth), int(layout.num_dictionary_items)
        self._dictionary_codec = layout.dictionary if layout.HasField("dictionary") else None
        fewest = 2 + (self._dictionary_codec is not None) + (self._depth > 0)
        for page in pages:
            if len(page.buffers) < fewest:
                raise DamagedPage(f"a mini-block page has {len(page.buffers)} buffers, too few for its layout")
        if self._depth > 1:
            raise UnsupportedPage(f"a repetition index of depth {self._depth} is not supported")
        self.rep = LevelCodec(layout.rep_compression) if layout.HasField("rep_compression") else None
        self.definition = LevelCodec(layout.def_compression) if layout.HasField("def_compression") else None
        if self._layers.lists and self.rep is None:
            raise DamagedPage("a page with lists has no repetition levels")
        if self.buffers > 64:
            raise UnsupportedPage(f"chunks of {self.buffers} buffers are not supported")
        self.values = codec(layout.value_compression)
        if self.buffers < self.values.buffers:
            raise DamagedPage(f"chunks have {self.buffers} buffers, too few for their encoding")
        self.dictionary: Values | None = None
        #: The pages read so far, and their index: one attribute, because several threads may read.
        self._loaded: tuple[frozenset[int], _Index | None] = frozenset(), None

    def read(self, rows: Rows) -> Job[Part]:
        index, data = yield from self._load(rows)
        if self._layers.lists:
            return (yield from self._read_lists(index, data, rows))
        if isinstance(rows, range):
            first, last = index.begun.searchsorted((rows.start, rows.stop - 1), "right") - 1
            chunks = yield from self._chunks(index, data, np.arange(first, last + 1))
            a = rows.start - int(index.begun[first])
            b = a + len(rows)
            levels = chunks.definition()
            return Part(chunks.values().slice(a, b), None, None if levels is None else levels[a:b], self._layers)
        ids, piece, number = np.empty((3, len(rows)), np.int64)
        count = kernels().locate(index.begun, rows, ids, piece, number)
        chunks = yield from self._chunks(index, data, ids[:count])
        pick = Pick(piece, number)
        return Part(chunks.values(pick), None, chunks.definition(pick), self._layers)

    def _read_lists(self, index: _Index, data: _Data | None, rows: Rows) -> Job[Part]:
        first, last = (rows.start, rows.stop - 1) if isinstance(rows, range) else (rows, rows)
        if self._depth:
            # A row begins in the last chunk before which it has not begun, and ends in the last one before which it
            # has not ended.
            a = index.begun.searchsorted(first, "right") - 1
            b = index.ended.searchsorted(last, "right") - 1
            ids = np.arange(int(a), int(b) + 1) if isinstance(rows, range) else np.unique(ranges(a, b + 1))
        else:
            ids = np.arange(len(index.at))
        chunks = yield from self._chunks(index, data, ids)
        rep, definition = chunks.repetition(), chunks.definition()
        assert rep is not None
        begun = index.begun[ids] if self._depth else None
        read = self._range_of_lists if isinstance(rows, range) else self._pick_of_lists
        return read(chunks, rep, definition, begun, rows)

    def _range_of_lists(
        self, chunks: _Chunks, rep: Uint16s, definition: Uint16s | None, begun: Int64s | None, rows: Any
    ) -> Part:
        visible = None if definition is None else definition <= self._layers.max_visible
        number = len(rep) if visible is None else int(np.count_nonzero(visible))
        if number != (total := int(chunks.counts.sum())):
            raise DamagedPage(f"expected levels for {total} values, got {number}")
        starts = np.flatnonzero(rep == self._layers.lists)
        i = rows.start
        if begun is not None:
            i -= int(begun[0])
            levels = chunks.level_counts
            if (starts.searchsorted(np.cumsum(levels) - levels) != begun - begun[0]).any():
                raise DamagedPage(_WRONG_INDEX)
        j = i + len(rows)
        if i < 0 or j > len(starts):
            raise DamagedPage(_WRONG_INDEX)
        low, high = int(starts[i]), int(starts[j]) if j < len(starts) else len(rep)
        entries = slice(low, high)
        if visible is not None:
            low = int(np.count_nonzero(visible[:low]))
            high = low + int(np.count_nonzero(visible[entries]))
        values = chunks.values().slice(low, high)
        return Part(values, rep[entries], None if definition is None else definition[entries], self._layers)

    def _pick_of_lists(
        self, chunks: _Chunks, rep: Uint16s, definition: Uint16s | None, begun: Int64s | None, rows: Any
    ) -> Part:
        picked, levels = np.empty((2, len(rep)), np.int64), np.empty((2, len(rep)), np.uint16)
        entries, values = kernels().pick_lists(
            *(rep, levels[1, :0] if definition is None else definition, self._layers.lists, self._layers.max_visible),
            *(chunks.level_counts, chunks.counts, picked[0, :0] if begun is None else begun, rows, levels, picked),
        )
        if entries < 0:
            raise DamagedPage(
                _WRONG_INDEX if values < 0 else f"the number of levels does not match {chunks.counts[values]} values"
            )
        pick = Pick(picked[0, :values], picked[1, :values])
        below = None if definition is None else levels[1, :entries]
        return Part(chunks.values(pick), levels[0, :entries], below, self._layers)

    def _load(self, rows: Rows) -> Job[tuple[_Index, _Data | None]]:
        """Load the index of the pages with some rows; if it pays, also their data, in the same round of requests."""
        loaded, index = self._loaded
        if index is not None and len(loaded) == len(self._pages):
            return index, None
        if isinstance(rows, range):
            first, last = self._firsts.searchsorted((rows.start, rows.stop - 1), "right") - 1
            numbers = list(range(first, last + 1))
        else:
            numbers = np.unique(self._firsts.searchsorted(rows, "right") - 1).tolist()
        new = [n for n in numbers if n not in loaded]
        if index is not None and not new:
            return index, None
        pages = [self._pages[n] for n in new]
        whole = len(new) == len(numbers) and (
            all(page.buffers[1][1] <= _SMALL for page in pages) or len(rows) * 2 >= sum(page.length for page in pages)
        )
        # The buffers that describe the chunks of a page, then their data.
        numbers_of = [0, *([2] if self._dictionary_codec is not None else []), *([-1] if self._depth else [])]
        requests = [_buffers(pages, i) for i in (*numbers_of, *([1] if whole else []))]
        answers = yield requests
        described = [answers[i].gather(requests[i]) for i in range(len(numbers_of))]
        added = self._index_of(np.array(new), pages, described)
        index = added if index is None else index.merged(added)
        self._loaded = loaded.union(new), index
        if not whole:
            return index, None
        shift = np.zeros(len(self._pages), np.int64)
        shift[new] = answers[-1].at - requests[-1].starts
        return index, _Data(answers[-1].data, shift)

    def _index_of(self, numbers: Int64s, pages: Sequence[Page], described: Sequence[Bytes]) -> _Index:
        """Parse the descriptions of the chunks of some pages, each buffer for all of them."""
        word = np.dtype("<u4" if self.wide else "<u2")
        bytes_ = np.array([page.buffers[0][1] for page in pages], np.int64)
        rows = np.array([page.length for page in pages], np.int64)
        items = np.array([self._items[n] for n in numbers.tolist()], np.int64)
        chunks = bytes_ // word.itemsize  # of each page
        data = described[0]
        if (bytes_ % word.itemsize).any():
            at = np.cumsum(bytes_) - bytes_
            data = data[ranges(at, at + chunks * word.itemsize)]
        words = data.view(word).astype(np.int64)
        size = ((words >> 4) + 1) * 8
        counts = 1 << (words & 15)
        page = np.repeat(np.arange(len(pages)), chunks)
        first = np.cumsum(chunks) - chunks
        if ((chunks == 0) & (items > 0)).any():
            raise DamagedPage("a page with values has no chunks")
        last = (first + chunks - 1)[chunks > 0]
        rest = _within(np.cumsum(counts), first, page)[last] - counts[last]
        counts[last] = items[chunks > 0] - rest
        if (counts < 0).any():
            raise DamagedPage(f"chunks have more than the page's {items[page[counts < 0]][0]} values")
        ends = _within(np.cumsum(size), first, page)
        positions, totals = np.array([page.buffers[1] for page in pages], np.int64).T
        if (ends > totals[page]).any():
            raise DamagedPage("the chunks of a page do not fit into its buffer")
        if self._dictionary_codec is not None:
            self.dictionary = block(self._dictionary_codec, described[1], self._entries)
        begun = ended = _within(np.cumsum(counts), first, page) - counts
        if not self._layers.lists:
            if (items != rows).any():
                wrong = int(np.argmax(items != rows))
                raise DamagedPage(f"a page of {rows[wrong]} rows has {items[wrong]} values")
        elif self._depth:
            sizes = np.array([page.buffers[-1][1] for page in pages], np.int64)
            pairs = described[-1].view("<u8").reshape(-1, 2) if (sizes == 16 * chunks).all() else None
            if pairs is None or (pairs > (rows[page] + MAX_UNBACKED * 8)[:, np.newaxis]).any():
                raise DamagedPage("the repetition index does not match the chunks")
            finished, left = pairs.astype(np.int64).T
            after = _within(np.cumsum(finished), first, page)
            of_page = np.zeros(len(pages), np.int64)
            of_page[chunks > 0] = after[last]
            if (of_page != rows).any():
                wrong = int(np.argmax(of_page != rows))
                raise DamagedPage(f"the repetition index has {of_page[wrong]} rows, not {rows[wrong]}")
            ended = after - finished
            begun = ended + np.where(np.isin(np.arange(len(words)), first), 0, np.roll(left, 1) > 0)
        before = self._firsts[numbers][page]
        return _Index(positions[page] + ends - size, size, counts, begun + before, ended + before, numbers[page])

    def _chunks(self, index: _Index, data: _Data | None, ids: Int64s) -> Job[_Chunks]:
        """Read ascending chunks; ``data`` has the buffers of their pages, if they were fetched already."""
        if not len(ids):
            raise DamagedPage("a page with rows has no chunks")
        at, size = index.at[ids], index.size[ids]
        if data is not None:
            return _Chunks(self, data.data, at + data.shift[index.page[ids]], size, index.counts[ids])
        if len(ids) > 1 and int(ids[-1] - ids[0]) == len(ids) - 1:  # adjacent chunks: one piece per page
            first = np.flatnonzero(np.append(True, at[1:] != (at + size)[:-1]))
            (answer,) = yield [Pieces(at[first], np.add.reduceat(size, first))]
            at += np.repeat(answer.at - at[first], np.diff(first, append=len(at)))
        else:
            (answer,) = yield [Pieces(at, size)]
            at = answer.at
        return _Chunks(self, answer.data, at, size, index.counts[ids])


class _Chunks:
    """Some chunks; decodes the levels and values of all their entries, or of single ones."""

    def __init__(self, of: MiniBlockPages, data: Bytes, at: Int64s, size: Int64s, counts: Int64s) -> None:
        heads = np.empty((5 + 2 * of.buffers, len(at)), np.int64)
        levels = of.rep is not None, of.definition is not None
        bad = kernels().chunk_headers(data, at, size, *levels, of.buffers, of.wide, heads)
        if bad >= 0:
            raise DamagedPage(f"a chunk of {size[bad]} bytes claims a larger size")
        self._of, self._data, self._heads = of, data, heads
        self.counts = counts
        #: Number of levels in each chunk.
        self.level_counts = counts if of.rep is None else of.rep.counts(self._buffer(0), heads[0])

    def _buffer(self, k: int) -> Buffers:
        return Buffers(self._data, self._heads[1 + 2 * k], self._heads[2 + 2 * k])

    def repetition(self) -> Uint16s | None:
        return None if self._of.rep is None else self._of.rep.read(self._buffer(0), self.level_counts)

    def definition(self, pick: Pick | None = None) -> Uint16s | None:
        codec = self._of.definition
        return None if codec is None else codec.read(self._buffer(1), self.level_counts, pick)

    def values(self, pick: Pick | None = None) -> Values:
        of = self._of
        pieces = [self._buffer(2 + k) for k in range(of.buffers)]
        values = of.values.all(pieces, self.counts) if pick is None else of.values.pick(pieces, self.counts, pick)
        if of.dictionary is None:
            return values
        if not isinstance(values, Flat):
            raise UnsupportedPage("the indices of a dictionary are not plain integers")
        return Indexed(values, of.dictionary)


class LevelCodec:
    """Decodes the levels of chunks."""

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        kind, k = kind_of(encoding), kernels()
        #: The kernels' constant for the encoding; ``None`` if each chunk is decoded separately.
        self._mode: int | None = None
        self._width = 0
        self._has_short_runs = kind == "rle" and run_width(encoding.rle) == 1
        if kind == "flat" and encoding.flat.bits_per_value == 16:
            self._mode = k.FLAT
        elif kind == "inline_bitpacking" and encoding.inline_bitpacking.uncompressed_bits_per_value == 16:
            self._mode = k.INLINE
        elif kind == "out_of_line_bitpacking" and encoding.out_of_line_bitpacking.uncompressed_bits_per_value == 16:
            self._mode, self._width = k.BLOCKS, packed_width(encoding.out_of_line_bitpacking, 16)
        elif self._has_short_runs and encoding.rle.values.flat.bits_per_value == 16:
            self._mode = k.RUNS

    def counts(self, pieces: Buffers, counts: Int64s) -> Int64s:
        """The number of levels in each chunk; for runs, the stored 16-bit number may have overflowed."""
        if not self._has_short_runs:
            return counts
        data, at = pieces.data, pieces.at
        if (pieces.size < 8).any():
            raise DamagedPage("runs of levels are too short")
        heads = data[at[:, None] + np.arange(8)].view("<u8").reshape(-1)
        if (heads > (pieces.size - 8).astype(np.uint64)).any():
            raise DamagedPage("runs of levels are too short")
        values = heads.astype(np.int64)
        totals = np.empty(len(at), np.int64)
        kernels().count_runs(data, at + 8 + values, pieces.size - 8 - values, 1, totals)
        return np.where((totals > counts) & (totals % (1 << 16) == counts), totals, counts)

    def read(self, pieces: Buffers, counts: Int64s, pick: Pick | None = None) -> Uint16s:
        """Read all levels, or single ones.  Raises ``DamagedPage``."""
        k, mode, width = kernels(), self._mode, self._width
        total = int(counts.sum())
        if total > MAX_UNBACKED + DENSEST * int(pieces.size.sum()):
            raise DamagedPage(f"{pieces.size.sum()} bytes are too few for {total} levels")
        if pick is not None and mode in (k.FLAT, k.INLINE, k.BLOCKS):
            out = np.empty(len(pick.piece), np.uint16)
            where = pieces.data, pieces.at, pieces.size, counts, pick.piece, pick.number
            return self._checked(k.pick_levels(mode, width, *where, out), out, pieces, counts)
        out = np.empty(total, np.uint16)
        if mode is None:
            o = 0
            for i, count in enumerate(counts.tolist()):
                levels = flat_block(self._encoding, pieces.piece(i), count, "levels")
                if levels.bits != 16:
                    raise unsupported(self._encoding, "levels")
                out[o : o + count] = levels.typed()
                o += count
        else:
            words, at = pieces.words(16)
            data = pieces.data if at is pieces.at else words.view(np.uint8)
            bad = k.decode_levels(mode, width, data, words, at, pieces.size, counts, out)
            self._checked(bad, out, pieces, counts)
        return out if pick is None else out[pick.of(counts)]

    def _checked(self, bad: int, levels: Uint16s, pieces: Buffers, counts: Int64s) -> Uint16s:
        if bad >= 0:
            raise DamagedPage(f"the levels of a chunk are damaged ({counts[bad]} in {pieces.size[bad]} bytes)")
        return levels
