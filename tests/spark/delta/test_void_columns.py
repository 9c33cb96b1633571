"""Columns and nested fields of type void, written and read by Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from tests.delta.tables import add, lines, metadata, protocol
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import SchemaMismatchError
from trilake.parquet.untyped import has_untyped

VOID = pa.null()
PART = pa.struct([("a", pa.int64()), ("v", VOID)])
#: A value of each type that the column gets later, for rows with ``i >= 3``.
TYPED: dict[str, pa.Array] = {
    "string": pa.array(["x"]),
    "boolean": pa.array([True]),
    "timestamp": pa.array([dt.datetime(2024, 5, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
    "decimal": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
    "binary": pa.array([b"x"]),
    "array": pa.array([[1]]),
    "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"a": 1}]),
}


def _table_with_void_file(folder: Path) -> str:
    """A table whose file has void columns, all of them typed later."""
    folder.mkdir()
    names = list(TYPED)
    old = pa.table({"i": [1, 2], **{n: pa.nulls(2) for n in names}, "s": pa.array([{"a": 1, "v": None}, None], PART)})
    pq.write_table(old, folder / "f0", store_schema=False)
    schema = from_arrow(old.schema).json()
    first = [protocol(), metadata(schema), add("f0", size=(folder / "f0").stat().st_size)]
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / f"{0:020}.json").write_bytes(lines(first))
    new = pa.table({"i": [3], **TYPED, "s": pa.array([{"a": 3, "v": ["x"]}])})
    trilake.write(new, folder, mode="append", schema_mode="merge")
    return str(folder)


def _rows(spark: SparkSession, uri: str) -> list[dict[str, Any]]:
    return [r.asDict(True) for r in spark.read.format("delta").load(uri).orderBy("i").collect()]


def _untyped_files(uri: str) -> list[str]:
    table = trilake.open(uri)
    assert isinstance(table, ArrowDeltaTable)
    return [p for p in table.snapshot.adds["path"].to_pylist() if has_untyped(pq.read_schema(f"{uri}/{p}"))]


def test_void_files_are_read_and_changed(sql: SparkSession, tmp_path: Path) -> None:
    uri = _table_with_void_file(tmp_path / "t")
    trilake.register(sql)
    found = _rows(sql, uri)
    assert [r["i"] for r in found] == [1, 2, 3]
    assert all(r[n] is None for r in found[:2] for n in TYPED)
    assert [r["s"] for r in found] == [{"a": 1, "v": None}, None, {"a": 3, "v": ["x"]}]
    assert (found[2]["string"], found[2]["array"], found[2]["map"]) == ("x", [1], {"k": 1})
    assert sql.sql(f"SELECT count(*) FROM delta.`{uri}` WHERE decimal IS NULL").collect()[0][0] == 2
    sql.sql(f"DELETE FROM delta.`{uri}` WHERE i = 2")
    sql.sql(f"UPDATE delta.`{uri}` SET string = 'new' WHERE i = 1")
    sql.sql(
        f"MERGE INTO delta.`{uri}` t USING (SELECT 1L AS i, map('m', 9L) AS map) s ON t.i = s.i"
        " WHEN MATCHED THEN UPDATE SET t.map = s.map"
    )
    changed = _rows(sql, uri)
    assert [(r["i"], r["string"], r["map"]) for r in changed] == [(1, "new", {"m": 9}), (3, "x", {"k": 1})]
    assert changed[0]["s"] == {"a": 1, "v": None}
    assert _untyped_files(uri) == []


def test_change_feed_reads_void_files(spark: SparkSession, tmp_path: Path) -> None:
    uri = _table_with_void_file(tmp_path / "t")
    trilake.register(spark)
    trilake.alter(uri).set_properties({"delta.enableChangeDataFeed": "true"})
    trilake.open(uri).delete("i = 2")  # type: ignore[attr-defined]
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 3).load(uri)
    assert [(r.i, r._change_type, r.string) for r in feed.collect()] == [(2, "delete", None)]


@pytest.mark.parametrize("mode", ["none", "name"])
def test_void_columns_are_appended_without_values(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    uri = str(tmp_path / "t")
    row = "1L AS i, NULL AS v, named_struct('a', 1L, 'v', NULL) AS s, array(named_struct('a', 1, 'v', NULL)) AS l"
    trilake.write(spark.range(1).selectExpr(*_split(row)), uri, properties={"delta.columnMapping.mode": mode})
    # Rows that Spark's writer supports, and rows written through Arrow.
    for frame in (spark.range(3).selectExpr("id AS i", "NULL AS v"), spark.range(3).selectExpr("id AS i")):
        trilake.write(frame, uri, mode="append")
    assert len(_rows(spark, uri)) == 7
    assert _rows(spark, uri)[-1] == {"i": 2, "v": None, "s": None, "l": None}
    assert spark.read.format("delta").load(uri).where("s IS NOT NULL").collect()[0].asDict(True) == {
        "i": 1,
        "v": None,
        "s": {"a": 1, "v": None},
        "l": [{"a": 1, "v": None}],
    }
    trilake.DeltaTable.forPath(spark, uri).optimize().executeCompaction()
    assert _untyped_files(uri) == []


def _split(row: str) -> list[str]:
    """Columns of a SELECT, divided at commas outside of parentheses."""
    out, depth = [""], 0
    for letter in row:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            out.append("")
        else:
            out[-1] += letter
    return out


#: Spark's collections with void elements, and their value in the table.
EMPTY = {
    "empty": ("array()", "map()", "named_struct('l', array(), 'm', map())", "array()", ([], {}, ([], {}), [])),
    "deep": (
        "NULL",
        "map('k', NULL)",
        "named_struct('l', NULL, 'm', map())",
        "array(array(), array(NULL), NULL)",
        (None, {"k": None}, (None, {}), [[], [None], None]),
    ),
}


@pytest.fixture(scope="module")
def typed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of typed collections."""
    uri = str(tmp_path_factory.mktemp("typed") / "t")
    row = "array('a') AS l, map('k', 1L) AS m, named_struct('l', array(1), 'm', map('a', array(1))) AS s"
    trilake.write(spark.sql(f"SELECT 0L AS i, {row}, array(array(1)) AS ll"), uri)
    return uri


