"""The end of a Lance file, and the messages in it.

The last 16 bytes are the position of a message, the version of the format and the letters ``LANC``; a message has its
length in the four bytes before it, which is where its position points.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from trilake.errors import TrilakeError, UnsupportedProtocolError
from trilake.lance.proto import DecodeError, Message

MAGIC = b"LANC"
FOOTER = struct.Struct("<qhh4s")
LENGTH = struct.Struct("<I")
#: Of what is written here; version 0.2 is the same, 0.3 and 2.x are the second file format.
MAJOR, MINOR, NEWEST_MINOR = 0, 1, 2

_M = TypeVar("_M", bound=Message)


def parse_footer(tail: bytes | memoryview, size: int, *, file: str, damaged: type[TrilakeError]) -> int:
    """The position that a footer names, which is inside of the file.

    Parameters
    ----------
    tail: the last 16 bytes of the file, or all it has.
    size: of the file in bytes.
    file: name of the file, for errors.
    damaged: class of the error for what is no Lance file.

    Raises ``UnsupportedProtocolError`` for later formats.
    """
    if len(tail) < FOOTER.size or size < FOOTER.size + LENGTH.size:
        raise damaged(f"the file has {size} bytes, too few for its footer", file=file)
    position, major, minor, magic = FOOTER.unpack(tail[-FOOTER.size :])
    if magic != MAGIC:
        raise damaged("the file does not end with the Lance magic bytes", help="it may be truncated", file=file)
    if major != MAJOR or not 0 <= minor <= NEWEST_MINOR:
        raise UnsupportedProtocolError(
            f"the file is of version {major}.{minor} of Lance's file format; 0.1 and 0.2 can be read",
            help='write it with data_storage_version="legacy"',
            file=file,
        )
    if not 0 <= position <= size - FOOTER.size - LENGTH.size:
        raise damaged(f"the footer points at byte {position} of a file of {size}", file=file)
    return int(position)


def message_length(
    head: bytes | memoryview, position: int, size: int, *, file: str, damaged: type[TrilakeError]
) -> int:
    """The length of the message at ``position``, whose first four bytes are ``head``; it ends before the footer."""
    (length,) = LENGTH.unpack(head[: LENGTH.size])
    if length > size - FOOTER.size - LENGTH.size - position:
        raise damaged(f"the message at byte {position} claims {length} bytes, more than there are", file=file)
    return int(length)


def parse(data: bytes, kind: type[_M], *, file: str, damaged: type[TrilakeError]) -> _M:
    """The message in so many bytes."""
    try:
        return kind.FromString(data)
    except DecodeError as e:
        raise damaged(f"the {kind.DESCRIPTOR.name} cannot be parsed: {e}", file=file) from e


def frame(message: Message) -> bytes:
    """A message with its length in front; equal messages give equal bytes."""
    return framed(message.SerializeToString(deterministic=True))


def framed(message: bytes) -> bytes:
    """A serialised message with its length in front."""
    return LENGTH.pack(len(message)) + message


def footer(position: int, minor: int = MINOR) -> bytes:
    """The end of a file whose message is at ``position``.

    >>> footer(7).hex(" ", 4)
    '07000000 00000000 00000100 4c414e43'
    """
    return FOOTER.pack(position, MAJOR, minor, MAGIC)
