"""Small batches of Delta streams, whose rows are read in the driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.spark.delta.test_native_batch import grow, ids, read, run, stream
from trilake.spark.delta import native_batch
from trilake.spark.delta.native_batch import BatchRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "through the source"


@pytest.fixture
def ways(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each batch was read."""
    trilake.register(spark)
    found: list[str] = []
    true = native_batch._native_or_none

    def record(df: DataFrame, small: bool) -> Any:
        out = true(df, small)
        found.append(SOURCE if out is None else "frame" if out[0].here is None else "here")
        return out

    monkeypatch.setattr(native_batch, "_native_or_none", record)
    return found


def _jobs(spark: SparkSession) -> int:
    """The number of started Spark jobs."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())  # type: ignore[union-attr]


def test_table_copy_needs_no_job(spark: SparkSession, tmp_path: Path, ways: list[str]) -> None:
    grow(tmp_path / "in", range(4), range(4, 9))
    before = _jobs(spark)
    query = run(stream(spark, tmp_path / "in", maxFilesPerTrigger=1), tmp_path / "out")
    assert _jobs(spark) == before
    assert (ways, read(query), ids(tmp_path / "out")) == (["here", "here"], 9, list(range(9)))
    # A second run continues after the first; a batch without a commit entry is not written again.
    for file in (tmp_path / "out-checkpoint" / "commits").glob("*1*"):
        file.unlink()
    grow(tmp_path / "in", range(20, 21))
    run(stream(spark, tmp_path / "in"), tmp_path / "out")
    assert ids(tmp_path / "out") == [*range(9), 20]


def test_transformations_run_in_spark(spark: SparkSession, tmp_path: Path, ways: list[str]) -> None:
    grow(tmp_path / "in", range(6))
    active = type(spark).getActiveSession()
    df = stream(spark, tmp_path / "in").where("id % 3 <> 0")
    df = df.selectExpr("id", "explode(array(p, 'more')) AS word", "current_timestamp() AS at").alias("x")
    query = run(df.selectExpr("x.id + 100 AS id", "word", "at"), tmp_path / "out")
    assert (ways, read(query)) == (["frame"], 6)
    assert type(spark).getActiveSession() is active  # not the session of the batch
    rows = trilake.open(tmp_path / "out").to_arrow()
    assert sorted(rows["id"].to_pylist()) == [101, 101, 102, 102, 104, 104, 105, 105]
    assert len(rows["at"].unique()) == 1


@pytest.mark.parametrize(("partition_by", "mapping"), [(["p"], "none"), (None, "id")])
def test_vectors_partitions_and_mapped_columns(
    spark: SparkSession, tmp_path: Path, ways: list[str], partition_by: list[str] | None, mapping: str
) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": mapping}
    grow(tmp_path / "in", range(10), partition_by=partition_by, properties=properties)
    trilake.DeltaTable.forPath(spark, str(tmp_path / "in")).delete("id IN (3, 4)")
    query = run(stream(spark, tmp_path / "in"), tmp_path / "out")
    assert (ways, read(query)) == (["here"], 8)
    source, target = (trilake.open(tmp_path / n).to_arrow().sort_by("id") for n in ("in", "out"))
    assert target.equals(source)


def test_every_type_is_preserved(spark: SparkSession, tmp_path: Path, ways: list[str]) -> None:
    columns = (
        "id, cast(id AS decimal(20, 3)) d, timestamp_seconds(id) t, timestamp_ntz'2020-01-01 10:00:00' n,"
        " date'2020-01-01' day, cast(id AS float) f, binary('x') b, map('a', id) m, cast(null AS int) e,"
        " named_struct('x', array(id, null)) s"
    )
    spark.sql(f"SELECT {columns} FROM range(5)").write.format("delta").save(str(tmp_path / "in"))
    source = trilake.open(tmp_path / "in").to_arrow().sort_by("id")
    run(stream(spark, tmp_path / "in"), tmp_path / "plain")
    run(stream(spark, tmp_path / "in").where("id >= 0"), tmp_path / "steps")
    assert ways == ["here", "frame"]
    for name in ("plain", "steps"):
        assert trilake.open(tmp_path / name).to_arrow().sort_by("id").equals(source), name


def test_columns_that_only_spark_computes_are_computed(spark: SparkSession, tmp_path: Path, ways: list[str]) -> None:
    grow(tmp_path / "in", range(3))
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("sound", pa.string())])
    trilake.create(tmp_path / "out", schema, generated={"sound": "soundex(p)"})
    assert read(run(stream(spark, tmp_path / "in"), tmp_path / "out")) == 3
    assert ways == ["here"]
    assert set(trilake.open(tmp_path / "out").to_arrow()["sound"].to_pylist()) == {"P000"}


def test_mismatched_rows_stop_the_query(spark: SparkSession, tmp_path: Path, ways: list[str]) -> None:
    from pyspark.errors import StreamingQueryException

    grow(tmp_path / "in", range(3))
    trilake.write({"id": [9], "p": ["x"]}, tmp_path / "out")
    trilake.alter(tmp_path / "out").add_constraint("small", "id <> 1")
    with pytest.raises(StreamingQueryException, match="CONSTRAINT_VIOLATED") as raised:
        run(stream(spark, tmp_path / "in"), tmp_path / "out")
    assert isinstance(raised.value, trilake.errors.ConstraintViolatedError)
    assert (ways, ids(tmp_path / "out")) == (["here"], [9])


def test_large_batch_uses_the_source(
    spark: SparkSession, tmp_path: Path, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path / "in", range(3), range(3, 6))
    monkeypatch.setattr(native_batch, "MOST_FILES", 1)
    run(stream(spark, tmp_path / "in"), tmp_path / "files")
    monkeypatch.setattr(native_batch, "MOST_FILES", 9)
    monkeypatch.setattr(native_batch, "MOST_BYTES", 10)
    run(stream(spark, tmp_path / "in"), tmp_path / "bytes")
    monkeypatch.setattr(native_batch, "MOST_BYTES", 1 << 20)
    merge = trilake.foreach_batch.merge(tmp_path / "files", "t.id = s.id", update_all=True)
    writer = stream(spark, tmp_path / "in").writeStream.foreachBatch(merge)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert ways == [SOURCE] * 3
    assert ids(tmp_path / "files") == ids(tmp_path / "bytes") == list(range(6))


def test_missing_file_is_reported_by_the_source(spark: SparkSession, tmp_path: Path, ways: list[str]) -> None:
    from trilake.table.streams import StreamDataLossError

    grow(tmp_path / "in", range(2), range(2, 4))
    (tmp_path / "in" / trilake.open(tmp_path / "in").files()["path"].to_pylist()[0]).unlink()
    with pytest.raises(StreamDataLossError, match="a file was deleted before the stream read it"):
        run(stream(spark, tmp_path / "in"), tmp_path / "out")
    assert ways == [SOURCE]
    run(stream(spark, tmp_path / "in", failOnDataLoss="false"), tmp_path / "out")
    assert len(ids(tmp_path / "out")) == 2


def test_jvm_calls_of_a_batch_do_not_grow_with_columns(
    spark: SparkSession, tmp_path: Path, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was 600 calls for 16 columns: 25 to select each column, and 70 to read the source's options."""
    client: Any = type(spark.sparkContext._gateway._gateway_client)  # type: ignore[union-attr]
    sent, send, write = [0], client.send_command, native_batch.with_rows
    counts: dict[str, list[int]] = {}

    def counted(self: Any, command: str, *args: Any, **more: Any) -> Any:
        sent[0] += not command.startswith("m\nd\n")  # release of unused Python references
        return send(self, command, *args, **more)

    def batch(df: DataFrame, work: Any, *, small: bool = False) -> Any:
        before = sent[0]
        out = write(df, work if source == "delta" else lambda _: work(BatchRows(lambda: df)), small=small)
        counts.setdefault(f"{source} {columns}", []).append(sent[0] - before)
        return out

    monkeypatch.setattr(client, "send_command", counted)
    monkeypatch.setattr("trilake.spark.patches.foreach_batch.with_rows", batch)
    for columns in (2, 40):
        rows = pa.table({f"c{i}": [i, i + 1, i + 2] for i in range(columns)})
        for source in ("delta", "parquet"):
            place = tmp_path / f"{source}-{columns}"
            place.mkdir()
            for n in range(3):
                if source == "delta":
                    trilake.write(rows, place, mode="append")
                else:
                    pq.write_table(rows, place / f"{n}.parquet")
            reader = spark.readStream.format(source).schema(", ".join(f"{name} BIGINT" for name in rows.column_names))
            reader = reader.option("maxFilesPerTrigger", 1)
            run(reader.load(str(place)), tmp_path / f"out-{source}-{columns}")
    last = {name: found[-1] for name, found in counts.items()}
    assert last["delta 40"] <= last["delta 2"] <= 81, counts
    assert last["parquet 40"] <= last["parquet 2"] <= 75, counts
