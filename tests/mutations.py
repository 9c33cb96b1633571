"""Damage for tests of decoders: bytes changed by a seed, so that a failure can be repeated."""

from __future__ import annotations

from random import Random

_WORDS = (b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00")


def mutated(data: bytes, random: Random, start: int = 0) -> bytes:
    """``data`` with one to eight places from ``start`` on changed, removed or inserted."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        if len(out) <= start:
            break
        at = random.randrange(start, len(out))
        kind = random.random()
        if kind < 0.4:
            out[at] ^= 1 << random.randrange(8)
        elif kind < 0.7:
            out[at] = random.randrange(256)
        elif kind < 0.8:
            del out[at]
        elif kind < 0.9:
            out.insert(at, random.randrange(256))
        else:
            out[at : at + 4] = random.choice(_WORDS)
    return bytes(out)


def footer_start(data: bytes) -> int:
    """Where the footer of a Parquet file begins."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def mutated_parquet(data: bytes, random: Random) -> bytes:
    """A Parquet file with damage, five times out of six in its footer."""
    if random.random() < 5 / 6:
        return mutated(data, random, footer_start(data))
    end = footer_start(data)
    return mutated(data[:end], random) + data[end:]
