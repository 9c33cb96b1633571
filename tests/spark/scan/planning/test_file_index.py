"""Files of a native frame are skipped during planning, and rows are correct for every use of the frame."""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from tests.conftest import SOAK
from tests.spark.native_files import settings
from trilake.spark.scan.planning import file_index
from trilake.spark.scan.planning.plan_conditions import plan_filter

FILES, ROWS = 5, 10


#: Soak runs use all kinds.
KINDS = ["odd folders", "mapped by id", "plain", "partitioned", "mapped by name"][: 5 if SOAK else 3]


@pytest.fixture(scope="module", params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ids 0 to 49 in files of ten consecutive ones; ``p`` alternates."""
    path = str(tmp_path_factory.mktemp("chosen") / request.param.replace(" ", "-"))
    mapped = {"delta.columnMapping.mode": request.param[-4:].strip()} if "mapped" in request.param else {}
    mode = request.param.rpartition(" ")[2]
    for i in range(FILES):
        ids = range(i * ROWS, (i + 1) * ROWS)
        rows = pa.table({"id": ids, "s": [f"v{j}" for j in ids], "p": [f"a/{j % 2}" for j in ids]})
        trilake.write(
            rows,
            path,
            mode="append",
            partition_by=None if request.param == "plain" else "p",
            properties={"delta.columnMapping.mode": mode} if mapped else None,
        )
    return path


@pytest.fixture
def read_files(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[int]]]:
    """The number of files kept in each plan so far."""

    def numbers() -> list[int]:
        found = [re.match(r"reading (\d+) of \d+ files of", r.message) for r in caplog.records]
        caplog.clear()
        return [int(m[1]) for m in found if m]

    with caplog.at_level(logging.INFO, "trilake.spark"):
        yield numbers


def test_query_opens_only_matching_files(spark: SparkSession, table: str, read_files: Callable[[], list[int]]) -> None:
    df = trilake.read(spark, table)
    assert [r.id for r in df.where("id = 5").collect()] == [5]
    assert read_files() in ([1], [2])  # two if the parity decides the folder
    assert df.where(F.col("id") > 38).where("s <> 'x'").count() == 11
    assert all(n <= 4 for n in read_files())
    assert df.where("id = 500").count() == 0
    assert read_files() == [0]
    assert df.count() == FILES * ROWS


def test_one_frame_with_several_filters(spark: SparkSession, table: str) -> None:
    """``pushFilters`` of Spark's Python sources returned 10 rows instead of 40 here."""
    df = trilake.read(spark, table)
    one, other = df.where("id < 15"), df.where("id >= 40")
    assert (one.count(), df.count(), one.union(df).count()) == (15, 50, 65)
    assert one.union(other).count() == 25
    assert one.join(df.where("id > 5"), "id").count() == 9
    assert df.alias("a").join(df.alias("b"), F.expr("a.id = b.id + 10")).where("a.id = 12").count() == 1
    cached = df.where("id < 20").cache()
    try:
        assert (cached.count(), cached.where("id = 3").count(), df.where("id = 33").count()) == (20, 1, 1)
    finally:
        cached.unpersist()


def test_sql_over_a_view_skips_files(spark: SparkSession, table: str, read_files: Callable[[], list[int]]) -> None:
    trilake.read(spark, table).createOrReplaceTempView("chosen_files")
    text = "SELECT count(*) AS n FROM chosen_files v JOIN chosen_files w USING (id) WHERE v.id BETWEEN 2 AND 3"
    found = spark.sql(text)
    assert found.collect()[0].n == 2
    assert read_files()
    assert spark.sql("SELECT count(*) AS n FROM chosen_files WHERE p = 'a/1' AND id < 10").collect()[0].n == 5


def test_input_files_and_metadata(spark: SparkSession, table: str) -> None:
    df = trilake.read(spark, table)
    names = {row.f for row in df.select(F.input_file_name().alias("f")).distinct().collect()}
    assert len(df.inputFiles()) == len(names)
    paths = {row.f for row in df.select(F.col("_metadata.file_path").alias("f")).distinct().collect()}
    assert {n.rpartition("/")[2] for n in names} == {n.rpartition("/")[2] for n in paths}
    assert df.where(F.col("_metadata.file_name") == next(iter(names)).rpartition("/")[2]).count() in (5, 10)


def test_failed_file_skipping_reads_all_files(spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, conditions: object) -> None:
        raise KeyError("renamed")

    df = trilake.read(spark, table)
    monkeypatch.setattr("trilake.spark.delta.reading.listed_frames.plan_filter", broken)
    assert df.where("id = 7").count() == 1
    monkeypatch.setattr(file_index, "file_relation", broken)
    assert trilake.read(spark, table).where("id = 7").count() == 1


def test_pruning_does_not_block_other_threads(spark: SparkSession, table: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    df = trilake.read(spark, table)

    def count(low: int) -> int:
        return df.where(f"id >= {low} AND id < {low + 3}").count()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count, range(0, 48, 6))) == [3] * 8


