"""``trilake.convert`` in Spark tasks: the same rows and checksums as without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import SchemaMismatchError
from trilake.storage import open_store
from trilake.table import conversion
from trilake.table.checksum import checksum
from trilake.tools.convert.run import format_at

ROWS = pa.table(
    {
        "n": pa.array(range(90), pa.int64()),
        "s": [None if i % 7 == 0 else f"s{i}" for i in range(90)],
        "k": pa.array(["a", "b", "c"] * 30).dictionary_encode(),
        "v": pa.array([[i, i / 2] for i in range(90)], pa.list_(pa.float32(), 2)),
        "p": [f"p{i % 2}" for i in range(90)],
    }
)


def test_round_trip_in_tasks(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "_TASK_SIZE", 1)  # a task for each file
    for i in range(3):
        trilake.write(ROWS.slice(30 * i, 30), tmp_path / "0", mode="append", partition_by="p")
    expected = checksum(ROWS)
    way = ["lance", "trevni", "parquet", "delta"]
    for i, format in enumerate(way):
        options = {"lance": {"nulls": "mask", "maxRowsPerFile": "20", "maxRowsPerGroup": "10"}}.get(format)
        done = trilake.convert(tmp_path / str(i), tmp_path / str(i + 1), format=format, spark=spark, options=options)
        assert (done.rows, done.checksum, done.verified) == (90, expected, True)
        assert done.files > 2
    alone = trilake.convert(tmp_path / "0", tmp_path / "alone", format="trevni")
    assert alone.checksum == expected
    there = format_at(open_store(tmp_path / "4"))
    assert (there, trilake.open(tmp_path / "4").count()) == ("delta", 90)
    table = trilake.read(spark, str(tmp_path / "4"))
    assert checksum(table.toArrow()) == expected
    # Row errors are the same as without Spark, and nothing is left.
    legacy = {"dataStorageVersion": "legacy"}
    trilake.write(pa.table({"n": [1], "s": [""], "p": ROWS["p"].slice(0, 1)}), tmp_path / "0", mode="append")
    with pytest.raises(SchemaMismatchError, match="column: s"):
        trilake.convert(
            tmp_path / "0", tmp_path / "bad", format="lance", spark=spark, columns=["n", "s"], options=legacy
        )
    assert not list((tmp_path / "bad").rglob("*.lance"))
