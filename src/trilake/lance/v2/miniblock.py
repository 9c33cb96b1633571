"""Mini-block pages: chunks of up to a few thousand small values, each with its levels and buffers.

The chunks that have the rows are decoded together, with one call of a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trilake.lance.file.sources import Int64s, Pieces, Placed, PlacedJob
from trilake.lance.v2.block import (
    MAX_UNBACKED,
    block,
    flat_block,
    kind_of,
    length_width,
    packed_width,
    run_width,
    split_width,
    unsupported,
    word_width,
    words_of,
)
from trilake.lance.v2.compression import decompressed, scheme
from trilake.lance.v2.container import Page
from trilake.lance.v2.fsst import SymbolTable
from trilake.lance.v2.kernel_loader import kernels
from trilake.lance.v2.layers import Layers, Part, Rows, Uint16s, ranges
from trilake.lance.v2.values import (
    Bytes,
    DamagedPage,
    FixedLists,
    Flat,
    Indexed,
    UnsupportedPage,
    Values,
    Variable,
    allocate,
    gather,
    new_offsets,
)
from trilake.lance.v2.values import Rows as PackedRows

#: Chunks of so few bytes in all are read with what the page says of them: another request would take longer.
_SMALL = 1 << 17


@dataclass(frozen=True, slots=True)
class Buffers:
    """One buffer of each chunk: piece ``i`` is ``size[i]`` bytes from ``at[i]`` on."""

    data: Bytes
    at: Int64s
    size: Int64s

    def piece(self, i: int) -> Bytes:
        return self.data[self.at[i] : self.at[i] + self.size[i]]

    def words(self, bits: int) -> tuple[Any, Int64s]:
        """The data as words, and the byte positions of pieces in it."""
        width = bits // 8
        if not (self.at % width).any():
            return words_of(self.data, bits), self.at
        out = np.zeros(int((self.size + width).sum()), np.uint8)  # a file whose buffers lie anywhere
        stride = (self.size + width - 1) // width * width
        at = np.cumsum(stride) - stride
        for a, b, n in zip(at.tolist(), self.at.tolist(), self.size.tolist(), strict=True):
            out[a : a + n] = self.data[b : b + n]
        return words_of(out, bits), at


@dataclass(frozen=True, slots=True)
class Pick:
    """Single entries of chunks: ``index[i]`` of chunk ``piece[i]``."""

    piece: Int64s
    index: Int64s

    def of(self, counts: Int64s) -> Int64s:
        """Their numbers among the entries of all chunks, which have ``counts`` entries."""
        places: Int64s = (np.cumsum(counts) - counts)[self.piece] + self.index
        return places


@dataclass(frozen=True, slots=True)
class _Index:
    """A page's description of its chunks."""

    at: Int64s
    size: Int64s
    #: The number of values before each chunk, then the total.
    values: Int64s
    #: Rows that have begun before each chunk, and those that have ended, where there are lists.
    begun: Int64s | None
    ended: Int64s | None
    dictionary: Values | None


