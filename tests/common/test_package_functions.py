"""Public functions are callable even though packages have the same names."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORTS = """
import trilake
first = trilake.sql
import trilake.sql
import trilake.sql.parser.cursor
import trilake.sql.duckdb as duckdb
import trilake.sql.duckdb.run as run
from trilake.sql import parser
from trilake.sql.parser import cursor
from trilake import sql
import importlib
assert first is trilake.sql is sql is run.sql, (first, trilake.sql, sql)
assert duckdb.__name__ == "trilake.sql.duckdb" and parser.__name__ == "trilake.sql.parser"
assert importlib.import_module("trilake.sql").__name__ == "trilake.sql"
assert not callable(importlib.import_module("trilake.sql"))
assert sql("SELECT 1 AS n").to_pylist() == [{"n": 1}]
import trilake.lance.dataset
from trilake import lance
assert trilake.lance.dataset is lance.dataset
assert not callable(importlib.import_module("trilake.lance.dataset"))
assert type(lance.dataset).__name__ == "function"
"""


@pytest.mark.parametrize("first", ["", "import trilake.sql.spark.install", "from trilake.sql.duckdb import run"])
def test_sql_is_a_function_after_any_import(first: str) -> None:
    code = f"{first}\n{IMPORTS}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_function_can_be_patched_temporarily(monkeypatch: pytest.MonkeyPatch) -> None:
    import trilake

    original = trilake.sql
    with monkeypatch.context() as inside:
        inside.setattr(trilake, "sql", len)
        assert trilake.sql is len  # type: ignore[comparison-overlap]
    assert trilake.sql is original
