"""Tables of other formats beside trilake tables: none replaces one, but may be like one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import trilake


@pytest.mark.parametrize("kind", ["CREATE OR REPLACE", "REPLACE"])
@pytest.mark.parametrize(
    "rest", ["AS SELECT id + 1 AS id FROM replaced", "(id INT)", "USING parquet AS SELECT 1 AS id"]
)
def test_replace_requires_the_format(spark: SparkSession, kind: str, rest: str) -> None:
    trilake.install(spark)
    spark.sql("CREATE TABLE replaced USING delta AS SELECT 1 AS id")
    try:
        with pytest.raises(AnalysisException, match=r"is a delta table.*write USING delta") as found:
            spark.sql(f"{kind} TABLE replaced {rest}")
        assert found.value.getCondition() == "UNSUPPORTED_FEATURE.TABLE_OPERATION"
        assert [r.id for r in spark.table("replaced").collect()] == [1]
        spark.sql(f"{kind} TABLE replaced USING delta AS SELECT id + 1 AS id FROM replaced")
        assert [r.id for r in spark.table("replaced").collect()] == [2]
    finally:
        spark.sql("DROP TABLE replaced")
        trilake.uninstall(spark)


def test_like_with_another_format(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql("CREATE TABLE like_source (p INT, v STRING COMMENT 'text') USING delta PARTITIONED BY (p)")
    sql.sql("INSERT INTO like_source VALUES (1, 'a')")
    try:
        sql.sql(
            f"CREATE TABLE like_plain LIKE like_source USING parquet LOCATION '{tmp_path}' TBLPROPERTIES ('k' = 'v')"
        )
        sql.sql("CREATE TABLE IF NOT EXISTS like_plain LIKE like_source USING parquet")
        about = {c.name: c for c in sql.catalog.listColumns("like_plain")}
        assert (about["v"].description, about["p"].isPartition, sql.table("like_plain").count()) == ("text", True, 0)
        assert sql.sql("SHOW TBLPROPERTIES like_plain('k')").collect()[0].value == "v"
        sql.sql("INSERT INTO like_plain SELECT v, p FROM like_source")
        assert [tuple(r) for r in sql.read.parquet(str(tmp_path)).collect()] == [("a", 1)]
    finally:
        sql.sql("DROP TABLE like_source")
        sql.sql("DROP TABLE IF EXISTS like_plain")
