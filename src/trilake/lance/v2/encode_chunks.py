"""Encoded chunks of a mini-block page: the result of every mini-block codec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from trilake.common.jit import jit
from trilake.lance.proto import encodings21_pb2 as pb

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

#: Target bytes of a chunk's values, and their maximum number.
CHUNK_BYTES, CHUNK_VALUES = 8192, 4096


@dataclass(frozen=True)
class Stream:
    """One buffer of each chunk: chunk ``i`` is ``data[starts[i]:starts[i + 1]]``."""

    data: U8
    starts: I64

    @property
    def sizes(self) -> I64:
        return np.diff(self.starts)

    def pieces(self) -> Iterator[U8]:
        for start, end in pairwise(self.starts.tolist()):
            yield self.data[start:end]

    @classmethod
    def of(cls, pieces: list[bytes]) -> Stream:
        starts = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum([len(piece) for piece in pieces], out=starts[1:])
        return cls(np.frombuffer(b"".join(pieces), np.uint8), starts)


@dataclass(frozen=True)
class Chunks:
    """Encoded values: ``streams`` are their buffers, ``bounds`` the first value of each chunk, then the total."""

    encoding: pb.CompressiveEncoding
    bounds: I64
    streams: tuple[Stream, ...]

    @property
    def size(self) -> int:
        return sum(len(stream.data) for stream in self.streams)


def even_bounds(count: int, per_chunk: int) -> I64:
    """Bounds of chunks with ``per_chunk`` values each; the last chunk has the remainder.

    >>> even_bounds(5, 2).tolist()
    [0, 2, 4, 5]
    """
    return np.append(np.arange(0, count, per_chunk, dtype=np.int64), count)


def values_per_chunk(bits: int, limit: int = CHUNK_BYTES) -> int:
    """How many values of a bit width fit into a chunk: a power of two, at least 2.

    >>> values_per_chunk(64), values_per_chunk(1), values_per_chunk(8 * 3000)
    (1024, 4096, 2)
    """
    fit = max(limit * 8 // max(bits, 1), 2)
    return min(1 << (fit.bit_length() - 1), CHUNK_VALUES)


def bit_stream(bits: U8, bounds: I64, per_value: int) -> Stream:
    """Cut packed values into chunks; each chunk except the last must fill whole bytes."""
    return Stream(bits, -(-bounds * per_value // 8))


def flat(bits: int) -> pb.CompressiveEncoding:
    """The encoding of plain values."""
    return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))


@jit
def scatter(target: Any, places: Any, data: Any, starts: Any) -> None:
    """Copy each piece of ``data`` to its position in ``target``."""
    for i in range(len(places)):
        size = starts[i + 1] - starts[i]
        target[places[i] : places[i] + size] = data[starts[i] : starts[i + 1]]
