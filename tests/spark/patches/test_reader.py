"""``spark.read`` and ``spark.table`` for trilake tables: native frames with every option."""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, VersionNotFoundError


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four versions of ten rows each; version 4 deletes a row by a vector, version 5 changes one."""
    path = str(tmp_path_factory.mktemp("read") / "t")
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    for i in range(4):
        rows = pa.table({"id": range(i * 10, i * 10 + 10), "s": [f"v{j}" for j in range(10)]})
        trilake.write(rows, path, mode="append", properties=properties if i == 0 else None)
    opened = trilake.open(path)
    assert isinstance(opened, ArrowDeltaTable)
    opened.delete("id = 3")
    opened.update({"s": "'new'"}, "id = 12")
    return path


def _plan(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().executedPlan().toString())


def test_load_is_a_native_scan(session: SparkSession, table: str) -> None:
    df = session.read.format("delta").load(table)
    assert "FileScan parquet" in _plan(df)
    assert "Python" not in _plan(df)
    assert (df.count(), df.where("id = 12").collect()[0].s) == (39, "new")
    assert session.read.load(table, format="DELTA").count() == 39
    assert session.read.format("delta").option("path", table).load().count() == 39


def test_versions_in_options_and_paths(session: SparkSession, table: str) -> None:
    read = session.read.format("delta")
    assert read.load(f"{table}@v0").count() == 10
    assert session.read.format("delta").option("versionAsOf", 1).load(table).count() == 20
    assert session.read.format("delta").load(table, versionAsOf=2).count() == 30
    times = trilake.open(table).history()["timestamp"].to_pylist()[::-1]
    second = times[1].astimezone(dt.UTC)
    stamp = second.strftime("%Y%m%d%H%M%S") + f"{second.microsecond // 1000:03d}"
    assert session.read.format("delta").load(f"{table}@{stamp}").count() == 20
    text = second.strftime("%Y-%m-%d %H:%M:%S.%f")
    assert session.read.format("delta").option("timestampAsOf", text).load(table).count() == 20
    with pytest.raises(AnalysisException, match="both name a version"):
        session.read.format("delta").option("versionAsOf", 1).load(f"{table}@v0")


@pytest.mark.parametrize("when", ["option", "path", "name"])
def test_timestamp_after_the_last_commit_is_rejected(session: SparkSession, table: str, when: str) -> None:
    """The newest version was read, although later commits could still happen before that time."""
    reads: dict[str, Callable[[], DataFrame]] = {
        "option": lambda: session.read.format("delta").option("timestampAsOf", "2099-01-01").load(table),
        "path": lambda: session.read.format("delta").load(f"{table}@20990101000000000"),
        "name": lambda: session.read.option("timestampAsOf", "2099-01-01").table(f"delta.`{table}`"),
    }
    with pytest.raises(AnalysisException, match="the newest commit is version 5 of 20") as found:
        reads[when]()
    assert found.value.getCondition() == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"


def test_timestamps_without_zone_use_the_session_time_zone(session: SparkSession, table: str) -> None:
    times = trilake.open(table).history()["timestamp"].to_pylist()[::-1]
    local = times[1].astimezone(dt.timezone(dt.timedelta(hours=9)))
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        read = session.read.format("delta").option("timestampAsOf", local.strftime("%Y-%m-%d %H:%M:%S.%f"))
        assert read.load(table).count() == 20
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")


def test_existing_path_is_not_a_version_suffix(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t@v1")
    trilake.write(pa.table({"n": [1]}), path)
    assert session.read.format("delta").load(path).count() == 1
    assert session.read.format("delta").load(f"{path}@v0").count() == 1


def test_given_schema_selects_and_casts(session: SparkSession, table: str) -> None:
    df = session.read.schema("S string, id int").format("delta").load(table)
    assert df.schema.simpleString() == "struct<S:string,id:int>"
    assert df.where("id = 12").collect()[0].S == "new"
    with pytest.raises(AnalysisException, match="column 'zz' of the schema not found"):
        session.read.format("delta").load(table, schema="zz int")


def test_invalid_reads_are_rejected(session: SparkSession, table: str, tmp_path: Path) -> None:
    read: Any = session.read.format("delta")
    with pytest.raises(AnalysisException, match="takes one path"):
        read.load([table, table])
    assert read.load([table]).count() == 39
    with pytest.raises(AnalysisException, match="a path is required"):
        read.load()
    with pytest.raises(AnalysisException, match="TABLE_NOT_FOUND"):
        read.load(str(tmp_path))
    for format in ("delta", "lance", "trevni"):
        with pytest.raises(AnalysisException, match="pushFilters was removed"):
            session.read.format(format).option("pushFilters", True).load(table)


def test_change_feed_is_a_native_scan(session: SparkSession, table: str) -> None:
    feed = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(table)
    assert "Python" not in _plan(feed)
    opened = trilake.open(table)
    assert isinstance(opened, ArrowDeltaTable)
    expected = opened.changes(0).to_pylist()
    order = ("_commit_version", "_change_type", "id")
    got = [r.asDict() for r in feed.withColumn("_commit_timestamp", F.unix_micros("_commit_timestamp")).collect()]
    for row in expected:
        row["_commit_timestamp"] = round(row["_commit_timestamp"].timestamp() * 1e6)
    assert sorted(got, key=lambda r: [r[k] for k in order]) == sorted(expected, key=lambda r: [r[k] for k in order])
    late = session.read.format("delta").options(readChangeData=True, startingVersion=4, endingVersion=4).load(table)
    assert [(r.id, r._change_type) for r in late.collect()] == [(3, "delete")]


@pytest.fixture
def grown(session: SparkSession, tmp_path: Path) -> str:
    """Versions 1 and 2 bring a row each, an hour apart; version 3 a column."""
    path = str(tmp_path / "grown")
    trilake.write(pa.table({"a": [0]}), path, properties={"delta.enableChangeDataFeed": "true"})
    trilake.write(pa.table({"a": [1]}), path, mode="append")
    trilake.write(pa.table({"a": [2]}), path, mode="append")
    trilake.alter(path).add_columns({"b": "string"})
    for version, commit in enumerate(sorted(Path(path, "_delta_log").glob("*.json"))):
        os.utime(commit, (1_700_000_000 + 3600 * version,) * 2)
    return path


def _feed(session: SparkSession, path: str, **options: object) -> list[tuple[object, ...]]:
    frame = session.read.format("delta").options(readChangeFeed=True, **options).load(path)  # type: ignore[arg-type]
    assert frame.columns == ["a", "b", "_change_type", "_commit_version", "_commit_timestamp"]
    return sorted((r.a, r.b, r._commit_version) for r in frame.collect())


def test_change_feed_has_the_newest_columns(session: SparkSession, grown: str) -> None:
    assert _feed(session, grown, startingVersion=1, endingVersion=1) == [(1, None, 1)]
    assert _feed(session, grown, startingVersion=2, endingVersion=99) == [(2, None, 2)]
    through_arrow = session.read.format("trilake-delta").options(
        readChangeFeed=True, startingVersion=1, endingVersion=1
    )
    assert through_arrow.load(grown).select("a", "b").collect() == [(1, None)]


def test_change_feed_with_former_partition_columns(session: SparkSession, tmp_path: Path) -> None:
    """A former partition column was null in the feed of that time."""
    path = str(tmp_path / "t")
    rows = session.createDataFrame([(1, 1), (2, 2)], "a int, b int")
    once = rows.write.format("delta").option("delta.enableChangeDataFeed", "true").partitionBy("a")
    once.save(path)
    trilake.open(path).update({"b": "5"}, where="a = 1")  # type: ignore[attr-defined]
    rows.limit(1).write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("b").save(path)
    expected = [
        *((0, "insert", n, n) for n in (1, 2)),
        (1, "update_postimage", 1, 5),
        (1, "update_preimage", 1, 1),
        *((2, "delete", a, b) for a, b in ((1, 5), (2, 2))),
        (2, "insert", 1, 1),
    ]
    for format in ("delta", "trilake-delta"):
        feed = session.read.format(format).options(readChangeFeed=True, startingVersion=0).load(path)
        assert sorted((r._commit_version, r._change_type, r.a, r.b) for r in feed.collect()) == expected
        assert feed.where("a = 2 AND _commit_version < 2").count() == 1


def test_change_feed_between_two_commits_is_empty(session: SparkSession, grown: str) -> None:
    between = {"startingTimestamp": "2023-11-14 23:13:21+00:00", "endingTimestamp": "2023-11-14 23:13:22+00:00"}
    assert _feed(session, grown, **between) == []
    with pytest.raises(InvalidArgumentError, match="not a valid range"):
        _feed(
            session, grown, startingTimestamp=between["endingTimestamp"], endingTimestamp=between["startingTimestamp"]
        )


def test_open_ended_change_feed_follows_its_table(session: SparkSession, grown: str) -> None:
    """The frame kept the versions from its creation, unlike the frame of the table."""
    feed = session.read.format("delta").options(readChangeFeed=True, startingVersion=2)
    whole, ended = feed.load(grown), feed.option("endingVersion", 3).load(grown)
    assert whole.count() == ended.count() == 1
    opened = trilake.open(grown)
    opened.delete("a = 1")  # type: ignore[attr-defined]
    trilake.alter(grown).add_columns({"c": "string"})
    assert sorted((r.a, r._change_type) for r in whole.select("a", "_change_type").collect()) == [
        (1, "delete"),
        (2, "insert"),
    ]
    assert (whole.where("_commit_version = 4").count(), whole.columns[:2], ended.count()) == (1, ["a", "b"], 1)


def test_change_feed_after_the_newest_commit(session: SparkSession, grown: str) -> None:
    late = {"startingTimestamp": "2050-01-01"}
    until = {"startingVersion": 2, "endingTimestamp": "2050-01-01"}
    for options in (late, until):
        with pytest.raises(VersionNotFoundError, match=r"2050.* is after the newest version"):
            _feed(session, grown, **options)
    with pytest.raises(InvalidArgumentError, match="version 9: the newest version is 3"):
        _feed(session, grown, startingVersion=9)
    session.conf.set("spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled", "true")
    try:
        assert _feed(session, grown, **late) == _feed(session, grown, startingVersion=9) == []
        assert _feed(session, grown, **until) == [(2, None, 2)]
    finally:
        session.conf.unset("spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled")


def test_change_feed_between_two_deletion_vectors(session: SparkSession, tmp_path: Path) -> None:
    """Files with changing vectors, and files added again, are in many scans."""
    path = str(tmp_path / "t")
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    rows = pa.table({"id": range(20), "p": [i % 2 for i in range(20)]})
    trilake.write(rows, path, partition_by="p", properties=properties)
    opened = trilake.open(path)
    assert isinstance(opened, ArrowDeltaTable)
    for i in (1, 2, 3, 4):
        opened.delete(f"id = {i}")
    opened.restore(0)
    feed = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(path)
    got = sorted((r._commit_version, r._change_type, r.id, r.p) for r in feed.collect())
    assert got == sorted(
        (r["_commit_version"], r["_change_type"], r["id"], r["p"])
        for r in trilake.open(path).changes(0).to_pylist()  # type: ignore[attr-defined]
    )
    assert feed.where("_commit_version = 2").count() == 1


def test_names_show_the_newest_columns(session: SparkSession, table: str) -> None:
    session.sql("DROP TABLE IF EXISTS read_names")
    session.read.format("delta").load(table).write.format("delta").saveAsTable("read_names")
    try:
        df = session.table("read_names")
        assert "FileScan parquet" in _plan(df)
        location = trilake.DeltaTable.forName(session, "read_names").detail().collect()[0].location
        trilake.alter(location).add_columns({"added": "int"})
        assert session.table("read_names").columns == ["id", "s", "added"]
        assert session.read.table("default.read_names").columns == ["id", "s", "added"]
        assert session.read.option("versionAsOf", 0).table("read_names").columns == ["id", "s"]
        assert session.read.option("versionAsOf", 0).table("read_names").count() == 39
        assert session.table(f"delta.`{table}`").count() == 39
        assert session.table(f"delta.`{table}@v0`").count() == 10
        session.sql("CREATE OR REPLACE TEMPORARY VIEW read_view AS SELECT id FROM read_names WHERE id < 7")
        assert session.table("read_view").columns == ["id"]
    finally:
        session.sql("DROP TABLE IF EXISTS read_names")


@pytest.mark.parametrize("tracked", ["true", "false"])
def test_columns_may_be_qualified_by_the_table_name(session: SparkSession, tmp_path: Path, tracked: str) -> None:
    place = str(tmp_path / "t")
    rows = pa.table({"id": [1, 2, 3], "s": [{"x": 1}, {"x": 2}, None], "C c": ["a", "b", "c"]})
    properties = {"delta.enableRowTracking": tracked, "delta.columnMapping.mode": "name"}
    trilake.write(rows, place, partition_by="C c", properties=properties)
    session.sql(f"CREATE TABLE qualified USING delta LOCATION '{place}'")
    try:
        for df in (session.table("qualified"), session.read.format("delta").table("Default.Qualified")):
            assert df.columns == ["id", "s", "C c"]
            assert df.where("qualified.id > 1 AND default.qualified.id < 3").count() == 1
            found = df.select("spark_catalog.default.qualified.`C c`", F.col("qualified.s.x"), "QUALIFIED.id", "id")
            assert sorted(map(tuple, found.collect())) == [("a", 1, 1, 1), ("b", 2, 2, 2), ("c", None, 3, 3)]
            assert df.select("_metadata.file_path").distinct().count() == 3
            assert df.select("qualified.*").columns == df.columns
            assert df.alias("q").where("q.id = 1").count() == 1
            assert df.join(df, "id").count() == df.alias("a").join(df.alias("b"), F.expr("a.id = b.id")).count() == 3
            alone = session.read.format("delta").load(place).select("id")
            plans = [re.sub(r"#\d+|scan-\w+", "", _plan(d)) for d in (df.select("qualified.id"), alone)]
            assert plans[0] == plans[1]
            with pytest.raises(AnalysisException):
                df.where("other.id = 1")
        if tracked == "true":
            assert session.table("qualified").select("_metadata.row_id").distinct().count() == 3
        other = session.range(2, 4).select(F.col("id").alias("k"))
        assert session.table("qualified").join(other, F.expr("qualified.id = k")).count() == 2
        session.table("qualified").createOrReplaceTempView("seen_rows")
        assert session.sql("SELECT seen_rows.id FROM seen_rows WHERE seen_rows.id = 3").count() == 1
        session.table("qualified").where("qualified.id = 1").write.insertInto("qualified")
        assert trilake.open(place).count() == 4
    finally:
        session.sql("DROP TABLE qualified")


def test_other_formats_and_names_are_left_to_spark(session: SparkSession, tmp_path: Path) -> None:
    session.range(3).write.parquet(str(tmp_path / "p"))
    assert session.read.load(str(tmp_path / "p")).count() == 3
    session.range(3).createOrReplaceTempView("read_other")
    assert session.table("read_other").count() == 3
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.table("no_such_table").collect()


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_sources_read_only_needed_columns(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, format: str
) -> None:
    path = str(tmp_path / "t")
    day = dt.date(2024, 1, 1)
    rows = pa.table({"id": range(100), "s": [f"v{i}" for i in range(100)], "d": [day] * 100})
    trilake.write(rows, path, format=format)
    df = session.read.format(format).load(path)
    with caplog.at_level(logging.INFO, "trilake.spark"):
        assert sorted(r.s for r in df.where("id > 97").select("s").collect()) == ["v98", "v99"]
    assert any(
        "columns id, s where id IS NOT NULL" in r.message or "columns id, s where" in r.message for r in caplog.records
    )
    assert (df.count(), df.where("id < 5").count(), df.count()) == (100, 5, 100)
    assert df.where("id < 5").union(df.where("s = 'v7'")).count() == 6
    assert df.join(df.where("id IN (1, 2)"), "id").count() == 2
    assert df.where("d = DATE'2024-01-01' AND s LIKE 'v9%'").count() == 11
    assert [tuple(r) for r in df.groupBy("d").sum("id").collect()] == [(day, 4950)]
    assert session.read.format(format).schema("s string").load(path).where("s = 'v1'").count() == 1
    with pytest.raises(AnalysisException, match="TABLE_NOT_FOUND"):
        session.read.format(format).load(str(tmp_path / "none"))


def test_negative_zero_is_found(session: SparkSession, tmp_path: Path) -> None:
    """The Parquet reader looks up 0.0 bitwise in a dictionary with only -0.0, and drops the row group."""
    path = str(tmp_path / "t")
    trilake.write(pa.table({"x": [-0.0] * 500 + [1.5] * 500, "n": range(1000)}), path)
    df = session.read.format("delta").load(path)
    assert df.where("x = 0.0").count() == 500
    assert df.where("x IN (0.0, 7.0) AND n < 10").count() == 10
    assert df.where("x = -0.0D").count() == 500


def test_char_columns_are_read_padded(session: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = {"c": ["ab", None, "abcde"], "a": [["x"], [], None], "v": ["q", "", None]}
    trilake.write(pa.table(rows, pa.schema({"c": pa.string(), "a": pa.list_(pa.string()), "v": pa.string()})), path)
    commit = next((path / "_delta_log").glob("*.json"))
    text = commit.read_text()
    for name, kind in (("c", "char(5)"), ("a", "array<char(3)>"), ("v", "varchar(9)")):
        at = text.index(f'{{\\"name\\":\\"{name}\\"')
        end = text.index('\\"metadata\\":{}', at)
        limit = f'\\"metadata\\":{{\\"__CHAR_VARCHAR_TYPE_STRING\\":\\"{kind}\\"}}'
        text = text[:end] + limit + text[end + len('\\"metadata\\":{}') :]
    commit.write_text(text)
    df = session.read.format("delta").load(str(path))
    assert sorted((r.c or "", r.a, r.v) for r in df.collect()) == [
        ("", [], ""),
        ("ab   ", ["x  "], "q"),
        ("abcde", None, None),
    ]
    assert df.where("c = 'ab'").count() == 1
    assert df.where("c = 'ab   '").count() == 1
    assert trilake.read(session, path, filter="c = 'ab'").count() == 1


def test_new_session_needs_no_second_register(session: SparkSession, table: str, tmp_path: Path) -> None:
    other = session.newSession()
    assert other.read.format("delta").load(table).where("id = 12").count() == 1
    other.range(3).write.format("delta").save(str(tmp_path / "t"))
    assert trilake.open(tmp_path / "t").count() == 3


def test_file_settings_apply_to_every_read_path(session: SparkSession, table: str) -> None:
    ways = {
        "load": session.read.format("delta").load(table),
        "schema": session.read.format("delta").schema("id long").load(table),
        "version": session.read.format("delta").load(f"{table}@v3"),
        "table": session.table(f"delta.`{table}`"),
        "toDF": trilake.DeltaTable.forPath(session, table).toDF(),
    }
    for way, df in ways.items():
        files = {r.f.rpartition("/")[2] for r in df.select(F.input_file_name().alias("f")).distinct().collect()}
        paths = {r.f for r in df.select(F.col("_metadata.file_name").alias("f")).distinct().collect()}
        assert files == paths == {f.rpartition("/")[2] for f in df.inputFiles()}, way


def test_change_feed_range_without_read_change_feed_warns(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trilake.write({"id": [1, 2]}, str(tmp_path / "t"))
    trilake.write({"id": [3]}, str(tmp_path / "t"), mode="append")
    read = spark.read.format("delta").option("startingVersion", "0").option("endingVersion", "0")
    assert sorted(r.id for r in read.load(str(tmp_path / "t")).collect()) == [1, 2, 3]
    assert "startingVersion, endingVersion has no effect without readChangeFeed" in caplog.text
