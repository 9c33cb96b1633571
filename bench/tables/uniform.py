"""Small appends to Delta tables with Iceberg metadata, compared with the same tables without."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import trilake
from bench.harness import Benchmark, Contender, data, data_root
from trilake.delta.commit.transaction import CommitPlan, commit
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.storage import open_store

_APPENDS = 20
_ROWS = {"id": list(range(10)), "s": [str(i) for i in range(10)], "x": [float(i) for i in range(10)]}
_COMPATIBLE = {"delta.enableIcebergCompatV2": "true"}
_PROPERTIES = {"plain": _COMPATIBLE, "uniform": {**_COMPATIBLE, "delta.universalFormat.enabledFormats": "iceberg"}}


def _build(name: str, files: int, folder: Path) -> None:
    """A table with ``files`` nonexistent files, which appends do not read."""
    trilake.write(_ROWS, folder, properties=_PROPERTIES[name])
    add = {"size": 1, "partitionValues": {}, "modificationTime": 1, "dataChange": True}
    add["stats"] = json.dumps({"numRecords": 1})
    log = DeltaLog(open_store(str(folder)), standard_engine())
    adds = [{"add": {**add, "path": f"{i}.parquet"}} for i in range(1, files)]
    commit(log, log.head(), CommitPlan("WRITE", {}, adds))


#: The copies in use, by contender.
_TABLES: dict[str, Path] = {}
_NUMBERS = itertools.count()


@cache
def _copies() -> tempfile.TemporaryDirectory[str]:
    """The folder of all copies, deleted at the end: for a minute, ext4 steps over the inodes of deleted files whenever
    it creates one, which costs the contender that writes more files."""
    return tempfile.TemporaryDirectory(prefix=".uniform-", dir=data_root())


def _renew(name: str, files: int) -> None:
    """A copy of the table with Iceberg metadata for the new path."""
    source = data(f"uniform-{name}-{files}", partial(_build, name, files))
    _TABLES[name] = Path(_copies().name) / str(next(_NUMBERS))
    shutil.copytree(source, _TABLES[name])
    trilake.write(_ROWS, _TABLES[name], mode="append")
    os.sync()


def _append(name: str) -> None:
    for _ in range(_APPENDS):
        trilake.write(_ROWS, _TABLES[name], mode="append")


def benchmarks() -> Iterator[Benchmark]:
    for files in (1, 100, 10_000):
        contenders = [Contender(name, partial(_append, name), partial(_renew, name, files)) for name in _PROPERTIES]
        title = f"{_APPENDS} appends of 10 rows to a table of {files:,} files, with and without Iceberg metadata"
        yield Benchmark(f"append-{files}", title, contenders, "plain", targets={"uniform": 1.2}, rounds=25)
