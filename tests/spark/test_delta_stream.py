"""Delta tables as sources and sinks of Structured Streaming."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import trilake
from trilake.delta.standard import standard_engine
from trilake.errors import InvalidArgumentError
from trilake.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> Iterator[None]:
    trilake.register(spark)
    yield
    for query in spark.streams.active:
        query.stop()


class Lake:
    """A source table, and queries that read it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.next = spark, folder, 0
        self.source = str(folder / "source")

    def grow(self, commits: int = 1, rows: int = 2, **fields: Any) -> None:
        for _ in range(commits):
            ids = list(range(self.next, self.next + rows))
            self.next += rows
            table = pa.table({"id": pa.array(ids, pa.int64()), "p": [f"p{i % 2}" for i in ids]})
            trilake.write(table, self.source, mode="append", **fields)

    def stream(self, **options: object) -> DataFrame:
        texts = {k: str(v) for k, v in options.items()}
        return self.spark.readStream.format("delta").options(**texts).load(self.source)

    def run(self, df: DataFrame, out: str = "out", mode: str = "append", **options: object) -> StreamingQuery:
        writer = df.writeStream.format("delta").outputMode(mode).option("checkpointLocation", self.checkpoint(out))
        for k, v in options.items():
            writer = writer.option(k, str(v))
        query = writer.trigger(availableNow=True).start(str(self.folder / out))
        query.awaitTermination()
        return query

    def checkpoint(self, out: str) -> str:
        return str(self.folder / f"{out}-checkpoint")

    def table(self, out: str = "out") -> Any:
        return trilake.open(str(self.folder / out))

    def ids(self, out: str = "out") -> list[int]:
        return sorted(self.table(out).to_arrow(["id"])["id"].to_pylist())


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def failure(call: Callable[[], object]) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as e:
        call()
    return str(e.value)


def test_table_is_read_and_written_in_batches(lake: Lake) -> None:
    """The initial snapshot, later commits, a restart, commit metadata and progress."""
    lake.grow(5)
    query = lake.run(lake.stream(maxFilesPerTrigger=2))
    assert lake.ids() == list(range(10))
    assert [p["numInputRows"] for p in map(_json, query.recentProgress)] == [4, 4, 2]
    end = _json(query.lastProgress)["sources"][0]["endOffset"]
    assert (end["reservoirVersion"], end["index"], end["isStartingVersion"]) == (5, -1, False)
    history = lake.table().history().to_pylist()
    assert {h["operation"] for h in history} == {"STREAMING UPDATE"}
    assert dict(history[0]["operationParameters"]) == {"outputMode": "Append", "queryId": query.id, "epochId": "2"}
    assert trilake.stream_lag(query, lake.source)[0].versions == 0
    lake.grow(2)
    assert trilake.stream_lag(query, lake.source)[0] == trilake.stream_lag(query, lake.source)[0]
    assert trilake.stream_lag(query, lake.source)[0].versions == 2
    lake.run(lake.stream(), userMetadata="second run")
    assert lake.ids() == list(range(14))
    assert lake.table().version == 3
    # A batch without a commit entry is repeated.
    folder = Path(lake.checkpoint("out")) / "commits"
    for name in ("3", ".3.crc"):
        (folder / name).unlink()
    lake.run(lake.stream())
    assert lake.ids() == list(range(14))
    assert lake.table().version == 3


