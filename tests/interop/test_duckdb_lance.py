"""DuckDB's Lance extension, in a separate environment, reads datasets that trilake writes.

It reads what pylance writes from the same rows, too: both must give the same values.  ``make interop`` creates that
environment and sets its Python in ``TRILAKE_DUCKDB``.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance as pylance
import pyarrow as pa
import pytest

from tests.lance.v2.files import NULLS
from tests.lance.v2.test_writer import VERSIONS, columns
from trilake import lance

PYTHON = os.environ.get("TRILAKE_DUCKDB", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="make interop runs these: they need DuckDB 1.5.5")

#: Code for the other Python: the values of each column as strings, or why DuckDB cannot read it.
DRIVER = """
import json, sys, duckdb
from duckdb_extensions import import_extension

def connect():
    con = duckdb.connect()
    con.execute("SET enable_progress_bar = false")
    import_extension("lance", con=con)
    con.execute("LOAD lance")
    return con

con, found = connect(), []
for uri, column in json.load(sys.stdin):
    try:
        rows = con.execute(f"SELECT CAST({column} AS VARCHAR) FROM '{uri}'").fetchall()
        found.append([value for value, in rows])
    except duckdb.Error as error:
        found.append(f"{type(error).__name__}: {error}")
        con = connect()  # some errors end the database
json.dump(found, sys.stdout)
"""
#: The extension ends the process for this type, of datasets of pylance as well.
ABORTS = "timestamp[ns, tz=+02:00]"


def scanned(requests: Sequence[tuple[object, str]]) -> list[Any]:
    """The values of some columns, by DuckDB, or its errors."""
    sent = json.dumps([(str(uri), '"' + column.replace('"', '""') + '"') for uri, column in requests])
    done = subprocess.run([PYTHON, "-c", DRIVER], input=sent, text=True, check=True, timeout=300, capture_output=True)
    values: list[Any] = json.loads(done.stdout)
    return values


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pattern", NULLS)
def test_every_type_reads_as_pylance_writes_it(tmp_path: Path, version: str, pattern: str) -> None:
    names, read = [], 0
    for name, array in columns(version, 1500, pattern):
        if name == ABORTS:
            continue
        table = pa.table({"c": array})
        for writer, module in (("pylance", pylance), ("trilake", lance)):
            uri = tmp_path / writer / f"{len(names)}.lance"
            module.write_dataset(table, uri, data_storage_version=version, max_rows_per_file=800)
        names.append(name)
    found = scanned([(tmp_path / w / f"{i}.lance", "c") for w in ("pylance", "trilake") for i in range(len(names))])
    for name, theirs, ours in zip(names, found, found[len(names) :], strict=False):
        if isinstance(theirs, str):  # a type that DuckDB lacks
            assert isinstance(ours, str), name
        else:
            assert ours == theirs, name
            read += 1
    assert read >= 30


@pytest.mark.parametrize("stable", [False, True])
def test_histories_are_read(tmp_path: Path, stable: bool) -> None:
    """Appends, deletes, updates, merges, added columns and compaction; an index."""
    uri = tmp_path / "t.lance"
    rows = pa.table({"id": range(2000), "s": [f"value {i % 7}" for i in range(2000)]})
    dataset = lance.write_dataset(rows, uri, max_rows_per_file=700, enable_stable_row_ids=stable)
    dataset.create_scalar_index("id", "BTREE")
    steps = [
        lambda ds: lance.write_dataset(pa.table({"id": [5000], "s": ["new"]}), uri, mode="append"),
        lambda ds: ds.delete("id % 5 = 0"),
        lambda ds: ds.update({"s": "'changed'"}, where="id < 100"),
        lambda ds: (
            ds.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(pa.table({"id": [1, 9000], "s": ["merged", "inserted"]}))
        ),
        lambda ds: ds.add_columns({"twice": "id * 2"}),
        lambda ds: ds.optimize.compact_files(),
    ]
    for step in steps:
        step(lance.dataset(uri))
        expected = lance.dataset(uri).to_table()
        found = scanned([(uri, name) for name in expected.column_names])
        assert found == [[None if v is None else str(v) for v in c.to_pylist()] for c in expected.columns]
