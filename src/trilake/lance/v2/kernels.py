"""Loops over values, levels and chunks.

numba compiles them, and caches the result on disk; with ``TRILAKE_NUMBA=0``, or if numba cannot be loaded, the same
functions run interpreted.  They release the GIL.

Positions are in bytes of ``data`` unless a name says otherwise; ``at[i]`` is the start of piece ``i``, ``size[i]`` its
number of bytes.  Compiled code does not check bounds: callers check that pieces are inside ``data``, and each kernel
checks what it reads from a piece against that piece, and what it writes against its target.  A kernel returns -1, or
the number of the damaged piece.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trilake.common.jit import jit
from trilake.common.unaligned import load8, load16, load32, load64, store8, store64


@jit
def _number(data: Any, at: Any, width: Any) -> Any:
    """Read an unsigned integer of 1, 2, 4 or 8 bytes."""
    if width == 4:
        return np.int64(load32(data, at))
    if width == 8:
        return np.int64(load64(data, at))
    if width == 2:
        return np.int64(load16(data, at))
    return np.int64(load8(data, at))


@jit
def _copy(data: Any, p: Any, out: Any, o: Any, n: Any) -> None:
    """Copy ``n`` bytes.  A slice assignment would take seconds to compile."""
    whole = n - n % 8
    for j in range(0, whole, 8):
        store64(out, o + j, load64(data, p + j))
    for j in range(whole, n):
        store8(out, o + j, load8(data, p + j))


@jit
def _copy_words(words: Any, p: Any, out: Any, o: Any, n: Any) -> None:
    source, target = words[p : p + n], out[o : o + n]
    for j in range(n):
        target[j] = source[j]


# --- chunks of mini-blocks ---


@jit
def locate(firsts: Any, rows: Any, ids: Any, piece: Any, number: Any) -> Any:
    """Find the pieces that contain ascending rows; return the number of pieces.

    ``firsts`` are the first rows of all pieces.  Fills ``ids`` with the pieces and, for each row, ``piece`` with an
    index into ``ids`` and ``number`` with the row's offset in its piece.
    """
    count = 0
    low = -1
    for i in range(len(rows)):
        last, low = low, max(low, 0)
        high = len(firsts)
        while high - low > 1:
            middle = (low + high) // 2
            if firsts[middle] <= rows[i]:
                low = middle
            else:
                high = middle
        if low != last:
            ids[count] = low
            count += 1
        piece[i] = count - 1
        number[i] = rows[i] - firsts[low]
    return count


@jit
def chunk_headers(data: Any, at: Any, size: Any, has_rep: Any, has_def: Any, buffers: Any, wide: Any, out: Any) -> Any:
    """Parse chunk headers into the rows of ``out``.

    Row 0 is the number of levels.  Then each buffer has two rows, position and size: repetition levels, definition
    levels, and the value buffers.
    """
    width = 4 if wide else 2
    head = 2 + 2 * has_rep + 2 * has_def + width * buffers
    for i in range(len(at)):
        begin, end = at[i], at[i] + size[i]
        if head > size[i]:
            return i
        out[0, i] = load16(data, begin)
        p = begin + 2
        q = begin + (head + 7) // 8 * 8
        for k in range(2 + buffers):
            length = np.int64(0)
            if (k == 0 and has_rep) or (k == 1 and has_def):
                length = np.int64(load16(data, p))
                p += 2
            elif k >= 2:
                length = _number(data, p, width)
                p += width
            if length > end - q:
                return i
            out[1 + 2 * k, i] = q
            out[2 + 2 * k, i] = length
            q = min(q + (length + 7) // 8 * 8, end)
    return -1


# --- bit packing ---

#: The order of the groups of eight rows in a FastLanes block.
_ORDER = (0, 4, 2, 6, 1, 5, 3, 7)
BLOCK = 1024


@jit
def _unpack(words: Any, p: Any, width: Any, out: Any, o: Any) -> None:
    """Unpack one block of 1024 values of ``width`` bits from word ``p``."""
    bits = 8 * out.itemsize
    lanes = BLOCK // bits
    if width == 0:
        zeros = out[o : o + BLOCK]
        for j in range(BLOCK):
            zeros[j] = 0
        return
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)
    for r in range(bits):
        first = p + r * width // bits * lanes
        target = o + _ORDER[r >> 3] * 16 + (r & 7) * 128
        shift = (r * width) & (bits - 1)
        right = np.uint64(shift)
        # Only loops over whole slices are vectorized.
        values = out[target : target + lanes]
        low = words[first : first + lanes]
        if shift + width <= bits:
            for lane in range(lanes):
                values[lane] = (np.uint64(low[lane]) >> right) & mask
        else:
            high = words[first + lanes : first + 2 * lanes]
            left = np.uint64((bits - shift) & (bits - 1))
            for lane in range(lanes):
                values[lane] = ((np.uint64(low[lane]) >> right) | (np.uint64(high[lane]) << left)) & mask


@jit
def unpack_inline(words: Any, at: Any, size: Any, counts: Any, out: Any) -> Any:
    """Unpack chunks of a word with the bit width, then one block; ``out`` has room for one more block."""
    bits = 8 * out.itemsize
    o = 0
    for i in range(len(at)):
        if size[i] < out.itemsize or counts[i] > BLOCK or o + BLOCK > len(out):
            return i
        p = at[i] // out.itemsize
        width = np.int64(words[p])
        if width < 0 or width > bits or size[i] < out.itemsize + width * 128:
            return i
        _unpack(words, p + 1, width, out, o)
        o += counts[i]
    return -1


@jit
def pick_inline(data: Any, at: Any, size: Any, piece: Any, index: Any, out: Any) -> Any:
    """Unpack entry ``index[i]`` of chunk ``piece[i]``, for the chunks of :func:`unpack_inline`."""
    word = out.itemsize
    for i in range(len(piece)):
        c = piece[i]
        if size[c] < word or index[i] >= BLOCK:
            return c
        width = _number(data, at[c], word)
        if width < 0 or width > 8 * word or size[c] < word + width * 128:
            return c
        out[i] = _packed_value(data, at[c] + word, width, word, index[i])
    return -1


@jit
def _packed_value(data: Any, p: Any, width: Any, word: Any, index: Any) -> Any:
    """Unpack the value at ``index`` of a FastLanes block with words of ``word`` bytes."""
    if width == 0:
        return np.uint64(0)
    bits = 8 * word
    lanes = BLOCK // bits
    row = _row(index, lanes)
    first = p + (row * width // bits * lanes + index % lanes) * word
    shift = row * width % bits
    value = np.uint64(_number(data, first, word)) >> np.uint64(shift)
    if shift + width > bits:
        value |= np.uint64(_number(data, first + lanes * word, word)) << np.uint64(bits - shift)
    return value & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width))


@jit
def _row(index: Any, lanes: Any) -> Any:
    """The row of a value in a FastLanes block, where its index is order * 16 + (row % 8) * 128 + lane."""
    within, group = index // 128, index % 128 // 16
    # With more than 16 lanes only every second, fourth or eighth of the groups begins a row.
    group -= group % (lanes // 16)
    for k in range(8):
        if _ORDER[k] == group:
            return k * 8 + within
    return 0


@jit
def unpack_blocks(words: Any, p: Any, size: Any, width: Any, count: Any, out: Any, o: Any) -> Any:
    """Unpack values of blocks of one bit width, of which the last may be plain; False if they are too short."""
    bits = 8 * out.itemsize
    lanes = BLOCK // bits
    step = width * lanes
    whole, tail = count // BLOCK, count % BLOCK
    end = p + size // out.itemsize
    if o + count > len(out) or whole * step > end - p:
        return False
    for _ in range(whole):
        _unpack(words, p, width, out, o)
        p += step
        o += BLOCK
    if not tail:
        return True
    if end - p == tail:
        _copy_words(words, p, out, o, tail)
        return True
    if end - p < step:
        return False
    block = np.empty(BLOCK, out.dtype)
    _unpack(words, p, width, block, 0)
    _copy_words(block, 0, out, o, tail)
    return True


# --- runs ---


@jit
def count_runs(data: Any, at: Any, size: Any, width: Any, totals: Any) -> None:
    """Fill in the sum of each piece's run lengths, at most 2^40; a length has ``width`` bytes."""
    for i in range(len(at)):
        total = np.int64(0)
        for k in range(size[i] // width):
            total = min(total + max(_number(data, at[i] + k * width, width), 0), np.int64(1) << 40)
        totals[i] = total


@jit
def expand_runs(
    values: Any, at: Any, size: Any, lengths: Any, lengths_at: Any, lengths_size: Any, width: Any, counts: Any, out: Any
) -> Any:
    """Expand runs, and cut each piece to its count; ``values`` and ``out`` have the type of the values."""
    o = 0
    for i in range(len(at)):
        stop = o + counts[i]
        if stop > len(out):
            return i
        runs = size[i] // out.itemsize
        if lengths_size[i] // width < runs:
            return i
        p = at[i] // out.itemsize
        for k in range(runs):
            length = min(max(_number(lengths, lengths_at[i] + k * width, width), 0), stop - o)
            value = values[p + k]
            for j in range(o, o + length):
                out[j] = value
            o += length
        if o < stop:
            return i
    return -1


# --- levels ---

FLAT, INLINE, BLOCKS, RUNS = 0, 1, 2, 3


@jit
def decode_levels(kind: Any, width: Any, data: Any, words: Any, at: Any, size: Any, counts: Any, out: Any) -> Any:
    """Decode the levels of chunks, one chunk after another; ``words`` is ``data`` as uint16.

    ``width`` is the bit width of ``BLOCKS``.  A chunk of ``RUNS`` has the size of its values in eight bytes, then the
    values, then one-byte lengths.
    """
    o = 0
    block = np.empty(BLOCK, np.uint16)
    for i in range(len(at)):
        count = counts[i]
        p, bytes_ = at[i] // 2, size[i]
        if o + count > len(out):
            return i
        if kind == FLAT:
            if bytes_ < 2 * count:
                return i
            _copy_words(words, p, out, o, count)
        elif kind == INLINE:
            if count > BLOCK or bytes_ < 2:
                return i
            packed = np.int64(words[p])
            if packed > 16 or bytes_ < 2 + 128 * packed:
                return i
            _unpack(words, p + 1, packed, block, 0)
            _copy_words(block, 0, out, o, count)
        elif kind == BLOCKS:
            if not unpack_blocks(words, p, bytes_, width, count, out, o):
                return i
        else:
            if bytes_ < 8:
                return i
            values = np.int64(load64(data, at[i]))
            if values < 0 or values > bytes_ - 8 or values % 2 or bytes_ - 8 - values < values // 2:
                return i
            lengths = at[i] + 8 + values
            q, stop = p + 4, o + count
            for k in range(values // 2):
                value = words[q + k]
                for _ in range(np.int64(load8(data, lengths + k))):
                    if o < stop:
                        out[o] = value
                        o += 1
            if o < stop:
                return i
            o = stop - count
        o += count
    return -1


@jit
def pick_levels(
    kind: Any, width: Any, data: Any, at: Any, size: Any, counts: Any, piece: Any, index: Any, out: Any
) -> Any:
    """Decode level ``index[i]`` of chunk ``piece[i]``, for the chunks of :func:`decode_levels`; not for ``RUNS``."""
    for i in range(len(piece)):
        c, k = piece[i], index[i]
        p, bytes_, count = at[c], size[c], counts[c]
        if k >= count:
            return c
        if kind == INLINE:
            packed = np.int64(load16(data, p)) if bytes_ >= 2 else np.int64(17)
            if packed > 16 or count > BLOCK or bytes_ < 2 + 128 * packed:
                return c
            out[i] = _packed_value(data, p + 2, packed, 2, k)
            continue
        first = np.int64(0)
        if kind == BLOCKS:
            whole = count // BLOCK
            tail = bytes_ // 2 - whole * width * 64
            if tail < 0 or (tail != count % BLOCK and count % BLOCK and tail < width * 64):
                return c
            if k < whole * BLOCK or tail != count % BLOCK:
                out[i] = _packed_value(data, p + k // BLOCK * width * 128, width, 2, k % BLOCK)
                continue
            first = whole * width * 64 - whole * BLOCK
        if first + k >= bytes_ // 2:
            return c
        out[i] = load16(data, p + 2 * (first + k))
    return -1


# --- values of variable length ---


@jit
def copy_pieces(data: Any, at: Any, size: Any, out: Any) -> None:
    """Copy all pieces, one after another."""
    o = 0
    last_in, last_out = len(data) - 16, len(out) - 16
    for i in range(len(at)):
        p = at[i]
        n = min(size[i], len(out) - o)
        if n <= 16 and p <= last_in and o <= last_out:
            # Most strings are short: a call for each takes longer than copying a few bytes too many.
            low, high = load64(data, p), load64(data, p + 8)
            store64(out, o, low)
            store64(out, o + 8, high)
        else:
            _copy(data, p, out, o, n)
        o += n


@jit
def _offsets_fit(data: Any, at: Any, size: Any, count: Any, width: Any) -> Any:
    """Whether the offsets of a chunk ascend, and stay inside it."""
    if (count + 1) * width > size:
        return False
    last = _number(data, at, width)
    if last < 0:
        return False
    ok = True
    for k in range(1, count + 1):
        offset = _number(data, at + k * width, width)
        ok &= offset >= last
        last = offset
    return ok and last <= size


@jit
def copy_chunks(data: Any, at: Any, size: Any, counts: Any, width: Any, out: Any, offsets: Any) -> Any:
    """Copy the strings or binaries of chunks, one after another; fill ``offsets[1:]`` with their ends.

    Offsets in a chunk count from its start and have ``width`` bytes.  ``out`` has room for all bytes of the chunks.
    """
    v = 0
    o = 0
    for i in range(len(at)):
        if not _offsets_fit(data, at[i], size[i], counts[i], width) or v + counts[i] >= len(offsets):
            return i
        first = _number(data, at[i], width)
        base = o - first
        for k in range(1, counts[i] + 1):
            v += 1
            offsets[v] = base + _number(data, at[i] + k * width, width)
        n = _number(data, at[i] + counts[i] * width, width) - first
        _copy(data, at[i] + first, out, o, n)
        o += n
    return -1


@jit
def fsst_chunks(
    data: Any, at: Any, size: Any, counts: Any, width: Any, symbols: Any, lengths: Any, out: Any, offsets: Any
) -> Any:
    """Decode FSST values of chunks like :func:`copy_chunks`; ``out`` has 8 bytes per byte of the chunks, and 8 more."""
    v = 0
    o = 0
    for i in range(len(at)):
        if not _offsets_fit(data, at[i], size[i], counts[i], width) or v + counts[i] >= len(offsets):
            return i
        p = at[i] + _number(data, at[i], width)
        for k in range(1, counts[i] + 1):
            end = at[i] + _number(data, at[i] + k * width, width)
            o = _decode_value(data, p, end, symbols, lengths, out, o)
            if o < 0:
                return i
            p = end
            v += 1
            offsets[v] = o
    return -1


@jit
def _decode_value(data: Any, p: Any, end: Any, symbols: Any, lengths: Any, out: Any, o: Any) -> Any:
    """Decode the value from ``p`` to ``end``; return its end in ``out``, or -1 if it ends in an escape."""
    while p < end:
        code = np.int64(load8(data, p))
        p += 1
        if code == 255:
            if p >= end:
                return np.int64(-1)
            store8(out, o, load8(data, p))
            p += 1
            o += 1
        else:
            store64(out, o, symbols[code])
            o += np.int64(lengths[code])
    return np.int64(o)


@jit
def pick_offsets(
    data: Any, at: Any, size: Any, counts: Any, width: Any, piece: Any, index: Any, begin: Any, length: Any
) -> Any:
    """Locate entry ``index[i]`` of chunk ``piece[i]``, for the chunks of :func:`copy_chunks`."""
    for i in range(len(piece)):
        c = piece[i]
        if (counts[c] + 1) * width > size[c] or index[i] >= counts[c]:
            return c
        low = _number(data, at[c] + index[i] * width, width)
        high = _number(data, at[c] + (index[i] + 1) * width, width)
        if low < 0 or low > high or high > size[c]:
            return c
        begin[i] = at[c] + low
        length[i] = high - low
    return -1


@jit
def fsst_decode(data: Any, begin: Any, length: Any, symbols: Any, lengths: Any, out: Any, offsets: Any) -> Any:
    """Decode FSST-coded values; fill ``offsets[1:]`` with their ends.  ``out`` is as in :func:`fsst_chunks`."""
    o = 0
    for i in range(len(begin)):
        o = _decode_value(data, begin[i], begin[i] + length[i], symbols, lengths, out, o)
        if o < 0:
            return i
        offsets[i + 1] = o
    return -1


@jit
def join_bytes(data: Any, at: Any, counts: Any, width: Any, out: Any) -> None:
    """Join split bytes: a chunk has the first bytes of all its values, then their second bytes, and so on."""
    o = 0
    for i in range(len(at)):
        n = counts[i]
        for k in range(width):
            p = at[i] + k * n
            for j in range(n):
                store8(out, o + j * width + k, load8(data, p + j))
        o += n * width


# --- full-zip pages ---


@jit
def count_zipped(data: Any, begin: Any, end: Any, head: Any, def_bits: Any, most: Any, width: Any, prefix: Any) -> Any:
    """Count entries and visible values in the pieces of :func:`walk_zipped`; a negative first count means damage."""
    entries = np.int64(0)
    values = np.int64(0)
    mask = (np.int64(1) << def_bits) - 1
    for i in range(len(begin)):
        p = begin[i]
        while p < end[i]:
            if head > end[i] - p:
                return np.int64(-1 - i), values
            level = _number(data, p, head) & mask if head else np.int64(0)
            p += head
            entries += 1
            if level > most:
                continue
            values += 1
            if prefix == 0:
                p += width
            elif level == 0:
                if prefix > end[i] - p:
                    return np.int64(-1 - i), values
                length = _number(data, p, prefix)
                p += prefix
                if length < 0 or length > end[i] - p:
                    return np.int64(-1 - i), values
                p += length
        if p != end[i]:
            return np.int64(-1 - i), values
    return entries, values


@jit
def walk_zipped(
    data: Any,
    begin: Any,
    end: Any,
    head: Any,
    def_bits: Any,
    most: Any,
    width: Any,
    prefix: Any,
    rep: Any,
    definition: Any,
    at: Any,
    length: Any,
) -> None:
    """Read the levels of entries, and locate visible values, in pieces that :func:`count_zipped` has checked.

    An entry is a control word of ``head`` bytes, with the definition level in its lowest ``def_bits``, and a value if
    that level is at most ``most``.  If ``prefix`` is 0, a value has ``width`` bytes.  Otherwise it is a length of
    ``prefix`` bytes and that many bytes, and a null has neither.
    """
    mask = (np.int64(1) << def_bits) - 1
    e = 0
    v = 0
    for i in range(len(begin)):
        p = begin[i]
        while p < end[i]:
            word = _number(data, p, head) if head else np.int64(0)
            p += head
            level = word & mask
            rep[e] = word >> def_bits
            definition[e] = level
            e += 1
            if level > most:
                continue
            n = np.int64(width)
            if prefix:
                n = np.int64(0)
                if level == 0:
                    n = _number(data, p, prefix)
                    p += prefix
            at[v] = p
            length[v] = n
            v += 1
            p += n


@jit
def walk_structs(data: Any, begin: Any, length: Any, widths: Any, prefixes: Any, at: Any, size: Any) -> Any:
    """Locate the fields of packed structs; ``at`` and ``size`` have a row for each field.

    Field ``f`` has ``widths[f]`` bytes, or a length of ``prefixes[f]`` bytes in front.
    """
    for i in range(len(begin)):
        p = begin[i]
        end = p + length[i]
        for f in range(len(widths)):
            n = widths[f]
            if prefixes[f]:
                if prefixes[f] > end - p:
                    return i
                n = _number(data, p, prefixes[f])
                p += prefixes[f]
            if n < 0 or n > end - p:
                return i
            at[f, i] = p
            size[f, i] = n
            p += n
    return -1


# --- nesting ---


@jit
def pick_lists(
    rep: Any,
    definition: Any,
    lists: Any,
    most: Any,
    entries: Any,
    counts: Any,
    begun: Any,
    rows: Any,
    levels: Any,
    picked: Any,
) -> Any:
    """Pick the entries of ascending rows from chunks of ``entries`` entries and ``counts`` values each.

    ``begun`` is the number of rows that begin before each chunk, or empty; ``most`` is the highest definition level of
    an entry with a value.  Fills the two rows of ``levels`` with repetition and definition levels, and those of
    ``picked`` with the chunk of each value and its index there.  Returns the numbers of entries and values.  For damage
    the first is -1, and the second is the damaged chunk, or -1 if a row is missing.
    """
    has_def = len(definition) > 0
    row = np.int64(0)
    last = -1
    i = 0
    e = 0
    v = 0
    for c in range(len(entries)):
        if len(begun):
            row = begun[c]
        inside = last >= 0 and rows[last] == row - 1
        value = np.int64(0)
        for _ in range(entries[c]):
            if rep[i] == lists:
                inside = last + 1 < len(rows) and rows[last + 1] == row
                last += inside
                row += 1
            visible = not has_def or definition[i] <= most
            if inside:
                levels[0, e] = rep[i]
                if has_def:
                    levels[1, e] = definition[i]
                e += 1
                if visible:
                    picked[0, v] = c
                    picked[1, v] = value
                    v += 1
            value += visible
            i += 1
        if value != counts[c]:
            return -1, c
    return (e, v) if last + 1 == len(rows) else (-1, -1)


@jit
def unravel_lists(
    rep: Any, definition: Any, base: Any, null: Any, new: Any, most: Any, offsets: Any, valid: Any, left: Any
) -> Any:
    """Build the lists of one layer.

    Fills ``offsets`` and ``valid`` for the lists, and ``left`` with the entries that remain for the layer above.
    ``base`` counts the definition levels below the layer, ``new`` those up to it; an entry has a slot here if its level
    is at most ``most``, and is a null list at level ``null``.  Without definition levels all are 0.  Returns the
    numbers of lists, of entries that remain, and of nulls.
    """
    lists = 0
    kept = 0
    nulls = 0
    items = np.int64(0)
    has_def = len(definition) > 0
    # Branch-free: the next write replaces a value that was not counted.
    for i in range(len(rep)):
        level = np.int64(definition[i]) if has_def else np.int64(0)
        begins = rep[i] > 0
        left[kept] = i
        kept += begins
        is_list = begins and level <= most
        ok = level != null and level <= new
        offsets[lists] = items
        valid[lists] = ok
        lists += is_list
        nulls += is_list and not ok
        items += level <= base
    offsets[lists] = items
    return lists, kept, nulls
