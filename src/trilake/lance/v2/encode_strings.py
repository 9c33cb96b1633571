"""Strings and binaries of mini-block pages: chunks of offsets and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.common.jit import jit
from trilake.lance.file.types import is_large
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.encode_chunks import CHUNK_BYTES, CHUNK_VALUES, Chunks, Stream, flat
from trilake.lance.v2.unaligned import read_only


@dataclass(frozen=True)
class Strings:
    """Variable-length values: value ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    offsets: Any
    data: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", read_only(self.offsets))
        object.__setattr__(self, "data", read_only(self.data))

    @classmethod
    def of(cls, array: pa.Array) -> Strings:
        """Wrap the buffers of a string or binary array without a copy; its offset width stays."""
        width = np.dtype(np.int64 if is_large(array.type) else np.int32)
        _, offsets, data = array.buffers()
        if offsets is None or not len(array):
            return cls(np.zeros(1, width), np.empty(0, np.uint8))
        return cls(
            np.frombuffer(offsets, width, len(array) + 1, array.offset * width.itemsize),
            np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def pieces(self) -> Iterator[Any]:
        for start, end in pairwise(self.offsets.tolist()):
            yield self.data[start:end]

    @property
    def size(self) -> int:
        return int(self.offsets[-1] - self.offsets[0])

    @property
    def longest(self) -> int:
        """Bytes of the longest value."""
        return int(np.diff(self.offsets).max(initial=0))


def variable(bits: int) -> pb.CompressiveEncoding:
    """The encoding of strings with offsets of ``bits`` bits."""
    return pb.CompressiveEncoding(variable=pb.Variable(offsets=flat(bits)))


def string_chunks(strings: Strings, limit: int = CHUNK_BYTES) -> Chunks:
    """Cut values into chunks of about ``limit`` bytes; offsets count from the start of the chunk's buffer."""
    width = strings.offsets.itemsize
    bounds = np.empty(len(strings) // 2 + 2, np.int64)
    bounds = bounds[: 1 + string_bounds(strings.offsets, width, limit, CHUNK_VALUES, bounds)]
    counts = np.diff(bounds)
    sizes = (counts + 1) * width + np.diff(strings.offsets[bounds].astype(np.int64))
    starts = np.zeros(len(bounds), np.int64)
    np.cumsum(-(-sizes // width) * width, out=starts[1:])
    data = np.zeros(starts[-1], np.uint8)
    fill_strings(strings.offsets, strings.data, bounds, starts, data, data.view(strings.offsets.dtype))
    return Chunks(variable(8 * width), bounds, (Stream(data, starts),))


@jit
def string_bounds(offsets: Any, width: int, limit: int, most: int, bounds: Any) -> int:
    """Fill ``bounds`` with the first value of each chunk, then the total; return the number of chunks."""
    count = len(offsets) - 1
    first, chunks = 0, 0
    bounds[0] = 0
    while first < count:
        size = 2
        while (
            size * 2 <= min(most, count - first)
            and (2 * size + 1) * width + offsets[first + 2 * size] - offsets[first] <= limit
        ):
            size *= 2
        left = count - first
        if left <= 2 or (left <= most and (left + 1) * width + offsets[count] - offsets[first] <= limit):
            size = left
        first += size
        chunks += 1
        bounds[chunks] = first
    return chunks


@jit
def fill_strings(offsets: Any, source: Any, bounds: Any, starts: Any, data: Any, words: Any) -> None:
    """Write the offsets and bytes of each chunk."""
    width = words.itemsize
    for chunk in range(len(bounds) - 1):
        first, end, start = bounds[chunk], bounds[chunk + 1], starts[chunk]
        head = (end - first + 1) * width
        shift = head - offsets[first]
        at = start // width
        for i in range(first, end + 1):
            words[at + i - first] = offsets[i] + shift
        size = offsets[end] - offsets[first]
        data[start + head : start + head + size] = source[offsets[first] : offsets[end]]
