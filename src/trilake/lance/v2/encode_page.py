"""Encode a leaf as pages: the type and the values of a page decide its layout and codec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.types as pt

from trilake.lance.file.types import is_text, is_variable
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2 import encode_values as e
from trilake.lance.v2.compression import compress, general
from trilake.lance.v2.encode_dictionary import MIN_VALUES, distinct_strings, distinct_words, fixed_items, string_items
from trilake.lance.v2.encode_fsst import compress_strings, fsst
from trilake.lance.v2.encode_fullzip import packed, zip_fixed, zip_strings
from trilake.lance.v2.encode_miniblock import ChunkTooLargeError, Page, level_blocks, mini_block
from trilake.lance.v2.encode_options import GENERAL, WIDE, Options
from trilake.lance.v2.write_levels import Leaf

#: Maximum levels of a constant page with a value, where levels are not compressed.
FEW_LEVELS = 256
#: Maximum bytes of a value inside the layout message.
MAX_INLINE = 32
#: If the longest string has more bytes than this, each string is compressed separately.
HUGE = 32_768
#: Less data than this is not compressed.
MIN_BYTES = 4096
#: FSST needs at least this many bytes in a page, and in its longest value.
SYMBOL_BYTES, SYMBOL_VALUE = 32_768, 5


def encode(leaf: Leaf, options: Options, minor: int) -> Iterator[Page]:
    """Encode a leaf for version 2.``minor``, at least 2.1: one page, or several if a chunk has too many levels."""
    try:
        yield _page(leaf, options, minor)
    except ChunkTooLargeError:
        if leaf.rows > 1:
            for half in leaf.halves():
                yield from encode(half, options, minor)
        else:
            yield _page(leaf, replace(options, structure="fullzip"), minor)


def _page(leaf: Leaf, options: Options, minor: int) -> Page:
    kind = leaf.values.type
    if options.blob and minor < 2:
        return _blobs(leaf)
    valid = None if leaf.definition is None else leaf.definition[leaf.definition <= leaf.visible] == 0
    if not len(leaf.values) or pt.is_null(kind) or (valid is not None and not valid.any()):
        return _constant(leaf, None, compress=minor >= 2)
    if pt.is_struct(kind) and not kind.num_fields:
        # Nullable even without nulls: that is how readers recognise these pages.
        layers = (pb.NULLABLE_ITEM, *leaf.layers[1:])
        return _constant(replace(leaf, layers=layers), None, compress=minor >= 2)
    if pt.is_struct(kind):
        return packed(leaf, options, minor)
    if pt.is_dictionary(kind):
        return _dictionary(leaf, options, minor)
    if pt.is_fixed_size_list(kind):
        lists = e.FixedLists.of(leaf.values)
        if options.zips(lists.row_bytes) and (lists.has_whole_bytes or lists.row_bytes >= WIDE):
            return zip_fixed(leaf, lists.rows(), lists.encoding)
        return mini_block(leaf, lists.chunks(), large=minor >= 2)
    if is_variable(kind):
        return _strings(leaf, valid, options, minor)
    return _fixed(leaf, valid, options, minor)


def _constant(leaf: Leaf, value: tuple[Any, ...] | None, *, compress: bool) -> Page:
    """Build a constant page of ``value``, its bytes, or offsets and bytes; ``None`` if all values are null.

    From 2.2 on, the levels of an all-null page may be compressed.
    """
    layout = pb.ConstantLayout(layers=leaf.layers)
    buffers: list[Any] = []
    if value is not None:
        if len(value) == 1 and len(value[0]) <= MAX_INLINE:
            layout.inline_value = bytes(value[0])
        else:
            head = np.array([len(value), *map(len, value)], np.uint32)
            buffers.append(head.tobytes() + b"".join(value))
    simple = leaf.repetition is None and (leaf.definition is None or (value is None and len(leaf.layers) == 1))
    if not simple:
        for levels, encoding, count in (
            (leaf.repetition, layout.rep_compression, "num_rep_values"),
            (leaf.definition, layout.def_compression, "num_def_values"),
        ):
            if levels is None:
                buffers.append(b"")
            elif compress and value is None and len(levels):
                compressed, stream = level_blocks(levels, np.array([0, len(levels)]), runs=True)
                encoding.CopyFrom(compressed)
                setattr(layout, count, len(levels))
                buffers.append(stream.data)
            else:
                buffers.append(levels)
    return Page(pb.PageLayout(constant_layout=layout), tuple(buffers), leaf.rows, leaf.length)


def _fixed(leaf: Leaf, valid: Any, options: Options, minor: int) -> Page:
    data, bits = e.fixed_bytes(leaf.values)
    count = len(leaf.values)
    large = minor >= 2
    if bits == 1:
        if large and _few_levels(leaf) and _all_equal(np.unpackbits(data, count=count, bitorder="little"), valid):
            first = 0 if valid is None else int(valid.argmax())
            return _constant(leaf, (bytes([data[first // 8] >> (first % 8) & 1]),), compress=True)
        bounds = e.even_bounds(count, e.values_per_chunk(1))
        return mini_block(leaf, e.Chunks(e.flat(1), bounds, (e.bit_stream(data, bounds, 1),)), large=large)
    rows = data.reshape(count, bits // 8)
    narrow = bits in (8, 16, 32, 64)
    if large and (not narrow or _few_levels(leaf)) and _all_equal(_words(data, bits, count), valid):
        return _constant(leaf, (rows[0 if valid is None else int(valid.argmax())].tobytes(),), compress=True)
    if options.zips(bits // 8):
        return zip_fixed(leaf, rows, e.flat(bits))
    if not narrow:
        return _wide(leaf, data, bits, options, minor)
    values = _words(data, bits, count)
    if options.compression == "none":
        return mini_block(leaf, e.flat_chunks(data, bits, count), large=large)
    measures = e.Measures.of(values)
    if bits == 64 and large and (page := _word_dictionary(leaf, values, measures, options, minor)) is not None:
        return page
    if options.compression in GENERAL and options.bss == "on" and pt.is_floating(leaf.values.type) and bits >= 32:
        chunks = _compressed(_split_bytes(values), options)
    else:
        chunks = _compressed(e.integer_chunks(values, options.rle_threshold, measures), options)
    return mini_block(leaf, chunks, large=large)


def _wide(leaf: Leaf, data: Any, bits: int, options: Options, minor: int) -> Page:
    """Encode values that are not 8, 16, 32 or 64 bits wide: decimals and fixed-size binaries."""
    count, width = len(leaf.values), bits // 8
    if bits == 128 and count >= MIN_VALUES:
        strings = e.Strings(np.arange(0, (count + 1) * width, width, dtype=np.int64), data)
        distinct = distinct_strings(strings, options)
        if distinct is not None and _pays(count, len(distinct[0]), distinct[0].size, count * width, options):
            items = fixed_items(distinct[0].data, bits, len(distinct[0]), options, minor)
            return mini_block(leaf, _indices(distinct[1], options), large=minor >= 2, items=items)
    chunks = _compressed(e.flat_chunks(data, bits, count), options)
    return mini_block(leaf, chunks, large=minor >= 2)


def _split_bytes(values: Any) -> e.Chunks:
    """Split each chunk by bytes: the first bytes of all its values, then their second bytes, and so on."""
    width = values.itemsize
    bounds = e.even_bounds(len(values), e.values_per_chunk(8 * width))
    per_chunk = int(bounds[1])
    data = values.view(np.uint8).reshape(-1, width)
    whole = len(values) // per_chunk * per_chunk
    split = np.empty(values.nbytes, np.uint8)
    chunks = data[:whole].reshape(-1, per_chunk, width)
    split[: whole * width].reshape(-1, width, per_chunk)[:] = chunks.transpose(0, 2, 1)
    split[whole * width :].reshape(width, -1)[:] = data[whole:].T
    encoding = pb.CompressiveEncoding(byte_stream_split=pb.ByteStreamSplit(values=e.flat(8 * width)))
    return e.Chunks(encoding, bounds, (e.Stream(split, bounds * width),))


def _word_dictionary(leaf: Leaf, values: Any, measures: e.Measures, options: Options, minor: int) -> Page | None:
    count = len(values)
    if count < MIN_VALUES:
        return None
    packed, runs = measures.packed_bytes(8), measures.run_count(count)
    if packed <= count and packed < 9 * runs:  # at most eight bits per value
        return None
    items, indices = distinct_words(values, options) or (None, None)
    if items is None or not _pays(count, len(items), items.nbytes, min(packed, 9 * runs, 8 * count), options, runs):
        return None
    encoded = fixed_items(items, 64, len(items), options, minor)
    return mini_block(leaf, _indices(indices, options), large=True, items=encoded)


def _pays(count: int, distinct: int, item_bytes: int, plain: int, options: Options, runs: int | None = None) -> bool:
    """Whether a dictionary and its indices are small enough, compared to the ``plain`` bytes of the values."""
    indices = count * max(distinct - 1, 1).bit_length() // 8
    if runs is not None:
        indices = min(indices, 5 * runs)
    return item_bytes + indices < options.dict_size_ratio * plain


def _indices(indices: Any, options: Options) -> e.Chunks:
    return _compressed(e.integer_chunks(indices, options.rle_threshold, e.Measures.of(indices)), options)


def _compressed(chunks: e.Chunks, options: Options) -> e.Chunks:
    """Compress the first buffer of each chunk, if requested and if that saves bytes."""
    first, *others = chunks.streams
    if options.compression not in GENERAL or len(first.data) < MIN_BYTES:
        return chunks
    stream = e.Stream.of([compress(piece, options.compression, options.level) for piece in first.pieces()])
    if len(stream.data) >= len(first.data):
        return chunks
    encoding = general(options.compression, options.level, chunks.encoding)
    return replace(chunks, encoding=encoding, streams=(stream, *others))


def _few_levels(leaf: Leaf) -> bool:
    """Whether the levels are few enough for a constant page, which does not compress them next to a value."""
    return (leaf.repetition is None and leaf.definition is None) or leaf.entries <= FEW_LEVELS


def _words(data: Any, bits: int, count: int) -> Any:
    """View values as integers of their width, or as rows of bytes if no integer has that width."""
    if bits in (8, 16, 32, 64):
        return data.view(f"<u{bits // 8}")
    return data.reshape(count, bits // 8)


def _all_equal(values: Any, valid: Any) -> bool:
    first = 0 if valid is None else int(valid.argmax())
    last = len(values) - 1 if valid is None else len(values) - 1 - int(valid[::-1].argmax())
    if (values[first] != values[last]).any():
        return False
    equal = values == values[first]
    if equal.ndim > 1:
        equal = equal.all(axis=1)
    return bool(equal.all() if valid is None else (equal | ~valid).all())


def _strings(leaf: Leaf, valid: Any, options: Options, minor: int) -> Page:
    strings = e.Strings.of(leaf.values)
    large = minor >= 2
    if large and _few_levels(leaf) and (value := _one_string(strings, valid)) is not None:
        return _constant(leaf, value, compress=True)
    if len(strings) >= MIN_VALUES:
        distinct = distinct_strings(strings, options)
        plain = strings.size + len(strings) * strings.offsets.itemsize
        if distinct is not None and _pays(len(strings), len(distinct[0]), distinct[0].size, plain, options):
            items = string_items(distinct[0], options, minor)
            return mini_block(leaf, _indices(distinct[1], options), large=large, items=items)
    longest = strings.longest
    plain_encoding = e.variable(8 * strings.offsets.itemsize)
    symbols = (
        strings.size >= SYMBOL_BYTES
        and longest >= SYMBOL_VALUE
        and (options.compression == "fsst" or (is_text(leaf.values.type) and options.compression is None))
    )
    if options.zips(longest):
        huge = longest > HUGE and strings.size >= SYMBOL_BYTES
        if options.compression in GENERAL or (options.compression is None and huge):
            scheme = options.compression or "zstd"
            pieces = [compress(piece, scheme, options.level) if len(piece) else b"" for piece in strings.pieces()]
            packed = e.Strings(
                np.cumsum([0, *map(len, pieces)], dtype=strings.offsets.dtype),
                np.frombuffer(b"".join(pieces), np.uint8),
            )
            return zip_strings(leaf, packed, general(scheme, options.level or 0, plain_encoding))
        if symbols and (coded := compress_strings(strings)) is not None:
            return zip_strings(leaf, coded[0], fsst(coded[1], plain_encoding))
        return zip_strings(leaf, strings, plain_encoding)
    limit = options.chunk_bytes or e.CHUNK_BYTES
    if symbols and (coded := compress_strings(strings)) is not None:
        chunks = e.string_chunks(coded[0], limit)
        return mini_block(leaf, replace(chunks, encoding=fsst(coded[1], chunks.encoding)), large=large)
    return mini_block(leaf, _compressed(e.string_chunks(strings, limit), options), large=large)


def _one_string(strings: e.Strings, valid: Any) -> tuple[bytes, bytes] | None:
    """Return the offsets and bytes of the value that all valid strings share; ``None`` if they differ."""
    sizes = np.diff(strings.offsets)
    first = 0 if valid is None else int(valid.argmax())
    size = int(sizes[first])
    if not (sizes == size if valid is None else (sizes == size) | ~valid).all():
        return None
    if size:
        count = len(sizes) if valid is None else int(valid.sum())
        data = strings.data[strings.offsets[0] : strings.offsets[-1]]
        if len(data) != count * size or not (data.reshape(count, size) == data[:size]).all():
            return None
    value = strings.data[strings.offsets[first] : strings.offsets[first] + size].tobytes()
    return np.array([0, size], strings.offsets.dtype).tobytes(), value


def _dictionary(leaf: Leaf, options: Options, minor: int) -> Page:
    """Encode an Arrow dictionary array without its null items: their rows are null by definition level."""
    items = leaf.values.dictionary
    data, bits = e.fixed_bytes(leaf.values.indices)
    indices = data.view(f"<u{bits // 8}").copy()
    if leaf.values.indices.null_count or items.null_count:
        non_null = items.drop_null()
        numbers = np.zeros(len(items) + 1, indices.dtype)
        numbers[: len(items)] = np.maximum(np.cumsum(items.is_valid().to_numpy(zero_copy_only=False)) - 1, 0)
        valid = leaf.values.indices.is_valid().to_numpy(zero_copy_only=False)
        indices = np.where(valid, numbers[np.where(valid, indices, 0)], 0).astype(indices.dtype)
        items = non_null
    if is_variable(items.type):
        encoded = string_items(e.Strings.of(items), options, minor)
    else:
        values, width = e.fixed_bytes(items)
        encoded = fixed_items(values, width, len(items), options, minor)
    return mini_block(leaf, _indices(indices, options), large=minor >= 2, items=encoded)


def _blobs(leaf: Leaf) -> Page:
    """Encode blobs as byte ranges of the file; a null is an empty range whose position holds its definition level."""
    rows = np.empty((len(leaf.values), 2), np.uint64)
    for i, child in enumerate(leaf.values.flatten()):
        rows[:, i] = child.fill_null(0).to_numpy()
    if leaf.definition is not None:
        missing = leaf.definition > 0
        rows[missing, 0] = leaf.definition[missing].astype(np.uint64) << np.uint64(16)
        rows[missing, 1] = 0
    encoding = pb.CompressiveEncoding(packed_struct=pb.PackedStruct(bits_per_value=[64, 64], values=e.flat(128)))
    chunks = replace(e.flat_chunks(rows.view(np.uint8).reshape(-1), 128, len(rows)), encoding=encoding)
    inner = mini_block(Leaf(leaf.values, leaf.rows, (pb.ALL_VALID_ITEM,)), chunks, large=False)
    layout = pb.BlobLayout(inner_layout=inner.layout, layers=leaf.layers)
    return replace(inner, layout=pb.PageLayout(blob_layout=layout))
