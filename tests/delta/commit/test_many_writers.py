"""Many processes append to one table: every row exactly once and contiguous versions, on any store."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.storage import open_store


def _append(uri: str, options: Mapping[str, str], writer: int, count: int) -> None:
    for i in range(count):
        rows = pa.table({"writer": [writer], "i": [i]})
        trilake.write(rows, uri, mode="append", user_metadata=f"{writer}/{i}", storage_options=options)


def _race(uri: str, options: Mapping[str, str], writers: int, each: int) -> None:
    trilake.write(pa.table({"writer": [-1], "i": [-1]}), uri, storage_options=options)
    # Spawned, like writers on other machines.
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append, args=(uri, dict(options), w, each)) for w in range(writers)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    assert [p.exitcode for p in processes] == [0] * writers
    table = trilake.open(uri, storage_options=options)
    total = writers * each
    assert table.version == total
    result = sorted(table.to_arrow().to_pylist(), key=lambda r: (r["writer"], r["i"]))
    assert result == [{"writer": -1, "i": -1}] + [{"writer": w, "i": i} for w in range(writers) for i in range(each)]
    log = DeltaLog(open_store(uri, dict(options)), standard_engine())
    commits = log.commits()
    assert [v for v, _ in commits] == list(range(total + 1))
    tokens = [info["txnId"] for _, info in log.parse(commits).of("commitInfo")]
    assert len(set(tokens)) == total + 1
    assert log.snapshot().segment.checkpoint_version is not None


def test_concurrent_processes_on_a_local_disk(tmp_path: Path) -> None:
    _race(str(tmp_path / "t"), {}, 4, 12)


def test_concurrent_processes_on_s3(s3_options: Mapping[str, str]) -> None:
    _race(f"s3://lake/delta/many-{os.getpid()}", s3_options, 3, 6)


@pytest.mark.soak
def test_sixteen_processes_on_a_local_disk(tmp_path: Path) -> None:
    _race(str(tmp_path / "t"), {}, 16, 100)


@pytest.mark.soak
def test_sixteen_processes_on_s3(s3_options: Mapping[str, str]) -> None:
    _race(f"s3://lake/delta/soak-{os.getpid()}", s3_options, 16, 100)
