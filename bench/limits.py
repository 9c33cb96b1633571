"""Lower bounds of jobs, compared with trilake: Arrow's decoders and encoders, the disk, system calls."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import trilake
from bench.formats import lance
from bench.harness import Benchmark, Contender
from bench.tables.delta import scratch
from bench.tables.delta_merge import copied, source, table

_ROWS, _CHANGED = 2_000_000, 20_000
_ON = "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber"
_TAKEN, _BLOCK = 100, 4096


def _table() -> Path:
    return table(_ROWS, vectors=False)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _decode() -> int:
    return sum(pq.read_table(file).num_rows for file in _files(_table()))


@cache
def _rows() -> pa.Table:
    return trilake.open(_table()).to_arrow()


def _scan() -> int:
    return int(trilake.open(_table()).to_arrow().num_rows)


def _synced(rows: pa.Table, file: Path) -> None:
    """Encode rows on all cores, and sync them to disk."""
    pq.write_table(rows, file)
    with file.open("rb") as written:
        os.fsync(written.fileno())


def _empty() -> None:
    _rows()
    shutil.rmtree(scratch("limits-write"), ignore_errors=True)
    scratch("limits-write").mkdir(parents=True)


def _encode() -> None:
    _synced(_rows(), scratch("limits-write") / "rows.parquet")


def _write() -> None:
    trilake.write(_rows(), scratch("limits-write"))


def _copy_files() -> None:
    for file in _files(scratch("limits-merge")):
        _synced(pq.read_table(file), file.with_suffix(".new"))


def _merge() -> None:
    merge = trilake.open(scratch("limits-merge")).merge(pq.read_table(source(_ROWS, _CHANGED)), _ON, "s", "t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _read_blocks() -> None:
    """Read one page cache block for each row and column."""
    file = next(Path(lance.scanned()).glob("data/*.lance"))
    count = _TAKEN * len(lance.rows().schema)
    places = np.random.default_rng(1).integers(0, file.stat().st_size - _BLOCK, count)
    with file.open("rb", buffering=0) as data:
        for place in places.tolist():
            os.pread(data.fileno(), _BLOCK, place)


def _take() -> None:
    lance.opened("trilake", lance.scanned()).take(np.random.default_rng(2).integers(0, lance.ROWS, _TAKEN).tolist())


def _read_log() -> int:
    log = _table() / "_delta_log"
    versions = []
    for entry in os.scandir(log):
        if entry.name.endswith(".json"):
            for line in Path(entry.path).read_bytes().splitlines():
                json.loads(line)
            versions.append(int(entry.name[:20]))
    return max(versions)


def benchmarks() -> Iterator[Benchmark]:
    """Each job and its lower bound."""

    def pair(name: str, title: str, bare: Contender, ours: Contender) -> Benchmark:
        return Benchmark(name, title, [bare, ours], "bare")

    yield pair(
        "scan",
        "2M rows × 16 columns of a Delta table: Arrow decodes the files alone",
        Contender("bare", _decode),
        Contender("trilake", _scan),
    )
    yield pair(
        "write",
        "2M rows × 16 columns: Arrow encodes one file, and it is synced",
        Contender("bare", _encode, _empty),
        Contender("trilake", _write, _empty),
    )
    prepare = copied(_ROWS, "limits-merge", vectors=False)
    yield pair(
        "merge",
        "MERGE of 20,000 rows into all four files of 2M rows: Arrow decodes, encodes and syncs them",
        Contender("bare", _copy_files, prepare),
        Contender("trilake", _merge, prepare),
    )
    yield pair(
        "take",
        "100 random rows × 16 columns of a Lance dataset: a block of 4 KiB is read for each value",
        Contender("bare", _read_blocks, lance.scanned),
        Contender("trilake", _take, lance.scanned),
    )
    yield pair(
        "open",
        "a Delta table of five commits: its log is listed, read and parsed",
        Contender("bare", _read_log),
        Contender("trilake", lambda: trilake.open(_table()).version),
    )
