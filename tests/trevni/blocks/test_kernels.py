"""Compiled and interpreted kernels give equal results."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilake.errors import CorruptFileError
from trilake.trevni import TrevniFile, write
from trilake.trevni.blocks import kernels as k
from trilake.trevni.blocks.cursor import Cursor
from trilake.trevni.blocks.layout import OK, TRUNCATED

ROOT = Path(__file__).resolve().parents[3]
LONGS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200), max_size=40)


@settings(deadline=None)
@given(LONGS, st.integers(1, 50))
def test_varints_round_trip(values: list[int], full: int) -> None:
    array = np.array(values, np.int64)
    out = np.zeros(full + 10, np.uint8)
    count, size = k.encode_varints(array, 0, out, 0, full)
    # A block ends with the first value that starts at or after its size.
    assert count == len(values) or size >= full
    found = np.zeros(count, np.int64)
    assert k.decode_varints(k.readable(out[:size]), size, 10, found, 0, count) == (OK, size)
    assert found.tolist() == values[:count]


@settings(deadline=None)
@given(st.binary(max_size=30), st.integers(0, 12), st.sampled_from([5, 10]))
def test_arbitrary_bytes_as_varints(data: bytes, count: int, most: int) -> None:
    """A cursor reads the same integers, or rejects the bytes as well."""
    found = np.zeros(count, np.int64)
    status, position = k.decode_varints(k.readable(data), len(data), most, found, 0, count)
    cursor = Cursor(data, file="x")
    try:
        expected: list[int] | None = [cursor.varint("x", 32 if most == 5 else 64) for _ in range(count)]
    except CorruptFileError:
        expected = None
    assert (status == OK) == (expected is not None)
    if status == OK:
        assert (position, found.tolist()) == (cursor.position, expected)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=90), max_size=20), st.integers(1, 120))
def test_strings_round_trip(values: list[bytes], full: int) -> None:
    ends = np.cumsum([0, *map(len, values)]).astype(np.int64)
    data: Any = np.frombuffer(b"".join(values), np.uint8) if values else np.empty(0, np.uint8)
    out = np.zeros(full + 100, np.uint8)
    count, size = k.encode_strings(ends, data, 0, len(values), out, 0, full)
    block = out[:size].tobytes()
    offsets, found = np.zeros(count + 1, np.int32), np.zeros(len(block), np.uint8)
    status, _, end = k.decode_strings(k.readable(block), len(block), offsets, 0, count, found, 0)
    assert (status, found[:end].tobytes()) == (OK, b"".join(values[:count]))


def sample() -> str:
    """A file of most kinds of columns, as hex digits."""
    t = pa.table({"i": [1, -300, None], "s": ["a", "é" * 90, ""], "l": [[True], [], [False, True]]})
    t = t.append_column("m", pa.array([[["x"]], [], [[], ["y"]]]))
    sink = io.BytesIO()
    write(t, sink, block_size=4)
    assert TrevniFile(sink.getvalue()).read().equals(t)
    return sink.getvalue().hex()


def test_files_are_the_same_without_numba() -> None:
    """In a separate process, because the kernel is chosen once."""
    code = "from tests.trevni.blocks import test_kernels as t; print(t.k.COMPILED, t.sample())"
    env = {**os.environ, "TRILAKE_NUMBA": "0", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", sample()]


@pytest.mark.skipif(os.environ.get("TRILAKE_NUMBA") == "0", reason="numba is turned off")
def test_copies_stay_within_their_arrays() -> None:
    assert k.COMPILED
    for size in (0, 1, 15, 16, 17, 31, 40):
        block = bytes([size << 1]) + bytes(range(size))
        offsets, data = np.zeros(2, np.int32), np.full(size, 255, np.uint8)
        status, position, end = k.decode_strings(k.readable(block), len(block), offsets, 0, 1, data, 0)
        assert (status, position, end, data.tobytes()) == (OK, len(block), size, bytes(range(size)))


@pytest.mark.parametrize("block", [b"\x08abcd", b"\0\x06abc", b"\x04ab\x02x", b"\0\0\x06abc"])
def test_strings_that_leave_no_room_for_later_lengths(block: bytes) -> None:
    """Each string fits into the block but leaves no byte for later values, so it must move to the next block."""
    count = 4
    room = max(len(block) - count, 0)
    offsets, data = np.zeros(count + 1, np.int32), np.full(64, 255, np.uint8)
    status, _, _ = k.decode_strings(k.readable(block), len(block), offsets, 0, count, data[:room], 0)
    assert status == TRUNCATED
    assert (data[room:] == 255).all()
