"""Options of ``df.write.format("delta")`` with delta-spark's names, and table rules in Spark writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from tests.delta.tables import log_of, metadata, protocol, rows
from trilake import DeltaTable
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.rules.identity import identity_metadata
from trilake.delta.standard import standard_engine
from trilake.errors import ConstraintViolatedError, InvalidArgumentError, TrilakeError, WriteFailedError
from trilake.storage import open_store


def _save(df: Any, path: Path, mode: str = "append", **options: Any) -> None:
    writer = df.write.format("delta").mode(mode)
    for key, value in options.items():
        writer = writer.option(key, value)
    writer.save(str(path))


def _rows(path: Path) -> list[dict[str, Any]]:
    return rows(trilake.open(path).to_arrow())


def test_merge_schema_and_overwrite_schema(session: SparkSession, tmp_path: Path) -> None:
    _save(session.createDataFrame([(1,)], "a int"), tmp_path)
    wider = session.createDataFrame([(2, "x")], "a int, b string")
    with pytest.raises(PySparkException, match=r"column b is not in the table.*Table: struct<a:integer>"):
        _save(wider, tmp_path)
    _save(wider, tmp_path, mergeSchema="true")
    assert _rows(tmp_path) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    other = session.createDataFrame([("y",)], "c string")
    _save(other, tmp_path, "overwrite", overwriteSchema=True)
    assert _rows(tmp_path) == [{"c": "y"}]
    assert session.read.format("delta").option("versionAsOf", 1).load(str(tmp_path)).count() == 2


def test_overwrite_schema_changes_the_partitioning(session: SparkSession, tmp_path: Path) -> None:
    parts = session.createDataFrame([(1, "x"), (2, "y")], "a int, p string")
    parts.write.format("delta").partitionBy("p").save(str(tmp_path))
    _save(parts, tmp_path, "overwrite")
    assert trilake.open(tmp_path).detail()["partitionColumns"].to_pylist() == [["p"]]
    _save(parts.select("a"), tmp_path, "overwrite", overwriteSchema=True)
    assert trilake.open(tmp_path).detail()["partitionColumns"].to_pylist() == [[]]
    assert _rows(tmp_path) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("parts", [[], ["p"]])
def test_max_records_per_file_of_the_session(session: SparkSession, tmp_path: Path, parts: list[str]) -> None:
    df = session.range(20, numPartitions=1).selectExpr("id", "id % 2 AS p")
    session.conf.set("spark.sql.files.maxRecordsPerFile", "7")
    try:
        df.write.format("delta").partitionBy(*parts).save(str(tmp_path))
        _save(df, tmp_path, maxRecordsPerFile=20)
    finally:
        session.conf.unset("spark.sql.files.maxRecordsPerFile")
    log = DeltaLog(open_store(str(tmp_path)), standard_engine())
    counts = sorted(orjson.loads(s)["numRecords"] for s in log.snapshot().adds["stats"].to_pylist())
    assert counts == ([3, 3, 7, 7, 10, 10] if parts else [6, 7, 7, 20])


def test_replace_where_replaces_rows(session: SparkSession, tmp_path: Path) -> None:
    _save(session.range(10, numPartitions=3), tmp_path)
    _save(session.range(3, 5), tmp_path, "overwrite", replaceWhere="id >= 3 and id < 8")
    assert [r["id"] for r in _rows(tmp_path)] == [0, 1, 2, 3, 4, 8, 9]
    with pytest.raises(InvalidArgumentError, match="got append"):
        _save(session.range(3, 5), tmp_path, replaceWhere="id >= 3")
    with pytest.raises(InvalidArgumentError, match="the option partitionBy cannot be used together"):
        session.range(1).write.format("delta").partitionBy("a").option("partitionBy", "b").save(f"{tmp_path}/new")
    with pytest.raises(PySparkException, match="violates replace_where"):
        _save(session.range(100, 101), tmp_path, "overwrite", replaceWhere="id < 8")
    # The other path reads the files in Spark tasks.
    result = trilake.write(session.range(0), tmp_path, mode="overwrite", replace_where="id % 2 = 0")
    assert result.files_removed >= 2
    assert [r["id"] for r in _rows(tmp_path)] == [1, 3, 9]


def test_repeated_write_is_applied_once(session: SparkSession, tmp_path: Path) -> None:
    df = session.range(3)
    _save(df, tmp_path)
    for _ in range(2):
        _save(df, tmp_path, txnAppId="job", txnVersion=7)
    _save(df, tmp_path, txnAppId="job", txnVersion=6)
    _save(df, tmp_path, txnAppId="job", txnVersion=8, userMetadata="eighth", isolationLevel="serializable")
    assert trilake.open(tmp_path).count() == 9
    info = DeltaLog(open_store(str(tmp_path)), standard_engine()).commit_info(2)
    assert (info["userMetadata"], info["isolationLevel"]) == ("eighth", "Serializable")
    with pytest.raises(PySparkException, match="can only be used together"):
        _save(df, tmp_path, txnAppId="job")


def _identity_table(path: Path) -> None:
    schema = StructType(
        (
            StructField("id", PrimitiveType("long"), False, identity_metadata()),
            StructField("n", PrimitiveType("long")),
            StructField("twice", PrimitiveType("long"), True, {"delta.generationExpression": "n * 2"}),
        )
    )
    actions = [protocol(1, 6), metadata(schema.json(), delta__constraints__small="n < 1000")]
    log_of(actions, store=open_store(str(path)))


@pytest.mark.parametrize("way", ["format", "write"])
def test_table_rules_are_enforced_in_every_task(session: SparkSession, tmp_path: Path, way: str) -> None:
    _identity_table(tmp_path)

    def write(df: Any) -> None:
        if way == "format":
            _save(df, tmp_path)
        else:
            trilake.write(df, tmp_path, mode="append")

    for _ in range(2):
        write(session.range(0, 200, numPartitions=5).select(F.col("id").alias("n")))
    found = trilake.open(tmp_path).to_arrow()
    assert found.num_rows == 400
    assert len(set(found["id"].to_pylist())) == 400
    assert all(r["twice"] == 2 * r["n"] for r in found.to_pylist())
    bad = session.range(999, 1001, numPartitions=2).select(F.col("id").alias("n"))
    with pytest.raises(ConstraintViolatedError, match=r"CHECK constraint small .* n = 1000") as found_bad:
        write(bad)
    assert "Traceback" not in str(found_bad.value)
    assert found_bad.value.__cause__ is None
    assert trilake.open(tmp_path).version == 2


def test_rules_that_only_spark_evaluates(session: SparkSession, tmp_path: Path) -> None:
    text = "aes_encrypt(s, '0000111122223333', 'ECB') is not null and length(s) < 5"
    schema = StructType((StructField("s", PrimitiveType("string")),))
    log_of([protocol(1, 3), metadata(schema.json(), delta__constraints__odd=text)], store=open_store(str(tmp_path)))
    trilake.write(session.createDataFrame([("abc",)], "s string"), tmp_path, mode="append")
    assert _rows(tmp_path) == [{"s": "abc"}]
    with pytest.raises((WriteFailedError, ConstraintViolatedError), match="odd"):
        trilake.write(session.createDataFrame([("abcdefg",)], "s string"), tmp_path, mode="append")
    with pytest.raises(TrilakeError, match="only Spark"):
        trilake.write(pa.table({"s": ["x"]}), tmp_path, mode="append")
    assert _rows(tmp_path) == [{"s": "abc"}]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns(session: SparkSession, tmp_path: Path, mode: str) -> None:
    df = session.createDataFrame([(1, "x", [(1,)])], "`a b` int, p string, l array<struct<`c,d`: int>>")
    trilake.write(df, tmp_path, partition_by="p", properties={"delta.columnMapping.mode": mode})
    _save(df, tmp_path)
    expected = [(1, "x", [(1,)])] * 2
    for read in (session.read.format("delta").load(str(tmp_path)), trilake.read(session, tmp_path)):
        assert [(r["a b"], r["p"], [tuple(e) for e in r["l"]]) for r in read.collect()] == expected


def test_variants_are_written_for_spark(session: SparkSession, tmp_path: Path) -> None:
    df = session.sql("""select id, parse_json(concat('{"a":', id, '}')) as v from range(3)""")
    trilake.write(df, tmp_path)
    _save(df, tmp_path)
    snapshot = DeltaLog(open_store(str(tmp_path)), standard_engine()).snapshot()
    assert "variantType" in (snapshot.protocol.reader_features or ())
    assert all('"v"' not in stats for stats in snapshot.adds["stats"].to_pylist())
    files = [str(tmp_path / p) for p in snapshot.adds["path"].to_pylist()]
    texts = session.read.schema("id bigint, v variant").parquet(*files).selectExpr("to_json(v) as t").collect()
    assert sorted(r["t"] for r in texts) == sorted(['{"a":0}', '{"a":1}', '{"a":2}'] * 2)


def test_names_with_special_characters(session: SparkSession, tmp_path: Path) -> None:
    df = session.range(2, numPartitions=2).selectExpr("id as `a``b.c`", "id * 2 as `d e`")
    trilake.write(df, tmp_path, properties={"delta.columnMapping.mode": "name"})
    _save(df, tmp_path)
    assert _rows(tmp_path) == [{"a`b.c": i, "d e": 2 * i} for i in (0, 0, 1, 1)]


def test_data_change_false_changes_only_files(session: SparkSession, tmp_path: Path) -> None:
    _save(session.range(6, numPartitions=3), tmp_path)
    _save(session.range(6, numPartitions=1), tmp_path, "overwrite", dataChange="false")
    (commit,) = list((tmp_path / "_delta_log").glob("*1.json"))
    entries = [orjson.loads(line) for line in commit.read_text().splitlines()]
    files = [a[kind] for a in entries for kind in ("add", "remove") if kind in a]
    assert [f["dataChange"] for f in files] == [False] * 4
    assert sorted(r["id"] for r in _rows(tmp_path)) == list(range(6))


def test_replace_where_with_data_change_false_is_rejected(session: SparkSession, tmp_path: Path) -> None:
    _save(session.range(6), tmp_path)
    with pytest.raises(TrilakeError, match="dataChange=false moves whole files"):
        _save(session.range(3), tmp_path, "overwrite", dataChange="false", replaceWhere="id < 3")


def test_history_records_write_options(session: SparkSession, tmp_path: Path) -> None:
    rows = session.range(4).selectExpr("id", "id % 2 AS part")
    rows.write.format("delta").partitionBy("part").save(str(tmp_path))
    _save(rows, tmp_path)
    rows.write.format("delta").mode("append").partitionBy("part").save(str(tmp_path))
    table = DeltaTable.forPath(session, str(tmp_path))
    table.update(set={"id": "id + 1"})
    entries = {r.version: r.operationParameters for r in table.history().collect()}
    assert [entries[v]["partitionBy"] for v in range(3)] == ['["part"]', "[]", '["part"]']
    assert entries[3] == {"predicate": "[]"}
