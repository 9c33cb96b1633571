"""``trilake.open`` and ``trilake.write`` for Trevni files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    UnknownOptionError,
)
from trilake.storage import open_store
from trilake.trevni import TrevniFile, TrevniTable
from trilake.trevni.tables.table_write import clean, finish_table_write, plan_table_write, write_rows

ROWS = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "s": ["a", None, "c"], "p": ["x", "x", "y"]})


def rows(path: Path | str) -> list[dict[str, object]]:
    return sorted(trilake.open(path).to_arrow().to_pylist(), key=lambda r: str(r["n"]))


def test_folder_is_written_and_detected(tmp_path: Path) -> None:
    path = tmp_path / "a [1] %20"
    done = trilake.write(ROWS, path, format="trevni", properties={"codec": "bzip2"})
    assert (done.version, done.files_added, done.rows_added) == (None, 1, 3)
    assert done.bytes_added > 0
    table = trilake.open(path)
    assert isinstance(table, TrevniTable)
    assert table.version is None
    assert table.to_arrow() == ROWS
    (file,) = path.iterdir()
    assert TrevniFile(file).metadata["trevni.codec"] == b"bzip2"
    assert trilake.open(file).count() == trilake.open(tmp_path / "a*" / "*.trv").count() == 3


def test_write_modes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    assert trilake.write(ROWS, path, format="trevni", mode="ignore").rows_added == 3
    with pytest.raises(TableExistsError):
        trilake.write(ROWS, path, format="trevni")
    assert trilake.write(ROWS, path, format="trevni", mode="ignore").rows_added == 0
    trilake.write(ROWS.slice(0, 1), path, format="trevni", mode="append")
    assert [r["n"] for r in rows(path)] == [1, 1, 2, 3]
    trilake.write(pa.table({"other": [7]}), path, format="trevni", mode="overwrite")
    assert trilake.open(path).to_arrow().to_pylist() == [{"other": 7}]
    assert [f.suffix for f in path.iterdir()] == [".trv"]


def test_partition_folders(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS, path, format="trevni", partition_by="P")
    assert sorted(f.name for f in path.iterdir()) == ["p=x", "p=y"]
    assert rows(path) == ROWS.to_pylist()
    trilake.write(ROWS.slice(0, 1), path, format="trevni", mode="append")
    assert trilake.open(path).count("p = 'x'") == 3
    with pytest.raises(SchemaMismatchError, match="partitioned by"):
        trilake.write(ROWS, path, format="trevni", mode="append", partition_by="s")
    with pytest.raises(SchemaMismatchError, match="partition column p is missing"):
        trilake.write(ROWS.drop_columns(["p"]), path, format="trevni", mode="append")


def test_appended_rows_get_the_columns_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS, path, format="trevni")
    more = pa.table({"S": pa.array(["d"], pa.large_string()), "N": pa.array([4], pa.int8())})
    trilake.write(more, path, format="trevni", mode="append")
    assert rows(path)[-1] == {"n": 4, "s": "d", "p": None}
    schemas = [TrevniFile(f).schema.remove_metadata() for f in path.iterdir()]
    assert schemas[0].types == schemas[1].types == ROWS.schema.types


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"n": ["1"]}, "column n is string, the table has int64"),
        ({"n": [1.5]}, "column n is double"),
        ({"n": [1], "z": [1]}, "column z is not in the table"),
        ({"n": [1], "N": [1]}, "differ only by case"),
        ({"n": pa.array([2**64 - 1], pa.uint64())}, "does not fit int64"),
    ],
)
def test_mismatched_rows_are_rejected(tmp_path: Path, bad: dict[str, object], message: str) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS, path, format="trevni")
    before = sorted(path.rglob("*"))
    with pytest.raises(SchemaMismatchError, match=message):
        trilake.write(pa.table(bad), path, format="trevni", mode="append")
    assert sorted(path.rglob("*")) == before


def test_target_file_size(tmp_path: Path) -> None:
    many = pa.table({"n": pa.array(range(100_000), pa.int64())})
    how = {"rowGroupSize": "64k", "blockSize": "4k", "codec": "null", "values": "n"}
    done = trilake.write(many, tmp_path / "t", format="trevni", properties=how)
    assert done.files_added > 2
    table = trilake.open(tmp_path / "t")
    assert table.to_arrow().sort_by("n") == many
    assert table.count("n >= 99000") == table.count(pc.field("n") >= 99000) == 1000
    notes = table.explain("n >= 99000").notes[-1]
    assert int(notes.split(" ")[0]) < 50_000, notes


def test_failed_write_leaves_no_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS, path, format="trevni")
    before = sorted(path.rglob("*"))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise RuntimeError("no more")

    for mode in ("append", "overwrite"):
        with pytest.raises(RuntimeError, match="no more"):
            trilake.write(batches(), path, format="trevni", mode=mode)
        assert [f for f in sorted(path.rglob("*")) if f.name != "_staged"] == before


def test_failed_attempt_keeps_files_of_other_attempts(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t")
    plan = plan_table_write(store, ROWS.schema, mode="append", partition_by=["p"])

    def failing() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise RuntimeError("lost")

    kept = write_rows(store, plan, ROWS.to_batches(), task="1", attempt="7")
    with pytest.raises(RuntimeError):
        write_rows(store, plan, failing(), task="2", attempt="8")
    twice = write_rows(store, plan, ROWS.to_batches(), task="2", attempt="9")
    write_rows(store, plan, ROWS.to_batches(), task="2", attempt="10")  # its commit message was lost
    with pytest.raises(TableNotFoundError):
        trilake.open(tmp_path / "t", format="trevni")
    assert finish_table_write(store, plan, [*kept, *twice]).rows_added == 6
    assert trilake.open(tmp_path / "t").count() == 6
    assert sorted(f.name for f in (tmp_path / "t").iterdir()) == ["p=x", "p=y"]


def test_cleanup_removes_staged_files() -> None:
    store = open_store("memory://api-trevni-clean")
    plans = [plan_table_write(store, ROWS.schema, mode="append") for _ in range(2)]
    for plan in plans:
        write_rows(store, plan, ROWS.to_batches())
    clean(store, plans[0])
    (left,) = [meta.key for meta in store.list()]
    assert plans[1].write_id in left


def test_write_without_rows(tmp_path: Path) -> None:
    none = ROWS.slice(0, 0)
    trilake.write(none, tmp_path / "t", format="trevni")
    assert trilake.open(tmp_path / "t").to_arrow() == none
    assert trilake.write(none, tmp_path / "t", format="trevni", mode="append").files_added == 0


def test_table_of_another_format_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS, path)
    for mode in ("append", "overwrite"):
        with pytest.raises(TableExistsError, match="already a Delta table"):
            trilake.write(ROWS, path, format="trevni", mode=mode)
    assert trilake.open(path).count() == 3


def test_arguments_are_checked(tmp_path: Path) -> None:
    trilake.write(ROWS, tmp_path / "t", format="trevni")
    with pytest.raises(InvalidArgumentError, match="no versions"):
        trilake.open(tmp_path / "t", version=0)
    with pytest.raises(TableNotFoundError):
        trilake.open(tmp_path / "nothing.trv")
    for wrong in ({"codec": "zstd"}, {"checksum": "md5"}, {"rowGroupSize": "0"}, {"blockSize": "4x"}, {"values": "q"}):
        with pytest.raises(InvalidArgumentError):
            trilake.write(ROWS, tmp_path / "u", format="trevni", properties=wrong)
    with pytest.raises(UnknownOptionError, match="appendOnly"):
        trilake.write(ROWS, tmp_path / "u", format="trevni", properties={"delta.appendOnly": "true"})
    with pytest.raises(InvalidArgumentError, match="log"):
        trilake.write(ROWS, tmp_path / "u", format="trevni", mode="overwrite", replace_where="p = 'x'")
    with pytest.raises(TableNotFoundError):
        trilake.open(tmp_path / "u")


def test_trevni_needs_no_spark(tmp_path: Path) -> None:
    code = (
        "import sys, trilake, pyarrow as pa\n"
        f"trilake.write(pa.table({{'n': [1]}}), {str(tmp_path / 't')!r}, format='trevni')\n"
        f"assert trilake.open({str(tmp_path / 't')!r}).count() == 1\n"
        "assert not [m for m in sys.modules if m.startswith('pyspark')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_spark_writes_partitions_and_reads_with_a_filter(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    done = trilake.write(spark.createDataFrame(ROWS), path, format="trevni", partition_by=["p"])
    assert (done.version, done.rows_added) == (None, 3)
    assert rows(path) == ROWS.to_pylist()
    found = trilake.read(spark, path, columns=["s"], filter="n < 3 and p = 'x'")
    assert found.columns == ["s"]
    assert {r.s for r in found.collect()} == {"a", None}
    by_expression = trilake.read(spark, path, columns=["s"], filter=pc.field("n") > 2)
    assert [r.asDict() for r in by_expression.collect()] == [{"s": "c"}]
