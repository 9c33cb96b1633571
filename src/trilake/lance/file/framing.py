"""Read and write the footer and messages of a manifest, or of a file of the legacy format.

The last 16 bytes are the position of a message, the format version and ``LANC``.  At that position are the length of
the message, in four bytes, and the message.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from trilake.errors import CorruptFileError, TrilakeError, UnsupportedProtocolError
from trilake.lance.file.sources import Source
from trilake.lance.proto import DecodeError, Message

MAGIC = b"LANC"
FOOTER = struct.Struct("<qhh4s")
LENGTH = struct.Struct("<I")
#: The version to write; 0.2 is the same format, 0.3 and 2.x are the second format.
MAJOR, MINOR, NEWEST_MINOR = 0, 1, 2

_M = TypeVar("_M", bound=Message)


def read_footer(source: Source, *, damaged: type[TrilakeError] = CorruptFileError) -> int:
    """Parse the footer of a file; return its position, which is inside the file.

    Raises an error of class ``damaged`` for other files, and ``UnsupportedProtocolError`` for later formats.
    """
    size, file = source.size, source.file
    if size < FOOTER.size + LENGTH.size:
        raise damaged(f"the file has {size} bytes, too few for a footer", file=file)
    position, major, minor, magic = FOOTER.unpack(source.read(size - FOOTER.size, FOOTER.size))
    if magic != MAGIC:
        raise damaged(
            "the file does not end with the Lance magic bytes",
            help="the file may be truncated: restore it from a backup",
            file=file,
        )
    if major != MAJOR or not 0 <= minor <= NEWEST_MINOR:
        raise UnsupportedProtocolError(
            f"Lance file version {major}.{minor} is not supported, expected 0.1 or 0.2",
            help='write the file again with data_storage_version="legacy"',
            file=file,
        )
    if not 0 <= position <= size - FOOTER.size - LENGTH.size:
        raise damaged(f"the footer points to byte {position}, but the file has only {size} bytes", file=file)
    return int(position)


def message_bytes(source: Source, position: int, name: str, *, damaged: type[TrilakeError] = CorruptFileError) -> bytes:
    """Read the bytes of the message ``name`` at ``position``; it must end before the footer."""
    end = source.size - FOOTER.size - LENGTH.size
    if not 0 <= position <= end:
        raise damaged(f"the {name} begins at byte {position}, outside of the file", file=source.file)
    (length,) = LENGTH.unpack(source.read(position, LENGTH.size))
    if length > end - position:
        raise damaged(
            f"the {name} at byte {position} claims {length} bytes, but only {end - position} are left", file=source.file
        )
    return bytes(source.read(position + LENGTH.size, length).to_pybytes())


def read_message(source: Source, at: int, kind: type[_M], *, damaged: type[TrilakeError] = CorruptFileError) -> _M:
    """Parse the message at a position of a file."""
    data = message_bytes(source, at, kind.DESCRIPTOR.name, damaged=damaged)
    return parse(data, kind, file=source.file, damaged=damaged)


def parse(data: bytes, kind: type[_M], *, file: str, damaged: type[TrilakeError]) -> _M:
    """Parse a serialized message."""
    try:
        return kind.FromString(data)
    except DecodeError as e:
        raise damaged(f"the {kind.DESCRIPTOR.name} cannot be parsed: {e}", file=file) from e


def frame(message: Message) -> bytes:
    """Serialize a message with its length in front; equal messages give equal bytes."""
    return framed(message.SerializeToString(deterministic=True))


def framed(message: bytes) -> bytes:
    """Prefix a serialized message with its length."""
    return LENGTH.pack(len(message)) + message


def footer(position: int, minor: int = MINOR) -> bytes:
    """Build the footer of a file whose message is at ``position``."""
    return FOOTER.pack(position, MAJOR, minor, MAGIC)
