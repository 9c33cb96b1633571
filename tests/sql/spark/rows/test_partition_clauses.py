"""PARTITION clauses of TRUNCATE, SHOW PARTITIONS and DESCRIBE affect only the named partitions."""

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
def test_truncate_partition_deletes_only_its_rows(
    sql: SparkSession, place: str, partition: str, left: list[int]
) -> None:
    copy = trilake.open(place).to_arrow()
    sql.sql(f"TRUNCATE TABLE delta.`{place}` PARTITION {partition}")
    assert ids(place) == left

    trilake.write(copy, place, mode="overwrite")
    trilake.sql(f"TRUNCATE TABLE delta.`{place}` PARTITION {partition}")
    assert ids(place) == left


@pytest.mark.parametrize("partition", ["(id = 1)", "(nothing = 1)", "(p)", "()"])
def test_truncate_invalid_partition_is_rejected(sql: SparkSession, place: str, partition: str) -> None:
    statement = f"TRUNCATE TABLE delta.`{place}` PARTITION {partition}"
    with pytest.raises(Exception, match=r"(?i)partition"):
        sql.sql(statement)
    with pytest.raises(TrilakeError):
        trilake.sql(statement)
    assert ids(place) == [1, 2, 3, 4]


def test_partition_clause_is_rejected_without_partitions(sql: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "l")
    trilake.write(pa.table({"id": [1, 2]}), place, format="lance")
    with pytest.raises(InvalidArgumentError, match="non-partition column id"):
        sql.sql(f"TRUNCATE TABLE lance.`{place}` PARTITION (id = 1)")
    assert ids(place) == [1, 2]


def test_truncate_without_partition_deletes_all_rows(sql: SparkSession, place: str) -> None:
    sql.sql(f"TRUNCATE TABLE delta.`{place}`")
    assert ids(place) == []


@pytest.mark.parametrize(
    ("partition", "shown"),
    [
        ("", ["p=7/q=1", "p=7/q=2", "p=__HIVE_DEFAULT_PARTITION__/q=1", "p=a b/q=1"]),
        ("PARTITION (P = 7)", ["p=7/q=1", "p=7/q=2"]),
        ("PARTITION (q = '01', p = 'a b')", ["p=a b/q=1"]),
        ("PARTITION (p = NULL)", ["p=__HIVE_DEFAULT_PARTITION__/q=1"]),
        ("PARTITION (q = 9)", []),
    ],
)
def test_show_partitions(sql: SparkSession, place: str, partition: str, shown: list[str]) -> None:
    assert [r[0] for r in sql.sql(f"SHOW PARTITIONS delta.`{place}` {partition}").collect()] == shown


@pytest.mark.parametrize(
    "statement",
    ["SHOW PARTITIONS {} PARTITION (id = 1)", "SHOW PARTITIONS {} PARTITION (p)", "DESC {} PARTITION (q = 1)"],
)
def test_unknown_partition_is_rejected(sql: SparkSession, place: str, statement: str) -> None:
    """The first statement returned no rows, and the others those of all partitions."""
    with pytest.raises(Exception, match=r"(?i)partition"):
        sql.sql(statement.format(f"delta.`{place}`"))
