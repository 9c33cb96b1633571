"""What code written for delta-spark relies on: argument checks, kinds of errors, columns that come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException, UnsupportedOperationException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import trilake
from trilake import DeltaTable, DeltaTableBuilder, IdentityGenerator


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    trilake.register(spark)
    return spark


def _builder(spark: SparkSession, path: Path) -> DeltaTableBuilder:
    return DeltaTable.create(spark).location(str(path))


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("tableName", (1,)),
        ("location", (1,)),
        ("comment", (1,)),
        ("addColumn", (1, "int")),
        ("addColumn", ("a", 1)),
        ("addColumns", (1,)),
        ("addColumns", ([T.StructField("b", T.IntegerType()), 1],)),
        ("partitionedBy", (1,)),
        ("partitionedBy", (1, "a")),
        ("partitionedBy", ([1],)),
        ("clusterBy", (1,)),
        ("clusterBy", ("a", 1)),
        ("clusterBy", ([1],)),
        ("property", (1, "v")),
        ("property", ("k", 1)),
    ],
)
def test_the_builder_refuses_wrong_types(session: SparkSession, tmp_path: Path, method: str, args: Any) -> None:
    with pytest.raises(TypeError):
        getattr(_builder(session, tmp_path), method)(*args)


@pytest.mark.parametrize(
    ("column", "rules", "error"),
    [
        (("a", "1"), {}, ParseException),
        (("a", "int"), {"comment": 1}, TypeError),
        (("a", "int"), {"nullable": 1}, TypeError),
        (("a", "int"), {"generatedAlwaysAs": 1}, TypeError),
        (("a", "bigint"), {"generatedByDefaultAs": ""}, TypeError),
        (("a", "int"), {"generatedAlwaysAs": IdentityGenerator()}, UnsupportedOperationException),
        (("a", "int"), {"generatedByDefaultAs": IdentityGenerator()}, UnsupportedOperationException),
        (("a", "bigint"), {"generatedAlwaysAs": IdentityGenerator(step=0)}, ValueError),
        (("a", "bigint"), {"generatedByDefaultAs": IdentityGenerator(step=0)}, ValueError),
        (("a", "bigint"), {"generatedAlwaysAs": "", "generatedByDefaultAs": IdentityGenerator()}, ValueError),
    ],
)
def test_columns_that_cannot_be(session: SparkSession, tmp_path: Path, column: Any, rules: Any, error: Any) -> None:
    with pytest.raises(error):
        _builder(session, tmp_path).addColumn(*column, **rules)


def test_creating_and_replacing_by_name(session: SparkSession) -> None:
    try:
        made = DeltaTable.create().tableName("apiNamed").addColumn("c1", "int").execute()
        assert made.toDF().columns == ["c1"]
        with pytest.raises(AnalysisException, match="apiNamed already exists"):
            DeltaTable.create(session).tableName("apiNamed").addColumn("c1", "int").execute()
        kept = DeltaTable.createIfNotExists().tableName("apiNamed").addColumn("c2", "int").execute()
        assert kept.toDF().columns == ["c1"]
        replaced = DeltaTable.replace().tableName("apiNamed").addColumn("c3", "int").execute()
        assert replaced.toDF().columns == ["c3"]
        with pytest.raises(AnalysisException, match="apiMissing cannot be found"):
            DeltaTable.replace(session).tableName("apiMissing").addColumn("c1", "int").execute()
    finally:
        session.sql("DROP TABLE IF EXISTS apiNamed")


def test_missing_tables_are_analysis_errors(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException):
        DeltaTable.forPath(session, str(tmp_path))
    with pytest.raises(AnalysisException):
        DeltaTable.forName(session, "no_such_table")
    assert not DeltaTable.isDeltaTable(session, str(tmp_path))
