"""``trilake.convert`` between formats, against pyarrow copying the same rows from Parquet to Parquet.

A conversion does more than the copy: it hashes all rows, and reads back and hashes the target.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads

import trilake
from bench.harness import Benchmark, Contender, data

ROWS, SIZE = 1_000_000, 32
FORMATS = ("delta", "lance", "trevni", "parquet")


def _build(folder: Path) -> None:
    rng = np.random.default_rng(1)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(ROWS * SIZE, np.float32)), SIZE)
    text = [f"value {i}" for i in rng.permutation(ROWS)]
    rows = pa.table({"id": np.arange(ROWS), "x": rng.random(ROWS), "s": text, "v": vectors})
    rows = rows.cast(pa.schema([f.with_nullable(False) for f in rows.schema]))
    pads.write_dataset(rows, folder / "parquet", format="parquet")
    for format in FORMATS[:3]:
        trilake.convert(folder / "parquet", folder / format, format=format)


def sources() -> Path:
    """The rows in every format."""
    return data(f"convert-{ROWS}-{SIZE}", _build)


def _target(name: str) -> Path:
    return sources().parent / f".converted-{name}"


def _prepare(name: str) -> None:
    shutil.rmtree(_target(name), ignore_errors=True)


def _copy() -> int:
    rows = pads.dataset(sources() / "parquet", format="parquet")
    pads.write_dataset(rows.scanner(), _target("pyarrow"), format="parquet")
    return ROWS


def _convert(start: str, end: str) -> int:
    return trilake.convert(sources() / start, _target(f"{start}-{end}"), format=end).rows


def _contender(start: str, end: str) -> Contender:
    name = f"{start}-{end}"
    return Contender(name, partial(_convert, start, end), prepare=partial(_prepare, name))


def benchmarks() -> Iterator[Benchmark]:
    copy = Contender("pyarrow", _copy, prepare=partial(_prepare, "pyarrow"))
    for end in FORMATS:
        others = [_contender(start, end) for start in FORMATS]
        yield Benchmark(
            f"to-{end}",
            f"{ROWS:,} rows (long, double, text, {SIZE} floats) to {end}",
            [copy, *others],
            baseline="pyarrow",
            rounds=5,
            memory=end == "delta",
        )
