"""Delta tables whose data files are Lance: ``metaData.format.provider`` is ``lance``."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trilake
from tests.delta.tables import opened
from trilake.errors import (
    InvalidArgumentError,
)
from trilake.lance.data_files import open_by_footer
from trilake.lance.file import LanceFileWriter
from trilake.lance.v2.file import V2File
from trilake.storage import open_store

UTC = dt.UTC
ROWS = pa.table(
    {
        "n": pa.array([1, 2, 3, 4], pa.int64()),
        "b": pa.array([1, None, 3, 4], pa.int8()),
        "s": ["", None, "x", "y"],
        "f": [1.5, None, -0.0, 7.0],
        "d": pa.array([Decimal("1.50"), None, Decimal("-2.25"), None], pa.decimal128(10, 2)),
        "t": pa.array([dt.datetime(2020, 1, 1, 1, 2, 3, 456789, UTC), None, None, None], pa.timestamp("us", "UTC")),
        "l": [["x", ""], None, [], ["z"]],
        "r": [{"a": 1, "c": "q"}, None, {"a": 2, "c": ""}, {"a": 3, "c": "w"}],
        "v": [b"", None, b"a", b"b"],
        "p": ["x", "x", None, "y"],
    }
)
MAPPINGS = [{}, {"delta.columnMapping.mode": "name"}, {"delta.columnMapping.mode": "id"}]


def rows(path: Path | str, filter: str | None = None, version: int | None = None) -> list[dict[str, object]]:
    result: list[dict[str, object]] = (
        trilake.open(path, version=version).to_arrow(filter=filter).sort_by("n").to_pylist()
    )
    return result


@pytest.mark.parametrize("properties", MAPPINGS, ids=["plain", "name", "id"])
def test_create_append_overwrite_and_read(tmp_path: Path, properties: dict[str, str]) -> None:
    path, given = tmp_path / "t", ROWS.to_pylist()
    done = trilake.write(ROWS, path, partition_by="p", data_format="lance", properties=properties)
    assert (done.version, done.files_added) == (0, 3)
    trilake.write(ROWS.slice(0, 1), path, mode="append")
    table = opened(path)
    assert table.metadata.provider == "lance"
    assert rows(path) == [given[0], *given]
    assert rows(path, "n > 1 and p = 'x'") == [given[1]]
    assert rows(path, "s = ''") == [given[0]] * 2
    assert table.to_arrow(["P", "b"]).num_rows == table.count() == 5
    assert table.to_arrow(["p"]).num_rows == 5
    assert len(list(path.rglob("*.lance"))) == 4
    assert not list(path.rglob("*.parquet"))
    done = trilake.write(ROWS.slice(2), path, mode="overwrite")
    assert (done.files_added, done.files_removed) == (2, 4)
    assert rows(path) == given[2:]
    assert rows(path, version=0) == given


@pytest.mark.parametrize("properties", MAPPINGS, ids=["plain", "name", "id"])
def test_columns_can_be_added(tmp_path: Path, properties: dict[str, str]) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS.select(["n"]), path, data_format="lance", properties=properties)
    trilake.write(ROWS.slice(0, 1), path, mode="append", schema_mode="merge")
    result = rows(path)
    early = dict.fromkeys(ROWS.schema.names) | {"n": 1}
    assert early in result
    assert ROWS.to_pylist()[0] in result
    assert rows(path, "b = 1") == ROWS.slice(0, 1).to_pylist()
    if properties:
        trilake.alter(path).rename_column("b", "c")
        assert trilake.open(path).to_arrow(["n", "c"], "c = 1").to_pylist() == [{"n": 1, "c": 1}]


def test_log_statistics_skip_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS.slice(0, 2), path, data_format="lance")
    trilake.write(ROWS.slice(2), path, mode="append")
    stats = [orjson.loads(s) for s in trilake.open(path).files()["stats"].to_pylist()]
    first = next(s for s in stats if s["minValues"]["n"] == 1)
    assert first["numRecords"] == 2
    assert first["maxValues"]["t"] == "2020-01-01T01:02:03.457Z"
    assert first["maxValues"]["r"] == {"a": 1, "c": "q"}
    assert (first["nullCount"]["s"], first["nullCount"]["v"], first["minValues"]["s"]) == (1, 1, "")
    assert "v" not in first["minValues"]
    assert len(trilake.open(path).explain("n > 2").skipped) == 1
    assert len(trilake.open(path).explain("r.a > 1").skipped) == 1


def test_statistics_match_parquet(tmp_path: Path) -> None:
    more = pa.table({"i": [float("inf")] * 3, "z": ["x" * 99] * 3, "e": [None, None, None]})
    more = more.set_column(2, "e", more["e"].cast(pa.string()))
    for given in (ROWS, more):
        stats = []
        for kind in ("parquet", "lance", "trevni"):
            path = tmp_path / f"{kind}{given.num_columns}"
            trilake.write(given, path, data_format=kind)
            stats.append(orjson.loads(trilake.open(path).files()["stats"][0].as_py()))
        assert stats[0] == stats[1] == stats[2]


def test_nan_has_no_upper_bound(tmp_path: Path) -> None:
    given = pa.table({"f": [1.0, float("nan"), None], "g": [float("nan")] * 3})
    trilake.write(given, tmp_path / "t", data_format="lance")
    stats = orjson.loads(trilake.open(tmp_path / "t").files()["stats"][0].as_py())
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({"f": 1.0}, {}, {"f": 1, "g": 0})


def test_file_has_its_own_schema(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS, path, data_format="lance")
    (file,) = path.glob("*.lance")
    import lance.file  # imported late: pylance starts threads, and Spark forks

    assert lance.file.LanceFileReader(str(file)).read_all().to_table().equals(trilake.open(path).to_arrow())
    opened = open_by_footer(open_store(path), file.name)
    assert isinstance(opened, V2File)
    assert (opened.version, opened.num_rows) == ((2, 2), 4)
    assert opened.schema.names == ROWS.schema.names


def test_replace_where_with_and_without_vectors(tmp_path: Path) -> None:
    given = ROWS.to_pylist()
    for vectors in ("false", "true"):
        path = tmp_path / vectors
        trilake.write(ROWS, path, data_format="lance", properties={"delta.enableDeletionVectors": vectors})
        trilake.write(ROWS.slice(1, 1), path, mode="overwrite", replace_where="n in (2, 3)")
        assert rows(path) == [given[0], given[1], given[3]]


@pytest.mark.parametrize("provider", ["lance", "trevni"])
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_delete_update_and_merge(tmp_path: Path, provider: str, vectors: str) -> None:
    path = tmp_path / "t"
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}
    for start in (0, 10):
        new = pa.table({"n": range(start, start + 10), "s": ["", None] * 5})
        trilake.write(new, path, mode="append", data_format=provider, properties=properties if not start else None)
    result = {n: "" if n % 2 == 0 else None for n in range(20)}

    def check() -> None:
        assert {r["n"]: r["s"] for r in rows(path)} == result

    assert trilake.open(path).delete("n % 4 = 0").rows == 5
    result = {n: s for n, s in result.items() if n % 4}
    check()
    left = trilake.open(path).files()["deletion_vector"].to_pylist()
    # Compaction of small files leaves one file.
    assert [v is not None for v in left] == ([True, True] if vectors == "true" else [False])
    assert trilake.open(path).update({"n": "n + 100"}, "n < 3").rows == 2
    result = {n + 100 if n < 3 else n: s for n, s in result.items()}
    check()
    optimized = trilake.open(path).optimize()
    assert optimized.metrics.num_files_added == (vectors == "true")
    check()
    assert len(trilake.open(path).files()) == 1
    assert trilake.open(path).changes(2).num_rows == 5 + 4


def test_maps_and_nested_nulls_are_kept(tmp_path: Path) -> None:
    items = pa.list_(pa.struct({"x": pa.int32(), "y": pa.list_(pa.string())}))
    given = pa.table(
        {
            "n": [1, 2, 3],
            "m": pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64())),
            "l": [[1, None], [], None],
            "r": [{"c": None}, None, {"c": "x"}],
            "i": pa.array([[{"x": 1, "y": None}, None], None, [{"x": None, "y": ["q", None]}]], items),
        }
    )
    trilake.write(given, tmp_path / "t", data_format="lance")
    assert rows(tmp_path / "t") == given.to_pylist()
    assert trilake.open(tmp_path / "t").update({"n": "n + 10"}, "n > 1").rows == 2
    assert rows(tmp_path / "t", "n < 13") == [given.to_pylist()[0], given.to_pylist()[1] | {"n": 12}]


def test_legacy_and_new_files_are_read_together(tmp_path: Path) -> None:
    path, given = tmp_path / "t", ROWS.drop_columns(["p", "l", "r"])
    trilake.write(given, path, data_format="lance")
    (file,) = path.glob("*.lance")
    file.unlink()
    with LanceFileWriter(file, version="legacy", nulls="mask") as writer:
        for batch in given.to_batches():
            writer.write_batch(batch)
    trilake.write(given.slice(0, 1), path, mode="append")
    assert rows(path) == [given.to_pylist()[0], *given.to_pylist()]
    assert rows(path, "b is null") == given.to_pylist()[1:2]
    assert trilake.open(path).to_arrow([]).num_rows == 5


def test_table_keeps_its_data_format(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.create(path, {"n": "bigint", "s": "string"}, data_format="lance")
    trilake.write(pa.table({"n": [1], "s": [""]}), path, mode="append")
    assert rows(path) == [{"n": 1, "s": ""}]
    assert len(list(path.glob("*.lance"))) == 1
    with pytest.raises(InvalidArgumentError, match="files have format lance, but data_format is 'parquet'"):
        trilake.write(ROWS, path, mode="append", data_format="parquet")
    with pytest.raises(InvalidArgumentError, match="supported formats are lance, parquet, trevni"):
        trilake.create(tmp_path / "u", {"n": "bigint"}, data_format="avro")


def test_spark_creates_appends_and_reads(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    trilake.register(spark)
    df = spark.createDataFrame(ROWS)
    df.write.format("delta").option("dataFormat", "lance").option("partitionBy", "p").mode("append").save(path)
    trilake.write(df.where("n = 3"), path, mode="append")
    given = ROWS.to_pylist()
    assert rows(path) == [*given[:3], given[2], given[3]]
    result = trilake.read(spark, path, filter="n >= 2").select("n", "s", "l", "r").orderBy("n").collect()
    names = ["n", "s", "l", "r"]
    assert [r.asDict(recursive=True) for r in result] == [{k: r[k] for k in names} for r in rows(path, "n >= 2")]
    df.write.format("delta").mode("overwrite").save(path)
    assert rows(path) == given
