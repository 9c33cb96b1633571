"""Open leaks nothing, scan memory is bounded, and operating system errors lose nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import trilake
from tests.conftest import SOAK
from tests.reliability.faulty_steps import STEPS, handles, try_calls
from tests.reliability.os_faults import OsFaults
from trilake.delta.commands.merge import source as merge_source
from trilake.errors import StorageError
from trilake.trevni.blocks.encode import Spool

pytestmark = pytest.mark.long

OPENS = 10_000 if SOAK else 300
FORMATS = ("delta", "lance", "trevni")
MIB = 1 << 20


# --- leaks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["local", "memory"])
@pytest.mark.parametrize("kind", FORMATS)
def test_open_leaks_nothing(kind: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    uri = str(tmp_path / "t") if place == "local" else f"memory://opens-{kind}"
    trilake.write(pa.table({"a": range(10), "s": ["x"] * 10}), uri, format=kind)

    def use(count: int) -> None:
        for number in range(count):
            table = trilake.open(uri)
            # Reads cost more than opening and use the same handles each time.
            if number % 10 == 0:
                assert table.to_arrow(filter="a > 3").num_rows == 6

    def resources() -> tuple[int, set[str], set[str]]:
        return handles(), {t.name for t in threading.enumerate()}, set(os.listdir(temporary))

    use(20)
    before_handles, before_threads, before_files = resources()
    use(OPENS)
    after_handles, after_threads, after_files = resources()
    assert after_handles <= before_handles
    assert len(after_threads) <= len(before_threads)
    assert after_files <= before_files


# --- memory ----------------------------------------------------------------------------------------------------------

_SCAN = """
import re, sys, trilake
# Without mapped files: the system reclaims their pages.
rss = lambda: int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])
open_table = lambda: trilake.open(sys.argv[1])
warm = next(iter(open_table().to_batches(columns=["a"])))
before, rows, most = rss(), 0, 0
for batch in open_table().to_batches():
    rows, most = rows + batch.num_rows, max(most, rss())
print(rows, (most - before) // 1024)
"""
#: Rows of 1 KiB, and MiB that reading all of them may take.
ROWS, BOUND = (1 << 20, 350) if SOAK else (1 << 18, 220)


@pytest.mark.parametrize("kind", ["delta", "lance"])
def test_scan_memory_is_bounded(kind: str, tmp_path: Path) -> None:
    """Batches are streamed: reading 256 MiB of rows (1 GiB in the soak) stays below the bound."""
    random = np.random.default_rng(5)
    step = 1 << 14

    def batches() -> pa.RecordBatchReader:
        schema = pa.schema([("a", pa.int64()), ("b", pa.binary())])

        def make() -> object:
            for start in range(0, ROWS, step):
                data = pa.py_buffer(random.bytes(step * 1024))
                offsets = pa.py_buffer(np.arange(0, step * 1024 + 1, 1024, dtype=np.int32).tobytes())
                column = pa.Array.from_buffers(pa.binary(), step, [None, offsets, data])
                yield pa.record_batch([pa.array(range(start, start + step)), column], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, make())

    uri = str(tmp_path / "t")
    trilake.write(batches(), uri, format=kind)
    size = sum(p.stat().st_size for p in Path(uri).rglob("*") if p.is_file())
    assert size > ROWS * 1024
    environment = {**os.environ, "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(
        [sys.executable, "-c", _SCAN, uri], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    rows, grown = map(int, done.stdout.split())
    assert rows == ROWS
    assert grown < BOUND


# --- errors of the operating system ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_disk_full_at_any_call_loses_nothing(kind: str, tmp_path: Path) -> None:
    """CI tests every twelfth call of each step, with another offset per step; the soak tests every call."""
    every = 1 if SOAK else 3 if kind == "trevni" else 12
    count, wrong = 0, []
    for number in range(len(STEPS[kind]("x"))):
        outcome = try_calls(tmp_path, kind, number, errno.ENOSPC, every=every, first=1 + number % every)
        count += outcome.faults
        wrong += outcome.wrong
    assert wrong == []
    assert count > 10


@pytest.mark.soak
@pytest.mark.parametrize("lasts", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EMFILE, errno.EDQUOT], ids=errno.errorcode.get
)
@pytest.mark.parametrize("kind", FORMATS)
def test_os_error_at_every_call_loses_nothing(kind: str, code: int, lasts: bool, tmp_path: Path) -> None:
    wrong = []
    for number in range(len(STEPS[kind]("x"))):
        wrong += try_calls(tmp_path, kind, number, code, lasts=lasts).wrong
    assert wrong == []


def _spilled_source() -> None:
    batch = pa.record_batch({"id": pa.array(range(100))})
    stream = pa.RecordBatchReader.from_batches(batch.schema, [batch] * 4)
    with merge_source.materialized(stream, limit=100) as rows:
        assert rows.num_rows == 400


def _spilled_columns() -> None:
    spool = Spool(10)
    try:
        spool.append(b"x" * 100)
        spool.append(b"y" * 100)
    finally:
        spool.close()


@pytest.mark.parametrize("spilled", [_spilled_source, _spilled_columns], ids=["merge", "trevni"])
def test_full_temporary_folder_raises_storage_error(spilled: Callable[[], None]) -> None:
    """Spilled data goes to a temporary folder, which may be full as well."""
    spilled()
    for nth in range(1, 100):
        faults = OsFaults(errno.ENOSPC, nth)
        with faults.happening():
            try:
                spilled()
            except StorageError as e:
                assert "No space left" in str(e)  # noqa: PT017 - what follows asks whether there was one
            else:
                assert not faults.hits
                break
    assert nth > 1
