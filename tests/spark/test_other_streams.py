"""Lance datasets and Trevni folders as sources and sinks of Structured Streaming."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import trilake
from trilake.errors import InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> Iterator[None]:
    trilake.register(spark)
    yield
    for query in spark.streams.active:
        query.stop()


def rows(first: int) -> pa.Table:
    ids = range(first, first + 3)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [[float(i)] * 2 for i in ids]})


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_mismatched_rows_stop_the_query_with_a_short_error(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """It was a Spark error of over twenty lines, with the worker's traceback first."""
    spark.range(3).write.parquet(str(tmp_path / "in"))
    trilake.write(pa.table({"id": pa.array([1], pa.int32())}), tmp_path / "out", format=format)
    df = spark.readStream.schema("id bigint").parquet(str(tmp_path / "in")).selectExpr("id + (1L << 40) AS id")
    writer = df.writeStream.format(format).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination()
    error = query.exception()
    for e in raised.value, error:
        assert isinstance(e, SchemaMismatchError)
        assert isinstance(e, StreamingQueryException)
        assert (e.getCondition(), len(str(e).splitlines())) == ("STREAM_FAILED", 1)
        assert str(e).startswith("[SCHEMA_MISMATCH]")
        assert f"query: {query.id}" in str(e)
    assert str(raised.value) == str(error)


@pytest.mark.parametrize(
    ("format", "place"),
    [("lance", "new name"), ("trevni", "path")],
)
def test_stream_between_catalog_names(spark: SparkSession, tmp_path: Path, format: str, place: str) -> None:
    """Spark created a name without a location, and failed at the first batch."""
    source, target = (f"{format}.`{tmp_path}/{n}`" if place == "path" else f"streamed_{n}" for n in ("in", "out"))
    df = spark.range(5).selectExpr("id", "id * 2 AS double")
    rounds = 0

    def run(given: str | None) -> int:
        nonlocal rounds
        rounds += 1
        writer = spark.readStream.table(source).where("id > 1").writeStream
        writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint{rounds}")).trigger(availableNow=True)
        (writer if given is None else writer.format(given)).toTable(target).awaitTermination()
        return spark.table(target).count()

    try:
        df.write.format(format).saveAsTable(source)
        assert run(format) == 3  # to a new path, and then to an existing one
        assert run(None) == 6
        with pytest.raises(InvalidArgumentError, match=f"is a {format} table"):
            run("delta")
        assert spark.table(target).columns == ["id", "double"]
    finally:
        if place != "path":
            for name in source, target:
                spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_stream_between_folders(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """In batches, with a restart, and with a batch without a commit entry."""
    source, target, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"

    def run() -> None:
        df = spark.readStream.format(format).option("maxFilesPerTrigger", 2).load(str(source))
        writer = df.writeStream.format(format).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start(str(target)).awaitTermination()

    def ids() -> list[int]:
        return sorted(trilake.open(target).to_arrow(["id"])["id"].to_pylist())

    for i in range(3):
        trilake.write(rows(3 * i), source, mode="append", format=format)
    run()
    assert ids() == list(range(9))
    assert sum(f.name.isdigit() for f in (checkpoint / "commits").iterdir()) == 2
    for file in (checkpoint / "commits").glob("*1*"):
        file.unlink()
    trilake.write(rows(9), source, mode="append", format=format)
    run()
    assert ids() == list(range(12))


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_sink_path_as_an_option(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """Spark got it twice, and rejected the query."""
    trilake.write(rows(0), tmp_path / "in")
    df = spark.readStream.format("delta").load(str(tmp_path / "in"))
    writer = df.writeStream.format(format).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).option("path", str(tmp_path / "out")).start().awaitTermination()
    assert sorted(trilake.open(tmp_path / "out").to_arrow()["id"].to_pylist()) == [0, 1, 2]
