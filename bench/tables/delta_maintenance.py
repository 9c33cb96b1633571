"""Maintenance of Delta tables: vacuum, restore, conversion and deep clones."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import trilake
from bench.harness import Benchmark, Contender, data
from bench.lineitem import lineitem_files
from bench.tables.delta import scratch
from trilake.delta.table import ArrowDeltaTable

_FILES, _STRAYS, _PARTITIONS = 50_000, 5_000, 50
_SMALL_FILES = 1_000
_OLD = 1_600_000_000


def _open(path: Path) -> ArrowDeltaTable:
    table = trilake.open(path, format="delta")
    assert isinstance(table, ArrowDeltaTable)
    return table


# --- vacuum and restore ----------------------------------------------------------------------------------------------


def crowded() -> Path:
    """A table of two versions: all files, and half of them; each file is one byte, and there are unreferenced files."""
    return data(f"delta-crowded-{_FILES}", _build_crowded)


def _name(n: int) -> str:
    return f"p={n % _PARTITIONS}/part-{n:05d}-00000000-0000-0000-0000-{n:012d}.c000.snappy.parquet"


def _build_crowded(folder: Path) -> None:
    for p in range(_PARTITIONS):
        (folder / f"p={p}").mkdir()
    for n in range(_FILES + _STRAYS):
        path = folder / _name(n)
        path.write_bytes(b"x")
        os.utime(path, (_OLD, _OLD))
    fields: list[dict[str, object]] = [
        {"name": n, "type": "long", "nullable": True, "metadata": {}} for n in ("a", "p")
    ]
    metadata = {
        "id": "00000000-0000-0000-0000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["p"],
        "configuration": {},
        "createdTime": 0,
    }
    first: list[Any] = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    values = [{"path": _name(n), "partitionValues": {"p": str(n % _PARTITIONS)}} for n in range(_FILES)]
    adds = [{"add": {**v, "size": 1, "modificationTime": 0, "dataChange": True}} for v in values]
    removes = [{"remove": {**v, "deletionTimestamp": _OLD * 1000, "dataChange": True}} for v in values[::2]]
    log = folder / "_delta_log"
    log.mkdir()
    commits: list[list[Any]] = [[*first, *adds], removes]
    for version, actions in enumerate(commits):
        path = log / f"{version:020d}.json"
        path.write_text("\n".join(json.dumps(a) for a in actions))
        os.utime(path, (_OLD + version, _OLD + version))


def _their_vacuum() -> int:
    table = deltalake.DeltaTable(str(crowded()))
    found = table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    return len(found)


def _our_vacuum() -> int:
    found: int = _open(crowded()).vacuum(0, dry_run=True, enforce_retention=False).files.num_rows
    return found


def _copied_log(name: str) -> Callable[[], None]:
    def prepare() -> None:
        target = scratch(name)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        shutil.copytree(crowded() / "_delta_log", target / "_delta_log")

    return prepare


def _their_restore() -> int:
    done = deltalake.DeltaTable(str(scratch("restore-theirs"))).restore(0, ignore_missing_files=True)
    return int(done["numRestoredFile"])


def _our_restore() -> int:
    return _open(scratch("restore-ours")).restore(0, ignore_missing=True).num_restored_files


# --- conversion ------------------------------------------------------------------------------------------------------


def folder_of_files() -> Path:
    return data(f"parquet-folder-{_SMALL_FILES}", _build_folder)


def _build_folder(folder: Path) -> None:
    for n in range(_SMALL_FILES):
        place = folder / f"p={n % 10}"
        place.mkdir(exist_ok=True)
        rows = pa.table({f"c{k}": np.arange(100) * (k + n) for k in range(16)})
        pq.write_table(rows, place / f"f{n}.parquet")


def _without_log(*_: object) -> None:
    shutil.rmtree(folder_of_files() / "_delta_log", ignore_errors=True)


def _their_conversion() -> None:
    partitions = deltalake.Schema.from_arrow(pa.schema([("p", pa.int32())]))
    deltalake.convert_to_deltalake(str(folder_of_files()), partition_by=partitions, partition_strategy="hive")


def _our_conversion() -> None:
    trilake.convert_to_delta(folder_of_files(), "p int")


# --- clones ----------------------------------------------------------------------------------------------------------


def to_clone() -> Path:
    def build(folder: Path) -> None:
        for file in sorted(lineitem_files().glob("*.parquet")):
            trilake.write(pq.read_table(file), folder, mode="append")

    return data("delta-to-clone-2000000", build)


def _emptied(name: str) -> Callable[[], None]:
    return lambda: shutil.rmtree(scratch(name), ignore_errors=True)


def _copied_tree() -> None:
    shutil.copytree(to_clone(), scratch("clone-copytree"))
    os.sync()


def _our_clone() -> None:
    _open(to_clone()).clone(scratch("clone-ours"))


def benchmarks() -> Iterator[Benchmark]:
    yield Benchmark(
        "vacuum",
        f"what a vacuum would delete: a local folder of {_FILES + _STRAYS:,} files, of which {_FILES // 2:,} are live",
        [Contender("deltalake", _their_vacuum), Contender("trilake", _our_vacuum)],
        baseline="deltalake",
        setup=crowded,
        rounds=5,
    )
    yield Benchmark(
        "restore",
        f"restore a version of {_FILES:,} files, half of which were removed since",
        [
            Contender("deltalake", _their_restore, _copied_log("restore-theirs")),
            Contender("trilake", _our_restore, _copied_log("restore-ours")),
        ],
        baseline="deltalake",
        setup=crowded,
        rounds=5,
    )
    yield Benchmark(
        "convert",
        f"convert a folder of {_SMALL_FILES:,} Parquet files with 16 columns",
        [
            Contender("deltalake", _their_conversion, _without_log),
            Contender("trilake", _our_conversion, _without_log),
        ],
        baseline="deltalake",
        setup=folder_of_files,
        rounds=5,
    )
    yield Benchmark(
        "clone",
        "deep clone of a local table of 2M rows; the baseline is a copy of the folder, forced to disk",
        [
            Contender("copytree", _copied_tree, _emptied("clone-copytree")),
            Contender("trilake", _our_clone, _emptied("clone-ours")),
        ],
        baseline="copytree",
        setup=to_clone,
        rounds=5,
    )
