"""Compatibility with delta-spark code: argument checks, error classes, result columns."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException, UnsupportedOperationException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import trilake
from trilake import DeltaTable, DeltaTableBuilder, IdentityGenerator
from trilake.errors import InvalidArgumentError


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
def test_builder_rejects_wrong_types(session: SparkSession, tmp_path: Path, method: str, args: Any) -> None:
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
def test_invalid_columns_are_rejected(
    session: SparkSession, tmp_path: Path, column: Any, rules: Any, error: Any
) -> None:
    with pytest.raises(error):
        _builder(session, tmp_path).addColumn(*column, **rules)


def test_create_and_replace_by_name(session: SparkSession) -> None:
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


@pytest.fixture
def pairs(session: SparkSession, tmp_path: Path) -> str:
    """A table of keys and values, by its path."""
    path = str(tmp_path / "pairs")
    rows = [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    session.createDataFrame(rows, "key string, value long").write.format("delta").save(path)
    return path


def test_conditions_and_assignments_are_checked_first(session: SparkSession, pairs: str) -> None:
    table: Any = DeltaTable.forPath(session, pairs)
    source = session.createDataFrame([("a", 5)], "k string, v long")
    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda: table.delete(condition=1), TypeError, "must be a Spark SQL Column or a string"),
        (lambda: table.update({"value": "200"}), ValueError, "cannot be None"),
        (lambda: table.update(condition="a"), ValueError, "cannot be None"),
        (lambda: table.update(set=1), TypeError, "must be a dict"),
        (lambda: table.update(1, {}), TypeError, "must be a Spark SQL Column or a string"),
        (lambda: table.update(set={"value": 1}), TypeError, "Values of dict in .* must contain only"),
        (lambda: table.update(set={1: ""}), TypeError, "Keys of dict in .* must contain only"),
        (lambda: table.merge(1, "key = k"), TypeError, "must be DataFrame"),
        (lambda: table.merge(source, 1), TypeError, "must be a Spark SQL Column or a string"),
    ]
    for clause in ("whenMatchedUpdate", "whenNotMatchedInsert", "whenNotMatchedBySourceUpdate"):

        def begin(clause: str = clause) -> Any:
            return getattr(table.merge(source, "key = k"), clause)

        wrong += [
            (lambda begin=begin: begin()({"value": "v"}), ValueError, "cannot be None"),
            (lambda begin=begin: begin()(1), ValueError, "cannot be None"),
            (lambda begin=begin: begin()(condition="key = 'a'"), ValueError, "cannot be None"),
            (lambda begin=begin: begin()(1, {"value": "v"}), TypeError, "must be a Spark SQL Column or a string"),
            (lambda begin=begin: begin()("k = 'a'", 1), TypeError, "must be a dict"),
            (lambda begin=begin: begin()("k = 'a'", {"value": 1}), TypeError, "Values of dict in .* must contain only"),
            (lambda begin=begin: begin()("k = 'a'", {1: ""}), TypeError, "Keys of dict in .* must contain only"),
        ]
    for clause in (
        "whenMatchedDelete",
        "whenNotMatchedBySourceDelete",
        "whenMatchedUpdateAll",
        "whenNotMatchedInsertAll",
    ):
        wrong.append(
            (
                lambda clause=clause: getattr(table.merge(source, "key = k"), clause)(1),
                TypeError,
                "must be a Spark SQL Column or a string",
            )
        )
    for call, error, text in wrong:
        with pytest.raises(error, match=text):
            call()
    assert trilake.open(pairs).version == 0
    assert "<td>key</td>" in table._repr_html_()
    shutil.rmtree(pairs)
    assert "TABLE_NOT_FOUND" in table._repr_html_()  # repr never fails


def test_merge_returns_row_counts(session: SparkSession, pairs: str) -> None:
    table: Any = DeltaTable.forPath(session, pairs)
    source = session.createDataFrame([("a", -1), ("b", 0), ("e", -5)], "k string, v long")
    done = (
        table.merge(source, "key = k")
        .whenMatchedUpdate(set={"value": "v + 0"})
        .whenNotMatchedInsert(values={"key": "k", "value": F.col("v") + 0})
        .whenNotMatchedBySourceUpdate("key = 'c'", {"value": "value + 0"})
        .whenNotMatchedBySourceDelete()
        .execute()
    )
    assert done.collect() == [(5, 3, 1, 1)]
    names = ["num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows"]
    assert [(f.name, f.dataType) for f in done.schema] == [(n, T.LongType()) for n in names]
    assert sorted(table.toDF().collect()) == [("a", -1), ("b", 0), ("c", 3), ("e", -5)]
    aliased = table.alias("t").merge(source.toDF("key", "value").alias("s"), F.expr("t.key = s.key"))
    aliased.whenNotMatchedInsert("s.key = 'b'", {"t.key": "s.key", "t.value": "5"}).whenMatchedUpdateAll().execute()
    assert sorted(table.toDF().collect()) == [("a", -1), ("b", 0), ("c", 3), ("e", -5)]


def test_merge_may_add_columns(session: SparkSession, pairs: str) -> None:
    source = session.createDataFrame([("a", -1), ("e", -5)], "key string, extra long")
    merge = DeltaTable.forPath(session, pairs).alias("t").merge(source.alias("s"), "t.key = s.key")
    merge.whenMatchedUpdate(set={"extra": "-1"}).whenNotMatchedInsertAll().withSchemaEvolution().execute()
    df = DeltaTable.forPath(session, pairs).toDF()
    assert df.columns == ["key", "value", "extra"]
    assert max(df.collect(), key=repr) == ("e", None, -5)
    assert df.where("extra = -1").collect() == [("a", 1, -1)]


def test_optimize_results_and_errors_match_delta_spark(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "parts")
    for key in ("a", "a", "b"):
        one = session.createDataFrame([(key, 1, 1)], "key string, value int, other int")
        one.write.format("delta").partitionBy("key").mode("append").save(path)
    table: Any = DeltaTable.forPath(session, path)
    done = table.optimize().where("key = 'a'").executeCompaction()
    assert done.columns == ["path", "metrics"]
    assert (done.first().metrics.numFilesAdded, done.first().metrics.numFilesRemoved) == (1, 2)
    assert table.history(1).first().operationParameters["predicate"] == """["('key = a)"]"""
    with pytest.raises(AnalysisException) as found:
        table.optimize().where("value = 1").executeCompaction()
    text = "Predicate references non-partition column 'value'. Only the partition columns may be referenced: [key]"
    assert text in str(found.value)
    with pytest.raises(AnalysisException) as found:
        table.optimize().executeZOrderBy(["key"])
    assert "key is a partition column. Z-Ordering can only be performed on data columns" in str(found.value)
    ordered = table.optimize().executeZOrderBy("value", "other").first().metrics
    assert (ordered.zOrderStats.strategyName, ordered.zOrderStats.numOutputCubes) == ("all", 2)
    assert (ordered.totalConsideredFiles, ordered.totalFilesSkipped) == (2, 0)
    table.optimize().executeCompaction()
    assert table.history(1).first().operationParameters["predicate"] == "[]"


def test_restore_and_clone_check_arguments(session: SparkSession, pairs: str, tmp_path: Path) -> None:
    table: Any = DeltaTable.forPath(session, pairs)
    target = str(tmp_path / "clone")
    wrong: list[tuple[Any, str]] = [
        (lambda: table.restoreToTimestamp(12), "timestamp needs to be a string but got '<class 'int'>'"),
        (lambda: table.restoreToVersion("0"), "version needs to be an int but got '<class 'str'>'"),
        (lambda: table.restoreToTimestamp("05/04/1999"), "The provided timestamp ('05/04/1999') cannot be converted"),
        (lambda: table.clone(10), "target needs to be a string but got '<class 'int'>'"),
        (lambda: table.clone(target, isShallow=10), "isShallow needs to be a boolean but got '<class 'int'>'"),
        (lambda: table.clone(target, False, replace=10), "replace needs to be a boolean but got '<class 'int'>'"),
    ]
    for call, text in wrong:
        with pytest.raises(Exception) as found:
            call()
        assert text in str(found.value)
    table.delete("key = 'a'")
    restored = table.restoreToVersion(0)
    assert restored.first().num_restored_files == 1
    assert table.toDF().count() == 4
    table.clone(target, True, False, {"foo": "bar"})
    clone: Any = DeltaTable.forPath(session, target)
    assert clone.toDF().count() == 4
    assert clone.detail().first().properties["foo"] == "bar"
    table.cloneAtVersion(1, target, True, True)
    assert clone.toDF().count() == 3


def test_vacuum_checks_its_retention_hours(session: SparkSession, pairs: str) -> None:
    stray = Path(pairs) / "stray.txt"
    table: Any = DeltaTable.forPath(session, pairs)
    stray.write_text("x")
    table.vacuum()
    table.vacuum(1000)
    assert stray.exists()
    with pytest.raises(AnalysisException):
        table.vacuum(0)
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        assert table.vacuum(0.0).count() == 0
    finally:
        session.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert not stray.exists()
    assert table.toDF().count() == 4


def test_parquet_folders_are_converted_in_place(session: SparkSession, tmp_path: Path) -> None:
    df = session.createDataFrame([("a", 1), ("b", 2)], "key string, value int")
    typed = T.StructType([T.StructField("value", T.IntegerType())])
    for name, schema in (("plain", None), ("typed", typed), ("text", "value int")):
        path = str(tmp_path / name)
        writer = df.write.format("parquet")
        (writer if schema is None else writer.partitionBy("value")).save(path)
        args = () if schema is None else (schema,)
        made = DeltaTable.convertToDelta(session, f"parquet.`{path}`", *args)
        assert isinstance(made, DeltaTable)
        assert sorted(made.toDF().select("key", "value").collect()) == [("a", 1), ("b", 2)]


def test_columns_of_a_named_table_are_qualified(session: SparkSession) -> None:
    session.range(4).selectExpr("id", "0L AS n").write.format("delta").saveAsTable("by_name")
    session.range(2, 6).selectExpr("id", "7L AS n").write.format("delta").saveAsTable("its_source")
    try:
        table = DeltaTable.forName(session, "default.by_name")
        table.delete("by_name.id = 0")
        table.update("by_name.id = 1", {"n": "by_name.n + 1", "by_name.id": "id"})
        merge = table.merge(session.table("its_source"), "by_name.id = its_source.id")
        merge.whenMatchedUpdate("by_name.n = 0", {"n": "its_source.n + by_name.n"}).whenNotMatchedInsertAll().execute()
        assert sorted(map(tuple, table.toDF().collect())) == [(1, 1), (2, 7), (3, 7), (4, 7), (5, 7)]
        table.alias("t").delete("t.id = 5 AND n = 7")
        table.delete("id = 4 AND n = 7")
        assert table.toDF().select("_metadata.file_path", "id").count() == 3
    finally:
        session.sql("DROP TABLE by_name")
        session.sql("DROP TABLE its_source")


def test_delta_table_constructor_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match=r"forPath.*forName.*trilake\.open"):
        DeltaTable("/lake/t")  # type: ignore[arg-type]
