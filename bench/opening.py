"""The first table that a process opens: the cost of imports, compared with the libraries below and deltalake."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

import trilake
from bench.harness import ROOT, Benchmark, Contender, data

_COMMITS = 5


def _build(folder: Path) -> None:
    for i in range(_COMMITS):
        trilake.write(pa.table({"n": [i]}), folder, mode="append")


def _table() -> Path:
    return data(f"opening-{_COMMITS}", _build)


def _process(code: str) -> Callable[[], int]:
    """Run code in a new interpreter with a bytecode cache; the result is the number that the code prints."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def run() -> int:
        command = [sys.executable, "-c", code.format(repr(str(_table())))]
        done = subprocess.run(
            command, cwd=ROOT, env={**environment, "PYTHONPATH": "src"}, check=True, capture_output=True, text=True
        )
        return int(done.stdout)

    return run


def benchmarks() -> Iterator[Benchmark]:
    last = _COMMITS - 1
    yield Benchmark(
        "process",
        f"a new process opens a table of {_COMMITS} commits and says its version",
        [
            Contender("pyarrow", _process(f"import pyarrow.compute, pyarrow.parquet, pyarrow.json; print({last})")),
            Contender("deltalake", _process("import deltalake; print(deltalake.DeltaTable({}).version())")),
            Contender("trilake", _process("import trilake; print(trilake.open({}).version)")),
        ],
        baseline="deltalake",
        targets={"trilake": 3.0},
        rounds=15,
        setup=_table,
    )