def _json(progress: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(progress.json)
    return found


def test_partitions_modes_and_new_columns(lake: Lake) -> None:
    lake.grow(2)
    df = lake.stream()
    # Spark drops partitionBy for Python sinks.
    query = (
        df.writeStream.format("delta")
        .partitionBy("p")
        .option("checkpointLocation", lake.checkpoint("parts"))
        .option("delta.appendOnly", "true")
        .trigger(availableNow=True)
        .start(str(lake.folder / "parts"))
    )
    query.awaitTermination()
    table = lake.table("parts")
    assert table.metadata.partition_columns == ("p",)
    assert table.metadata.configuration["delta.appendOnly"] == "true"
    lake.run(lake.stream().groupBy("p").count(), "counts", "complete")
    assert sorted(lake.table("counts").to_arrow().to_pylist(), key=str) == [
        {"p": "p0", "count": 2},
        {"p": "p1", "count": 2},
    ]


def test_source_schema_change_stops_the_query_until_restart(lake: Lake) -> None:
    lake.grow(2)
    df = lake.stream(startingVersion=0)
    lake.run(df)
    trilake.write(pa.table({"id": [100], "p": ["x"], "n": [7]}), lake.source, mode="append", schema_mode="merge")
    lake.grow()
    text = failure(lambda: lake.run(df))
    assert "STREAM_SCHEMA_CHANGED" in text
    assert "column n was added" in text
    lake.run(lake.stream(startingVersion=0), mergeSchema=True)
    assert lake.ids() == [*range(6), 100]
    assert lake.table().count("n = 7") == 1


def test_two_queries_write_one_table_and_a_third_reads(lake: Lake) -> None:
    lake.grow(2)
    watcher = lake.spark.readStream.format("delta")
    queries = [
        lake.stream(maxFilesPerTrigger=1)
        .writeStream.format("delta")
        .option("checkpointLocation", lake.checkpoint(f"q{i}"))
        .start(str(lake.folder / "shared"))
        for i in range(2)
    ]
    try:
        _wait(lambda: _count(lake, "shared") == 8)
        third = trilake.write_stream(
            watcher.load(str(lake.folder / "shared")), lake.folder / "copy", checkpoint=lake.checkpoint("copy")
        )
        queries.append(third)
        lake.grow(2)
        _wait(lambda: _count(lake, "copy") == 16)
        _wait(lambda: bool(trilake.stream_lag(third)))  # Spark reports a batch a while after its commit
        lag = trilake.stream_lag(third, lake.folder / "shared")
        assert [0 <= x.versions <= 8 for x in lag] == [True]
        assert trilake.stream_lag(third, lake.source) == []
        progress = _json(third.lastProgress)["sources"][0]
        assert progress["endOffset"]["reservoirId"] == lake.table("shared").metadata.id
    finally:
        for query in queries:
            query.stop()
    assert lake.ids("copy") == lake.ids("shared") == sorted([*range(8)] * 2)


def _count(lake: Lake, out: str) -> int:
    found = open_store(str(lake.folder / out))
    from trilake.delta.log.log import DeltaLog

    return lake.table(out).count() if DeltaLog(found, standard_engine()).exists() else 0


def _wait(done: Callable[[], bool], seconds: float = 240) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, "the query takes too long"
        time.sleep(0.05)


def test_foreach_batch_writes_each_batch_once(lake: Lake, spark: SparkSession) -> None:
    lake.grow(3)
    append = trilake.foreach_batch.append(lake.folder / "out", partition_by="p")
    seen: list[int] = []

    def twice(df: DataFrame, batch_id: int) -> None:
        """The process dies after the commit, and the batch is repeated."""
        append(df, batch_id)
        append(df, batch_id)
        seen.append(batch_id)

    writer = lake.stream(maxFilesPerTrigger=1).writeStream.foreachBatch(twice)
    query = writer.option("checkpointLocation", lake.checkpoint("out")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert seen == [0, 1, 2]
    assert lake.ids() == list(range(6))
    assert lake.table().metadata.partition_columns == ("p",)
    rows = spark.createDataFrame([(50, "p0")], "id long, p string")
    overwrite = trilake.foreach_batch.overwrite(lake.folder / "out", dynamic_partitions=True, app_id="mine")
    for _ in range(2):
        overwrite(rows, 0)
    assert lake.ids() == [1, 3, 5, 50]
    with pytest.raises(trilake.TrilakeError, match="query of this batch is unknown"):
        append(rows, 0)


def test_foreach_batch_merges_each_batch_once(lake: Lake, spark: SparkSession) -> None:
    target = str(lake.folder / "totals")
    trilake.write(pa.table({"p": ["p0"], "n": pa.array([100], pa.int64())}), target, mode="append")
    lake.grow(2)
    merge = trilake.foreach_batch.merge(
        target, "t.p = s.p", update={"n": "t.n + s.n"}, insert={"p": "s.p", "n": "s.n"}, delete="t.n > 1000"
    )

    def twice(df: DataFrame, batch_id: int) -> None:
        counts = df.groupBy("p").agg({"id": "sum"}).toDF("p", "n")
        merge(counts, batch_id)
        merge(counts, batch_id)

    writer = lake.stream(startingVersion=0, maxFilesPerTrigger=1).writeStream.foreachBatch(twice)
    query = writer.option("checkpointLocation", lake.checkpoint("totals")).trigger(availableNow=True).start()
    query.awaitTermination()
    table = trilake.open(target)
    assert sorted((r["p"], r["n"]) for r in table.to_arrow().to_pylist()) == [("p0", 102), ("p1", 4)]
    assert table.snapshot.state.txns[query.id]["version"] == 1
    with pytest.raises(InvalidArgumentError, match="has no clauses"):
        trilake.foreach_batch.merge(target, "t.p = s.p")
    every = trilake.foreach_batch.merge(target, "t.p = s.p", update_all=True, insert_all=True, app_id="me")
    for n in (1, 2):
        every(spark.createDataFrame([("p0", n)], "p string, n long"), 0)
    assert trilake.open(target).count("p = 'p0' AND n = 1") == 1


def test_write_stream(lake: Lake) -> None:
    lake.grow(2)
    where: Any = {"checkpoint": lake.checkpoint("out"), "available_now": True}
    trilake.write_stream(lake.stream(), lake.folder / "out", partition_by="p", **where).awaitTermination()
    lake.grow()
    trilake.write_stream(lake.stream(), lake.folder / "out", **where).awaitTermination()
    assert lake.ids() == list(range(6))
    with pytest.raises(InvalidArgumentError, match="not a stream"):
        trilake.write_stream(lake.spark.range(1), lake.folder / "out", checkpoint="x")


def test_catalog_tables_and_checkpoint_from_a_setting(lake: Lake, spark: SparkSession) -> None:
    lake.grow(2)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(lake.folder / "checkpoints"))
    try:
        writer = lake.stream().writeStream.format("delta").partitionBy("p").queryName("by_setting")
        writer.trigger(availableNow=True).toTable("streamed_events").awaitTermination()
        assert (lake.folder / "checkpoints" / "by_setting" / "metadata").exists()
        assert spark.table("streamed_events").count() == 4
        again = spark.readStream.table("streamed_events").writeStream.format("delta")
        again = again.option("checkpointLocation", lake.checkpoint("again")).trigger(availableNow=True)
        again.start(str(lake.folder / "again")).awaitTermination()
        assert lake.ids("again") == list(range(4))
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
        spark.sql("DROP TABLE IF EXISTS streamed_events")


def test_invalid_options_are_named(lake: Lake) -> None:
    lake.grow()
    assert "UNKNOWN_OPTION" in failure(lambda: lake.stream(maxFilesPerTriger=1))
    assert "VERSION_NOT_FOUND" in failure(lambda: lake.run(lake.stream(startingVersion=77)))


def test_unsupported_sink_options_are_rejected_at_start(lake: Lake) -> None:
    lake.grow()
    out = str(lake.folder / "out")
    checkpoint: Any = {"checkpointLocation": lake.checkpoint("out")}
    delta = lake.stream().writeStream.format("delta")
    assert "the stream needs a checkpoint location" in failure(lambda: delta.start(out))
    assert "a path is required" in failure(lambda: delta.start(**checkpoint))
    again = lake.stream().writeStream.format("delta")
    assert "output mode update is not supported" in failure(lambda: again.start(out, outputMode="update", **checkpoint))
    once_more = lake.stream().writeStream.format("delta").options(txnAppId="a", txnVersion=1)
    assert "leave both options out" in failure(lambda: once_more.start(out, **checkpoint))
    assert "UNKNOWN_OPTION" in failure(
        lambda: lake.stream().writeStream.format("delta").start(out, oops=1, **checkpoint)
    )
    assert not (lake.folder / "out").exists()


def test_writers_that_end_in_another_sink(lake: Lake) -> None:
    lake.grow()
    seen: list[int] = []
    own = lake.stream().writeStream.format("delta").foreachBatch(lambda df, _: seen.append(df.count()))
    own = own.option("checkpointLocation", lake.checkpoint("own")).trigger(availableNow=True)
    own.start().awaitTermination()
    assert seen == [2]
    files = lake.stream().writeStream.partitionBy("p").format("parquet").trigger(availableNow=True)
    files.option("checkpointLocation", lake.checkpoint("files")).start(str(lake.folder / "files")).awaitTermination()
    assert sorted(p.name for p in (lake.folder / "files").glob("p=*")) == ["p=p0", "p=p1"]
    named = lake.stream().writeStream.format("delta").option("path", str(lake.folder / "named")).trigger(once=True)
    named.option("checkpointLocation", lake.checkpoint("named")).start().awaitTermination()
    assert lake.ids("named") == [0, 1]
    wide = lake.stream().writeStream.format("delta").option("optimizeWrite", True).trigger(availableNow=True)
    wide = wide.partitionBy(["p"]).option("checkpointLocation", lake.checkpoint("wide"))
    wide.start(str(lake.folder / "wide")).awaitTermination()
    assert (lake.ids("wide"), lake.table("wide").files().num_rows) == ([0, 1], 2)
