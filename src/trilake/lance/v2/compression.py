"""Compression: LZ4 and Zstandard buffers, which begin with their decompressed size, and FSST strings.

One-byte codes of FSST stand for symbols of up to eight bytes; code 255 escapes the next byte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.lance.file.sources import Int64s
from trilake.lance.proto import encodings21_pb2
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.values import Bytes, DamagedPage, UnsupportedPage, Variable, gather, kernels, new_offsets

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
#: Maximum compression ratio; a larger stated size is wrong, and must not be allocated.
_RATIO = {"lz4_raw": 256, "zstd": 1 << 15}
_SCHEMES = {encodings21_pb2.LZ4: "lz4_raw", encodings21_pb2.ZSTD: "zstd"}


@cache
def _codec(name: str) -> pa.Codec:
    return pa.Codec(name)


def scheme(compression: encodings21_pb2.BufferCompression) -> str:
    """Arrow's name of a compression scheme.  Raises ``DamagedPage``."""
    name = _SCHEMES.get(compression.scheme)
    if name is None:
        raise UnsupportedPage(f"compression scheme {compression.scheme} is not supported")
    return name


def decompressed(name: str, data: Bytes) -> Bytes:
    """Decompress a buffer.  Raises ``DamagedPage``."""
    head = 4 if name == "lz4_raw" else 8
    frame = name == "zstd" and data[:4].tobytes() == _ZSTD_MAGIC
    if frame:
        size, head = _frame_size(data), 0
    elif len(data) < head:
        raise DamagedPage(f"{len(data)} bytes are too few for {name}")
    else:
        size = int.from_bytes(data[:head].tobytes(), "little")
    if size > _RATIO[name] * max(len(data) - head, 1) or size >= 1 << 40:
        raise DamagedPage(f"{len(data)} bytes of {name} claim an uncompressed size of {size}")
    if not size:
        return np.empty(0, np.uint8)
    try:
        out = _codec(name).decompress(pa.py_buffer(data[head:]), size)
    except (OSError, ValueError, pa.ArrowException) as e:
        raise DamagedPage(f"cannot decompress {name}: {e}") from e
    if out.size != size:
        raise DamagedPage(f"{name} decompressed to {out.size} bytes, expected {size}")
    return np.frombuffer(out, np.uint8)


def _frame_size(data: Bytes) -> int:
    """The size in the header of a Zstandard frame."""
    if len(data) < 6:
        raise DamagedPage("a Zstandard frame is truncated")
    flags = int(data[4])
    single = flags >> 5 & 1
    at = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[flags >> 6]
    if not width:
        raise DamagedPage("a Zstandard frame has no content size")
    size = int.from_bytes(data[at : at + width].tobytes(), "little")
    return size + 256 if width == 2 else size


#: Zstandard's default level; Arrow's is 1.
ZSTD_LEVEL = 3


def compress(data: Any, scheme: str, level: int | None = None) -> bytes:
    """Compress one buffer."""
    size = len(data) if isinstance(data, bytes) else data.nbytes
    head = struct.pack("<Q" if scheme == "zstd" else "<I", size)
    return head + bytes(_encoder(scheme, level).compress(pa.py_buffer(data), asbytes=True))


@lru_cache(maxsize=64)
def _encoder(scheme: str, level: int | None) -> pa.Codec:
    if scheme == "lz4":
        return pa.Codec("lz4_raw")
    return pa.Codec("zstd", compression_level=level or ZSTD_LEVEL)


def general(scheme: str, level: int | None, inner: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    """The encoding of compressed values."""
    compression = pb.BufferCompression(scheme=pb.ZSTD if scheme == "zstd" else pb.LZ4, level=level)
    return pb.CompressiveEncoding(general=pb.General(compression=compression, values=inner))


_MAGIC = 0x46535354
_ON = 1 << 24
_SYMBOLS = 256


@dataclass(frozen=True)
class SymbolTable:
    """The symbol of each code, as a little-endian word, and its length in bytes."""

    symbols: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint8]
    #: Whether strings are coded; if not, they are stored as they are.
    used: bool

    @classmethod
    def parse(cls, data: bytes) -> SymbolTable:
        """Parse a serialized symbol table.  Raises ``DamagedPage``."""
        header = int.from_bytes(data[:8], "little")
        count = header & 0xFF
        if len(data) < 8 + 9 * count or header >> 32 != _MAGIC:
            raise DamagedPage("an FSST symbol table is invalid")
        symbols = np.zeros(_SYMBOLS, np.uint64)
        lengths = np.zeros(_SYMBOLS, np.uint8)
        symbols[:count] = np.frombuffer(data, "<u8", count, 8)
        lengths[:count] = np.frombuffer(data, np.uint8, count, 8 + 8 * count)
        if lengths.max() > 8:
            raise DamagedPage("an FSST symbol table is invalid")
        return cls(symbols, lengths, bool(header & _ON))

    def decode(self, data: Bytes, begin: Int64s, length: Int64s) -> Variable:
        """Decode pieces of ``data``.  Raises ``DamagedPage``."""
        if not self.used:
            return gather(data, begin, length)
        return self._decode(len(begin), int(length.sum()), "fsst_decode", data, begin, length)

    def decode_chunks(self, data: Bytes, at: Int64s, size: Int64s, counts: Int64s, width: int) -> Variable:
        """Decode chunks that begin with offsets of ``width`` bytes.  Raises ``DamagedPage``."""
        return self._decode(int(counts.sum()), int(size.sum()), "fsst_chunks", data, at, size, counts, width)

    def _decode(self, count: int, size: int, kernel: str, *pieces: Any) -> Variable:
        offsets = new_offsets(count, 8 * size)
        # Only decoding shows the length: allocate for the worst case, then shrink.
        buffer = pa.allocate_buffer(8 * size + 8, resizable=True)
        out = np.frombuffer(buffer, np.uint8)
        if getattr(kernels(), kernel)(*pieces, self.symbols, self.lengths, out, offsets) >= 0:
            raise DamagedPage("FSST-encoded strings are invalid")
        del out
        buffer.resize(int(offsets[-1]), shrink_to_fit=True)
        return Variable(offsets, np.frombuffer(buffer, np.uint8))
