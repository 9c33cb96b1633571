"""Lance datasets against pylance, in its default format: opens, scans, rows, search and writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import lance as pylance
import numpy as np
import pyarrow as pa

from bench.harness import Benchmark, BenchmarkError, Contender, data
from trilake import lance

ROWS = 2_000_000
VECTORS, DIMENSION = 1_000_000, 128
SIDES: dict[str, Any] = {"pylance": pylance, "trilake": lance}


@cache
def rows() -> pa.Table:
    """16 columns: ordered and random numbers, times, flags, strings, a list, a struct, and columns with nulls."""
    rng, ids = np.random.default_rng(1), np.arange(ROWS)
    names = pa.array([f"name {i}" for i in range(1000)])
    kinds = pa.array(["click", "view", "order", "return"])
    lengths = np.append(0, np.cumsum(rng.integers(0, 5, ROWS))).astype(np.int32)
    few = rng.random(ROWS) < 0.1
    places = {"x": pa.array(rng.random(ROWS, np.float32)), "y": pa.array(rng.integers(0, 1000, ROWS, np.int32))}
    return pa.table(
        {
            "id": ids,
            "x": rng.random(ROWS),
            "small": rng.integers(0, 100, ROWS, np.int32),
            "big": rng.integers(0, 1 << 60, ROWS),
            "f": rng.random(ROWS, np.float32),
            "flag": rng.random(ROWS) < 0.5,
            "day": pa.array((18_000 + ids // 2000).astype(np.int32)).cast(pa.date32()),
            "at": pa.array(1_700_000_000_000_000 + ids * 1_000_003).cast(pa.timestamp("us")),
            "price": pa.array(rng.integers(0, 100_000, ROWS, np.int32)).cast(pa.decimal128(14, 2)),
            "kind": kinds.take(rng.integers(0, 4, ROWS)),
            "name": names.take(rng.integers(0, 1000, ROWS)),
            "s": [f"value {i}" for i in rng.permutation(ROWS)],
            "tags": pa.ListArray.from_arrays(lengths, rng.integers(0, 50, lengths[-1], np.int32)),
            "place": pa.StructArray.from_arrays(list(places.values()), list(places)),
            "n": pa.array(rng.integers(0, 1000, ROWS), mask=few),
            "note": pa.array(rng.permutation(ROWS), mask=~few).cast(pa.string()),
        }
    )


def _build(folder: Path) -> None:
    pylance.write_dataset(rows(), str(folder / "t.lance"))


def _build_vectors(folder: Path) -> None:
    rng = np.random.default_rng(2)
    values = pa.array(rng.random(VECTORS * DIMENSION, np.float32))
    table = pa.table({"id": np.arange(VECTORS), "v": pa.FixedSizeListArray.from_arrays(values, DIMENSION)})
    pylance.write_dataset(table, str(folder / "t.lance"))


def scanned() -> str:
    """The dataset that both libraries read, written by pylance."""
    return str(data(f"lance2-{ROWS}", _build) / "t.lance")


def vectors() -> str:
    """A dataset of long vectors."""
    return str(data(f"lance2-vectors-{VECTORS}-{DIMENSION}", _build_vectors) / "t.lance")


@cache
def opened(side: str, uri: str) -> Any:
    """An open dataset."""
    return SIDES[side].dataset(uri)


def _open(side: str) -> int:
    return sum(int(SIDES[side].dataset(scanned()).version) for _ in range(20))


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
    return int(SIDES[side].write_dataset(rows(), str(_target(side))).count_rows())


def _compare_sizes() -> None:
    sizes = {}
    for side in SIDES:
        _clear(side)
        _write(side)
        sizes[side] = sum(f.stat().st_size for f in _target(side).rglob("*.lance") if f.is_file())
    if sizes["trilake"] > 1.1 * sizes["pylance"]:
        raise BenchmarkError(f"files of {sizes['trilake']:,} bytes against {sizes['pylance']:,}: more than 1.1 times")


def benchmarks() -> Iterator[Benchmark]:
    """Each job with both libraries; trilake may take as long as pylance."""
    jobs: dict[str, tuple[str, Callable[[str], object], Callable[[], object], float]] = {
        "open": ("open a dataset, 20 times", _open, scanned, 1.0),
        "scan": ("full scan of 2M rows of 16 columns", partial(_scan), scanned, 1.0),
        "column": ("one column of 2M rows", partial(_scan, columns=["x"]), scanned, 1.0),
        "filter": ("1% of 2M rows by a filter on a double", partial(_scan, filter="x < 0.01"), scanned, 0.7),
        "range": ("1% of 2M rows by a filter on a sorted column", partial(_scan, filter="id < 20000"), scanned, 0.7),
        "take-1": ("take a random row of 2M", partial(_take, count=1), scanned, 1.0),
        "take-100": ("take 100 random rows of 2M", partial(_take, count=100), scanned, 1.0),
        "take-10000": ("take 10,000 random rows of 2M", partial(_take, count=10_000), scanned, 1.0),
        "nearest": ("flat nearest 10 of 1M vectors of 128 floats", _nearest, vectors, 1.0),
    }
    for name, (title, job, setup, target) in jobs.items():
        contenders = [Contender(side, partial(job, side)) for side in SIDES]
        yield Benchmark(name, title, contenders, "pylance", targets={"trilake": target}, setup=setup, rounds=7)
    written = [Contender(side, partial(_write, side), partial(_clear, side)) for side in SIDES]
    title = "write 2M rows of 16 columns, in files of at most 1.1 times the bytes"
    yield Benchmark("write", title, written, "pylance", targets={"trilake": 1.2}, setup=_compare_sizes, rounds=5)


def _clear(side: str) -> None:
    shutil.rmtree(_target(side), ignore_errors=True)
