"""SQL strings with subqueries over trilake tables in ``where``, ``filter``, ``selectExpr`` and ``F.expr``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.functions import expr

import trilake


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    spark.sql("CREATE TABLE some_ids (id BIGINT, v DOUBLE) USING delta")
    spark.sql("INSERT INTO some_ids VALUES (1, 1.5), (3, 3.5)")
    yield spark
    spark.sql("DROP TABLE some_ids")
    trilake.uninstall(spark)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda df: df.where("id IN (SELECT id FROM some_ids)"), [(1,), (3,)]),
        (lambda df: df.filter("id NOT IN (SELECT s.id FROM default.some_ids s)"), [(0,), (2,)]),
        (lambda df: df.filter(condition="EXISTS (SELECT 1 FROM some_ids WHERE v > 3)"), [(0,), (1,), (2,), (3,)]),
        (lambda df: df.where("id = (SELECT max(id) FROM some_ids VERSION AS OF 1)"), [(3,)]),
        (lambda df: df.selectExpr("id", "(SELECT max(v) FROM some_ids) AS m"), [(i, 3.5) for i in range(4)]),
        (lambda df: df.selectExpr(["(SELECT max(v) FROM some_ids) AS m", "id"]), [(3.5, i) for i in range(4)]),
        (lambda df: df.where(F.expr("id IN (SELECT id FROM some_ids)")), [(1,), (3,)]),
        (lambda df: df.where(expr("id IN (SELECT id FROM some_ids)") & (F.col("id") > 1)), [(3,)]),
        (lambda df: df.withColumn("m", F.expr("(SELECT min(v) FROM some_ids)") + 1), [(i, 2.5) for i in range(4)]),
        (lambda df: df.agg(F.expr("sum(id) + (SELECT count(*) FROM some_ids)")), [(8,)]),
        (lambda df: df.where("id IN (SELECT 2)"), [(2,)]),
    ],
)
def test_subqueries_in_expressions(
    sql: SparkSession, make: Callable[[DataFrame], DataFrame], expected: list[tuple[object, ...]]
) -> None:
    assert [tuple(r) for r in make(sql.range(4)).collect()] == expected
    assert not [t.name for t in sql.catalog.listTables() if "trilake" in t.name]


def test_subquery_reads_the_newest_rows(sql: SparkSession) -> None:
    table = sql.table("some_ids")
    sql.sql("INSERT INTO some_ids VALUES (2, 2.5)")
    assert sorted(r.id for r in table.where("id IN (SELECT id FROM some_ids)").collect()) == [1, 2, 3]
    assert sql.range(4).where(F.expr("id IN (SELECT id FROM some_ids)")).count() == 3


def test_path_in_an_expression(sql: SparkSession, tmp_path: Path) -> None:
    trilake.write(pa.table({"id": [2]}), str(tmp_path / "t"))
    assert sql.range(4).where(f"id IN (SELECT id FROM delta.`{tmp_path / 't'}`)").collect() == [(2,)]


def test_errors_are_from_spark_and_show_the_original_sql(sql: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="nothing") as caught:
        sql.range(4).where("id IN (SELECT nothing FROM some_ids)")
    assert "__trilake" not in str(caught.value)
    with pytest.raises(ParseException, match="IN SELECT"):
        sql.range(4).where("id IN SELECT (SELECT nothing FROM some_ids)")
