"""Reading ranges of an object: fewer and larger requests.

``WindowReader`` is a seekable file over an object of which only ranges can be fetched.  One window of bytes is kept.
It begins as the end of the object, where Parquet, Lance and Arrow files have their footers.  A read outside of it
fetches a new one: small reads get a window around them, and the window doubles while reads follow one another.  Reads
larger than the window go past it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

#: Bytes fetched at least, and at most, where a reader asks for less.
MIN_WINDOW, MAX_WINDOW = 256 << 10, 16 << 20


def coalesce(ranges: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """The fewest ``(start, length)`` ranges, ascending, that cover ``ranges`` and skip only gaps of more than ``gap``.

    >>> coalesce([(90, 10), (0, 4), (5, 2), (92, 3)], gap=1)
    [(0, 7), (90, 10)]
    """
    merged: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        if merged and start - (merged[-1][0] + merged[-1][1]) <= gap:
            first, have = merged[-1]
            merged[-1] = (first, max(have, start + length - first))
        else:
            merged.append((start, length))
    return merged


class WindowReader(io.RawIOBase):
    """Read an object of ``size`` bytes through ``fetch(start, length)``.

    Parameters
    ----------
    fetch: returns exactly that range, which lies within the object.
    size: of the object in bytes.
    tail: the last bytes of the object, already fetched.
    """

    def __init__(self, fetch: Callable[[int, int], pa.Buffer], size: int, tail: pa.Buffer | None = None) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._position = 0
        self._window = memoryview(tail) if tail is not None else memoryview(b"")
        self._start = size - len(self._window)
        self._grain = MIN_WINDOW

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        """Size of the object in bytes."""
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes, fewer only at the end of the object."""
        left = max(self._size - self._position, 0)
        length = left if size is None or size < 0 else min(size, left)
        if length == 0:
            return b""
        data = bytes(self._view(self._position, length))
        self._position += length
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(memoryview(buffer).cast("B")))
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def _view(self, start: int, length: int) -> memoryview:
        end = start + length
        stop = self._start + len(self._window)
        if self._start <= start and end <= stop:
            return self._window[start - self._start : end - self._start]
        # Reading on from where the last window ended: the next may be larger.
        self._grain = min(self._grain * 2, MAX_WINDOW) if start <= stop < end else MIN_WINDOW
        if length >= self._grain:
            return memoryview(self._fetch(start, length))
        self._start = max(min(start, self._size - self._grain), 0)
        self._window = memoryview(self._fetch(self._start, min(self._grain, self._size - self._start)))
        return self._window[start - self._start : end - self._start]
