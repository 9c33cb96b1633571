"""Codecs and checksums of blocks (spec: "Codecs", "Checksum algorithms").

Decompression stops at the size that the block descriptor states.  A size that the codec cannot produce is rejected
before memory is allocated.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from trilake.errors import CorruptFileError, InvalidArgumentError, UnsupportedProtocolError

Payload: TypeAlias = Any  # bytes, memoryview, or a buffer of Arrow or numpy

_snappy = pa.Codec("snappy")


def _deflate(data: Payload) -> bytes:
    # Raw deflate with level 6 and the default memory level, as the reference writes it.
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def _inflate(data: Payload, size: int) -> bytes:
    stream = zlib.decompressobj(-15)
    # One more byte than ``size`` lets a stream of exactly this size reach its end.
    return _whole(stream.decompress(data, size + 1), size, stream.eof)


def _bunzip(data: Payload, size: int) -> bytes:
    stream = bz2.BZ2Decompressor()
    raw = more = stream.decompress(data, size + 1)
    while more and len(raw) <= size and not stream.eof and not stream.needs_input:
        more = stream.decompress(b"", size + 1 - len(raw))
        raw += more
    return _whole(raw, size, stream.eof)


def _whole(raw: bytes, size: int, ended: bool) -> bytes:
    if not ended and len(raw) <= size:
        raise ValueError(f"it ends after {len(raw)} of {size} bytes")
    return raw


def snappy_size(data: Payload) -> int:
    """Return the uncompressed size at the start of a snappy block."""
    size = shift = 0
    for byte in memoryview(data).cast("B")[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return size


def _unsnap(data: Payload, size: int) -> Payload:
    stated = snappy_size(data)
    if stated != size:
        raise ValueError(f"it claims {stated} bytes, but its descriptor says {size}")
    return _snappy.decompress(data, size) if size else b""


_COMPRESS: Mapping[str, Callable[[Payload], Payload]] = {
    "null": lambda data: data,
    "deflate": _deflate,
    "snappy": _snappy.compress,
    "bzip2": lambda data: bz2.compress(data, 9),
}
_DECOMPRESS: Mapping[str, Callable[[Payload, int], Any]] = {"deflate": _inflate, "snappy": _unsnap, "bzip2": _bunzip}
#: Maximum compression ratio of the codecs that have one.
_BOUND = {"deflate": 1032, "snappy": 64}

CODECS = tuple(_COMPRESS)
#: The reference writes ``crc32``, the specification says ``crc-32``; trilake writes the first and reads both.
CHECKSUMS = ("null", "crc32", "crc-32")


def check_codec(codec: str) -> str:
    """Check the codec of a new file.  Raises ``InvalidArgumentError``."""
    if codec not in CODECS:
        raise InvalidArgumentError(f"{codec!r} is not a Trevni codec", help=f"use one of {', '.join(CODECS)}")
    return codec


def check_checksum(checksum: str) -> str:
    """Check the checksum of a new file; ``crc-32`` becomes ``crc32``.  Raises ``InvalidArgumentError``."""
    if checksum not in CHECKSUMS:
        raise InvalidArgumentError(f"{checksum!r} is not a Trevni checksum", help="use null or crc32")
    return "crc32" if checksum == "crc-32" else checksum


def compress(codec: str, data: Payload) -> Payload:
    """Compress the payload of one block."""
    return _COMPRESS[codec](data)


def checksum_size(checksum: str, *, file: str, column: str) -> int:
    """Return the number of checksum bytes per block.  Raises ``UnsupportedProtocolError`` for an unknown checksum."""
    if checksum not in CHECKSUMS:
        message = f"unknown checksum {checksum!r}"
        raise UnsupportedProtocolError(message, help="expected null or crc32", file=file, column=column)
    return 0 if checksum == "null" else 4


def checksum_bytes(data: Payload) -> bytes:
    """Return the CRC-32 of an uncompressed payload: big-endian like the reference, although the spec says fixed32."""
    return zlib.crc32(data).to_bytes(4, "big")


class BlockChecksumError(CorruptFileError):
    """The payload of a block does not match the checksum after it."""


class BlockLocation(NamedTuple):
    """The column, or block of a column, that an error is about."""

    file: str
    column: str
    block: int | None = None
    offset: int | None = None

    def at(self, block: int, offset: int) -> BlockLocation:
        """Return the location of a block in this column."""
        return self._replace(block=block, offset=offset)

    def fail(self, message: str, help: str | None = None) -> CorruptFileError:
        """Return an error with this location."""
        return CorruptFileError(message, help=help, **self._asdict())


def decompress(codec: str, data: memoryview, size: int, location: BlockLocation) -> Payload:
    """Decompress the payload of one block to exactly ``size`` bytes; bytes after its stream are ignored.

    Raises ``CorruptFileError`` if it is damaged or of another size, and ``UnsupportedProtocolError`` for the codec.
    """
    stored = data.nbytes
    if codec == "null":
        if stored != size:
            raise location.fail(f"the uncompressed block has {stored} bytes, but its descriptor says {size}")
        return data
    if codec not in _DECOMPRESS:
        message, help = f"unknown codec {codec!r}", f"expected one of {', '.join(CODECS)}"
        raise UnsupportedProtocolError(message, help=help, **location._asdict())
    bound = _BOUND.get(codec)
    if bound is not None and size > bound * stored + 64:
        raise location.fail(f"{stored} bytes of {codec} cannot hold the {size} bytes in the descriptor")
    try:
        raw = _DECOMPRESS[codec](data, size)
    except (zlib.error, OSError, ValueError) as e:
        raise location.fail(f"the {codec} stream is damaged: {e}") from None
    actual = memoryview(raw).nbytes
    if actual != size:
        more = "more than " if actual > size else ""
        raise location.fail(f"the block has {more}{min(actual, size)} bytes, but its descriptor says {size}")
    return raw


def verify(checksum: str, codec: str, data: Payload, stored: bytes, location: BlockLocation) -> None:
    """Compare a payload with the checksum after its block.  Raises ``BlockChecksumError`` if they differ."""
    actual = zlib.crc32(data)
    if actual == int.from_bytes(stored, "big"):
        return
    # After uncompressed blocks the reference stores zeros, as it hashes a buffer that it has already consumed.
    if codec == "null" and stored == b"\0\0\0\0":
        return
    # The specification stores crc-32 as a fixed32, which is little-endian.
    if checksum == "crc-32" and actual == int.from_bytes(stored, "little"):
        return
    raise BlockChecksumError(f"expected the checksum {stored.hex()}, got {actual:08x}", **location._asdict())
