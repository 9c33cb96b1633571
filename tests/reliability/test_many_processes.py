"""Concurrent processes that change one table, one of them another implementation, lose nothing."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import trilake
from tests.reliability.processes import IMPLEMENTATIONS, run_processes

pytestmark = pytest.mark.long

MANY = int(os.environ.get("TRILAKE_PROCESSES", "32")), int(os.environ.get("TRILAKE_COMMITS", "100"))


@pytest.mark.parametrize("format", IMPLEMENTATIONS)
def test_mixed_operations_on_a_local_disk(format: str, tmp_path: Path) -> None:
    seen = run_processes(str(tmp_path / "t"), {}, format, 3, 4, 1, tmp_path)
    print(seen)
    assert seen["operations"] == 12


@pytest.mark.parametrize("format", IMPLEMENTATIONS)
def test_mixed_operations_on_s3(format: str, s3_options: Mapping[str, str], tmp_path: Path) -> None:
    seen = run_processes(f"s3://lake/processes/{format}-{os.getpid()}", s3_options, format, 2, 3, 1, tmp_path)
    print(seen)
    assert seen["operations"] == 6


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("format", IMPLEMENTATIONS)
@pytest.mark.parametrize("store", ["local", "s3"])
def test_mixed_operations_of_many_processes(
    store: str, format: str, s3_options: Mapping[str, str], tmp_path: Path
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    uri = str(tmp_path / "t") if store == "local" else f"s3://lake/processes/many-{format}-{os.getpid()}"
    seen = run_processes(uri, {} if store == "local" else s3_options, format, *MANY, seed, tmp_path)
    print(seen)
    assert seen["operations"] == MANY[0] * MANY[1]


def test_deltalake_compaction_duplicates_rows_on_conflict(tmp_path: Path) -> None:
    """deltalake commits a compaction whose files another one has removed; enable it here when this test fails."""
    uri = str(tmp_path / "t")
    for i in range(3):
        deltalake.write_deltalake(uri, pa.table({"id": [i]}), mode="append")
    stale = deltalake.DeltaTable(uri)
    deltalake.DeltaTable(uri).optimize.compact()
    stale.optimize.compact()
    assert sorted(trilake.open(uri).to_arrow()["id"].to_pylist()) == [0, 0, 1, 1, 2, 2]
