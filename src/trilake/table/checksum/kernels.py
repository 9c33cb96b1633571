"""64-bit hash kernels, with numba where installed, otherwise with numpy; both give the same results."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from trilake.common.jit import COMPILED, jit

Hashes = npt.NDArray[np.uint64]

#: Odd constants without a pattern.
_K1, _K2, _K3 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mixed(x: Hashes) -> Hashes:
    """Mix the bits of each number; in place."""
    if COMPILED and len(x) and x.flags.c_contiguous:
        _mix_loop(x)
        return x
    x ^= x >> np.uint64(30)
    x *= np.uint64(_K2)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_K3)
    x ^= x >> np.uint64(31)
    return x


@lru_cache(maxsize=4096)
def salt(string: str) -> int:
    """A salt for a name or a kind of value."""
    data = np.frombuffer(string.encode(), np.uint8)
    return int(bytes_hashes(data, np.array([0, len(data)], np.int64))[0])


@lru_cache(maxsize=64)
def null_hash() -> np.uint64:
    """The hash of a null of any type."""
    return np.uint64(salt("null value"))


@jit
def _mix_loop(x: Any) -> None:
    for i in range(len(x)):
        h = x[i]
        h ^= h >> np.uint64(30)
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(27)
        h *= np.uint64(0x94D049BB133111EB)
        x[i] = h ^ (h >> np.uint64(31))


@jit
def _bytes_loop(data: Any, offsets: Any, out: Any) -> None:
    """Hash each byte string, by words of 8 bytes, the last one padded with zeros."""
    for i in range(len(out)):
        at, end = offsets[i], offsets[i + 1]
        h = np.uint64(end - at) * np.uint64(0x9E3779B97F4A7C15)
        while at < end:
            word = np.uint64(0)
            stop = min(at + 8, end)
            shift = np.uint64(0)
            while at < stop:
                word |= np.uint64(data[at]) << shift
                shift += np.uint64(8)
                at += 1
            h = (h ^ word) * np.uint64(0xBF58476D1CE4E5B9)
            h ^= h >> np.uint64(29)
        out[i] = h


@jit
def _list_loop(hashes: Any, bounds: Any, out: Any) -> None:
    """Sum the hashes of each list's elements, each mixed with its index."""
    for i in range(len(out)):
        total = np.uint64(0)
        for at in range(bounds[i], bounds[i + 1]):
            h = hashes[at] + np.uint64(at - bounds[i]) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(30)
            h *= np.uint64(0xBF58476D1CE4E5B9)
            h ^= h >> np.uint64(27)
            h *= np.uint64(0x94D049BB133111EB)
            total += h ^ (h >> np.uint64(31))
        out[i] = total


@jit
def _salt_loop(words: Any, salt: Any) -> None:
    for i in range(len(words)):
        h = words[i] ^ salt
        h ^= h >> np.uint64(30)
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(27)
        h *= np.uint64(0x94D049BB133111EB)
        words[i] = h ^ (h >> np.uint64(31))


def _bytes_steps(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], out: Hashes) -> None:
    """The same with numpy: word by word, for the byte strings that are long enough."""
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    at, remaining = offsets[:-1].copy(), np.diff(offsets)
    out[:] = remaining.astype(np.uint64) * np.uint64(_K1)
    rows = np.flatnonzero(remaining > 0)
    while len(rows):
        words = padded[at[rows, None] + np.arange(8)].view("<u8").ravel().astype(np.uint64)
        missing = np.uint64(8) * (8 - np.minimum(remaining[rows], 8)).astype(np.uint64)
        words = (words << missing) >> missing
        h = (out[rows] ^ words) * np.uint64(_K2)
        out[rows] = h ^ (h >> np.uint64(29))
        at[rows] += 8
        remaining[rows] -= 8
        rows = rows[remaining[rows] > 0]


def bytes_hashes(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Hashes:
    """Hash each byte string between two offsets."""
    out = np.empty(len(offsets) - 1, np.uint64)
    if COMPILED:
        _bytes_loop(data, offsets, out)
    else:
        _bytes_steps(data, offsets, out)
    return mixed(out)


def salted(words: Hashes, kind: str) -> Hashes:
    """Mix numbers with the kind of value they stand for; in place."""
    if COMPILED and words.flags.c_contiguous:
        _salt_loop(words, np.uint64(salt(kind)))
        return words
    words ^= np.uint64(salt(kind))
    return mixed(words)


def sums(hashes: Hashes, bounds: npt.NDArray[np.int64]) -> Hashes:
    """Sum the hashes of each list."""
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    return cast(Hashes, running[bounds[1:]] - running[bounds[:-1]])


def sums_in_order(hashes: Hashes, bounds: npt.NDArray[np.int64]) -> Hashes:
    """Sum the hashes of each list, each mixed with its index; ``hashes`` may be changed."""
    if COMPILED:
        sums_of_lists = np.empty(len(bounds) - 1, np.uint64)
        _list_loop(hashes, bounds, sums_of_lists)
        return sums_of_lists
    place = np.arange(len(hashes), dtype=np.int64) - np.repeat(bounds[:-1], np.diff(bounds))
    hashes += place.view(np.uint64) * np.uint64(_K1)
    return sums(mixed(hashes), bounds)