@pytest.mark.parametrize("kind", EMPTY)
def test_void_collections_are_written_to_typed_columns(sql: SparkSession, typed: str, kind: str) -> None:
    trilake.register(sql)
    *terms, expected = EMPTY[kind]
    columns = [f"{t} AS {n}" for t, n in zip(terms, ("l", "m", "s", "ll"), strict=True)]
    row = ", ".join(columns)
    local, jobs = sql.sql(f"SELECT 1L AS i, {row}"), sql.range(2, 3).selectExpr("id AS i", *columns)
    for frame in (local, jobs):
        frame.write.format("delta").mode("append").save(typed)
    jobs.withColumn("i", F.lit(3)).write.format("delta").mode("append").option("mergeSchema", "true").save(typed)
    sql.sql(f"INSERT INTO delta.`{typed}` SELECT 4L AS i, {row}")
    merge = f"MERGE INTO delta.`{typed}` t USING (SELECT id AS i, {row} FROM range(5, 7)) s ON t.i = s.i"
    sql.sql(f"{merge} WHEN NOT MATCHED THEN INSERT *")
    sql.sql(f"{merge} WHEN MATCHED THEN UPDATE SET *")
    sql.sql(f"UPDATE delta.`{typed}` SET l = {terms[0]}, m = {terms[1]}, ll = {terms[3]} WHERE i = 6")
    found = _rows(sql, typed)
    assert [r["i"] for r in found] == [0, 1, 2, 3, 4, 5, 6]
    assert found[0]["l"] == ["a"]
    for r in found[1:]:
        assert (r["l"], r["m"], (r["s"]["l"], r["s"]["m"]), r["ll"]) == expected, r["i"]
    sql.sql(f"DELETE FROM delta.`{typed}` WHERE i > 0")


@pytest.mark.parametrize("term", ["array()", "map()", "array(NULL)", "named_struct('v', NULL)"])
def test_new_void_column_is_named(sql: SparkSession, tmp_path: Path, typed: str, term: str) -> None:
    trilake.register(sql)
    frame = sql.sql(f"SELECT 1L AS i, {term} AS odd")
    with pytest.raises(SchemaMismatchError, match="column odd has type "):
        frame.write.format("delta").save(str(tmp_path / "t"))
    with pytest.raises(SchemaMismatchError, match="column odd has type "):
        sql.sql(f"CREATE TABLE delta.`{tmp_path}/t` USING delta AS SELECT 1L AS i, {term} AS odd")
    with pytest.raises(SchemaMismatchError, match="column odd has type "):
        frame.write.format("delta").mode("append").option("mergeSchema", "true").save(typed)
    assert not (tmp_path / "t").exists()


def test_stream_accepts_empty_collections(spark: SparkSession, tmp_path: Path, typed: str) -> None:
    trilake.register(spark)
    source = str(tmp_path / "source")
    trilake.write(spark.range(7, 9), source)
    stream = spark.readStream.format("delta").load(source).selectExpr("id AS i", "array() AS l", "map() AS m")
    query = stream.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start(typed).awaitTermination()
    found = [(r.i, r.l, r.m) for r in trilake.read(spark, typed, filter="i > 6").orderBy("i").collect()]
    assert found == [(7, [], {}), (8, [], {})]
    trilake.open(typed).delete("i > 6")  # type: ignore[attr-defined]


def test_null_file_before_typed_file_converts(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": [1], "s": pa.nulls(1), "l": pa.nulls(1)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"i": [2], "s": ["x"], "l": [[1, 2]]}), tmp_path / "b.parquet")
    trilake.convert_to_delta(str(tmp_path))
    trilake.register(spark)
    assert _rows(spark, str(tmp_path)) == [{"i": 1, "s": None, "l": None}, {"i": 2, "s": "x", "l": [1, 2]}]