def test_file_list_is_not_reused_in_another_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    """The file list of a condition was reused after the session's time zone changed: rows were lost."""
    for hour in (1, 12, 23):
        trilake.write(pa.table({"t": [dt.datetime(2024, 7, 1, hour, tzinfo=dt.UTC)]}), str(tmp_path), mode="append")
    frame = trilake.read(spark, str(tmp_path))
    found = []
    for zone in ("America/New_York", "UTC", "Asia/Tokyo"):
        with settings(spark, {"spark.sql.session.timeZone": zone}):
            found.append(frame.where("t > TIMESTAMP '2024-07-01 12:30:00'").count())
    assert found == [1, 1, 2]


# --- conditions of a plan ---------------------------------------------------------------------------------------------

SCHEMA = pa.schema({"n": pa.int64(), "s": pa.string(), "t": pa.timestamp("us", "UTC")})


def _filter(text: str, zone: str = "UTC") -> str | None:
    found = plan_filter([text], SCHEMA, {}, zone)
    return None if found is None else found.sql


def test_user_defined_functions_skip_no_files() -> None:
    assert _filter("(upper(s) = 'A')") is None
    assert _filter("((n = 1L) AND (NOT (s IN ('upper(', 'b'))))") is not None
    assert _filter("(s = 'it\\'s upper(')") is not None


def test_float_columns_without_pushdown_skip_files(
    spark: SparkSession, tmp_path: Path, read_files: Callable[[], list[int]]
) -> None:
    for d in ([1.0, float("nan")], [7.0, 8.0]):
        deltalake.write_deltalake(str(tmp_path), pa.table({"my d": d}), mode="append")
    df = trilake.read(spark, str(tmp_path))
    assert df.where("`my d` < 5").count() == 1
    assert read_files() == [1]
    assert df.where("`my d` > 5").count() == 3
    assert _filter("(s = 'nanvl(n, n)')") == "s = 'nanvl(n, n)'"
    assert _filter("(nanvl(n, n) = 1)") == "n = 1"
    assert _filter("(nanvl(n, s) = 1)") is None


def test_timestamps_use_the_session_time_zone() -> None:
    text = "(t > TIMESTAMP '2024-07-01 12:00:00')"
    assert "2024-07-01 12:00:00" in (_filter(text) or "")
    assert "2024-07-01 10:00:00Z" in (_filter(text, "Europe/Berlin") or "")
    assert _filter(text, "+02:00") is None
    assert _filter("(t > TIMESTAMP '2024-10-27 02:30:00')", "Europe/Berlin") is None  # this local time occurs twice
    assert _filter("(t < TIMESTAMP '9999-12-31 23:59:59')", "America/New_York") is None  # the year 10000 in UTC
    assert _filter("(t > TIMESTAMP '0001-01-01 00:00:00')", "Asia/Tokyo") is None
    assert _filter("(CAST(t AS DATE) = DATE '2024-01-01')", "Europe/Berlin") is None
    assert _filter("(s = 'TIMESTAMP ') AND (n = 1)", "Europe/Berlin") is not None


def test_dates_use_the_session_time_zone() -> None:
    """In a table without timestamps, the cast of a date used UTC, and files of the first day were skipped."""
    days = pa.schema({"d": pa.date32(), "n": pa.int64()})

    def chosen(text: str, zone: str) -> bool:
        return plan_filter([text], days, {}, zone) is not None

    text = "(CAST(d AS TIMESTAMP) >= TIMESTAMP '2024-07-01 00:00:00')"
    assert chosen(text, "UTC")
    assert not chosen(text, "America/New_York")
    assert chosen("(d >= DATE '2024-07-01')", "America/New_York")
    assert chosen("(CAST(n AS STRING) = '1')", "America/New_York")


def test_conditions_use_physical_names() -> None:
    found = plan_filter(["((n > 5L) OR (s = 'a'))", "no sql at all ("], SCHEMA, {"n": "number"}, "UTC")
    assert found is not None
    assert found.columns == {"number", "s"}


def test_frame_methods_and_views(spark: SparkSession, table: str) -> None:
    df: DataFrame = trilake.read(spark, table)
    assert df.sameSemantics(df)
    assert df.where("id < 5").rdd.count() == 5
    assert len(list(df.where("id < 5").toLocalIterator())) == 5
