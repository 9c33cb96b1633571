"""Timestamps without a zone are in the session time zone, which defaults to the machine's."""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import trilake
from trilake.spark.patches.register import register
from trilake.spark.session import internals
from trilake.spark.session.settings import ZONE, session_zone, time_ms

_MACHINE = "America/New_York"
#: Zones in Spark's spelling, and their hours behind UTC in January.
_BEHIND = {None: 5, "+02:00": -2, "GMT-3": 3, "PST": 8, "UTC": 0}


@pytest.fixture(autouse=True)
def _elsewhere(spark: SparkSession) -> Iterator[None]:
    """A machine in New York, and a session without a time zone setting."""
    register(spark)
    assert spark._jvm is not None
    zones = spark._jvm.java.util.TimeZone
    machine, before = zones.getDefault(), session_zone(spark)
    zones.setDefault(zones.getTimeZone(_MACHINE))
    spark.conf.unset(ZONE)
    try:
        yield
    finally:
        spark.conf.set(ZONE, before)
        zones.setDefault(machine)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three versions of one row each, of midnight, one and two o'clock of 2024-01-15 in UTC."""
    path = tmp_path_factory.mktemp("zones") / "t"
    for i in range(3):
        properties = {"delta.enableChangeDataFeed": "true"} if i == 0 else None
        trilake.write(pa.table({"id": [i]}), str(path), mode="append", properties=properties)
        at = dt.datetime(2024, 1, 15, i, tzinfo=dt.UTC).timestamp()
        os.utime(path / "_delta_log" / f"{i:020d}.json", (at, at))
    return str(path)


def _local(hour: float, behind: int) -> dt.datetime:
    at = dt.datetime(2024, 1, 15, tzinfo=dt.UTC) + dt.timedelta(hours=hour - behind)
    return at.replace(tzinfo=None)


def test_default_session_time_zone(spark: SparkSession) -> None:
    assert session_zone(spark) == _MACHINE
    assert time_ms(spark, "1970-01-01 00:00:00") == 5 * 3_600_000
    assert time_ms(spark, "1970-01-01T00:00:00Z") == time_ms(spark, "1970-1-1 00:00:00 UTC") == 0


@pytest.mark.parametrize("zone", list(_BEHIND))
def test_time_travel_uses_the_session_time_zone(spark: SparkSession, table: str, zone: str | None) -> None:
    """UTC was used: another version, or none."""
    if zone is not None:
        spark.conf.set(ZONE, zone)
    half, behind = _local(0.5, _BEHIND[zone]), _BEHIND[zone]

    def ids(df: DataFrame) -> list[int]:
        return sorted(r.id for r in df.collect())

    read: Any = spark.read.format("delta")
    assert ids(read.option("timestampAsOf", str(half)).load(table)) == [0]
    assert ids(spark.read.format("delta").load(f"{table}@{half:%Y%m%d%H%M%S}000")) == [0]
    between = {"startingTimestamp": str(half), "endingTimestamp": str(_local(1.5, behind))}
    assert ids(spark.read.format("delta").options(readChangeFeed="true", **between).load(table)) == [1]


def test_starting_timestamp_uses_the_session_time_zone(spark: SparkSession, table: str, tmp_path: Path) -> None:
    """UTC was used, ignoring the session time zone."""
    stream = spark.readStream.format("delta").option("startingtimestamp", str(_local(0.5, 5))).load(table)
    out = str(tmp_path / "out")
    query = stream.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "cp"))
    query.trigger(availableNow=True).start(out).awaitTermination()
    assert sorted(trilake.open(out).to_arrow()["id"].to_pylist()) == [1, 2]


def test_convert_parses_folder_timestamps_like_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Their values were parsed as UTC."""
    path = tmp_path / "p"
    rows = spark.sql("SELECT 1L AS id, TIMESTAMP'2024-01-15 10:00:00' AS at")
    rows.write.partitionBy("at").parquet(str(path))
    trilake.DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "at timestamp")
    [at] = trilake.open(str(path)).to_arrow()["at"].to_pylist()
    assert at == dt.datetime(2024, 1, 15, 10, tzinfo=ZoneInfo(_MACHINE))


def test_files_are_skipped_during_planning(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file was skipped, and a warning reported unexpected Spark internals."""
    monkeypatch.setattr(internals, "_logged", set())
    path = str(tmp_path / "t")
    for i in range(3):
        trilake.write(pa.table({"id": [i]}), path, mode="append")
    df = spark.read.format("delta").load(path).where("id = 1")
    with caplog.at_level(logging.WARNING, "trilake.spark"):
        assert df.count() == 1
    assert not caplog.records
