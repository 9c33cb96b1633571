from __future__ import annotations

import io
import itertools
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trilake.storage import reader as reader_module
from trilake.storage.reader import ObjectFile, WindowReader, coalesce, expect

DATA = bytes(i * 7 % 251 for i in range(5_000))


class Source:
    """Ranges of ``DATA``, with a log of the requests."""

    def __init__(self, size: int = len(DATA)) -> None:
        self.size = size
        self.requests: list[tuple[int, int]] = []

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        for start, length in ranges:
            assert start >= 0
            assert length > 0
            assert start + length <= self.size
        self.requests += ranges
        return [pa.py_buffer(DATA[start : start + length]) for start, length in ranges]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "MIN_WINDOW", 64)
    monkeypatch.setattr(reader_module, "MAX_WINDOW", 1024)


moves = st.lists(
    st.tuples(st.sampled_from([0, 1, 2]), st.integers(-200, 6_000), st.integers(-1, 2_000)), min_size=1, max_size=12
)


@given(moves, st.integers(0, len(DATA)), st.integers(0, 100))
def test_window_reader_matches_a_file(steps: list[tuple[int, int, int]], size: int, tail: int) -> None:
    source, model = Source(size), io.BytesIO(DATA[:size])
    file = WindowReader(source.fetch, size, pa.py_buffer(DATA[max(size - tail, 0) : size]))
    for whence, offset, length in steps:
        base = {0: 0, 1: model.tell(), 2: size}[whence]
        model.seek(max(base + offset, 0))
        assert file.seek(offset, whence) == model.tell()
        assert file.read(length) == model.read(length)
        assert file.tell() == model.tell()


def test_footer_read_makes_no_request() -> None:
    source = Source()
    file = WindowReader(source.fetch, len(DATA), pa.py_buffer(DATA[-64:]))
    file.seek(-8, io.SEEK_END)
    assert file.read() == DATA[-8:]
    file.seek(-64, io.SEEK_END)
    assert file.read(56) == DATA[-64:-8]
    assert source.requests == []


def test_windows_grow_during_sequential_reads() -> None:
    source = Source()
    file = WindowReader(source.fetch, len(DATA))
    assert b"".join(iter(lambda: file.read(10), b"")) == DATA
    assert [length for _, length in source.requests][:5] == [64, 128, 256, 512, 1024]
    assert len(source.requests) == 8
    file.seek(2_000)
    file.read(10)
    assert source.requests[-1] == (2_000, 64)


def test_large_reads_bypass_the_window() -> None:
    source = Source()
    file = WindowReader(source.fetch, len(DATA), pa.py_buffer(DATA[-64:]))
    assert file.read(3_000) == DATA[:3_000]
    file.seek(-10, io.SEEK_END)
    file.read()
    assert source.requests == [(0, 3_000)]
    buffer = bytearray(100)
    file.seek(7)
    assert file.readinto(buffer) == 100
    assert bytes(buffer) == DATA[7:107]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 50)), max_size=10), st.integers(0, 40))
@example([(0, 0), (1, 0), (2, 0)], 1)
def test_coalesced_ranges_cover_all_and_skip_only_large_gaps(ranges: list[tuple[int, int]], gap: int) -> None:
    merged = coalesce(ranges, gap)
    for start, length in ranges:
        assert any(s <= start and start + length <= s + n for s, n in merged)
    assert all(b[0] - (a[0] + a[1]) > gap for a, b in itertools.pairwise(merged))
    expected = {i for s, n in ranges for i in range(s, s + n)}
    points = {s for s, n in ranges if n == 0}  # an empty range needs no byte, but separates two gaps
    for start, length in merged:
        missing = 0
        for i in range(start, start + length):
            missing = 0 if i in expected else 1 if i in points else missing + 1
            assert missing <= gap


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 50)), max_size=10), st.integers(1, 60))
@example([(0, 50), (50, 0), (50, 1)], 20)
def test_coalesced_ranges_are_limited(ranges: list[tuple[int, int]], most: int) -> None:
    merged = coalesce(ranges, 40, most)
    for start, length in ranges:
        assert any(s <= start and start + length <= s + n for s, n in merged)
    assert all(a[0] + a[1] <= b[0] for a, b in itertools.pairwise(merged))
    longest = max((n for _, n in coalesce(ranges, 0)), default=0)
    assert all(n <= most + longest for _, n in merged)


def test_expected_ranges_are_fetched_once() -> None:
    source = Source()
    file = WindowReader(source.fetch, len(DATA), pa.py_buffer(DATA[-64:]))
    file.expect([(100, 50), (150, 10), (4_000, 200), (4_990, 5), (-1, 10), (4_900, 200)])
    assert source.requests == [(100, 60), (4_000, 200)]  # the end is cached, and two are outside the object
    for start, length in ((100, 60), (120, 5), (4_100, 100), (4_990, 5)):
        file.seek(start)
        assert file.read(length) == DATA[start : start + length]
    assert len(source.requests) == 2
    file.seek(150)
    assert file.read(20) == DATA[150:170]  # it ends outside the expected ranges
    assert len(source.requests) == 3
    file.expect([])
    file.seek(100)
    assert file.read(10) == DATA[100:110]
    assert len(source.requests) == 4


def test_expect_prefetches_ranges_of_an_object_file() -> None:
    source = Source()
    with ObjectFile(WindowReader(source.fetch, len(DATA)), mode="r") as file:
        assert expect(file, [(0, 10), (500, 10)])
        file.seek(500)
        assert file.read(10) == DATA[500:510]
        assert source.requests == [(0, 10), (500, 10)]
    assert not expect(pa.BufferReader(DATA), [(0, 10)])
