"""Measurements other than time ratios: a thousand consecutive merges, and the files that a lookup opens.

``python -m bench.tables.long_runs merges`` and ``... lookups`` print a table each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import deltalake
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import trilake
from bench.tables.delta import scratch
from bench.tables.depth import merge_of, their_merge_of
from trilake.delta.table import ArrowDeltaTable

#: Minimum and maximum of each file, by column.
Bounds = Mapping[str, npt.NDArray[np.int64]]

#: Consecutive merges, rows of each, and rows of the table.
_MERGES, _MERGED, _TABLE = 1_000, 100, 100_000
_WINDOW = 100

_ROWS = 2_000_000
#: Columns of random numbers, and distinct numbers per column; the number of lookups is the same.
_COLUMNS, _VALUES, _LOOKUPS = ("a", "b", "c"), 1_000_000, 200
_FILES = 64
#: Ranges per column in delta-spark's Z-order (``mdc.rangeId.max``).
_RANGES = 1_000


# --- merges ----------------------------------------------------------------------------------------------------------


def _resident() -> float:
    """Memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def merges() -> None:
    """Merge small sources into a table repeatedly, alternating trilake and deltalake; print the times."""
    ids = np.arange(_TABLE)
    rows = pa.table({"id": ids, "v": np.zeros(_TABLE), "text": np.char.mod("row %d", ids)})
    ours, theirs = scratch("long-merges-ours"), scratch("long-merges-theirs")
    for folder in (ours, theirs):
        shutil.rmtree(folder, ignore_errors=True)
        trilake.write(rows, folder)
    random = np.random.default_rng(5)
    times: dict[str, list[float]] = {"trilake": [], "deltalake": []}
    print("merges of 100 rows, half of which are there: median ms of each hundred")
    print("| merge | trilake | deltalake | files of trilake's table | MB of this process |")
    print("|---|---|---|---|---|")
    for number in range(_MERGES):
        old = random.choice(_TABLE, _MERGED // 2, replace=False)
        new = np.arange(_MERGED // 2) + _TABLE + number * _MERGED
        keys = np.concatenate([old, new])
        source = pa.table({"id": keys, "v": np.full(len(keys), float(number)), "text": np.char.mod("new %d", keys)})
        for who, merge, folder in (("trilake", merge_of, ours), ("deltalake", their_merge_of, theirs)):
            begin = time.perf_counter()
            merge(folder, source)
            times[who].append(time.perf_counter() - begin)
        if (number + 1) % _WINDOW == 0:
            medians = (f"{statistics.median(times[who][-_WINDOW:]) * 1e3:.1f}" for who in times)
            files = len(trilake.open(ours).files())
            print(f"| {number + 1} | {' | '.join(medians)} | {files} | {_resident():.0f} |", flush=True)
    total = deltalake.DeltaTable(str(theirs)).to_pyarrow_table().num_rows
    assert trilake.open(ours).to_arrow().num_rows == total, "both tables have the same rows"


# --- lookups ---------------------------------------------------------------------------------------------------------


def _rows() -> pa.Table:
    random = np.random.default_rng(3)
    return pa.table({name: random.integers(0, _VALUES, _ROWS) for name in _COLUMNS})


def _published(columns: Sequence[str]) -> Bounds:
    """File bounds of delta-spark's published Z-order: rows sorted by the interleaved bits of their range numbers, with
    1,000 ranges per column, in as many files.
    """
    rows = {name: values.to_numpy() for name, values in zip(_COLUMNS, _rows().columns, strict=True)}
    shares = np.arange(1, _RANGES) / _RANGES
    ranges = [np.searchsorted(np.quantile(rows[name], shares), rows[name]) for name in columns]
    code = np.zeros(_ROWS, np.int64)
    for bit in range(_RANGES.bit_length() - 1, -1, -1):
        for number in ranges:
            code = code << 1 | (number >> bit & 1)
    parts = np.array_split(np.argsort(code, kind="stable"), _FILES)
    return {name: np.array([[values[p].min(), values[p].max()] for p in parts]) for name, values in rows.items()}


def _ordered(name: str, columns: Sequence[str]) -> Bounds:
    """File bounds of a sorted table, from its log."""
    folder = scratch("long-lookups")
    shutil.rmtree(folder, ignore_errors=True)
    trilake.create(folder, _rows().schema, cluster_by=list(columns) if name == "clustering" else None)
    trilake.write(_rows(), folder, mode="append")
    table = trilake.open(folder)
    assert isinstance(table, ArrowDeltaTable)
    size = sum(table.files()["size"].to_pylist()) // _FILES
    if name == "clustering":
        table.optimize(target_size=size, full=True)
    elif name == "Z-order":
        table.optimize(zorder_by=list(columns), target_size=size)
    else:
        deltalake.DeltaTable(str(folder)).optimize.z_order(list(columns), target_size=size)
    stated = [json.loads(text) for text in trilake.open(folder).files()["stats"].to_pylist()]
    return {c: np.array([[s["minValues"][c], s["maxValues"][c]] for s in stated]) for c in _COLUMNS}


def _opened(files: Bounds, columns: Sequence[str], width: int) -> float:
    """The share of files that may match a lookup of a range of ``width`` values in each of ``columns``."""
    random = np.random.default_rng(11)
    shares = []
    for _ in range(_LOOKUPS):
        hit = np.ones(len(files[columns[0]]), bool)
        for name in columns:
            low = int(random.integers(0, _VALUES - width))
            hit &= (files[name][:, 0] < low + width) & (files[name][:, 1] >= low)
        shares.append(hit.mean())
    return float(np.mean(shares))


def lookups() -> None:
    """Print the share of files that a lookup opens, by sort method."""
    ways: dict[str, Callable[[Sequence[str]], Bounds]] = {
        "trilake, Z-order": partial(_ordered, "Z-order"),
        "trilake, clustering": partial(_ordered, "clustering"),
        "delta-spark's published Z-order": _published,
        "deltalake, Z-order": partial(_ordered, "deltalake"),
    }
    print(f"share of {_FILES} files that a lookup opens, the mean of {_LOOKUPS}")
    print("| ordered by | way | files | one value of a | of b | one per cent of a | one per cent of each |")
    print("|---|---|---|---|---|---|---|")
    for columns in (_COLUMNS[:2], _COLUMNS):
        for way, order in ways.items():
            files = order(columns)
            asked = ((("a",), 1), (("b",), 1), (("a",), _VALUES // 100), (columns, _VALUES // 100))
            shares = " | ".join(f"{_opened(files, *one):.1%}" for one in asked)
            print(f"| {', '.join(columns)} | {way} | {len(files['a'])} | {shares} |", flush=True)


def main() -> None:
    """Print one of the tables."""
    jobs: dict[str, Callable[[], None]] = {"merges": merges, "lookups": lookups}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=list(jobs))
    jobs[parser.parse_args().job]()


if __name__ == "__main__":
    main()
