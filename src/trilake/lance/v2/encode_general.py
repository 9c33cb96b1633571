"""General compression: Zstandard and LZ4 buffers, which begin with the size of the data."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.encode_chunks import Chunks, Stream

#: Zstandard's default level; Arrow's is 1.
ZSTD_LEVEL = 3
#: Less data than this is not compressed.
MIN_BYTES = 4096


def compress(data: Any, scheme: str, level: int | None = None) -> bytes:
    """Compress one buffer."""
    size = len(data) if isinstance(data, bytes) else data.nbytes
    head = struct.pack("<Q" if scheme == "zstd" else "<I", size)
    return head + bytes(_codec(scheme, level).compress(pa.py_buffer(data), asbytes=True))


@lru_cache(maxsize=64)
def _codec(scheme: str, level: int | None) -> pa.Codec:
    if scheme == "lz4":
        return pa.Codec("lz4_raw")
    return pa.Codec("zstd", compression_level=level or ZSTD_LEVEL)


def general(scheme: str, level: int | None, inner: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    """The encoding of compressed values."""
    compression = pb.BufferCompression(scheme=pb.ZSTD if scheme == "zstd" else pb.LZ4, level=level)
    return pb.CompressiveEncoding(general=pb.General(compression=compression, values=inner))


def compress_chunks(chunks: Chunks, scheme: str, level: int | None) -> Chunks:
    """Compress the first buffer of each chunk, if that saves bytes."""
    first, *others = chunks.streams
    if len(first.data) < MIN_BYTES:
        return chunks
    stream = Stream.of([compress(piece, scheme, level) for piece in first.pieces()])
    if len(stream.data) >= len(first.data):
        return chunks
    return replace(chunks, encoding=general(scheme, level, chunks.encoding), streams=(stream, *others))
