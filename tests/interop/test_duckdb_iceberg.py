"""DuckDB's Iceberg extension, in a separate environment, reads the Iceberg metadata of Delta tables.

``make interop`` creates that environment and sets its Python in ``TRILAKE_DUCKDB``.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.iceberg.test_sync import COLUMNS, NESTED, UNIFORM, opened, sorted_rows
from trilake.delta.iceberg.newest_metadata import newest_metadata
from trilake.storage import open_store

PYTHON = os.environ.get("TRILAKE_DUCKDB", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="make interop runs these: they need DuckDB 1.5.5")

#: Code for the other Python: writes each snapshot of a table to a Parquet file.
DRIVER = """
import json, sys, duckdb
from duckdb_extensions import import_extension
con = duckdb.connect()
for extension in ("avro", "iceberg"):
    import_extension(extension, con=con)
for uri, snapshot, out in json.load(sys.stdin):
    scan = f"iceberg_scan('{uri}')" if snapshot is None else f"iceberg_scan('{uri}', snapshot_from_id={snapshot})"
    con.execute(f"COPY (SELECT * FROM {scan}) TO '{out}' (FORMAT parquet)")
"""


def scanned(uri: str, snapshots: list[int | None], out: Path) -> list[pa.Table]:
    """The rows of some snapshots, read by DuckDB; ``None`` is the newest, by the version hint."""
    requests = [(uri, snapshot, f"{out}/{i}.parquet") for i, snapshot in enumerate(snapshots)]
    subprocess.run([PYTHON, "-c", DRIVER], input=json.dumps(requests), text=True, check=True, timeout=120)
    return [pq.read_table(path) for _, _, path in requests]


def snapshots(uri: str) -> Iterator[tuple[int, int]]:
    for snapshot in newest_metadata(open_store(uri)).content["snapshots"]:
        yield int(snapshot["summary"]["delta-version"]), snapshot["snapshot-id"]


def check_all_versions(uri: str, out: Path) -> None:
    by_version = dict(snapshots(uri))
    *tables, newest = scanned(uri, [*by_version.values(), None], out)
    for version, table in zip(by_version, tables, strict=True):
        expected = trilake.open(uri, version=version).to_arrow()
        assert sorted_rows(table.cast(expected.schema)) == sorted_rows(expected), version
    assert newest.num_rows == trilake.open(uri).count()
    assert len(by_version) == opened(uri).snapshot.version + 1


@pytest.mark.parametrize(
    ("name", "partitioned"),
    [*((name, False) for name in (*COLUMNS, *NESTED)), *((name, True) for name in COLUMNS if name != "binary")],
)
def test_every_type_in_every_version(name: str, partitioned: bool, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    data = pa.table({"key": [1, 2, 3], name: (COLUMNS | NESTED)[name]})
    trilake.write(data, uri, properties=UNIFORM, partition_by=[name] if partitioned else None)
    trilake.write(data.slice(0, 2), uri, mode="append")
    opened(uri).delete("key = 1")
    opened(uri).update({"key": "key + 10"}, where="key = 3")
    check_all_versions(uri, tmp_path)


def test_added_and_dropped_columns(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    trilake.write({"id": [1, 2], "p": ["x", "y"], "s": ["a", "b"]}, uri, properties=UNIFORM, partition_by="p")
    trilake.alter(uri).rename_column("s", "renamed")
    trilake.write({"id": [3], "p": [None], "renamed": ["c"], "more": [1.5]}, uri, mode="append", schema_mode="merge")
    trilake.alter(uri).drop_columns("renamed")
    (newest,) = scanned(uri, [None], tmp_path)
    expected = trilake.open(uri).to_arrow()
    assert newest.column_names == expected.column_names
    assert sorted_rows(newest.cast(expected.schema)) == sorted_rows(expected)
