"""Statements about trilake tables that neither query nor change rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import trilake
from trilake.spark.session.compat import RELEASE


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    spark.sql("CREATE TABLE aux_t (a INT, s STRUCT<x: INT>) USING delta CLUSTER BY (a, s.x)")
    yield spark
    spark.sql("DROP TABLE aux_t")
    trilake.uninstall(spark)


def _comments(spark: SparkSession, table: str) -> list[object]:
    schema = spark.sql(f"SELECT * FROM {table}").schema
    return [f.metadata.get("comment") for f in (*schema.fields, *schema["s"].dataType.fields)]  # type: ignore[attr-defined]


@pytest.mark.skipif(RELEASE < (4, 1), reason="Spark's grammar knows no comments of columns before 4.1")
def test_column_comments_are_stored_in_the_table(session: SparkSession, tmp_path: Path) -> None:
    """Spark accepted them and changed only its catalog, not the table."""
    session.sql("COMMENT ON COLUMN aux_t.a IS 'an a'")
    session.sql("COMMENT ON COLUMN default.aux_t.s.x IS 'an x'")
    assert _comments(session, "aux_t") == ["an a", None, "an x"]
    assert session.sql("DESCRIBE aux_t").where("col_name = 'a'").collect()[0].comment == "an a"
    session.sql("COMMENT ON COLUMN spark_catalog.default.aux_t.a IS NULL")
    assert _comments(session, "aux_t") == [None, None, "an x"]
    path = f"delta.`{tmp_path}/t`"
    session.sql(f"CREATE TABLE {path} USING delta AS SELECT 1 AS a, struct(2 AS x) AS s")
    session.sql(f"COMMENT ON COLUMN {path}.s IS 'an s'")
    assert _comments(session, path) == [None, "an s", None]


def test_properties_include_clustering_columns(session: SparkSession) -> None:
    shown = session.sql("SHOW TBLPROPERTIES aux_t ('clusteringColumns')").collect()
    assert [r.value for r in shown] == ['[["a"],["s","x"]]']
    assert "clusteringColumns" not in session.sql("SHOW CREATE TABLE aux_t").collect()[0][0]


def test_drop_table_drops_temporary_views_but_no_permanent_one(session: SparkSession) -> None:
    session.table("aux_t").createTempView("aux_frame")
    session.table("aux_t").createGlobalTempView("aux_global")
    session.sql("CREATE TEMP VIEW aux_query AS SELECT a FROM aux_t")
    session.sql("CREATE VIEW aux_view AS SELECT a FROM aux_t")
    for name in ("aux_frame", "IF EXISTS global_temp.aux_global", "IF EXISTS aux_query"):
        session.sql(f"DROP TABLE {name}")
        assert not session.catalog.tableExists(name.split()[-1])
    with pytest.raises(AnalysisException, match="aux_view is a view, not a table"):
        session.sql("DROP TABLE IF EXISTS aux_view")
    session.sql("DROP VIEW aux_view")
    assert session.table("aux_t").count() == 0
