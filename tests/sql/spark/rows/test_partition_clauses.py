"""PARTITION clauses of TRUNCATE, SHOW PARTITIONS and DESCRIBE: the partitions that they name, and no others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import InvalidArgumentError, TrilakeError


@pytest.fixture
def place(tmp_path: Path) -> str:
    place = str(tmp_path / "t")
    rows = {"id": [1, 2, 3, 4], "p": ["7", "7", "a b", None], "q": [1, 2, 1, 1]}
    trilake.write(pa.table(rows), place, partition_by=["p", "q"])
    return place


def ids(place: str) -> list[int]:
    return sorted(trilake.open(place).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize(
    ("partition", "left"),
    [
        ("(p = '7', q = 2)", [1, 3, 4]),
        ("(p = 7)", [3, 4]),
        ("(P = 'a b')", [1, 2, 4]),
        ("(q = '1')", [2]),
        ("(p = NULL)", [1, 2, 3]),
        ("(p = 'no such')", [1, 2, 3, 4]),
    ],
)
def test_only_rows_of_the_partition_go(sql: SparkSession, place: str, partition: str, left: list[int]) -> None:
    copy = trilake.open(place).to_arrow()
    sql.sql(f"TRUNCATE TABLE delta.`{place}` PARTITION {partition}")
    assert ids(place) == left

    trilake.write(copy, place, mode="overwrite")
    trilake.sql(f"TRUNCATE TABLE delta.`{place}` PARTITION {partition}")
    assert ids(place) == left


@pytest.mark.parametrize("partition", ["(id = 1)", "(nothing = 1)", "(p)", "()"])
def test_what_is_no_partition_is_refused(sql: SparkSession, place: str, partition: str) -> None:
    statement = f"TRUNCATE TABLE delta.`{place}` PARTITION {partition}"
    with pytest.raises(Exception, match=r"(?i)partition"):
        sql.sql(statement)
    with pytest.raises(TrilakeError):
        trilake.sql(statement)
    assert ids(place) == [1, 2, 3, 4]


def test_a_format_without_partitions_refuses_them(sql: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "l")
    trilake.write(pa.table({"id": [1, 2]}), place, format="lance")
    with pytest.raises(InvalidArgumentError, match="non-partition column id"):
        sql.sql(f"TRUNCATE TABLE lance.`{place}` PARTITION (id = 1)")
    assert ids(place) == [1, 2]


def test_without_a_partition_all_rows_go(sql: SparkSession, place: str) -> None:
    sql.sql(f"TRUNCATE TABLE delta.`{place}`")
    assert ids(place) == []


@pytest.mark.parametrize(
    ("partition", "shown"),
    [
        ("", [(None, 1), ("7", 1), ("7", 2), ("a b", 1)]),
        ("PARTITION (P = 7)", [("7", 1), ("7", 2)]),
        ("PARTITION (q = '01', p = 'a b')", [("a b", 1)]),
        ("PARTITION (p = NULL)", [(None, 1)]),
        ("PARTITION (q = 9)", []),
    ],
)
def test_partitions_are_shown(
    sql: SparkSession, place: str, partition: str, shown: list[tuple[str | None, int]]
) -> None:
    frame = sql.sql(f"SHOW PARTITIONS delta.`{place}` {partition}")
    assert frame.columns == ["p", "q"]
    assert [tuple(r) for r in frame.collect()] == shown


def test_partitions_have_the_types_of_their_columns(sql: SparkSession, place: str) -> None:
    sql.sql(
        f"CREATE TABLE delta.`{place}_typed` (id INT, d DATE, t TIMESTAMP, m DECIMAL(5,2)) USING delta"
        " PARTITIONED BY (d, t, m)"
    )
    sql.sql(f"INSERT INTO delta.`{place}_typed` SELECT 1, DATE'2024-01-02', TIMESTAMP'2024-01-02 03:04:05', 1.5")
    shown = sql.sql(f"SHOW PARTITIONS delta.`{place}_typed`")
    assert shown.dtypes == [("d", "date"), ("t", "timestamp"), ("m", "decimal(5,2)")]
    assert shown.collect() == sql.sql(f"SELECT d, t, m FROM delta.`{place}_typed`").collect()


@pytest.mark.parametrize(
    "statement",
    ["SHOW PARTITIONS {} PARTITION (id = 1)", "SHOW PARTITIONS {} PARTITION (p)", "DESC {} PARTITION (q = 1)"],
)
def test_what_names_no_partition_is_not_passed_over(sql: SparkSession, place: str, statement: str) -> None:
    """The first had no rows, and the others those of all partitions."""
    with pytest.raises(Exception, match=r"(?i)partition"):
        sql.sql(statement.format(f"delta.`{place}`"))
