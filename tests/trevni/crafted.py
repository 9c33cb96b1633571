"""Hand-made Trevni files, valid or invalid, independent of the writer."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field


def zigzag(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = b""
    while raw > 127:
        out += bytes([raw & 127 | 128])
        raw >>= 7
    return out + bytes([raw])


def text(value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return zigzag(len(raw)) + raw


def meta(pairs: dict[str, bytes | str] | list[tuple[str, bytes | str]]) -> bytes:
    items = list(pairs.items()) if isinstance(pairs, dict) else pairs
    return zigzag(len(items)) + b"".join(text(k) + text(v) for k, v in items)


def raw_deflate(data: bytes) -> bytes:
    z = zlib.compressobj(6, zlib.DEFLATED, -15)
    return z.compress(data) + z.flush()


@dataclass
class Block:
    """``rows`` rows; ``raw_size`` and ``stored_size`` are correct by default."""

    rows: int
    stored: bytes
    raw_size: int | None = None
    stored_size: int | None = None
    first: bytes = b""
    check: bytes = b""


@dataclass
class Col:
    """A column; ``extra`` are further properties, ``count`` the stated block count."""

    name: str | None
    type: str
    blocks: list[Block] = field(default_factory=list)
    extra: dict[str, bytes | str] = field(default_factory=dict)
    count: int | None = None


def craft(
    rows: int,
    columns: list[Col],
    metadata: dict[str, bytes | str] | list[tuple[str, bytes | str]] = (),  # type: ignore[assignment]
    *,
    magic: bytes = b"Trv\x02",
    count: int | None = None,
    starts: dict[int, int] | None = None,
    gap: bytes = b"",
) -> bytes:
    """The bytes of a file; ``starts`` shifts the column offsets, ``gap`` precedes each column."""
    head = magic + struct.pack("<qi", rows, len(columns) if count is None else count) + meta(metadata or {})
    for column in columns:
        names: dict[str, bytes | str] = {} if column.name is None else {"trevni.name": column.name}
        head += meta({**names, "trevni.type": column.type, **column.extra})
    bodies = []
    for column in columns:
        body = struct.pack("<i", len(column.blocks) if column.count is None else column.count)
        for b in column.blocks:
            raw = len(b.stored) if b.raw_size is None else b.raw_size
            stored = len(b.stored) if b.stored_size is None else b.stored_size
            body += struct.pack("<iii", b.rows, raw, stored) + b.first
        bodies.append(gap + body + b"".join(b.stored + b.check for b in column.blocks))
    at = len(head) + 8 * len(columns)
    table = b""
    for number, body in enumerate(bodies):
        table += struct.pack("<q", at + len(gap) + (starts or {}).get(number, 0))
        at += len(body)
    return head + table + b"".join(bodies)


ARRAY: dict[str, bytes | str] = {"trevni.array": ""}


def child(parent: str) -> dict[str, bytes | str]:
    return {"trevni.parent": parent}
