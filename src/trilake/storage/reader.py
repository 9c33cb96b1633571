"""Read ranges of an object with fewer and larger requests.

``WindowReader`` is a seekable file over an object.  It keeps one window of bytes, at first the end of the object, where
Parquet, Lance and Arrow files have their footers.  A read outside the window fetches a new one around it, which doubles
for sequential reads.  Larger reads bypass the window.

After reading a footer, announce the next reads with :func:`expect`: they are fetched at once in as few requests as
possible.
"""

from __future__ import annotations

import io
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

#: Smallest and largest window, in bytes.
MIN_WINDOW, MAX_WINDOW = 256 << 10, 16 << 20


def coalesce(ranges: Sequence[tuple[int, int]], gap: int, most: int = sys.maxsize) -> list[tuple[int, int]]:
    """Merge ``(start, length)`` ranges that are at most ``gap`` bytes apart; the result ascends.

    Ranges that do not overlap are merged to at most ``most`` bytes.

    >>> coalesce([(90, 10), (0, 4), (5, 2), (92, 3)], gap=1)
    [(0, 7), (90, 10)]
    """
    merged: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        first, have = merged[-1] if merged else (-sys.maxsize, 0)
        end = start + length - first
        if start - first < have or (start - first - have <= gap and end <= max(most, have)):
            merged[-1] = (first, max(have, end))
        else:
            merged.append((start, length))
    return merged


_first = itemgetter(0)


class WindowReader(io.RawIOBase):
    """Read an object of ``size`` bytes that ends with ``tail`` through ``fetch(ranges)``."""

    def __init__(
        self,
        fetch: Callable[[Sequence[tuple[int, int]]], Sequence[pa.Buffer]],
        size: int,
        tail: pa.Buffer | None = None,
    ) -> None:
        super().__init__()
        self._fetch_all = fetch
        self._expected: list[tuple[int, memoryview]] = []
        self._size = size
        self._position = 0
        self._window = memoryview(tail) if tail is not None else memoryview(b"")
        self._start = size - len(self._window)
        self._grain = MIN_WINDOW

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch ranges that will be read, instead of those of an earlier call; ignores ranges outside the object."""
        inside = [(start, n) for start, n in ranges if start >= 0 and 0 < n <= self._size - start]
        stop = self._start + len(self._window)
        missing = coalesce([(a, n) for a, n in inside if not (self._start <= a and a + n <= stop)], 0)
        self._expected = []  # free memory before fetching
        if missing:
            self._expected = [(a, memoryview(data)) for (a, _), data in zip(missing, self._fetch_all(missing))]

    def _fetch(self, start: int, length: int) -> pa.Buffer:
        return self._fetch_all([(start, length)])[0]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end of the object."""
        available = max(self._size - self._position, 0)
        length = available if size is None or size < 0 else min(size, available)
        if length == 0:
            return b""
        data = bytes(self._view(self._position, length))
        self._position += length
        return data

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(memoryview(buffer).cast("B")))
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def _view(self, start: int, length: int) -> memoryview:
        end = start + length
        stop = self._start + len(self._window)
        if self._start <= start and end <= stop:
            return self._window[start - self._start : end - self._start]
        i = bisect_right(self._expected, start, key=_first) - 1
        if i >= 0:
            first, data = self._expected[i]
            if end <= first + len(data):
                return data[start - first : end - first]
        # Double the window for sequential reads.
        self._grain = min(self._grain * 2, MAX_WINDOW) if start <= stop < end else MIN_WINDOW
        if length >= self._grain:
            return memoryview(self._fetch(start, length))
        self._start = max(min(start, self._size - self._grain), 0)
        self._window = memoryview(self._fetch(self._start, min(self._grain, self._size - self._start)))
        return self._window[start - self._start : end - self._start]


class ObjectFile(pa.PythonFile):  # type: ignore[misc]  # pyarrow has no types
    """A :class:`WindowReader` as an Arrow file."""

    def __init__(self, reader: WindowReader, mode: str = "r") -> None:
        self.reader = reader  # Arrow's base class has both arguments already


def expect(source: pa.NativeFile, ranges: Sequence[tuple[int, int]]) -> bool:
    """Announce reads from a file, to be fetched at once from an object store; return whether that has an effect."""
    if not isinstance(source, ObjectFile):
        return False
    source.reader.expect(ranges)
    return True
