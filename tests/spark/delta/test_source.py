"""``spark.read.format("delta")`` and ``df.write.format("delta")``."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import trilake
from trilake.errors import MissingFileError
from trilake.spark.session.sources.rows_source import pack_files


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Three versions: 0 holds 1..4 in partitions a and b, 1 adds 5, 2 overwrites partition b."""
    path = str(tmp_path / "a table=1 %20")
    rows = pa.table({"n": [1, 2, 3, 4], "p": ["a", "a", "b", "b"], "x": [0.5, float("nan"), None, -0.0]})
    trilake.write(rows, path, partition_by="p", properties={"delta.enableChangeDataFeed": "true"})
    trilake.write(pa.table({"n": [5], "p": ["a"], "x": [5.0]}), path, mode="append")
    trilake.write(rows.slice(2, 1), path, mode="overwrite", replace_where="p = 'b'")
    return path


def numbers(df: DataFrame) -> list[int]:
    return sorted(r.n for r in df.collect())


def test_register_offers_both_names(session: SparkSession) -> None:
    assert {"delta", "trilake-delta"} <= set(trilake.register(session))


def test_versions_and_timestamps(session: SparkSession, table: str) -> None:
    read = session.read.format("delta")
    assert numbers(read.load(table)) == [1, 2, 3, 5]
    assert numbers(session.read.format("trilake-delta").option("versionAsOf", 0).load(table)) == [1, 2, 3, 4]
    when = trilake.open(table).history()["timestamp"][1].as_py().isoformat()
    assert numbers(session.read.format("delta").option("timestampAsOf", when).load(table)) == [1, 2, 3, 4, 5]


def test_conditions_skip_files(session: SparkSession, table: str) -> None:
    def load() -> DataFrame:
        return session.read.format("delta").load(table)

    assert numbers(load().where("p = 'a' AND n > 1")) == [2, 5]
    assert numbers(load().where("x > 100")) == [2]
    # A missing file is an error only for queries that read it.
    for file in Path(table).glob("p=b/*.parquet"):
        file.unlink()
    assert numbers(load().where("p = 'a'")) == [1, 2, 5]
    with pytest.raises(MissingFileError, match="is missing") as missing:
        load().where("n > 0").collect()
    assert isinstance(missing.value, PySparkException)


def test_push_filters_is_rejected_with_the_remedy(session: SparkSession, table: str) -> None:
    with pytest.raises(PySparkException, match=r"pushFilters was removed.*leave it out"):
        session.read.format("delta").option("pushFilters", "true").load(table)


def test_uses_of_one_dataframe_do_not_disturb_each_other(session: SparkSession, table: str) -> None:
    df = session.read.format("delta").load(table)
    assert numbers(df.where("p = 'a' AND n > 1")) == [2, 5]
    assert numbers(df) == [1, 2, 3, 5]
    assert numbers(df.where("n = 1").union(df.where("n = 3"))) == [1, 3]
    assert numbers(df.where("p = 'a' AND n > 1")) == [2, 5]
    # NaN is greater than all else in Spark.
    assert numbers(df.where("x > 100")) == [2]
    assert numbers(df.where("x IS NULL OR n IN (1, 5)")) == [1, 3, 5]
    assert numbers(df.where("p <=> 'b'")) == [3]


def test_given_schema_projects_columns(session: SparkSession, table: str) -> None:
    df = session.read.schema("p string, n long").format("delta").load(table)
    assert df.columns == ["p", "n"]
    assert sorted(tuple(r) for r in df.collect()) == [("a", 1), ("a", 2), ("a", 5), ("b", 3)]


def test_change_feed(session: SparkSession, table: str) -> None:
    feed = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(table)
    rows = sorted((r["_commit_version"], r["_change_type"], r["n"]) for r in feed.collect())
    assert rows == [(1, "insert", 5), (2, "delete", 3), (2, "delete", 4), (2, "insert", 3)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"versionasoff": "1"}, "UNKNOWN_OPTION"),
        ({"versionAsOf": "1", "timestampAsOf": "2020-01-01"}, "cannot be used together"),
        ({"versionAsOf": "99"}, "VERSION_NOT_FOUND"),
        ({"versionAsOf": "one"}, "an integer"),
        ({"readChangeFeed": "true"}, "needs a start"),
        ({"readChangeFeed": "maybe"}, "true or false"),
    ],
)
def test_invalid_options_are_rejected(session: SparkSession, table: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(PySparkException, match=says):
        session.read.format("delta").options(**options).load(table).collect()


def test_missing_table(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="TABLE_NOT_FOUND"):
        session.read.format("delta").load(str(tmp_path)).collect()


def test_write_create_append_overwrite(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    df = session.range(100).selectExpr("id AS n", "id % 3 AS p", "named_struct('a', array(id)) AS s")
    writer = df.write.format("delta").option("partitionBy", "p").option("delta.checkpointInterval", "2")
    writer.mode("append").option("userMetadata", "first").save(path)
    df.limit(10).write.format("delta").mode("append").save(path)
    assert session.read.format("delta").load(path).count() == 110
    df.where("p = 1").write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(path)
    assert trilake.open(path).count("p = 1") == 33
    df.where("p = 2").write.format("delta").mode("overwrite").option("replaceWhere", "p = 2").save(path)
    assert trilake.open(path).count("p = 2") == 33
    df.write.format("delta").mode("overwrite").save(path)
    final = trilake.open(path)
    assert (final.version, final.count()) == (4, 100)
    assert final.history()["userMetadata"].to_pylist()[-1] == "first"
    assert final.history()["isBlindAppend"].to_pylist() == [False, False, False, True, True]


def test_failed_job_leaves_no_commit(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    good = session.range(10)
    good.write.format("delta").mode("append").save(path)
    bad = session.range(10).selectExpr("CASE WHEN id = 7 THEN raise_error('boom') ELSE id END AS id")
    with pytest.raises(PySparkException, match="boom"):
        bad.write.format("delta").mode("append").save(path)
    with pytest.raises(trilake.TrilakeError, match=r"WRITE_FAILED.*the table is unchanged"):
        trilake.write(bad, path, mode="append")
    table = trilake.open(path)
    assert (table.version, table.count()) == (0, 10)


def test_wrong_schema_is_rejected(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    session.range(3).write.format("delta").mode("append").save(path)
    wrong = session.range(3).selectExpr("cast(id AS string) AS id", "1 AS other")
    with pytest.raises(PySparkException, match=r"SCHEMA_MISMATCH.*other.*is not in the table"):
        wrong.write.format("delta").mode("append").save(path)
    with pytest.raises(trilake.TrilakeError, match="column id is string, but the table has long"):
        trilake.write(wrong.select("id"), path, mode="append")


def test_files_are_packed_evenly() -> None:
    sizes = [1 << 20] * 50 + [400 << 20]
    partitions = pack_files(sizes, lambda s: s)
    assert sorted(s for p in partitions for s in p) == sorted(sizes)
    assert partitions[0] == [400 << 20]
    assert 5 <= len(partitions) <= 12
