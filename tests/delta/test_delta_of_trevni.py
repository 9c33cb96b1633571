"""Delta tables whose data files are Trevni: ``metaData.format.provider`` is ``trevni``."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trilake
from tests.delta.tables import opened
from trilake.errors import InvalidArgumentError
from trilake.trevni import TrevniFile

ROWS = pa.table(
    {
        "n": pa.array([1, 2, 3], pa.int64()),
        "b": pa.array([1, None, 3], pa.int8()),
        "l": [["x", None], None, []],
        "r": [{"a": 1.5, "t": True}, None, {"a": None, "t": False}],
        "p": ["x", "x", None],
    }
)


def rows(path: Path | str, filter: str | None = None) -> list[dict[str, object]]:
    result: list[dict[str, object]] = trilake.open(path).to_arrow(filter=filter).sort_by("n").to_pylist()
    return result


def test_create_append_and_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    assert trilake.write(ROWS, path, partition_by="p", data_format="trevni").version == 0
    assert trilake.write(ROWS.slice(0, 1), path, mode="append").version == 1
    table = opened(path)
    assert table.metadata.provider == "trevni"
    assert rows(path) == sorted([*ROWS.to_pylist(), ROWS.to_pylist()[0]], key=lambda r: r["n"])
    assert rows(path, "n > 1 and p = 'x'") == [ROWS.to_pylist()[1]]
    assert table.to_arrow(["P", "b"]).num_rows == table.count() == 4
    assert table.count("n = 1") == 2
    assert sorted(orjson.loads(s)["numRecords"] for s in table.files()["stats"].to_pylist()) == [1, 1, 2]
    assert {TrevniFile(f).row_count for f in path.rglob("*.trevni")} == {1, 2}
    assert not list(path.rglob("*.parquet"))
    assert trilake.open(path, version=0).count() == 3


def test_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS, path, data_format="trevni")
    done = trilake.write(ROWS.slice(2), path, mode="overwrite")
    assert (done.files_added, done.files_removed) == (1, 1)
    assert rows(path) == ROWS.slice(2).to_pylist()


def test_table_keeps_its_data_format(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS, path, data_format="trevni")
    with pytest.raises(InvalidArgumentError, match="files have format trevni, but data_format is 'parquet'"):
        trilake.write(ROWS, path, mode="append", data_format="parquet")
    with pytest.raises(InvalidArgumentError, match="supported formats are lance, parquet, trevni"):
        trilake.write(ROWS, tmp_path / "u", data_format="avro")
    with pytest.raises(InvalidArgumentError, match="data_format needs a table with a log"):
        trilake.write(ROWS, tmp_path / "u", format="trevni", data_format="trevni")


def test_spark_creates_appends_and_reads(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    trilake.register(spark)
    df = spark.createDataFrame(ROWS)
    trilake.write(df, path, partition_by=["p"], data_format="trevni")
    df.where("n = 3").write.format("delta").mode("append").save(path)
    expected = sorted([*ROWS.to_pylist(), ROWS.to_pylist()[2]], key=lambda r: r["n"])
    assert rows(path) == expected
    result = trilake.read(spark, path, filter="n >= 2").orderBy("n").collect()
    assert [r.asDict(recursive=True) for r in result] == expected[1:]
