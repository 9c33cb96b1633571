"""``trilake.open``, ``trilake.write`` and ``trilake.read`` for Lance datasets."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import lance as pylance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.cli.metadata import table_facts
from trilake.cli.values import python_values
from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    UnknownOptionError,
    VersionNotFoundError,
)
from trilake.lance.table import LanceTable, write_table
from trilake.storage import open_store

ROWS = pa.table({"n": pa.array(range(100), pa.int64()), "s": [f"t{i % 3}" for i in range(100)]})
#: Legacy files have bounds per row group, so that filters skip row groups and files.
CUT = {"dataStorageVersion": "legacy", "maxRowsPerFile": "40", "maxRowsPerGroup": "10"}


def test_dataset_is_written_and_detected(tmp_path: Path) -> None:
    path = tmp_path / "a %20"
    done = trilake.write(ROWS, path, format="lance", properties=CUT)
    assert (done.version, done.files_added, done.rows_added) == (1, 3, 100)
    table = trilake.open(path)
    assert isinstance(table, LanceTable)
    assert (table.format, table.version, table.schema) == ("lance", 1, ROWS.schema)
    assert table.to_arrow().equals(ROWS)
    assert table.to_arrow(["S"], "n BETWEEN 4 AND 5").to_pylist() == [{"s": "t1"}, {"s": "t2"}]
    assert (table.count(), table.count("s = 't0'")) == (100, 34)
    assert sum(b.num_rows for b in table.to_batches([])) == 100
    files = table.files("n > 95")
    assert (files.num_rows, files["num_records"].to_pylist()) == (1, [20])
    assert files["size"].to_pylist()[0] == (path / files["path"].to_pylist()[0]).stat().st_size
    assert table.explain("n > 95").kept == files["path"].to_pylist()
    assert "10 of 100 rows" in str(table.explain("n > 95"))


def test_write_modes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS, path, format="lance")
    with pytest.raises(TableExistsError):
        trilake.write(ROWS, path, format="lance")
    assert trilake.write(ROWS, path, format="lance", mode="ignore").version is None
    assert trilake.write(ROWS, path, format="lance", mode="append").version == 2
    assert trilake.write(ROWS.slice(0, 3), path, format="lance", mode="overwrite").version == 3
    assert trilake.open(path, version=2).count() == 200
    assert trilake.open(path).count() == 3
    history = trilake.open(path).history()
    assert history["version"].to_pylist() == [3, 2, 1]
    assert history["operation"].to_pylist() == ["Overwrite", "Append", "Overwrite"]
    assert history["num_rows"].to_pylist() == [3, 200, 100]
    second = history["timestamp"].to_pylist()[1] + dt.timedelta(microseconds=1)
    assert trilake.open(path, timestamp=second).version == 2
    assert trilake.open(path, timestamp=second.isoformat()).version == 2
    assert trilake.open(path, timestamp=second.timestamp()).version == 2
    with pytest.raises(VersionNotFoundError):
        trilake.open(path, timestamp="2001-01-01")
    with pytest.raises(VersionNotFoundError):
        trilake.open(path, version=9)
    with pytest.raises(InvalidArgumentError, match="pass one of them"):
        trilake.open(path, version=1, timestamp="2001-01-01")


def test_appended_rows_may_lack_nullable_columns(tmp_path: Path) -> None:
    """``trilake.lance.write_dataset`` and pylance filled them with nulls, ``trilake.write`` rejected the rows."""
    trilake.write(ROWS, tmp_path, format="lance")
    trilake.write({"n": [100]}, tmp_path, format="lance", mode="append")
    assert pylance.dataset(tmp_path).to_table(filter="s IS NULL").to_pylist() == [{"n": 100, "s": None}]
    for wrong in ({"n": [1], "other": [2]}, {"other": [2]}):
        with pytest.raises(SchemaMismatchError, match="column other is not in the dataset"):
            trilake.write(wrong, tmp_path, format="lance", mode="append")


def test_history_shows_operations_stored_in_manifests(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for mode in ("overwrite", "append"):
        pylance.write_dataset(ROWS, path, mode=mode)
    shutil.rmtree(path / "_transactions")
    assert trilake.open(path).history()["operation"].to_pylist() == ["Append", "Overwrite"]


def test_history_shows_times_that_open_their_versions() -> None:
    """Versions differ by nanoseconds: a truncated time would open the previous version."""
    times = [1_700_000_000_123_456_788 + n for n in range(3)]
    uri = "memory://lance-history-ns"
    for n, now in enumerate(times):
        runtime = Runtime(lambda now=now: now, SYSTEM_RUNTIME.new_id, SYSTEM_RUNTIME.sleep)
        rows = ROWS.slice(n, 1)
        write_table(open_store(uri), rows.schema, rows.to_batches(), runtime=runtime, mode="append" if n else "error")
    history = trilake.open(uri).history()
    assert history["timestamp"].cast(pa.int64()).to_pylist() == times[::-1]
    for version, when in zip(history["version"].to_pylist(), python_values(history["timestamp"]), strict=True):
        assert trilake.open(uri, timestamp=when).version == version
    newest = table_facts(trilake.open(uri))["timestamp"]
    assert newest == python_values(history["timestamp"])[0] == "2023-11-14T22:13:20.123456790Z"


def test_formats_do_not_mix(tmp_path: Path) -> None:
    trilake.write(ROWS, tmp_path / "l", format="lance")
    with pytest.raises(TableExistsError, match="the location contains a Lance dataset"):
        trilake.write(ROWS, tmp_path / "l", mode="append")
    with pytest.raises(TableExistsError, match="the location contains a Lance dataset"):
        trilake.create(tmp_path / "l", {"n": "bigint"})
    trilake.write(ROWS, tmp_path / "d")
    with pytest.raises(TableExistsError, match="already a Delta table"):
        trilake.write(ROWS, tmp_path / "d", mode="append", format="lance")
    for name in ("l", "d"):
        assert trilake.open(tmp_path / name).to_arrow().num_rows == 100


def test_common_table_methods(tmp_path: Path) -> None:
    for format in ("lance", "trevni", "delta"):
        done = trilake.write(ROWS, tmp_path / format, format=format)
        files = [p for p in (tmp_path / format).rglob("*") if p.suffix in (".lance", ".trv", ".parquet")]
        assert done.bytes_added == sum(p.stat().st_size for p in files)
        table = trilake.open(tmp_path / format)
        assert pa.table(table).num_rows == 100
        assert table.to_reader(["n"], "n < 10").read_all().column_names == ["n"]
        assert repr(table).startswith(f"<{format.title()} table file://") or format == "trevni"
        assert "n: " in repr(table)


def test_unsupported_table_methods(tmp_path: Path) -> None:
    for more in ({"partition_by": "s"}, {"replace_where": "n > 1"}, {"data_format": "parquet"}):
        with pytest.raises(InvalidArgumentError):
            trilake.write(ROWS, tmp_path, format="lance", **more)  # type: ignore[arg-type]
    with pytest.raises(UnknownOptionError):
        trilake.write(ROWS, tmp_path, format="lance", properties={"codec": "zstd"})
    with pytest.raises(InvalidArgumentError):
        trilake.write(ROWS, tmp_path, format="lance", properties={"maxRowsPerFile": "many"})
    assert list(tmp_path.iterdir()) == []


def test_data_frames(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    df = spark.range(0, 50, numPartitions=2)
    done = trilake.write(df, path, format="lance", properties={"dataStorageVersion": "legacy"})
    assert (done.version, done.files_added, done.rows_added) == (1, 2, 50)
    trilake.write(df, path, format="lance", mode="append")
    found = trilake.read(spark, path, columns=["id"], filter="id >= 45")
    assert sorted(r.id for r in found.collect()) == sorted([*range(45, 50)] * 2)
    assert trilake.read(spark, path, version=1).count() == 50
    by_expression = trilake.read(spark, path, version=1, columns=[], filter=pc.field("id") >= 45)
    assert by_expression.count() == 5
    assert trilake.explain(spark, path, "id > 100").kept == []
