"""Changes of tables with common table expressions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import trilake

_NEW = "WITH new (k, w) AS (SELECT 2, 'x' UNION ALL SELECT 9, 'y'), two AS (SELECT * FROM new WHERE k = 2)"


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    spark.sql("CREATE TABLE named_first (id INT, v STRING) USING delta")
    spark.sql("INSERT INTO named_first VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    yield spark
    spark.sql("DROP TABLE named_first")
    trilake.uninstall(spark)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (f"{_NEW} DELETE FROM named_first WHERE id IN (SELECT k FROM two)", [(1, "a"), (3, "c")]),
        (
            "WITH m AS (SELECT max(id) n FROM named_first) DELETE FROM named_first t WHERE t.id = (SELECT n FROM m)",
            [(1, "a"), (2, "b")],
        ),
        (
            f"{_NEW} UPDATE named_first SET v = (WITH one AS (SELECT * FROM two) SELECT max(w) FROM one) WHERE id > 1",
            [(1, "a"), (2, "x"), (3, "x")],
        ),
        (
            f"""{_NEW} MERGE INTO named_first t USING new ON t.id = new.k WHEN MATCHED THEN UPDATE SET v = w
            WHEN NOT MATCHED THEN INSERT (id, v) VALUES (k, w)""",
            [(1, "a"), (2, "x"), (3, "c"), (9, "y")],
        ),
        (
            f"""{_NEW} MERGE INTO named_first USING (SELECT * FROM two) AS s ON named_first.id = s.k
            WHEN MATCHED THEN DELETE""",
            [(1, "a"), (3, "c")],
        ),
    ],
)
def test_changes_with_ctes(sql: SparkSession, statement: str, expected: list[tuple[int, str]]) -> None:
    assert "Scan" in sql.sql(f"EXPLAIN {statement}").collect()[0][0]
    sql.sql(statement)
    assert sorted(map(tuple, sql.table("named_first").collect())) == expected


def test_changes_with_ctes_without_spark(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    trilake.write({"id": [1, 2, 3]}, path)
    trilake.sql(
        f"WITH s AS (SELECT 2 AS id UNION ALL SELECT 7) MERGE INTO delta.`{path}` t USING s ON t.id = s.id"
        " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    )
    assert sorted(trilake.open(path).to_arrow()["id"].to_pylist()) == [1, 3, 7]
