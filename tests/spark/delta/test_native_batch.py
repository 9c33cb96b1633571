"""Batches of Delta streams: Spark's native scan gives the same rows as the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import trilake
from trilake.spark.delta import native_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NATIVE = "native"


@pytest.fixture
def ways(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each batch was read: natively, or why not."""
    trilake.register(spark)
    found: list[str] = []
    true = native_batch._native

    def record(df: DataFrame, small: bool) -> Any:
        try:
            out = true(df, small)
        except Exception as e:
            found.append(str(e))
            raise
        found.append(NATIVE)
        return out

    monkeypatch.setattr(native_batch, "_native", record)
    monkeypatch.setattr(native_batch, "SMALL", 0)
    return found


def grow(path: Path, *groups: range, **fields: Any) -> None:
    for ids in groups:
        rows = pa.table({"id": pa.array(ids, pa.int64()), "p": [f"p{i % 2}" for i in ids]})
        trilake.write(rows, path, mode="append", **fields)


def stream(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    return spark.readStream.format("delta").options(**{k: str(v) for k, v in options.items()}).load(str(path))


def run(df: DataFrame, out: Path, mode: str = "append") -> StreamingQuery:
    writer = df.writeStream.format("delta").outputMode(mode).option("checkpointLocation", f"{out}-checkpoint")
    query = writer.trigger(availableNow=True).start(str(out))
    query.awaitTermination()
    return query


def read(query: StreamingQuery) -> int:
    """The number of input rows reported by the query."""
    return sum(json.loads(p.json)["numInputRows"] for p in query.recentProgress)


def ids(path: Path) -> list[int]:
    return sorted(trilake.open(path).to_arrow(["id"])["id"].to_pylist())


def test_row_by_row_transformations(spark: SparkSession, tmp_path: Path, ways: list[str]) -> None:
    grow(tmp_path / "in", range(4), range(4, 9), range(10, 11))
    df = stream(spark, tmp_path / "in", maxFilesPerTrigger=2).where("id % 3 <> 0")
    df = df.selectExpr("id", "explode(array(p, 'more')) AS word", "current_timestamp() AS at").alias("x")
    query = run(df.selectExpr("x.id + 100 AS id", "word", "at"), tmp_path / "out")
    assert ways == [NATIVE, NATIVE]
    assert read(query) == 10
    rows = trilake.open(tmp_path / "out").to_arrow()
    assert sorted(set(rows["id"].to_pylist())) == [101, 102, 104, 105, 107, 108, 110]
    assert sorted(rows["word"].to_pylist())[:7] == ["more"] * 7
    assert rows.num_rows == 14
    assert len(rows["at"].unique()) == 2  # one moment a batch
    # A second run continues after the first.
    grow(tmp_path / "in", range(20, 21))
    assert read(run(df.selectExpr("x.id + 100 AS id", "word", "at"), tmp_path / "out")) == 1
    assert ways == [NATIVE] * 3


@pytest.mark.parametrize(
    ("partition_by", "mapping"),
    [
        (None, "none"),
        (["p"], "id"),
        pytest.param(None, "id", marks=pytest.mark.soak),
        pytest.param(["p"], "none", marks=pytest.mark.soak),
    ],
)
def test_vectors_partitions_and_mapped_columns(
    spark: SparkSession, tmp_path: Path, ways: list[str], partition_by: list[str] | None, mapping: str
) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": mapping}
    grow(tmp_path / "in", range(10), partition_by=partition_by, properties=properties)
    grow(tmp_path / "in", range(10, 14))
    trilake.DeltaTable.forPath(spark, str(tmp_path / "in")).delete("id IN (3, 4, 12)")
    query = run(stream(spark, tmp_path / "in"), tmp_path / "out")
    assert ways == [NATIVE]
    assert read(query) == 11
    source, target = (trilake.open(tmp_path / n).to_arrow().sort_by("id") for n in ("in", "out"))
    assert target.equals(source)


def test_batches_that_use_the_source(spark: SparkSession, tmp_path: Path, ways: list[str]) -> None:
    grow(tmp_path / "in", range(6), properties={"delta.enableChangeDataFeed": "true"})
    plain = stream(spark, tmp_path / "in")
    cases: dict[str, tuple[DataFrame, str, str]] = {
        "counts": (plain.groupBy("p").count(), "complete", "does not work row by row: Aggregate"),
        "unique": (plain.dropDuplicates(["p"]).select("id"), "append", "does not work row by row: Deduplicate"),
        "moved": (plain.repartition(2), "append", "does not work row by row: Repartition"),
        "union": (plain.union(plain), "append", "does not work row by row: Union"),
        "rate": (spark.readStream.format("rate").load().limit(1), "append", "does not work row by row"),
        "feed": (
            stream(spark, tmp_path / "in", readChangeFeed="true").selectExpr("id", "_change_type AS kind"),
            "append",
            "the stream reads a change feed",
        ),
    }
    for name, (df, mode, reason) in cases.items():
        ways.clear()
        if name == "rate":
            query = trilake.write_stream(df, tmp_path / name, checkpoint=tmp_path / f"{name}-checkpoint")
            query.processAllAvailable()
            query.stop()
            assert trilake.open(tmp_path / name).count() <= 1
        else:
            run(df, tmp_path / name, mode)
        assert len(ways) >= 1
        assert all(reason in w for w in ways), (name, ways)
    assert {r["p"]: r["count"] for r in trilake.open(tmp_path / "counts").to_arrow().to_pylist()} == {"p0": 3, "p1": 3}
    assert trilake.open(tmp_path / "unique").count() == 2
    assert ids(tmp_path / "union") == sorted([*range(6), *range(6)])
    assert trilake.open(tmp_path / "feed").to_arrow()["kind"].to_pylist() == ["insert"] * 6


def test_user_frame_derived_from_the_batch(spark: SparkSession, tmp_path: Path, ways: list[str]) -> None:
    grow(tmp_path / "in", range(6))
    changes: dict[str, Callable[[DataFrame], DataFrame]] = {
        "filtered": lambda df: df.where("id > 3"),
        "kept": lambda df: df.orderBy("id").limit(2).localCheckpoint(),
        "other": lambda df: df.sparkSession.createDataFrame([(77, "x")], "id long, p string"),
        "cached": lambda df: df.cache(),
    }
    for name, change in changes.items():
        append = trilake.foreach_batch.append(tmp_path / name)

        def write(df: DataFrame, batch: int, append: Any = append, change: Any = change) -> None:
            append(change(df), batch)

        writer = stream(spark, tmp_path / "in").writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    spark.createDataFrame([], "id long")  # active again: "other" had activated the session of its batch
    assert ids(tmp_path / "filtered") == [4, 5]
    assert ids(tmp_path / "kept") == [0, 1]
    assert ids(tmp_path / "other") == [77]
    assert ids(tmp_path / "cached") == list(range(6))
    assert ways[:3] == ["the DataFrame is not the batch itself"] * 3


def test_merge_reads_the_batch_natively(spark: SparkSession, tmp_path: Path, ways: list[str]) -> None:
    grow(tmp_path / "in", range(6), range(3, 9))
    trilake.write(pa.table({"id": pa.array([2, 5], pa.int64()), "p": ["old", "old"]}), tmp_path / "out")
    merge = trilake.foreach_batch.merge(tmp_path / "out", "t.id = s.id", update_all=True, insert_all=True)
    writer = stream(spark, tmp_path / "in", maxFilesPerTrigger=1).writeStream.foreachBatch(merge)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert ways == [NATIVE, NATIVE]
    assert read(query) == 12
    assert ids(tmp_path / "out") == list(range(9))
    assert trilake.open(tmp_path / "out").count("p = 'old'") == 0


def test_missing_files_are_reported_by_the_source(spark: SparkSession, tmp_path: Path, ways: list[str]) -> None:
    from pyspark.errors import PySparkException

    grow(tmp_path / "in", range(2), range(2, 4))
    lost = trilake.open(tmp_path / "in").files()["path"].to_pylist()[0]
    (tmp_path / "in" / lost).unlink()
    with pytest.raises(PySparkException, match="a file was deleted before the stream read it"):
        run(stream(spark, tmp_path / "in"), tmp_path / "out")
    run(stream(spark, tmp_path / "in", failOnDataLoss="false"), tmp_path / "out")
    assert len(ids(tmp_path / "out")) == 2
    assert all(lost in w for w in ways), ways


def test_failed_scan_is_retried_through_the_source(
    spark: SparkSession, tmp_path: Path, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F

    grow(tmp_path / "in", range(5))
    true = native_batch._replaced

    def broken(*args: Any) -> DataFrame:
        frame = true(*args)
        return frame.withColumn("id", F.when(F.col("id") == 3, F.raise_error(F.lit("boom"))).otherwise(F.col("id")))

    monkeypatch.setattr(native_batch, "_replaced", broken)
    assert read(run(stream(spark, tmp_path / "in"), tmp_path / "out")) == 5
    assert ways == [NATIVE]
    assert ids(tmp_path / "out") == list(range(5))


def test_unknown_spark_internals_use_the_source(
    spark: SparkSession, tmp_path: Path, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path / "in", range(5))

    def unknown(df: DataFrame) -> Any:
        return df.sparkSession.sparkContext._jvm.org.apache.spark.NoSuchThing.lastExecution()  # type: ignore[union-attr]

    monkeypatch.setattr(native_batch, "_execution", unknown)
    assert read(run(stream(spark, tmp_path / "in"), tmp_path / "out")) == 5
    assert ids(tmp_path / "out") == list(range(5))
    assert ways != [NATIVE]
    assert len(ways) == 1


@pytest.mark.parametrize(
    "name",
    [
        "data-reader-timestamp_ntz-id-mode",
        "dv-partitioned-with-checkpoint",
        "parquet-all-types-legacy-format",
        *(
            pytest.param(name, marks=pytest.mark.soak)
            for name in (
                "dat-with_schema_change",
                "data-reader-partition-values",
                "hive-deltatbl-schema-match",
                "kernel-timestamp-int96",
            )
        ),
    ],
)
def test_tables_of_other_writers(spark: SparkSession, tmp_path: Path, shared: Path, ways: list[str], name: str) -> None:
    source = shared / "corpus" / "delta" / "golden" / name / "delta"
    expected = trilake.open(source).to_arrow()
    query = run(stream(spark, source), tmp_path / "out")
    found = trilake.open(tmp_path / "out").to_arrow()
    assert ways == [NATIVE]
    assert read(query) == expected.num_rows == found.num_rows
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))
