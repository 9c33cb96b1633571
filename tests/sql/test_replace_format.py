"""A trilake table is not replaced by a table of another format."""

from __future__ import annotations

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
