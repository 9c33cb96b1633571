"""``df.write`` calls that Spark rejects for Python data sources."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from tests.spark.patches.frames import two_rows
from trilake import DeltaTable
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TableExistsError, TrilakeError, WriteFailedError
from trilake.spark.session.analysis_errors import analysis_error


def test_default_mode_creates_a_table_once(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    df = two_rows(session)
    df.write.format("delta").save(path)
    with pytest.raises(AnalysisException) as found:
        df.write.format("delta").save(path)
    assert isinstance(found.value, TableExistsError)
    df.write.format("delta").mode("ignore").save(path)
    df.write.save(path, format="delta", mode="append")
    assert session.read.format("delta").load(path).count() == 4
    assert trilake.open(path).version == 1


def test_replace_where_of_a_new_table_has_nothing_to_replace(session: SparkSession, tmp_path: Path) -> None:
    """It was rejected as an append."""
    path = str(tmp_path / "t")
    write = two_rows(session).write.format("delta").option("replaceWhere", "true")
    write.mode("ignore").save(path)
    write.mode("ignore").save(path)
    with pytest.raises(TableExistsError):
        write.mode("error").save(path)
    try:
        write.mode("error").saveAsTable("new_replace_where")
        assert session.table("new_replace_where").count() == 2
    finally:
        session.sql("DROP TABLE IF EXISTS new_replace_where")
    with pytest.raises(InvalidArgumentError, match="replaceWhere needs mode overwrite, got append"):
        write.mode("append").save(path)
    assert trilake.open(path).count() == 2


def test_partition_by_and_options_are_applied(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write = two_rows(session).write.format("delta").partitionBy("key").option("userMetadata", "first").mode("append")
    write.option("delta.appendOnly", "true").save(path)
    table = trilake.open(path)
    assert table.metadata.partition_columns == ("key",)  # type: ignore[attr-defined]
    assert table.metadata.configuration == {"delta.appendOnly": "true"}  # type: ignore[attr-defined]
    assert table.history()["userMetadata"].to_pylist() == ["first"]
    # A later write with the same partitioning is accepted, another is not.
    two_rows(session).write.format("delta").partitionBy("key").mode("append").save(path)
    with pytest.raises(AnalysisException, match="partition"):
        two_rows(session).write.format("delta").partitionBy("value").mode("append").save(path)
    with pytest.raises(InvalidArgumentError, match="a path is required"):
        two_rows(session).write.format("delta").save()


def test_lance_and_trevni_have_all_modes(session: SparkSession, tmp_path: Path) -> None:
    df = two_rows(session)
    for name in ("lance", "trevni"):
        path = str(tmp_path / name)
        df.write.format(name).save(path)
        with pytest.raises(AnalysisException):
            df.write.format(name).save(path)
        df.write.format(name).mode("ignore").save(path)
        assert session.read.format(name).load(path).count() == 2
    parts = str(tmp_path / "parts")
    df.write.format("trevni").partitionBy("key").mode("append").save(parts)
    assert sorted(session.read.format("trevni").load(parts).select("key", "value").collect()) == [("a", 1), ("b", 2)]
    with pytest.raises(AnalysisException, match="no partitions"):
        df.write.format("lance").partitionBy("key").save(str(tmp_path / "other"))


def test_history_records_create_and_replace(session: SparkSession, tmp_path: Path) -> None:
    """It was recorded as a WRITE, like an append."""
    write, path = two_rows(session).write.format("delta"), f"{tmp_path}/t"
    made, replaced = "CREATE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT"
    try:
        write.partitionBy("key").option("delta.appendOnly", "false").saveAsTable("writer_history")
        for mode in ("append", "overwrite"):
            two_rows(session).write.format("delta").mode(mode).saveAsTable("writer_history")
        where = write.mode("overwrite").option("replaceWhere", "value > 0")
        where.saveAsTable("writer_history")
        rows = DeltaTable.forName(session, "writer_history").history().orderBy("version").collect()
        assert [r.operation for r in rows] == [made, "WRITE", replaced, "WRITE"]
        parameters = {"isManaged": "true", "description": None, "partitionBy": '["key"]', "clusterBy": "[]"}
        parameters["properties"] = '{"delta.appendOnly":"false"}'
        assert rows[0].operationParameters == parameters
        assert rows[2].operationParameters == {**parameters, "isV1SaveAsTableOverwrite": "true"}
        session.sql("DROP TABLE writer_history")
        for mode in ("append", "overwrite"):
            df = two_rows(session).write.format("delta").mode(mode)
            df.option("path", f"{path}{mode}").saveAsTable("writer_history")
            rows = DeltaTable.forName(session, "writer_history").history().collect()
            assert [r.operation for r in rows] == [made if mode == "append" else replaced]
            assert rows[0].operationParameters["isManaged"] == "false"
            session.sql("DROP TABLE writer_history")
        two_rows(session).write.format("delta").saveAsTable(f"delta.`{path}`")
        row = DeltaTable.forPath(session, path).history().collect()[0]
        assert (row.operation, row.operationParameters["isManaged"]) == (made, "false")
    finally:
        session.sql("DROP TABLE IF EXISTS writer_history")


def test_insert_into_matches_structs_by_position(session: SparkSession) -> None:
    made = "s struct<a: int, b: string>, l array<struct<a: int, b: string>>, m map<string, struct<i: int>>, n tinyint"
    given = "named_struct('b', 7L, 'a', 8) s, array(named_struct('b', 1, 'x', 'y')) l, map('k', named_struct('j', 2)) m"
    try:
        session.createDataFrame([], made).write.format("delta").saveAsTable("writer_nested")
        session.range(1).selectExpr(*_columns(given), "'5' n").write.insertInto("writer_nested")
        (row,) = session.table("writer_nested").collect()
        assert row.asDict(recursive=True) == {
            "s": {"a": 7, "b": "8"},
            "l": [{"a": 1, "b": "y"}],
            "m": {"k": {"i": 2}},
            "n": 5,
        }
        with pytest.raises(TrilakeError, match="1000") as found:
            session.range(1).selectExpr(*_columns(given), "1000 n").write.insertInto("writer_nested")
        assert found.value.getCondition() == "CAST_OVERFLOW_IN_TABLE_INSERT"  # type: ignore[attr-defined]
        few = _columns(given.replace("'b', 7L, 'a', 8", "'b', 7L"))
        with pytest.raises(SchemaMismatchError, match="1 field "):
            session.range(1).selectExpr(*few, "1 n").write.insertInto("writer_nested")
        assert session.table("writer_nested").count() == 1
    finally:
        session.sql("DROP TABLE IF EXISTS writer_nested")


def test_insert_into_adds_columns_with_schema_evolution(session: SparkSession) -> None:
    wide = session.createDataFrame([(2, "x")], "v int, w string")
    try:
        session.createDataFrame([(1,)], "a int").write.format("delta").saveAsTable("writer_evolves")
        with pytest.raises(TrilakeError, match="1 column, but the data has 2"):
            wide.write.insertInto("writer_evolves")
        with pytest.raises(TrilakeError, match="together with partitionBy"):
            wide.select("v").write.partitionBy("v").insertInto("writer_evolves")
        wide.write.option("mergeSchema", "true").insertInto("writer_evolves")
        assert sorted(map(tuple, session.table("writer_evolves").collect())) == [(1, None), (2, "x")]
        assert session.catalog.listColumns("writer_evolves")[1].name == "w"
    finally:
        session.sql("DROP TABLE IF EXISTS writer_evolves")


def _columns(text: str) -> list[str]:
    return re.split(r", (?=array\(|map\()", text)


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_insert_into_other_formats_is_by_position(session: SparkSession, format: str) -> None:
    name = f"writer_nested_{format}"
    df = session.range(1).selectExpr("id", "named_struct('a', 1L, 'b', 'x') s")
    try:
        df.write.format(format).saveAsTable(name)
        session.range(1).selectExpr("2 i", "named_struct('b', 3, 'a', 4) t").write.insertInto(name)
        rows = [r.asDict(recursive=True) for r in session.table(name).orderBy("id").collect()]
        assert rows == [{"id": 0, "s": {"a": 1, "b": "x"}}, {"id": 2, "s": {"a": 3, "b": "4"}}]
    finally:
        session.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("format", ["lance", "trevni"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_misfit_of_another_format_is_a_short_typed_error(
    session: SparkSession, tmp_path: Path, format: str, mode: str
) -> None:
    path = str(tmp_path / "t")
    session.range(2).write.format(format).save(path)
    if mode == "append":
        with pytest.raises(SchemaMismatchError, match="other") as found:
            session.range(2).selectExpr("'x' other").write.format(format).mode(mode).save(path)
        _is_short(found.value)
        assert isinstance(found.value, AnalysisException)
    with pytest.raises(InvalidArgumentError, match="nosuch") as unknown:
        session.range(2).write.format(format).mode(mode).option("nosuch", "1").save(path)
    _is_short(unknown.value)
    with pytest.raises(WriteFailedError, match="DIVIDE_BY_ZERO") as failed:
        session.range(2).selectExpr("1 DIV (id - id) id").write.format(format).mode(mode).save(path)
    _is_short(failed.value)
    assert trilake.open(path).count() == 2


def _is_short(error: Exception) -> None:
    assert len(str(error).splitlines()) < 4
    assert "Traceback" not in str(error)


@pytest.mark.parametrize("mode", ["error", "append"])
@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_names_of_columns_need_no_quoting(session: SparkSession, tmp_path: Path, format: str, mode: str) -> None:
    path = str(tmp_path / "t")
    session.range(2).selectExpr("id `a``b`", "id + 1 `c d`").write.format(format).mode(mode).save(path)
    assert trilake.open(path).to_arrow().to_pydict() == {"a`b": [0, 1], "c d": [1, 2]}


def test_merge_into_by_name(session: SparkSession) -> None:
    try:
        two_rows(session).write.format("delta").saveAsTable("writer_merged")
        source = session.createDataFrame([("a", 10), ("c", 30)], "key string, value int").alias("s")
        (
            source.mergeInto("writer_merged", F.expr("writer_merged.key = s.key"))
            .whenMatched(F.col("s.value") == 10)
            .update({"value": F.col("s.value") + F.col("writer_merged.value")})
            .whenNotMatched()
            .insertAll()
            .whenNotMatchedBySource(F.col("writer_merged.key") == "b")
            .delete()
            .merge()
        )
        assert sorted(session.table("writer_merged").collect()) == [("a", 11), ("c", 30)]
    finally:
        session.sql("DROP TABLE IF EXISTS writer_merged")


def test_max_records_per_file_is_respected(session: SparkSession, tmp_path: Path) -> None:
    df = session.range(0, 25, 1, 1).withColumn("p", F.lit("x"))
    ways = {
        "native": df.select("id", "p", F.rand(1).alias("r")),
        "arrow": df.select("id", "p", F.rand(1).alias("r")),
        "driver": session.createDataFrame([(i, "x", 0.5) for i in range(25)], "id long, p string, r double"),
    }
    for name, frame in ways.items():
        writer = frame.write.format("delta").option("maxRecordsPerFile", 10).option("compression", "zstd")
        if name == "arrow":
            writer = writer.partitionBy("p")
        writer.save(str(tmp_path / name))
        files = trilake.open(str(tmp_path / name)).snapshot.adds  # type: ignore[attr-defined]
        footers = [pq.read_metadata(tmp_path / name / p) for p in files["path"].to_pylist()]
        assert sum(f.num_rows for f in footers) == 25
        assert max(f.num_rows for f in footers) <= 10, name
        assert {f.row_group(0).column(0).compression for f in footers} == {"ZSTD"}, name


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("delta", {"maxRecordsPerFile": "0"}),
        ("delta", {"compression": "lzma"}),
        ("lance", {"compression": "zstd"}),
        ("lance", {"maxRecordsPerFile": "5"}),
        ("trevni", {"maxRecordsPerFile": "5"}),
    ],
)
def test_unsupported_file_options_are_rejected_by_name(
    session: SparkSession, tmp_path: Path, format: str, options: dict[str, str]
) -> None:
    with pytest.raises(TrilakeError, match=next(iter(options))):
        two_rows(session).write.format(format).options(**options).save(str(tmp_path / "t"))
    assert not (tmp_path / "t").exists()


def test_other_formats_are_left_to_spark(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "p")
    df = two_rows(session)
    df.write.format("parquet").partitionBy("key").save(path)
    with pytest.raises(AnalysisException, match="already exists"):
        df.write.parquet(path)
    df.write.save(path, mode="append", partitionBy="key")
    assert session.read.parquet(path).count() == 4
    try:
        df.write.saveAsTable("writer_parquet", format="parquet")
        df.write.insertInto("writer_parquet")
        assert session.table("writer_parquet").count() == 4
    finally:
        session.sql("DROP TABLE IF EXISTS writer_parquet")


def test_error_of_both_classes_can_be_pickled() -> None:
    error = analysis_error(TableExistsError("there", file="x", version=3))
    assert isinstance(error, AnalysisException)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, TableExistsError)
    assert isinstance(again, AnalysisException)
    assert str(again) == str(error)
    assert again.getCondition() == "TABLE_EXISTS"


_NULL = "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"


def test_errors_have_the_delta_spark_condition() -> None:
    for error, condition in (
        (
            InvalidArgumentError("no", condition="DELTA_ZORDERING_ON_PARTITION_COLUMN"),
            "DELTA_ZORDERING_ON_PARTITION_COLUMN",
        ),
        (TableExistsError("[TABLE_OR_VIEW_ALREADY_EXISTS] t already exists"), "TABLE_OR_VIEW_ALREADY_EXISTS"),
        (InvalidArgumentError("[a] is not a name"), "INVALID_ARGUMENT"),
        (InvalidArgumentError("no. Cause: [CAST_INVALID_INPUT] The value 'x'"), "CAST_INVALID_INPUT"),
        # As raised by a task, of which only the message is left.
        (InvalidArgumentError("no (column: a, condition: DELTA_NOT_NULL_CONSTRAINT_VIOLATED)"), _NULL),
    ):
        found = analysis_error(error)
        assert isinstance(found, AnalysisException)
        assert found.getCondition() == condition
        assert pickle.loads(pickle.dumps(found)).getCondition() == condition
