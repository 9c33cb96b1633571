"""Spark's commands on tables with several spellings of one partition value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trilake
from tests.delta.tables import table_of
from trilake.delta.protocol.schema import PrimitiveType
from trilake.storage import open_store

#: By type: spellings of one value, another value, and the first as SQL.
_CASES: dict[str, tuple[list[str], str, str]] = {
    "integer": (["7", "07", "+7"], "8", "7"),
    "boolean": (["true", "True", "TRUE"], "false", "true"),
    "double": (["1.0E-7", "1e-07", "0.0000001"], "1E-8", "1e-7D"),
    "decimal(20,10)": (["5", "5.0000000000", "5.00"], "5.0000000001", "5"),
    "date": (["2024-05-01", "2024-5-1", "2024-05-01"], "2024-05-02", "date'2024-05-01'"),
    "timestamp": (
        ["2024-05-01 00:00:00.5", "2024-05-01T00:00:00.500000Z", "2024-05-01T02:00:00.5+02:00"],
        "2024-05-01 00:00:00",
        "timestamp'2024-05-01 00:00:00.5Z'",
    ),
    "timestamp_ntz": (
        ["2024-05-01 00:00:00", "2024-05-01T00:00:00.000000", "2024-05-01"],
        "2024-05-02",
        "timestamp_ntz'2024-05-01 00:00:00'",
    ),
    "binary": (["\\u0001\\u00fe", "\\u0001\\u00FE", "\\u0001\\u00Fe"], "a", "X'01fe'"),
    "string": (["a", "a", "a"], "A", "'a'"),
}


def _table(type_: str, place: str) -> None:
    """Rows 0 to 2 of one value in its spellings, 3 of another, and 4 and 5 of null."""
    spellings, other, _ = _CASES[type_]
    strings = [*spellings, other, None, ""]
    table_of(
        *(pa.table({"n": pa.array([n], pa.int64())}) for n in range(len(strings))),
        schema=pa.schema([("n", pa.int64()), ("k", PrimitiveType(type_).arrow)]),
        partition=["k"],
        fields=[{"partitionValues": {"k": s}, "stats": '{"numRecords":1}'} for s in strings],
        store=open_store(place),
    )


def _numbers(place: str) -> list[int]:
    return sorted(trilake.open(place).to_arrow()["n"].to_pylist())


@pytest.mark.parametrize("type_", _CASES)
def test_spellings_are_one_partition_in_spark(sql: SparkSession, conf: Any, tmp_path: Path, type_: str) -> None:
    conf("spark.sql.session.timeZone", "America/New_York")
    conf("spark.sql.sources.partitionOverwriteMode", "dynamic")
    place, literal = str(tmp_path / "t"), _CASES[type_][2]
    _table(type_, place)
    target = f"delta.`{place}`"
    assert sql.sql(f"SHOW PARTITIONS {target}").count() == 3
    sql.sql(f"INSERT OVERWRITE {target} SELECT 10, {literal}")
    assert _numbers(place) == [3, 4, 5, 10]
    sql.sql(f"INSERT OVERWRITE {target} PARTITION (k) SELECT 11, null")
    assert _numbers(place) == [3, 10, 11]
    _table(type_, str(tmp_path / "u"))
    frame = sql.sql(f"SELECT 12L AS n, CAST({literal} AS {type_}) AS k")
    frame.write.format("delta").mode("overwrite").save(str(tmp_path / "u"))
    assert _numbers(str(tmp_path / "u")) == [3, 4, 5, 12]
    conf("spark.sql.sources.partitionOverwriteMode", "static")
    _table(type_, str(tmp_path / "v"))
    sql.sql(f"INSERT OVERWRITE delta.`{tmp_path / 'v'}` PARTITION (k = {literal}) SELECT 13")
    assert _numbers(str(tmp_path / "v")) == [3, 4, 5, 13]
    sql.sql(f"OPTIMIZE delta.`{tmp_path / 'v'}`")
    assert trilake.open(str(tmp_path / "v")).files().num_rows == 3


@pytest.mark.parametrize("type_", _CASES)
def test_spellings_are_one_partition_in_trilake_sql(tmp_path: Path, type_: str) -> None:
    place, literal = str(tmp_path / "t"), _CASES[type_][2]
    _table(type_, place)
    trilake.sql(f"INSERT OVERWRITE delta.`{place}` PARTITION (k = {literal}) SELECT 13")
    assert _numbers(place) == [3, 4, 5, 13]
