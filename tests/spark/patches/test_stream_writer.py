"""Streams from and to trilake tables: targets, unreadable sources, and watermarks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from trilake.errors import InvalidArgumentError, TableNotFoundError, UnknownOptionError, VersionNotFoundError
from trilake.spark.catalog.named_tables import default_location
from trilake.spark.patches import dataframe_writer

_NAME = "stream_writer_t"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.register(spark)
    yield spark
    spark.sql(f"DROP TABLE IF EXISTS {_NAME}")


@pytest.mark.parametrize("format", ["delta", "lance"])
def test_stream_creates_the_table_at_its_path(session: SparkSession, tmp_path: Path, format: str) -> None:
    """A new table was created in the warehouse, ignoring the path; an existing one got the rows of another path."""
    session.range(3).write.format("delta").save(str(tmp_path / "source"))
    rows = session.readStream.format("delta").load(str(tmp_path / "source"))

    def write(path: str) -> None:
        writer = rows.writeStream.format(format).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", path).trigger(availableNow=True).toTable(_NAME)
        query.awaitTermination()

    write(str(tmp_path / "here"))
    assert trilake.open(str(tmp_path / "here"), format=format).count() == 3
    for count, path in ((4, (tmp_path / "here").as_uri()), (5, str(tmp_path / "there"))):
        session.range(count - 1, count).write.format("delta").mode("append").save(str(tmp_path / "source"))
        write(path)  # Spark ignores the path of a stream into an existing table
        assert session.table(_NAME).count() == count
    assert not (tmp_path / "there").exists()


_TRAVEL = "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS"


@pytest.mark.parametrize(
    ("options", "place", "kind", "condition", "text"),
    [
        ({"nope": "1"}, "t", UnknownOptionError, "UNKNOWN_OPTION", "unknown option 'nope'"),
        ({}, "missing", TableNotFoundError, "DELTA_SCHEMA_NOT_SET", "not a Delta table"),
        (
            {"versionAsOf": "0"},
            "t",
            InvalidArgumentError,
            "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS",
            "versionAsOf is not supported",
        ),
        (
            {"timestampAsOf": "2020-01-01"},
            "t",
            InvalidArgumentError,
            "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS",
            "timestamp",
        ),
        ({}, "t@v0", InvalidArgumentError, _TRAVEL, "t@v0 is not supported"),
    ],
)
def test_unreadable_stream_is_rejected_in_one_line(
    session: SparkSession, tmp_path: Path, options: dict[str, str], place: str, kind: type, condition: str, text: str
) -> None:
    """It was a Spark error with the traceback of the schema process."""
    session.range(3).write.format("delta").save(str(tmp_path / "t"))
    with pytest.raises(AnalysisException, match=text) as e:
        session.readStream.format("delta").options(**options).load(str(tmp_path / place))
    assert isinstance(e.value, kind)
    assert (e.value.getCondition(), "Traceback" in str(e.value)) == (condition, False)


def test_rows_of_the_initial_snapshot_are_not_late(session: SparkSession, tmp_path: Path) -> None:
    """Files of the initial snapshot are not in time order; a watermark between them dropped rows as late."""
    for day in ("2024-03-01", "2024-01-01", "2024-02-01"):
        session.sql(f"SELECT timestamp'{day}' AS at").write.format("delta").mode("append").save(str(tmp_path / "t"))
    rows = session.readStream.format("delta").option("maxFilesPerTrigger", 1).option("withEventTimeOrder", True)
    counted = rows.load(str(tmp_path / "t")).withWatermark("at", "1 day").groupBy(F.window("at", "1 day")).count()
    stream = counted.writeStream.format("delta").outputMode("complete")
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    stream.start(str(tmp_path / "out")).awaitTermination()
    assert session.read.format("delta").load(str(tmp_path / "out")).count() == 3
    distinct = rows.load(str(tmp_path / "t")).withWatermark("at", "1 day").dropDuplicates(["at"])
    stream = distinct.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint2"))
    stream.trigger(availableNow=True).start(str(tmp_path / "out2")).awaitTermination()
    assert session.read.format("delta").load(str(tmp_path / "out2")).count() == 3


def test_change_stream_starting_after_the_newest_commit(session: SparkSession, tmp_path: Path) -> None:
    """The setting that allows this for change feeds had no effect on streams."""
    path, beyond = str(tmp_path / "t"), "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
    session.range(3).write.format("delta").option("delta.enableChangeDataFeed", True).save(path)

    def rows() -> int:
        stream = session.readStream.format("delta").options(readChangeFeed=True, startingTimestamp="2199-01-01")
        query = stream.load(path).writeStream.format("delta").option("checkpointLocation", str(tmp_path / "c"))
        query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
        return session.read.format("delta").load(str(tmp_path / "out")).count()

    with pytest.raises(VersionNotFoundError, match=r"2199.* is after the newest version"):
        rows()
    session.conf.set(beyond, "true")
    try:
        assert rows() == 0
        session.range(1).write.format("delta").mode("append").save(path)
        assert rows() == 1
    finally:
        session.conf.unset(beyond)


def test_schema_log_options_are_not_needed(session: SparkSession, tmp_path: Path) -> None:
    session.range(3).write.format("delta").save(str(tmp_path / "t"))
    options = {"schemaTrackingLocation": str(tmp_path / "c"), "allowSourceColumnDrop": "always"}
    assert session.readStream.format("delta").options(**options).load(str(tmp_path / "t")).columns == ["id"]


@pytest.mark.parametrize("named", [False, True])
def test_streams_use_the_default_format_of_the_session(session: SparkSession, tmp_path: Path, named: bool) -> None:
    """Spark handled them: a catalog table had no location, and partitionBy was silently dropped."""
    session.range(3).selectExpr("id", "id % 2 AS p").write.format("delta").save(str(tmp_path / "source"))
    session.conf.set("spark.sql.sources.default", "delta")
    try:
        rows = session.readStream.load(str(tmp_path / "source"))
        writer = rows.writeStream.partitionBy("p").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.trigger(availableNow=True)
        query = writer.toTable(_NAME) if named else writer.start(str(tmp_path / "t"))
        query.awaitTermination()
    finally:
        session.conf.unset("spark.sql.sources.default")
    table = (
        trilake.DeltaTable.forName(session, _NAME)
        if named
        else trilake.DeltaTable.forPath(session, str(tmp_path / "t"))
    )
    assert table.toDF().count() == 3
    assert table.detail().first()["partitionColumns"] == ["p"]


def test_stream_with_data_change_false(session: SparkSession, tmp_path: Path) -> None:
    """The option was ignored."""
    session.range(3).write.format("delta").save(str(tmp_path / "source"))
    writer = session.readStream.format("delta").load(str(tmp_path / "source")).writeStream.format("delta")
    writer = writer.option("dataChange", "false").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "t")).awaitTermination()
    [log] = (tmp_path / "t" / "_delta_log").glob("*0.json")
    added = [a["add"] for a in map(json.loads, log.read_text().splitlines()) if "add" in a]
    assert added
    assert [a["dataChange"] for a in added] == [False] * len(added)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"delta.appendOnly": "true"}, ({"delta.appendOnly": "true"}, (), ".parquet")),
        ({"dataFormat": "lance"}, ({}, (), ".lance")),
        ({"partitionBy": "id"}, ({}, ("id",), ".parquet")),
    ],
)
def test_stream_options_for_a_new_table(
    session: SparkSession, tmp_path: Path, options: dict[str, str], expected: tuple[object, ...]
) -> None:
    """The table was created without them, and every batch failed because they were missing."""
    rows = session.range(2).withColumn("n", F.lit(1))
    rows.write.format("delta").save(str(tmp_path / "source"))
    writer = session.readStream.format("delta").load(str(tmp_path / "source")).writeStream.format("delta")
    writer = writer.option("checkpointLocation", str(tmp_path / "cp")).options(**options)
    writer.option("path", str(tmp_path / "t")).trigger(availableNow=True).toTable(_NAME).awaitTermination()
    table = trilake.open(str(tmp_path / "t"), format="delta")
    assert (table.metadata.configuration, table.metadata.partition_columns) == expected[:2]
    assert all(str(p).endswith(str(expected[2])) for p in table.files()["path"].to_pylist())
    assert session.table(_NAME).count() == 2


def test_stream_with_unknown_option_creates_no_table(session: SparkSession, tmp_path: Path) -> None:
    session.range(2).write.format("delta").save(str(tmp_path / "source"))
    writer = session.readStream.format("delta").load(str(tmp_path / "source")).writeStream.format("delta")
    with pytest.raises(UnknownOptionError):
        writer.option("checkpointLocation", str(tmp_path / "cp")).option("nope", "1").toTable(_NAME)
    assert not session.catalog.tableExists(_NAME)


@pytest.mark.parametrize(
    ("format", "statement"),
    [
        ("delta", f"DROP TABLE {_NAME}"),
        ("delta", f"ALTER TABLE {_NAME} RENAME TO {_NAME}_2"),
        ("lance", f"DROP TABLE {_NAME}"),
        ("trevni", f"DROP TABLE {_NAME}"),
    ],
    ids=["dropped", "renamed", "lance", "trevni"],
)
def test_stream_does_not_recreate_a_dropped_table(
    session: SparkSession, tmp_path: Path, format: str, statement: str
) -> None:
    """Batches were written and committed to the former location of the name, where no reader found them."""
    session.range(1).write.format("delta").save(str(tmp_path / "source"))
    rows = session.readStream.format("delta").load(str(tmp_path / "source"))
    query = rows.writeStream.format(format).option("checkpointLocation", str(tmp_path / "cp")).toTable(_NAME)
    try:
        query.processAllAvailable()
        assert session.table(_NAME).count() == 1
        place = Path(default_location(session, _NAME))
        session.sql(statement)
        session.range(1, 2).write.format("delta").mode("append").save(str(tmp_path / "source"))
        with pytest.raises(StreamingQueryException, match="was dropped or renamed"):
            query.processAllAvailable()
        assert not [p for p in place.rglob("*") if p.suffix in (".json", ".manifest", ".trv", ".lance")]
    finally:
        query.stop()
        session.sql(f"DROP TABLE IF EXISTS {_NAME}_2")


def test_insert_by_position_does_not_recreate_a_table(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    session.range(1).write.format("delta").saveAsTable(_NAME)
    original = dataframe_writer.stored_columns

    def late(*args: Any, **more: Any) -> Any:
        with ThreadPoolExecutor(1) as other:  # this thread already runs a trilake write
            other.submit(session.sql, f"DROP TABLE {_NAME}").result()
        return original(*args, **more)

    monkeypatch.setattr(dataframe_writer, "stored_columns", late)
    with pytest.raises(TableNotFoundError, match="was dropped or renamed"):
        session.range(1, 2).write.insertInto(_NAME)
    assert not session.catalog.tableExists(_NAME)
    assert not Path(default_location(session, _NAME)).exists()
