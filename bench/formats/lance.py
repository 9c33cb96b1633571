"""Lance datasets against pylance in legacy mode: scans, single rows, filters, flat search and writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import lance as pylance
import numpy as np
import pyarrow as pa

from bench.harness import Benchmark, Contender, data
from trilake import lance

ROWS, SIZE = 1_000_000, 32
VECTORS, DIMENSION = 1_000_000, 128
LEGACY: dict[str, Any] = {"data_storage_version": "legacy", "enable_v2_manifest_paths": False}
SIDES: dict[str, Any] = {"pylance": pylance, "trilake": lance}


@cache
def rows() -> pa.Table:
    """Longs, random doubles, short strings, and vectors of 32 floats."""
    rng = np.random.default_rng(1)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(ROWS * SIZE, np.float32)), SIZE)
    text = [f"value {i}" for i in rng.permutation(ROWS)]
    return pa.table({"id": np.arange(ROWS), "x": rng.random(ROWS), "s": text, "v": vectors})


def _build(folder: Path) -> None:
    pylance.write_dataset(rows(), str(folder / "t.lance"), **LEGACY)


def _build_vectors(folder: Path) -> None:
    rng = np.random.default_rng(2)
    values = pa.array(rng.random(VECTORS * DIMENSION, np.float32))
    table = pa.table({"id": np.arange(VECTORS), "v": pa.FixedSizeListArray.from_arrays(values, DIMENSION)})
    pylance.write_dataset(table, str(folder / "t.lance"), **LEGACY)


def scanned() -> str:
    """The dataset that both sides read, written by pylance."""
    return str(data(f"lance-{ROWS}-{SIZE}", _build) / "t.lance")


def vectors() -> str:
    """A dataset of long vectors."""
    return str(data(f"lance-vectors-{VECTORS}-{DIMENSION}", _build_vectors) / "t.lance")


@cache
def opened(side: str, uri: str) -> Any:
    """A dataset that is open already."""
    return SIDES[side].dataset(uri)


def _scan(side: str, **how: Any) -> int:
    return int(opened(side, scanned()).to_table(**how).num_rows)


def _take(side: str, count: int) -> int:
    chosen = np.random.default_rng(count).integers(0, ROWS, count).tolist()
    return int(opened(side, scanned()).take(chosen).column("id").to_numpy().sum())


def _nearest(side: str) -> list[int]:
    q = np.full(DIMENSION, 0.5, np.float32)
    found = opened(side, vectors()).to_table(columns=["id"], nearest={"column": "v", "q": q, "k": 10})
    ids: list[int] = found["id"].to_pylist()
    return ids


def _target(side: str) -> Path:
    return Path(scanned()).parent.parent / f".lance-written-{side}"


def _write(side: str) -> int:
    more = LEGACY if side == "pylance" else {}
    return int(SIDES[side].write_dataset(rows(), str(_target(side)), **more).count_rows())


def benchmarks() -> Iterator[Benchmark]:
    """Each job by both sides; trilake may take as long as pylance."""
    jobs: dict[str, tuple[str, Callable[[str], object], Callable[[], object]]] = {
        "scan": ("full scan of 1M rows", partial(_scan), scanned),
        "column": ("one column of 1M rows", partial(_scan, columns=["x"]), scanned),
        "filter": ("1% of 1M rows by a filter on a double", partial(_scan, filter="x < 0.01"), scanned),
        "range": ("1% of 1M rows by a filter on a sorted column", partial(_scan, filter="id < 10000"), scanned),
        "take-100": ("take 100 random rows of 1M", partial(_take, count=100), scanned),
        "take-1000": ("take 1,000 random rows of 1M", partial(_take, count=1000), scanned),
        "nearest": ("flat nearest 10 of 1M vectors of 128 floats", _nearest, vectors),
    }
    for name, (title, job, setup) in jobs.items():
        contenders = [Contender(side, partial(job, side)) for side in SIDES]
        yield Benchmark(name, title, contenders, "pylance", targets={"trilake": 1.0}, setup=setup, rounds=7)
    written = [Contender(side, partial(_write, side), partial(_clear, side)) for side in SIDES]
    yield Benchmark("write", "write 1M rows", written, "pylance", targets={"trilake": 1.0}, setup=scanned, rounds=5)


def _clear(side: str) -> None:
    shutil.rmtree(_target(side), ignore_errors=True)
