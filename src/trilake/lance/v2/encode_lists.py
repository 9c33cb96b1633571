"""Encode fixed-size lists as single values: the validity of the items, then the items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from trilake.lance.file.extensions import storage_array
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.encode_chunks import Chunks, bit_stream, even_bounds, flat, values_per_chunk
from trilake.lance.v2.write_levels import validity


@dataclass(frozen=True)
class FixedLists:
    """Fixed-size lists, possibly nested, as flat buffers.

    ``dimensions`` are the list sizes from the outermost level inwards, ``valid`` the validity of the items of each
    level, ``items`` the innermost items.
    """

    count: int
    dimensions: tuple[int, ...]
    valid: tuple[Any, ...]
    items: Any
    item_bits: int

    @classmethod
    def of(cls, array: pa.Array) -> FixedLists:
        count, dimensions, valid = len(array), [], []
        while pt.is_fixed_size_list(array.type):
            size = array.type.list_size
            array = storage_array(array.values).slice(array.offset * size, len(array) * size)
            dimensions.append(size)
            bitmap, offset = validity(array)
            valid.append(None if bitmap is None else aligned_bits(bitmap, offset, len(array)))
        items, bits = fixed_bytes(array)
        return cls(count, tuple(dimensions), tuple(valid), items, bits)

    @property
    def encoding(self) -> pb.CompressiveEncoding:
        encoding = flat(self.item_bits)
        for size, valid in zip(reversed(self.dimensions), reversed(self.valid), strict=True):
            encoding = pb.CompressiveEncoding(
                fixed_size_list=pb.FixedSizeList(items_per_value=size, values=encoding, has_validity=valid is not None)
            )
        return encoding

    @property
    def row_bytes(self) -> int:
        """Bytes of a single value."""
        return sum(-(-bits // 8) for _, bits in self._parts)

    @property
    def has_whole_bytes(self) -> bool:
        """Whether the items of a value fill its bytes; pylance reads no other lists from full-zip pages."""
        return self._parts[-1][1] % 8 == 0

    @property
    def _parts(self) -> list[tuple[Any, int]]:
        """The buffers, and the bits per value in each."""
        parts, size = [], 1
        for dimension, valid in zip(self.dimensions, self.valid, strict=True):
            size *= dimension
            if valid is not None:
                parts.append((valid, size))
        return [*parts, (self.items, size * self.item_bits)]

    def chunks(self) -> Chunks:
        """Encode the values for a mini-block page."""
        bits = sum(bits for _, bits in self._parts)
        bounds = even_bounds(self.count, max(values_per_chunk(bits), 8))
        streams = tuple(bit_stream(data, bounds, bits) for data, bits in self._parts)
        return Chunks(self.encoding, bounds, streams)

    def rows(self) -> Any:
        """Return the values for a full-zip page, as a byte matrix with a row per value."""
        rows = [byte_rows(data, bits, self.count) for data, bits in self._parts]
        return rows[0] if len(rows) == 1 else np.hstack(rows)


def byte_rows(data: Any, bits: int, count: int) -> Any:
    """Return a row of whole bytes per value."""
    if bits % 8 == 0:
        return data[: count * (bits // 8)].reshape(count, bits // 8)
    every = np.unpackbits(data, count=count * bits, bitorder="little").reshape(count, bits)
    return np.packbits(every, axis=1, bitorder="little")


def aligned_bits(bitmap: Any, offset: int, count: int) -> Any:
    """Return ``count`` bits from ``offset``, shifted to the start of a byte."""
    if offset % 8 == 0:
        return bitmap[offset // 8 : offset // 8 + -(-count // 8)]
    start = offset % 8
    bits = np.unpackbits(bitmap[offset // 8 : -(-(offset + count) // 8)], bitorder="little")
    return np.packbits(bits[start : start + count], bitorder="little")


def fixed_bytes(array: pa.Array) -> tuple[Any, int]:
    """Return the bytes of fixed-width values, and their bit width; a boolean has one bit."""
    bits = array.type.bit_width
    data = array.buffers()[1]
    if data is None:
        return np.zeros(-(-len(array) * bits // 8), np.uint8), bits
    raw = np.frombuffer(data, np.uint8)
    if bits == 1:
        return aligned_bits(raw, array.offset, len(array)), 1
    width = bits // 8
    return raw[array.offset * width : (array.offset + len(array)) * width], bits
