"""UPDATE and MERGE reject values that are not computed from a single row, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import trilake
from trilake import DeltaTable
from trilake.errors import ExpressionError

VALUES = ["max({k})", "row_number() OVER (ORDER BY {k})", "explode(array(1, 2))", "1 + sum({k})"]


@pytest.fixture
def t(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    trilake.install(spark)
    name = f"delta.`{tmp_path}/t`"
    spark.sql(f"CREATE TABLE {name} (k INT, n INT) USING delta")
    spark.sql(f"INSERT INTO {name} VALUES (1, 10), (2, 20)")
    yield name
    assert sorted(map(tuple, spark.table(name).collect())) == [(1, 10), (2, 20)]
    trilake.uninstall(spark)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {t} SET n = {v}",
        "UPDATE {t} SET n = {v} WHERE k > 100",
        "MERGE INTO {t} t USING (SELECT 1 AS q) s ON t.k = s.q WHEN MATCHED THEN UPDATE SET n = {v}",
        "MERGE INTO {t} t USING (SELECT 9 AS q) s ON t.k = s.q WHEN NOT MATCHED THEN INSERT (k, n) VALUES (1, {v})",
        "MERGE INTO {t} t USING (SELECT 9 AS q) s ON t.k = s.q WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = {v}",
    ],
)
def test_value_from_other_rows_is_rejected(spark: SparkSession, t: str, statement: str, value: str) -> None:
    text = value.format(k="q" if "INSERT" in statement else "k")
    with pytest.raises(ExpressionError, match=r"(?s)a single row.*[Ii]nvalid expressions") as e:
        spark.sql(statement.format(t=t, v=text))
    assert isinstance(e.value, AnalysisException)
    assert e.value.getCondition() == "UNSUPPORTED_EXPR_FOR_OPERATOR"


def test_method_call_is_rejected_like_a_statement(spark: SparkSession, t: str) -> None:
    with pytest.raises(ExpressionError, match="Invalid expressions"):
        DeltaTable.forPath(spark, t.split("`")[1]).update(set={"n": "explode(array(1, 2))"})


def test_subquery_in_a_value_may_aggregate(spark: SparkSession, t: str) -> None:
    spark.sql(f"UPDATE {t} SET n = (SELECT max(k) FROM {t}) WHERE k > 100")
    spark.sql(f"UPDATE {t} SET n = (SELECT explode(array(n)))")
