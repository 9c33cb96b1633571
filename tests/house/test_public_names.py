"""Imports have no side effects: each public name, imported alone, behaves as when everything is imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trilake
from trilake.delta.standard import standard_engine

#: One process with other libraries loaded but not trilake, forked once for each name.
ALONE = """
import os, sys
import pandas, pyarrow.dataset, pyspark.sql, sqlglot

for name in sys.argv[1:]:
    if os.fork() == 0:
        exec(f"from trilake import {name}")
        from trilake.delta.standard import standard_engine
        engine = standard_engine()
        hooks = [getattr(h, "__name__", str(h)) for h in engine.hooks]
        print([name, [f.name for f in engine.formats], hooks], flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, name
"""

COMPACTED = """
import pyarrow as pa
{first}
from trilake import Transaction
from trilake.storage import open_store
import trilake.api as api
store = open_store({place!r})
api.create({place!r}, pa.schema([("n", pa.int64())]), properties={{"delta.autoOptimize.autoCompact": "true"}})
for n in range(60):
    tx = Transaction(store)
    tx.write(pa.table({{"n": [n]}}))
    tx.commit("WRITE")
print(len(tx.log.snapshot().adds))
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.long
def test_every_public_name_works_when_imported_alone() -> None:
    names = [n for n in trilake.__all__ if n != "__version__"]
    engine = standard_engine()
    hooks = [getattr(h, "__name__", str(h)) for h in engine.hooks or ()]
    reports = [ast.literal_eval(line) for line in run(ALONE, *names).splitlines()]
    assert reports == [[name, [f.name for f in engine.formats], hooks] for name in names]


@pytest.mark.parametrize("first", ["", "from trilake import open, write, DeltaTable"])
def test_auto_compaction_does_not_depend_on_imports(tmp_path: Path, first: str) -> None:
    assert int(run(COMPACTED.format(first=first, place=str(tmp_path / "t")))) < 20


def test_transaction_alone_writes_a_table_of_lance_files(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    run(
        "import pyarrow as pa; from trilake import create, Transaction; from trilake.storage import open_store;"
        f"create({place!r}, pa.schema([('n', pa.int64())]), data_format='lance')"
    )
    run(
        "import pyarrow as pa; from trilake import Transaction; from trilake.storage import open_store;"
        f"tx = Transaction(open_store({place!r})); tx.write(pa.table({{'n': [7]}})); tx.commit('WRITE')"
    )
    assert trilake.open(place).to_arrow().to_pylist() == [{"n": 7}]
