"""Read the bytes of a data file, from a mapped file or by ranges of an object in a store.

A request for many small pieces returns where they are: in the mapped file, or in one buffer from one call to the store,
which coalesces ranges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import CorruptFileError, MissingFileError, ObjectNotFoundError
from trilake.storage.base import Store
from trilake.storage.reader import coalesce

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
_T = TypeVar("_T")

#: Bytes of an object's end to fetch first; footer, metadata and page table of most files fit.
TAIL = 64 << 10
#: Most bytes of an object's end to prefetch.
_LONGEST_END = 16 << 20
#: Pieces of at least this many bytes are copied one by one, into reused memory.  numpy copies short pieces in half the
#: time, but allocates memory from the system for each scan, which takes longer than the copy of long ones.
_LONG = 1 << 12


class Pieces(NamedTuple):
    """A request: ``lengths[i]`` bytes from ``starts[i]``; an integer is the length of all pieces."""

    starts: Int64s
    lengths: Int64s | int

    def every_length(self) -> Int64s:
        lengths = self.lengths
        return np.full(len(self.starts), lengths) if isinstance(lengths, int) else lengths


class PieceData(NamedTuple):
    """The answer to a request: piece ``i`` begins at ``at[i]`` of ``data``."""

    data: Bytes
    at: Int64s

    def gather(self, pieces: Pieces) -> Bytes:
        """Return the bytes of the pieces one after another; copy them unless they are all of the data, in order."""
        lengths = pieces.every_length()
        if int(lengths.sum()) == self.data.size and np.array_equal(self.at, np.cumsum(lengths) - lengths):
            return self.data
        width = _same(pieces.lengths)
        if width is None:
            return _one_by_one(self.data, self.at, lengths)
        if not width or not len(self.at):
            return np.empty(0, np.uint8)
        # View the data as overlapping elements of this width, one for each byte, and let numpy take some of them.
        count = self.data.size - width + 1
        elements: npt.NDArray[np.void] = np.ndarray((count,), np.dtype((np.void, width)), self.data, strides=(1,))
        return elements[self.at].view(np.uint8)


#: A generator that yields requests for pieces, several at a time, and is sent the answer to each.
Job = Generator[list[Pieces], list[PieceData], _T]


def gathered(pieces: Pieces) -> Job[Bytes]:
    """Request pieces; return their bytes one after another."""
    (answer,) = yield [pieces]
    return answer.gather(pieces)


class Source(ABC):
    """The bytes of one file; ``file`` is its name in errors, ``size`` its number of bytes."""

    def __init__(self, file: str, size: int) -> None:
        self.file = file
        self.size = size

    def read(self, start: int, length: int) -> pa.Buffer:
        """Read exactly these bytes.  Raises ``CorruptFileError`` if the file does not have them."""
        if start < 0 or length < 0 or start + length > self.size:
            raise self._outside(start, length)
        return self._read(start, length)

    def fetch_all(self, requests: Sequence[Pieces]) -> list[PieceData]:
        """Read the pieces of each request, in place if that avoids a copy."""
        self._check(requests)
        return self._fetch_all(requests)

    def _check(self, requests: Sequence[Pieces]) -> None:
        if not requests:
            return
        starts = np.concatenate([p.starts for p in requests])
        lengths = np.concatenate([p.every_length() for p in requests])
        # No sums: they overflow for numbers far out of range.
        bad = (starts < 0) | (lengths < 0) | (starts > self.size) | (lengths > self.size - starts)
        if bad.any():
            i = int(np.argmax(bad))
            raise self._outside(int(starts[i]), int(lengths[i]))

    def run(self, job: Job[_T]) -> _T:
        """Run a job, answering its requests round by round."""
        try:
            requests = next(job)
            while True:
                requests = job.send(self.fetch_all(requests))
        except StopIteration as done:
            result: _T = done.value
            return result

    def window(self, ranges: Sequence[tuple[int, int]]) -> Source:
        """Return a source that has prefetched these ranges, if that pays."""
        return self

    def with_end(self, start: int) -> Source:
        """Return a source that has prefetched all bytes from ``start`` on, if that pays."""
        return self

    @abstractmethod
    def _read(self, start: int, length: int) -> pa.Buffer: ...

    @abstractmethod
    def _fetch_all(self, requests: Sequence[Pieces]) -> list[PieceData]: ...

    def _outside(self, start: int, length: int) -> CorruptFileError:
        return CorruptFileError(
            f"the file is damaged: a page is at bytes {start} to {start + length}, but the file has {self.size} bytes",
            file=self.file,
        )


class MappedSource(Source):
    """A file in memory; slices of it are not copied."""

    def __init__(self, file: str, data: pa.Buffer) -> None:
        super().__init__(file, data.size)
        self._data = data
        self._bytes = np.frombuffer(data, np.uint8) if data.size else np.empty(0, np.uint8)

    def _read(self, start: int, length: int) -> pa.Buffer:
        return self._data.slice(start, length)

    def _fetch_all(self, requests: Sequence[Pieces]) -> list[PieceData]:
        return [PieceData(self._bytes, pieces.starts) for pieces in requests]


class RangedSource(Source):
    """An object in a store, read in ranges."""

    def __init__(self, store: Store, key: str, file: str, size: int) -> None:
        super().__init__(file, size)
        self._store, self._key = store, key

    def _read(self, start: int, length: int) -> pa.Buffer:
        if not length:
            return pa.py_buffer(b"")
        return self._checked(self._store.read_range(self._key, start, length), start, length)

    def _checked(self, data: pa.Buffer, start: int, length: int) -> pa.Buffer:
        if data.size != length:  # a shorter object replaced it
            raise self._outside(start, length)
        return data

    def _fetch_all(self, requests: Sequence[Pieces]) -> list[PieceData]:
        lengths = [pieces.every_length() for pieces in requests]
        ranges = [
            [(start, length) for start, length in zip(pieces.starts.tolist(), each.tolist(), strict=True) if length]
            for pieces, each in zip(requests, lengths, strict=True)
        ]
        every = [one for of_request in ranges for one in of_request]
        data = iter(self._store.read_ranges(self._key, every) if every else [])
        result = []
        for of_request, each in zip(ranges, lengths, strict=True):
            parts = [self._checked(next(data), *one) for one in of_request]
            whole = parts[0] if len(parts) == 1 else b"".join(map(memoryview, parts))
            result.append(PieceData(np.frombuffer(whole, np.uint8), np.cumsum(each) - each))
        return result

    def window(self, ranges: Sequence[tuple[int, int]]) -> Source:
        inside = [(max(start, 0), min(start + length, self.size) - max(start, 0)) for start, length in ranges]
        merged = coalesce([r for r in inside if r[1] > 0], 0)
        if not merged:
            return self
        parts = self._store.read_ranges(self._key, merged)
        return _Window(self, [(s, self._checked(d, s, n)) for (s, n), d in zip(merged, parts, strict=True)])


class _Window(Source):
    """Prefetched ranges, and the source of all other bytes."""

    def __init__(self, whole: Source, parts: list[tuple[int, pa.Buffer]]) -> None:
        super().__init__(whole.file, whole.size)
        self._whole, self._parts = whole, parts
        self._starts = [start for start, _ in parts]

    def _read(self, start: int, length: int) -> pa.Buffer:
        i = bisect_right(self._starts, start) - 1
        if i >= 0:
            first, data = self._parts[i]
            if start + length <= first + data.size:
                return data.slice(start - first, length)
        return self._whole.read(start, length)

    def _fetch_all(self, requests: Sequence[Pieces]) -> list[PieceData]:
        answers = [self._inside(pieces) for pieces in requests]
        missing = iter(self._whole.fetch_all([p for p, a in zip(requests, answers, strict=True) if a is None]))
        return [next(missing) if answer is None else answer for answer in answers]

    def _inside(self, pieces: Pieces) -> PieceData | None:
        """Return the answer to a request, if a single range has all of it."""
        if not len(pieces.starts):
            return PieceData(np.empty(0, np.uint8), pieces.starts)
        low, high = int(pieces.starts.min()), int((pieces.starts + pieces.lengths).max())
        i = bisect_right(self._starts, low) - 1
        if i < 0 or high > self._starts[i] + self._parts[i][1].size:
            return None
        return PieceData(np.frombuffer(self._parts[i][1], np.uint8), pieces.starts - self._starts[i])

    def window(self, ranges: Sequence[tuple[int, int]]) -> Source:
        return self._whole.window(ranges)

    def with_end(self, start: int) -> Source:
        first, end = self._parts[-1]
        if start >= first or self.size - start > _LONGEST_END:
            return self
        data = pa.py_buffer(b"".join((self._whole.read(start, first - start), end)))
        return _Window(self._whole, [(start, data)])


def together(jobs: Sequence[Job[_T]]) -> Job[list[_T]]:
    """Join several jobs: each round combines their requests."""
    results: dict[int, _T] = {}
    asking: dict[int, list[Pieces]] = {}

    def step(i: int, answer: list[PieceData] | None) -> None:
        try:
            asking[i] = next(jobs[i]) if answer is None else jobs[i].send(answer)
        except StopIteration as done:
            results[i] = done.value

    for i in range(len(jobs)):
        step(i, None)
    while asking:
        current = dict(asking)
        asking.clear()
        answers = iter((yield [pieces for requests in current.values() for pieces in requests]))
        for i, requests in current.items():
            step(i, [next(answers) for _ in requests])
    return [results[i] for i in range(len(jobs))]


def open_source(store: Store, key: str) -> Source:
    """Open the bytes of a file; a local file is mapped.  Raises ``MissingFileError``."""
    file = f"{store.uri}/{key}"
    try:
        if store.local_path(key) is not None:
            with store.open_input(key) as mapped:
                return MappedSource(file, mapped.read_buffer())
        size, end = store.read_sized(key, TAIL, end=True)
        return _Window(RangedSource(store, key, file, size), [(size - end.size, end)])
    except ObjectNotFoundError as e:
        raise MissingFileError("a file of the dataset is missing", file=file) from e


def _same(lengths: Int64s | int) -> int | None:
    """The common length of all pieces; ``None`` if lengths differ, or are long enough to copy one by one."""
    if isinstance(lengths, int):
        return lengths
    if not len(lengths) or lengths[0] >= _LONG or (lengths != lengths[0]).any():
        return None
    return int(lengths[0])


def _one_by_one(data: Bytes, at: Int64s, lengths: Int64s) -> Bytes:
    """Copy pieces of data; long ones go into memory of Arrow's pool, which the next scan reuses."""
    whole = data.data
    parts = [whole[a:b] for a, b in zip(at.tolist(), (at + lengths).tolist(), strict=True)]
    size = int(lengths.sum())
    if size < _LONG * len(parts):
        return np.frombuffer(b"".join(parts), np.uint8)
    copied = pa.allocate_buffer(size)
    target, stops = memoryview(copied).cast("B"), np.cumsum(lengths)
    for part, a, b in zip(parts, (stops - lengths).tolist(), stops.tolist(), strict=True):
        target[a:b] = part
    return np.frombuffer(copied, np.uint8)
