"""Pages of version 2.0: a tree of array encodings, whose leaves refer to buffers of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from trilake.errors import UnsupportedProtocolError
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.schema import Field
from trilake.lance.file.types import check_strings, is_variable
from trilake.lance.proto import encodings20_pb2 as pb
from trilake.lance.v2.compression import compress
from trilake.lance.v2.encode_dictionary import distinct_strings
from trilake.lance.v2.encode_miniblock import Page
from trilake.lance.v2.encode_options import GENERAL, Options
from trilake.lance.v2.encode_values import Strings, aligned_bits, byte_rows, fixed_bytes
from trilake.lance.v2.write_levels import validity

#: Maximum distinct strings in a dictionary, and minimum values of its page.
MAX_DISTINCT, MIN_VALUES = 100, 200

_Add = Callable[[Any], pb.Buffer]


def pages(array: pa.Array, field: Field, column: int = 0) -> Iterator[tuple[int, Page]]:
    """Yield the pages of a field and of its children, each with its column number."""
    array = storage_array(array)
    kind = array.type
    if pt.is_struct(kind) and not (field.is_packed or field.is_blob):
        _check_structs(array, field)
        yield column, _page(pb.ArrayEncoding(struct=pb.SimpleStruct()), [], len(array))
        column += 1
        for number, child in enumerate(field.children):
            yield from pages(array.field(number), child, column)
            column += sum(1 for _ in child.columns(parents=True))
    elif not field.is_column:
        ends, adjustment, items = _lists(array)
        offsets = pb.List(offsets=_no_nulls(_flat(64, 0)), null_offset_adjustment=adjustment, num_items=len(items))
        yield column, _page(pb.ArrayEncoding(list=offsets), [ends], len(array))
        # Also without items: pylance cannot read a struct that has no page.
        yield from pages(items, field.children[0], column + 1)
    else:
        check_strings(array, field.name)
        buffers: list[Any] = []

        def add(buffer: Any) -> pb.Buffer:
            buffers.append(buffer)
            return pb.Buffer(buffer_index=len(buffers) - 1)

        encoding = None
        if field.is_packed or field.is_blob:
            encoding = _packed(array, field, add)
        elif pt.is_string(array.type):  # pylance cannot read a dictionary of large strings
            encoding = _string_dictionary(array, add)
        if encoding is None:
            encoding = _values(array, Options.of(field.metadata), add)
        yield column, _page(encoding, buffers, len(array))


def _check_structs(array: pa.Array, field: Field) -> None:
    if array.null_count:
        raise UnsupportedProtocolError(
            f"version 2.0 does not support null structs, got {array.null_count} nulls",
            help='write the data with data_storage_version="2.1" or newer, or fill the nulls',
            column=field.name,
        )


def _page(encoding: pb.ArrayEncoding, buffers: list[Any], length: int) -> Page:
    return Page(encoding, tuple(buffers), length, length)


def _lists(array: pa.Array) -> tuple[Any, int, pa.Array]:
    """Return the end of each list among the items, the number added to the ends of null lists, and the items."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    sizes = np.diff(offsets)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    sizes[missing] = 0
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    if total == offsets[-1] - offsets[0]:
        items = array.values.slice(offsets[0], total)
    else:
        items = array.values.take(pa.array(np.repeat(offsets[:-1] - (ends - sizes), sizes) + np.arange(total)))
    return np.where(missing, ends + total + 1, ends).astype(np.uint64), total + 1, items


def _values(array: pa.Array, options: Options, add: _Add) -> pb.ArrayEncoding:
    kind = array.type
    if pt.is_dictionary(kind):
        return _dictionary(array, options, add)
    if is_variable(kind):
        return _binary(array, options, add)
    if array.null_count == len(array):
        return pb.ArrayEncoding(nullable=pb.Nullable(all_nulls=pb.Nullable.AllNull()))
    bitmap, offset = validity(array)
    valid = None if bitmap is None else pb.Flat(bits_per_value=1, buffer=add(aligned_bits(bitmap, offset, len(array))))
    if pt.is_fixed_size_list(kind):
        size = kind.list_size
        items = _values(storage_array(array.values).slice(array.offset * size, len(array) * size), options, add)
        values = pb.ArrayEncoding(fixed_size_list=pb.FixedSizeList(dimension=size, items=items))
    else:
        data, bits = fixed_bytes(array)
        values = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=bits, buffer=add(data)))
    if valid is None:
        return _no_nulls(values)
    some = pb.Nullable.SomeNull(validity=pb.ArrayEncoding(flat=valid), values=values)
    return pb.ArrayEncoding(nullable=pb.Nullable(some_nulls=some))


