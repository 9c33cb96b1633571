"""General compression: LZ4 and Zstandard buffers, which begin with their decompressed size."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from trilake.lance.proto import encodings21_pb2
from trilake.lance.v2.values import Bytes, DamagedPage, UnsupportedPage

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
        raise DamagedPage(f"{len(data)} bytes of {name} state an uncompressed size of {size}")
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
