"""FSST: strings in which frequent sequences of up to eight bytes are single codes (Boncz, Neumann, Leis 2020).

A table of at most 255 symbols grows in five rounds: each round codes a sample with the current table, and the symbols
and pairs of adjacent symbols that save the most bytes become the next table.  A symbol of three or more bytes has one
slot in a hash table, by its first three bytes; if two share a slot, the better one stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trilake.common.jit import jit
from trilake.common.unaligned import load64
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.encode_values import Strings
from trilake.lance.v2.values import kernels

#: Bytes of a sample, and the maximum from one string.
SAMPLE_BYTES, SAMPLE_STRING = 1 << 14, 1 << 10
_ROUNDS = 5
_MAGIC, _ON = 0x46535354 << 32, 1 << 24
_TABLE_BYTES = 8 + 8 * 256 + 256
_HASH, _SLOTS = 2971215073, 1024
_ESCAPE = 1 << 8 | 255
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class SymbolTable:
    """Symbols by code, as little-endian words, and their lookup tables.

    ``short`` is indexed by the first two bytes, ``slots`` by a hash of the first three; an entry is ``length << 8 |
    code``, code 255 a byte without a symbol.  ``words`` are the symbols of the slots under ``masks``.
    """

    symbols: Any
    lengths: Any
    short: Any
    slots: Any
    words: Any
    masks: Any

    @classmethod
    def of(cls, symbols: Any, lengths: Any) -> SymbolTable:
        """Build a table from symbols, best first."""
        slots = _slot(symbols)
        long = np.flatnonzero(lengths > 2)
        long = long[np.sort(np.unique(slots[long], return_index=True)[1])]
        keep = np.sort(np.append(np.flatnonzero(lengths <= 2), long))[:255]
        symbols, lengths, slots = symbols[keep], lengths[keep], slots[keep]
        entries = (lengths << 8 | np.arange(len(keep))).astype(np.uint16)
        short = np.full((256, 256), _ESCAPE, np.uint16)  # second byte, first byte
        one, two, long = lengths == 1, lengths == 2, lengths > 2
        short[:, symbols[one].astype(np.int64)] = entries[one]
        short.reshape(-1)[symbols[two].astype(np.int64)] = entries[two]
        empty = (np.zeros(_SLOTS, t) for t in (np.uint16, np.uint64, np.uint64))
        table = cls(symbols, lengths, short.reshape(-1), *empty)
        table.words[:] = _ALL  # an empty slot matches nothing
        table.slots[slots[long]], table.words[slots[long]] = entries[long], symbols[long]
        table.masks[slots[long]] = _mask(lengths[long])
        return table

    @property
    def blob(self) -> bytes:
        """The serialized table."""
        count = len(self.symbols)
        table = np.zeros(_TABLE_BYTES, np.uint8)
        table[:8].view(np.uint64)[0] = _MAGIC | _ON | count
        table[8 : 8 + 8 * count] = self.symbols.view(np.uint8)
        table[8 + 8 * count : 8 + 9 * count] = self.lengths
        return table.tobytes()


def compress_strings(strings: Strings) -> tuple[Strings, bytes] | None:
    """Return the coded strings and their serialized symbol table; ``None`` if they do not get shorter."""
    table = train(*_sample(strings))
    data = np.empty(2 * strings.size + 1, np.uint8)
    offsets = np.empty(len(strings.offsets), np.int64)
    code_strings(strings.offsets, strings.data, table.short, table.slots, table.words, table.masks, data, offsets)
    if offsets[-1] >= strings.size:
        return None
    return Strings(offsets.astype(strings.offsets.dtype), data[: offsets[-1]]), table.blob


def fsst(table: bytes, inner: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    """The encoding of FSST-coded strings."""
    return pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=table, values=inner))


def train(sample: Any, bounds: Any) -> SymbolTable:
    """Train a symbol table on a sample of strings."""
    table = SymbolTable.of(np.empty(0, np.uint64), np.empty(0, np.int64))
    for number in range(_ROUNDS):
        singles, pairs = np.zeros(512, np.int64), np.zeros((512, 512), np.int32)
        share = 128 * (number + 1) // _ROUNDS
        count_symbols(sample, bounds, share, table.short, table.slots, table.words, table.masks, singles, pairs)
        # Codes from 256 on stand for bytes without a symbol.
        symbols = np.append(np.zeros(256, np.uint64), np.arange(256, dtype=np.uint64))
        symbols[: len(table.symbols)] = table.symbols
        lengths = np.ones(512, np.int64)
        lengths[: len(table.symbols)] = table.lengths
        used = np.flatnonzero(singles)
        words, sizes = symbols[used], lengths[used]
        gains = singles[used] * sizes * np.where(sizes == 1, 8, 1)
        if number < _ROUNDS - 1:
            first, second = np.nonzero(pairs > 1)
            joined = np.minimum(lengths[first] + lengths[second], 8)
            both = symbols[first] | symbols[second] << (8 * lengths[first] % 64).astype(np.uint64)
            both = np.where(lengths[first] == 8, symbols[first], both & _mask(joined))
            words, sizes = np.append(words, both), np.append(sizes, joined)
            gains = np.append(gains, np.where(lengths[first] < 8, pairs[first, second] * joined, 0))
        table = SymbolTable.of(*_best(words, sizes, gains))
    return table


def _best(words: Any, sizes: Any, gains: Any) -> tuple[Any, Any]:
    """Merge equal candidates, and return them by descending gain."""
    order = np.lexsort((sizes, words))
    words, sizes, gains = words[order], sizes[order], gains[order]
    fresh = np.append(True, (words[1:] != words[:-1]) | (sizes[1:] != sizes[:-1]))
    starts = np.flatnonzero(fresh)
    total = np.add.reduceat(gains, starts)
    best = np.argsort(-total, kind="stable")
    best = best[total[best] > 0][:1024]
    return words[starts][best], sizes[starts][best]


def _sample(strings: Strings) -> tuple[Any, Any]:
    """Sample whole strings, or the beginnings of long ones, from all over the page."""
    count = len(strings)
    starts = strings.offsets[:-1].astype(np.int64)
    sizes = np.minimum(np.diff(strings.offsets), SAMPLE_STRING).astype(np.int64)
    step = max(int(sizes.sum()) // SAMPLE_BYTES, 1)
    picks = np.arange(step // 2, count, step)
    starts, sizes = starts[picks], sizes[picks]
    bounds = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    sample = np.zeros(bounds[-1] + 8, np.uint8)
    kernels().copy_pieces(strings.data, starts, sizes, sample)
    return sample, bounds


def _mask(lengths: Any) -> Any:
    return _ALL >> (64 - 8 * lengths).astype(np.uint64)


def _slot(symbols: Any) -> Any:
    h = (symbols & np.uint64(0xFFFFFF)) * np.uint64(_HASH)
    return ((h ^ (h >> np.uint64(15))) & np.uint64(_SLOTS - 1)).astype(np.int64)


@jit
def load_word(data: Any, at: Any) -> Any:
    """Load eight bytes; bytes past the end are zero."""
    if at + 8 <= len(data):
        return load64(data, at)
    word = np.uint64(0)
    for i in range(len(data) - at):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@jit
def find_symbol(word: Any, left: Any, short: Any, slots: Any, words: Any, masks: Any) -> Any:
    """Find the longest symbol at the start of a word with ``left`` valid bytes; return ``length << 8 | code``."""
    h = (word & np.uint64(0xFFFFFF)) * np.uint64(2971215073)
    slot = np.int64((h ^ (h >> np.uint64(15))) & np.uint64(1023))
    if (word & masks[slot]) == words[slot]:
        entry = slots[slot]
        if entry >> 8 <= left:
            return entry
    entry = short[np.int64(word & np.uint64(0xFFFF))]
    return entry if entry >> 8 <= left else np.uint16(1 << 8 | 255)


@jit
def count_symbols(
    sample: Any, bounds: Any, share: int, short: Any, slots: Any, words: Any, masks: Any, singles: Any, pairs: Any
) -> None:
    """Count symbols, bytes and their pairs in ``share`` / 128 of the strings of a sample."""
    for piece in range(len(bounds) - 1):
        if (piece * 37) % 128 >= share:
            continue
        at, end = bounds[piece], bounds[piece + 1]
        before = np.int64(-1)
        while at < end:
            entry = find_symbol(load_word(sample, at), end - at, short, slots, words, masks)
            byte = np.int64(256) + np.int64(sample[at])
            code = np.int64(entry & 255) if entry & 255 != 255 else byte
            size = np.int64(entry >> 8)
            singles[code] += 1
            if size > 1:
                singles[byte] += 1
            if before >= 0:
                pairs[before, code] += 1
                if size > 1:
                    pairs[before, byte] += 1
            before = code
            at += size


@jit
def code_strings(
    offsets: Any, source: Any, short: Any, slots: Any, words: Any, masks: Any, data: Any, targets: Any
) -> None:
    """Code all strings, one after another; fill ``targets`` with their offsets."""
    out = np.int64(0)
    targets[0] = 0
    for i in range(len(offsets) - 1):
        at, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        while at < end:
            if at + 8 <= end:  # find_symbol without branches: every symbol fits
                word = load64(source, at)
                h = (word & np.uint64(0xFFFFFF)) * np.uint64(2971215073)
                slot = np.int64((h ^ (h >> np.uint64(15))) & np.uint64(1023))
                two, more = short[np.int64(word & np.uint64(0xFFFF))], slots[slot]
                entry = np.int64(more if (word & masks[slot]) == words[slot] else two)
            else:
                entry = np.int64(find_symbol(load_word(source, at), end - at, short, slots, words, masks))
            data[out] = entry & 255
            data[out + 1] = source[at]
            out += 2 if entry & 255 == 255 else 1
            at += entry >> 8
        targets[i + 1] = out