def _binary(array: pa.Array, options: Options, add: _Add) -> pb.ArrayEncoding:
    strings = Strings.of(array)
    ends = (strings.offsets[1:] - strings.offsets[0]).astype(np.uint64)
    adjustment = strings.size + 1
    if array.null_count:
        ends[array.is_null().to_numpy(zero_copy_only=False)] += np.uint64(adjustment)
    indices = _flat(64, add(ends).buffer_index)
    data: Any = strings.data[strings.offsets[0] : strings.offsets[-1]]
    flat = pb.Flat(bits_per_value=8)
    if options.compression in GENERAL and strings.size:
        data = compress(data, options.compression, options.level)
        flat.compression.scheme = options.compression
    flat.buffer.CopyFrom(add(data))
    binary = pb.Binary(indices=_no_nulls(indices), bytes=pb.ArrayEncoding(flat=flat), null_adjustment=adjustment)
    return pb.ArrayEncoding(binary=binary)


def _string_dictionary(array: pa.Array, add: _Add) -> pb.ArrayEncoding | None:
    """Encode strings as indices into a dictionary, from 1; 0 is null.  ``None`` if a dictionary does not pay."""
    if len(array) < MIN_VALUES or array.null_count == len(array):
        return None
    distinct = distinct_strings(Strings.of(array), Options(dict_divisor=max(len(array) // MAX_DISTINCT, 1)))
    if distinct is None:
        return None
    strings, indices = distinct
    numbers = (indices + 1).astype(np.uint8)
    if array.null_count:
        numbers[array.is_null().to_numpy(zero_copy_only=False)] = 0
    encoded = _no_nulls(_flat(8, add(numbers).buffer_index))
    wide = strings.offsets.astype(np.int64)
    values = pa.LargeStringArray.from_buffers(len(strings), pa.py_buffer(wide), pa.py_buffer(strings.data))
    items = _binary(values, Options(), add)
    return pb.ArrayEncoding(dictionary=pb.Dictionary(indices=encoded, items=items, num_dictionary_items=len(strings)))


def _dictionary(array: pa.Array, options: Options, add: _Add) -> pb.ArrayEncoding:
    """Encode a dictionary array; null rows point to a null item."""
    data, bits = fixed_bytes(array.indices)
    indices = data.view(f"<u{bits // 8}")
    items = array.dictionary
    if array.indices.null_count:
        numbers = np.flatnonzero(items.is_null().to_numpy(zero_copy_only=False))
        null = int(numbers[0]) if len(numbers) else len(items)
        if null > np.iinfo(array.type.index_type.to_pandas_dtype()).max:
            raise UnsupportedProtocolError(
                f"version 2.0 stores null as a dictionary value, but the {len(items)} values already use all "
                f"{array.type.index_type} indices",
                help='cast the indices to a wider type, or write the data with data_storage_version="2.1" or newer',
            )
        if not len(numbers):
            items = pa.concat_arrays([items, pa.nulls(1, items.type)])
        indices = indices.copy()
        indices[array.indices.is_null().to_numpy(zero_copy_only=False)] = null
    encoded = _no_nulls(_flat(bits, add(indices).buffer_index))
    values = _values(items, options, add)
    return pb.ArrayEncoding(dictionary=pb.Dictionary(indices=encoded, items=values, num_dictionary_items=len(items)))


def _packed(array: pa.Array, field: Field, add: _Add) -> pb.ArrayEncoding:
    """Encode a packed struct row by row; a null blob is the empty range at position 1."""
    if not field.is_blob:
        _check_structs(array, field)
    rows, inner = [], []
    for child in map(storage_array, array.flatten()):
        if child.null_count and not field.is_blob:
            raise UnsupportedProtocolError(
                f"a packed struct cannot contain nulls, got {child.null_count} nulls",
                help="fill the nulls, or do not pack the struct",
                column=field.name,
            )
        items, count, size = child, len(child), 0
        if pt.is_fixed_size_list(child.type):
            size = child.type.list_size
            items = child.values.slice(child.offset * size, count * size)
        kind = items.type
        if pt.is_nested(kind) or pt.is_boolean(kind) or is_variable(kind) or pt.is_dictionary(kind):
            raise UnsupportedProtocolError(
                f"a packed struct cannot contain type {child.type} in version 2.0",
                help='write the data with data_storage_version="2.2" or newer, or do not pack the struct',
                column=field.name,
            )
        data, bits = fixed_bytes(items)
        described = _no_nulls(_flat(bits, 0))
        if size:
            described = _no_nulls(pb.ArrayEncoding(fixed_size_list=pb.FixedSizeList(dimension=size, items=described)))
        rows.append(byte_rows(data, bits * max(size, 1), count))
        inner.append(described)
    matrix = np.hstack(rows)
    if field.is_blob and array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        matrix[missing] = np.array([1, 0], "<u8").view(np.uint8)
    return pb.ArrayEncoding(packed_struct=pb.PackedStruct(inner=inner, buffer=add(matrix)))


def _flat(bits: int, buffer: int) -> pb.ArrayEncoding:
    return pb.ArrayEncoding(flat=pb.Flat(bits_per_value=bits, buffer=pb.Buffer(buffer_index=buffer)))


def _no_nulls(values: pb.ArrayEncoding) -> pb.ArrayEncoding:
    return pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNull(values=values)))