class MiniBlockPage:
    """A mini-block page."""

    def __init__(self, page: Page, layout: Any) -> None:
        self._page, self._layout = page, layout
        self._layers = Layers.of(layout.layers)
        self._index: _Index | None = None
        self._wide = layout.has_large_chunk
        has_dictionary = layout.HasField("dictionary")
        if len(page.buffers) < 2 + has_dictionary + (layout.repetition_index_depth > 0):
            raise DamagedPage(f"a mini-block page has {len(page.buffers)} buffers, fewer than it must")
        if layout.repetition_index_depth > 1:
            raise UnsupportedPage(f"a repetition index of depth {layout.repetition_index_depth} is not supported")
        if self._layers.lists and not layout.HasField("rep_compression"):
            raise DamagedPage("a page with lists has no repetition levels")
        if layout.num_buffers > 64:
            raise UnsupportedPage(f"chunks of {layout.num_buffers} buffers are not supported")

    def read(self, rows: Rows) -> PlacedJob[Part]:
        index, data = self._index, None
        if index is None:
            whole = self._page.buffers[1][1] <= _SMALL or len(rows) * 2 >= self._page.length
            index, data = yield from self._load(whole)
            self._index = index
        if self._layers.lists:
            return (yield from self._read_lists(index, data, rows))
        if isinstance(rows, range):
            first, last = np.searchsorted(index.values, (rows.start, rows.stop - 1), "right") - 1
            chunks = yield from self._chunks(index, data, np.arange(first, last + 1))
            a = rows.start - int(index.values[first])
            b = a + len(rows)
            levels = chunks.levels("def")
            return Part(chunks.values().slice(a, b), None, None if levels is None else levels[a:b], self._layers)
        of = np.searchsorted(index.values, rows, "right") - 1
        chunk_ids, piece = np.unique(of, return_inverse=True)
        chunks = yield from self._chunks(index, data, chunk_ids)
        pick = Pick(piece, rows - index.values[of])
        return Part(chunks.values(pick), None, chunks.levels("def", pick), self._layers)

    # --- lists ---

    def _read_lists(self, index: _Index, data: Placed | None, rows: Rows) -> PlacedJob[Part]:
        first, last = (rows.start, rows.stop - 1) if isinstance(rows, range) else (rows, rows)
        if index.begun is None or index.ended is None:
            chunk_ids = np.arange(len(index.at))
        else:
            # A row begins in the last chunk before which it has not, and ends in the first after which it has.
            a = np.searchsorted(index.begun, first, "right") - 1
            b = np.searchsorted(index.ended, last, "right") - 1
            chunk_ids = np.arange(int(a), int(b) + 1) if isinstance(rows, range) else np.unique(ranges(a, b + 1))
        chunks = yield from self._chunks(index, data, chunk_ids)
        rep, definition = chunks.levels("rep"), chunks.levels("def")
        if rep is None:
            raise DamagedPage("a page with lists has no repetition levels")
        visible = None if definition is None else definition <= self._layers.max_visible
        number = len(rep) if visible is None else int(np.count_nonzero(visible))
        if number != chunks.total:
            raise DamagedPage(f"levels are those of {number} values, not of {chunks.total}")
        starts = np.flatnonzero(rep == self._layers.lists)
        # The row that each entry begins: the index has the number of rows that begin before a chunk.
        ends = np.cumsum(chunks.level_counts)
        numbers = np.arange(len(starts))
        if index.begun is not None:
            first_of = np.searchsorted(starts, np.append(ends - chunks.level_counts, len(rep)))
            numbers += np.repeat(index.begun[chunk_ids] - first_of[:-1], np.diff(first_of))
        if isinstance(rows, range):
            i, j = np.searchsorted(numbers, (rows.start, rows.stop))
            if i >= len(numbers) or numbers[i] != rows.start or j - i != len(rows):
                raise DamagedPage("the repetition index does not fit to the repetition levels")
            low, high = int(starts[i]), int(starts[j]) if j < len(starts) else len(rep)
            entries: Any = slice(low, high)
            if visible is not None:
                low = int(np.count_nonzero(visible[:low]))
                high = low + int(np.count_nonzero(visible[entries]))
            values = chunks.values().slice(low, high)
        else:
            at = np.searchsorted(numbers, rows)
            if at[-1] >= len(numbers) or (numbers[at] != rows).any():
                raise DamagedPage("the repetition index does not fit to the repetition levels")
            # A row ends where the next begins, or with the chunk that it ends in.
            stop = np.append(starts, len(rep))[at + 1]
            if index.ended is not None:
                stop = np.minimum(stop, ends[np.searchsorted(chunk_ids, b)])
            entries = ranges(starts[at], stop)
            which = entries
            if visible is not None:
                before: Int64s = np.cumsum(visible) - visible
                which = before[entries][visible[entries]]
            begins = np.append(0, np.cumsum(chunks.counts))
            each = np.diff(np.searchsorted(which, begins))
            piece = np.repeat(np.arange(len(each)), each)
            values = chunks.values(Pick(piece, which - np.repeat(begins[:-1], each)))
        return Part(values, rep[entries], None if definition is None else definition[entries], self._layers)

    # --- index of chunks ---

    def _load(self, whole: bool) -> PlacedJob[tuple[_Index, Placed | None]]:
        """The index; with ``whole`` the data too, in the same round of requests."""
        layout, buffers = self._layout, self._page.buffers
        fetched = [buffers[0]]
        if layout.HasField("dictionary"):
            fetched.append(buffers[2])
        if layout.repetition_index_depth:
            fetched.append(buffers[-1])
        requests = [Pieces(np.array([a], np.int64), n) for a, n in (*fetched, *(buffers[1:2] if whole else ()))]
        answers = yield requests
        data = answers[-1] if whole else None
        parts = [_bytes(placed, n) for placed, (_, n) in zip(answers, fetched, strict=False)]
        width = 4 if self._wide else 2
        words = np.frombuffer(parts[0].tobytes()[: len(parts[0]) // width * width], f"<u{width}").astype(np.int64)
        size = ((words >> 4) + 1) * 8
        values = np.zeros(len(words) + 1, np.int64)
        if len(words):
            np.cumsum(1 << (words[:-1] & 15), out=values[1:-1])
            values[-1] = layout.num_items
            if values[-1] < values[-2]:
                raise DamagedPage(f"chunks have more than the page's {layout.num_items} values")
        elif layout.num_items:
            raise DamagedPage(f"a page of {layout.num_items} values has no chunks")
        position, total = buffers[1]
        if int(size.sum()) > total:
            raise DamagedPage(f"chunks of {size.sum()} bytes do not fit into a buffer of {total}")
        dictionary = None
        if layout.HasField("dictionary"):
            dictionary = block(layout.dictionary, parts[1], layout.num_dictionary_items)
        begun = ended = None
        if not self._layers.lists:
            if layout.num_items != self._page.length:
                raise DamagedPage(f"a page of {self._page.length} rows has {layout.num_items} values")
        elif layout.repetition_index_depth:
            pairs = np.frombuffer(parts[-1].tobytes(), "<u8") if len(parts[-1]) == 16 * len(words) else None
            if pairs is None or (len(pairs) and pairs.max() > self._page.length + MAX_UNBACKED * 8):
                raise DamagedPage("the repetition index does not fit to the chunks")
            finished, left = pairs.astype(np.int64).reshape(-1, 2).T
            ended = np.zeros(len(words) + 1, np.int64)
            np.cumsum(finished, out=ended[1:])
            if ended[-1] != self._page.length:
                raise DamagedPage(f"the repetition index has {ended[-1]} rows, not {self._page.length}")
            begun = ended[:-1].copy()
            begun[1:] += left[:-1] > 0
        return _Index(position + np.cumsum(size) - size, size, values, begun, ended, dictionary), data

    def _chunks(self, index: _Index, data: Placed | None, chunk_ids: Int64s) -> PlacedJob[_Chunks]:
        """Read ascending chunks; ``data`` is the buffer of all of them, if it was read already."""
        if not len(chunk_ids):
            raise DamagedPage(f"a page of {self._page.length} rows has no chunks")
        at, size = index.at[chunk_ids], index.size[chunk_ids]
        if data is not None:
            placed, at = data, data.at[0] + at - index.at[0]
        elif int(chunk_ids[-1] - chunk_ids[0]) == len(chunk_ids) - 1:
            (placed,) = yield [Pieces(at[:1], int(size.sum()))]
            at = placed.at[0] + at - at[0]
        else:
            (placed,) = yield [Pieces(at, size)]
            at = placed.at
        counts = index.values[chunk_ids + 1] - index.values[chunk_ids]
        return _Chunks(self._layout, placed.data, at, size, counts, index.dictionary)


class _Chunks:
    """Some chunks: the levels and values of all their entries, or of single ones."""

    def __init__(
        self, layout: Any, data: Bytes, at: Int64s, size: Int64s, counts: Int64s, dictionary: Values | None
    ) -> None:
        has_rep, has_def = layout.HasField("rep_compression"), layout.HasField("def_compression")
        buffers = layout.num_buffers
        heads = np.empty((5 + 2 * buffers, len(at)), np.int64)
        wide = layout.has_large_chunk
        bad = kernels().chunk_headers(data, at, size, has_rep, has_def, buffers, wide, heads)
        if bad >= 0:
            raise DamagedPage(f"a chunk of {size[bad]} bytes says that it is longer")
        self.counts = counts
        self.total = int(counts.sum())
        self._layout, self._dictionary = layout, dictionary
        pieces = [Buffers(data, heads[1 + 2 * k], heads[2 + 2 * k]) for k in range(2 + buffers)]
        self._levels = {"rep": pieces[0], "def": pieces[1]}
        self._pieces = pieces[2:]
        #: The levels of each chunk.
        self.level_counts = counts
        if has_rep:
            self.level_counts = _level_counts(layout.rep_compression, pieces[0], heads[0])

    def levels(self, kind: str, pick: Pick | None = None) -> Uint16s | None:
        """The levels ``rep`` or ``def``, if there are any."""
        if not self._layout.HasField(f"{kind}_compression"):
            return None
        return _levels(getattr(self._layout, f"{kind}_compression"), self._levels[kind], self.level_counts, pick)

    def values(self, pick: Pick | None = None) -> Values:
        layout = self._layout
        values = _Decoder(self.counts, pick).values(layout.value_compression, self._pieces)
        if self._dictionary is None:
            return values
        if not isinstance(values, Flat):
            raise unsupported(layout.value_compression, "indices of a dictionary")
        return Indexed(values, self._dictionary)


def _bytes(placed: Placed, size: int) -> Bytes:
    return placed.data[placed.at[0] : placed.at[0] + size]


def _level_counts(encoding: Any, pieces: Buffers, counts: Int64s) -> Int64s:
    """The number of levels in each chunk: its 16 bits may have overflowed for runs."""
    if kind_of(encoding) != "rle" or run_width(encoding.rle) != 1:
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


def _levels(encoding: Any, pieces: Buffers, counts: Int64s, pick: Pick | None) -> Uint16s:
    kind = kind_of(encoding)
    total = int(counts.sum())
    if total > MAX_UNBACKED + 8 * int(pieces.size.sum()):
        raise DamagedPage(f"{total} levels cannot be in {pieces.size.sum()} bytes")
    k = kernels()
    mode, width = None, 0
    if kind == "flat" and encoding.flat.bits_per_value == 16:
        mode = k.FLAT
    elif kind == "inline_bitpacking" and encoding.inline_bitpacking.uncompressed_bits_per_value == 16:
        mode = k.INLINE
    elif kind == "out_of_line_bitpacking" and encoding.out_of_line_bitpacking.uncompressed_bits_per_value == 16:
        mode, width = k.BLOCKS, packed_width(encoding.out_of_line_bitpacking, 16)
    elif kind == "rle" and run_width(encoding.rle) == 1 and encoding.rle.values.flat.bits_per_value == 16:
        mode = k.RUNS
    if pick is not None and mode in (k.FLAT, k.INLINE, k.BLOCKS):
        words, at = pieces.words(16)
        out = np.empty(len(pick.piece), np.uint16)
        bad = k.pick_levels(mode, width, words, at, pieces.size, counts, pick.piece, pick.index, out)
        if bad >= 0:
            raise DamagedPage(f"the levels of a chunk are damaged ({counts[bad]} in {pieces.size[bad]} bytes)")
        return out
    out = np.empty(total, np.uint16)
    if mode is None:
        o = 0
        for i, count in enumerate(counts.tolist()):
            levels = flat_block(encoding, pieces.piece(i), count, "levels")
            if levels.bits != 16:
                raise unsupported(encoding, "levels")
            out[o : o + count] = levels.typed()
            o += count
        return out if pick is None else out[pick.of(counts)]
    words, at = pieces.words(16)
    data = pieces.data if at is pieces.at else words.view(np.uint8)
    bad = k.decode_levels(mode, width, data, words, at, pieces.size, counts, out)
    if bad >= 0:
        raise DamagedPage(f"the levels of a chunk are damaged ({counts[bad]} in {pieces.size[bad]} bytes)")
    return out if pick is None else out[pick.of(counts)]


class _Decoder:
    """Decodes the values of chunks with ``counts`` values each: all of them, or single ones."""

    def __init__(self, counts: Int64s, pick: Pick | None = None) -> None:
        self._counts, self._pick = counts, pick
        self._total = int(counts.sum())

    def values(self, encoding: Any, pieces: list[Buffers]) -> Values:
        kind = kind_of(encoding)
        if self._pick is not None and kind not in _PICKED:
            return _Decoder(self._counts).values(encoding, pieces).take(self._pick.of(self._counts))
        decode = getattr(self, f"_{kind}", None) if kind else None
        if decode is None:
            raise unsupported(encoding, "mini-blocks")
        return decode(getattr(encoding, kind), pieces)  # type: ignore[no-any-return]

    def _first(self, pieces: list[Buffers], number: int = 1) -> Buffers:
        if len(pieces) < number:
            raise DamagedPage(f"chunks have {len(pieces)} buffers, fewer than their encoding has")
        return pieces[0]

    def _flat(self, encoding: Any, pieces: list[Buffers]) -> Flat:
        bits = encoding.bits_per_value
        if encoding.HasField("data"):
            raise UnsupportedPage("compressed buffers below a flat encoding are not supported")
        return self._packed(bits, self._first(pieces), self._counts)

    def _packed(self, bits: int, pieces: Buffers, counts: Int64s) -> Flat:
        if bits != 1 and (bits % 8 or not bits):
            raise UnsupportedPage(f"values of {bits} bits are not supported")
        _check_widths(counts, bits)
        size = (counts * bits + 7) // 8
        short = size > pieces.size
        if short.any():
            i = int(np.argmax(short))
            raise DamagedPage(f"{pieces.size[i]} bytes are too few for {counts[i]} values of {bits} bits")
        if self._pick is not None:
            if bits == 1:
                at = pieces.at[self._pick.piece] + (self._pick.index >> 3)
                picked = pieces.data[at] >> (self._pick.index & 7).astype(np.uint8) & 1
                return Flat(np.packbits(picked, bitorder="little"), 1, len(at))
            at = pieces.at[self._pick.piece] + self._pick.index * (bits // 8)
            return Flat(gather(pieces.data, at, np.full(len(at), bits // 8)).data, bits, len(at))
        total = int(counts.sum())
        if len(counts) == 1:
            return Flat(pieces.data[pieces.at[0] : pieces.at[0] + size[0]], bits, total)
        out = allocate(int(size.sum()))
        kernels().copy_pieces(pieces.data, pieces.at, size, out)
        if bits == 1 and (counts[:-1] % 8).any():
            ends = np.cumsum(size) * 8
            index = ranges(ends - size * 8, ends - size * 8 + counts)
            return Flat(out, 1, int(size.sum()) * 8).take(index)
        return Flat(out, bits, total)

    def _inline_bitpacking(self, encoding: Any, pieces: list[Buffers]) -> Flat:
        bits = word_width(encoding.uncompressed_bits_per_value)
        first = self._first(pieces)
        words, at = first.words(bits)
        if self._pick is not None:
            some = np.empty(len(self._pick.piece), f"<u{bits // 8}")
            bad = kernels().pick_inline(words, at, first.size, self._pick.piece, self._pick.index, some)
            if bad >= 0:
                raise DamagedPage(f"{first.size[bad]} packed bytes are too few")
            return Flat(some.view(np.uint8), bits, len(some))
        out = allocate((self._total + kernels().BLOCK) * bits // 8).view(f"<u{bits // 8}")
        bad = kernels().unpack_inline(words, at, first.size, self._counts, out)
        if bad >= 0:
            raise DamagedPage(f"{first.size[bad]} packed bytes are too few for {self._counts[bad]} values")
        return Flat(out[: self._total].view(np.uint8), bits, self._total)

    def _some(self, encoding: Any, pieces: list[Buffers], pick: Pick) -> tuple[Bytes, Int64s, Int64s]:
        """Where single values are."""
        first = self._first(pieces)
        begin, length = np.empty(len(pick.piece), np.int64), np.empty(len(pick.piece), np.int64)
        bad = kernels().pick_offsets(
            *(first.data, first.at, first.size, self._counts, _offset_width(encoding)),
            *(pick.piece, pick.index, begin, length),
        )
        if bad >= 0:
            raise DamagedPage("the offsets of strings or bytes fall, or lie outside of their chunk")
        return first.data, begin, length

    def _variable(self, encoding: Any, pieces: list[Buffers]) -> Variable:
        if self._pick is not None:
            return gather(*self._some(encoding, pieces, self._pick))
        first = self._first(pieces)
        total = int(first.size.sum())
        offsets, out = new_offsets(self._total, total), allocate(total)
        width = _offset_width(encoding)
        if kernels().copy_chunks(first.data, first.at, first.size, self._counts, width, out, offsets) >= 0:
            raise DamagedPage("the offsets of strings or bytes fall, or lie outside of their chunk")
        return Variable(offsets, out[: int(offsets[-1])])

    def _fsst(self, encoding: Any, pieces: list[Buffers]) -> Variable:
        if kind_of(encoding.values) != "variable":
            raise unsupported(encoding.values, "FSST")
        table, below = SymbolTable.parse(encoding.symbol_table), encoding.values.variable
        if self._pick is not None:
            return table.decode(*self._some(below, pieces, self._pick))
        first = self._first(pieces)
        if not table.used:
            return self._variable(below, pieces)
        return table.decode_chunks(first.data, first.at, first.size, self._counts, _offset_width(below))

    def _rle(self, encoding: Any, pieces: list[Buffers]) -> Flat:
        self._first(pieces, 2)
        values, lengths = pieces[:2]
        width = run_width(encoding)
        if width is None:
            lengths = self._each(lengths, encoding.run_lengths, values, encoding.values)
            width = length_width(encoding.run_lengths)
        if kind_of(encoding.values) != "flat":
            raise unsupported(encoding.values, "runs")
        bits = word_width(encoding.values.flat.bits_per_value, "runs")
        totals = np.empty(len(self._counts), np.int64)
        kernels().count_runs(lengths.data, lengths.at, lengths.size, width, totals)
        if (totals < self._counts).any() or self._total > MAX_UNBACKED + 8 * int(values.size.sum()):
            raise DamagedPage("runs are too few for the values of a chunk")
        out = allocate(self._total * bits // 8).view(f"<u{bits // 8}")
        words, at = values.words(bits)
        bad = kernels().expand_runs(
            words, at, values.size, lengths.data, lengths.at, lengths.size, width, self._counts, out
        )
        if bad >= 0:
            raise DamagedPage("runs are too few for the values of a chunk")
        return Flat(out.view(np.uint8), bits, self._total)

    def _each(self, lengths: Buffers, encoding: Any, values: Buffers, of: Any) -> Buffers:
        """Run lengths that are encoded themselves, chunk by chunk."""
        if kind_of(of) != "flat":
            raise unsupported(of, "runs")
        width = word_width(of.flat.bits_per_value, "runs") // 8
        parts = [
            flat_block(encoding, lengths.piece(i), int(n) // width, "run lengths").data.tobytes()
            for i, n in enumerate(values.size)
        ]
        return _joined(parts)

    def _byte_stream_split(self, encoding: Any, pieces: list[Buffers]) -> Flat:
        width = split_width(encoding) // 8
        first = self._first(pieces)
        if (self._counts * width > first.size).any():
            raise DamagedPage("a chunk of split bytes is too short")
        out = allocate(self._total * width)
        kernels().join_bytes(first.data, first.at, self._counts, width, out)
        return Flat(out, 8 * width, self._total)

    def _fixed_size_list(self, encoding: Any, pieces: list[Buffers]) -> Values:
        size = int(encoding.items_per_value)
        if self._pick is not None:  # rows of packed bytes, or all
            bits = size * int(encoding.values.flat.bits_per_value)
            if encoding.has_validity or kind_of(encoding.values) != "flat" or not bits or bits % 8:
                whole = _Decoder(self._counts)._fixed_size_list(encoding, pieces)
                return whole.take(self._pick.of(self._counts))
            rows = self._packed(bits, self._first(pieces), self._counts)
            return FixedLists(size, Flat(rows.data, bits // size, rows.count * size), None, rows.count)
        counts = self._counts
        sizes: list[int] = []
        valid: list[Flat | None] = []
        node = encoding
        while True:
            if node.items_per_value > MAX_UNBACKED:
                raise UnsupportedPage(f"lists of {node.items_per_value} items are not supported")
            counts = counts * node.items_per_value
            _check_widths(counts, 1)
            sizes.append(int(node.items_per_value))
            if node.has_validity:
                valid.append(self._packed(1, self._first(pieces), counts))
                pieces = pieces[1:]
            else:
                valid.append(None)
            if kind_of(node.values) != "fixed_size_list":
                break
            node = node.values.fixed_size_list
        values = _Decoder(counts).values(node.values, pieces)
        number = values.count
        for size, nulls in zip(reversed(sizes), reversed(valid), strict=True):
            number = number // size if size else self._total
            values = FixedLists(size, values, nulls, number)
        return values

    def _packed_struct(self, encoding: Any, pieces: list[Buffers]) -> Values:
        rows = self.values(encoding.values, pieces)
        widths = [int(bits) for bits in encoding.bits_per_value]
        if not isinstance(rows, Flat) or rows.bits != sum(widths) or any(bits % 8 for bits in widths):
            raise unsupported(encoding.values, "packed structs")
        return PackedRows(widths, rows)

    def _general(self, encoding: Any, pieces: list[Buffers]) -> Values:
        name = scheme(encoding.compression)
        first = self._first(pieces)
        parts = [decompressed(name, first.piece(i)) for i in range(len(self._counts))]
        return self.values(encoding.values, [_joined(parts), *pieces[1:]])


def _offset_width(encoding: Any) -> int:
    if kind_of(encoding.offsets) != "flat" or encoding.offsets.flat.bits_per_value not in (32, 64):
        raise unsupported(encoding.offsets, "offsets")
    if encoding.HasField("values"):
        raise UnsupportedPage("compressed bytes below a variable encoding are not supported")
    return int(encoding.offsets.flat.bits_per_value) // 8


def _joined(parts: list[Any]) -> Buffers:
    """Pieces in new memory, aligned for words."""
    size = np.array([len(part) for part in parts], np.int64)
    stride = (size + 7) // 8 * 8
    stops = np.cumsum(stride)
    padding = b"\0" * 8
    data = np.frombuffer(
        b"".join(b for part, n in zip(parts, size.tolist(), strict=True) for b in (part, padding[: -n % 8])), np.uint8
    )
    return Buffers(data, stops - stride, size)


#: Encodings whose values can be decoded one by one.
_PICKED = frozenset({"flat", "inline_bitpacking", "variable", "fsst", "packed_struct", "general", "fixed_size_list"})


def _check_widths(counts: Int64s, bits: int) -> None:
    """Refuse numbers of values whose bits would overflow."""
    if len(counts) and (int(counts.max()) >= 1 << 40 or bits >= 1 << 31 or int(counts.max()) * bits >= 1 << 56):
        raise UnsupportedPage(f"a chunk of {counts.max()} values of {bits} bits is not supported")
