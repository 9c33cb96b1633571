"""Maintenance of Delta tables on Spark: delta-spark's names, columns, settings and errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import trilake
from trilake import DeltaTable
from trilake.delta.commands.maintenance.vacuum_files import LISTING
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import InvalidArgumentError, MissingFileError, SchemaMismatchError, TableExistsError
from trilake.spark.catalog.entries import find_entry
from trilake.spark.delta.maintenance import clone_location, many_runner
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)


def three_versions(path: Path) -> DeltaTable:
    for n in range(3):
        trilake.write(pa.table({"n": [n]}), path, mode="overwrite")
    return DeltaTable.forPath(_session(), str(path))


def _session() -> SparkSession:
    active = SparkSession.getActiveSession()
    assert active is not None
    return active


def numbers(df: DataFrame) -> list[Any]:
    return sorted(r.n for r in df.collect())


def test_vacuum_as_in_delta_spark_documentation(spark: SparkSession, tmp_path: Path) -> None:
    table = three_versions(tmp_path / "t")
    for name in "abc.txt", "bac.txt":
        (tmp_path / "t" / name).write_text("abcde")
    assert table.vacuum().schema == T.StructType([])
    assert table.vacuum(1000).count() == 0, "whole numbers of hours, too"
    assert (tmp_path / "t" / "abc.txt").exists()
    with pytest.raises(InvalidArgumentError, match="retentionDurationCheck"):
        table.vacuum(0.0)
    with setting(spark, "spark.databricks.delta.retentionDurationCheck.enabled", "false"):
        dry = table.vacuum(0.0, dryRun=True)
        assert dry.columns == ["path"]
        found = sorted(r.path for r in dry.collect())
        assert found[0] == f"file:{tmp_path}/t/abc.txt"
        assert len(found) == 4
        lite = table.vacuum(0.0, lite=True, dryRun=True).collect()
        assert len(lite) == 2
        inventory = spark.createDataFrame(
            [(f"file:{tmp_path}/t/bac.txt", 5, False, int((tmp_path / "t" / "bac.txt").stat().st_mtime * 1000))],
            "path string, length long, isDir boolean, modificationTime long",
        )
        table.vacuum(0.0, inventory=inventory)
        assert [(tmp_path / "t" / n).exists() for n in ("abc.txt", "bac.txt")] == [True, False]
        with setting(spark, "spark.databricks.delta.vacuum.logging.enabled", "false"):
            before = table.history(1).collect()[0].version
            assert table.vacuum(0.0).collect() == []
            assert table.history(1).collect()[0].version == before
    assert not (tmp_path / "t" / "abc.txt").exists()
    assert numbers(table.toDF()) == [2]
    with pytest.raises(ValueError, match="float"):
        table.vacuum("week")  # type: ignore[arg-type]


def test_restore_returns_its_metrics(spark: SparkSession, tmp_path: Path) -> None:
    table = three_versions(tmp_path / "t")
    done = table.restoreToVersion(1)
    assert done.schema == T.StructType(
        [
            T.StructField(name, T.LongType())
            for name in (
                "table_size_after_restore",
                "num_of_files_after_restore",
                "num_removed_files",
                "num_restored_files",
                "removed_files_size",
                "restored_files_size",
            )
        ]
    )
    (row,) = done.collect()
    assert (row.num_of_files_after_restore, row.num_removed_files, row.num_restored_files) == (1, 1, 1)
    assert numbers(table.toDF()) == [1]
    log = DeltaLog(open_store(str(tmp_path / "t")), standard_engine())
    for version, hours in enumerate((30, 20, 10, 5)):
        at = 1_700_000_000 - hours * 3600
        os.utime(tmp_path / "t" / "_delta_log" / f"{version:020d}.json", (at, at))
    # Version 0 was the newest one at 2023-11-13 18:00 UTC.
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        table.restoreToTimestamp("2023-11-13 13:00:00")
    assert numbers(table.toDF()) == [0]
    for wrong in ("05/04/1999", "2023-02-30"):
        with pytest.raises(AnalysisException, match=rf"The provided timestamp \('{wrong}'\) cannot be converted"):
            table.restoreToTimestamp(wrong)
    with pytest.raises(ValueError, match="version needs to be an int but got"):
        table.restoreToVersion("1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timestamp needs to be a string but got"):
        table.restoreToTimestamp(1)  # type: ignore[arg-type]
    with pytest.raises(AnalysisException, match="newest"):
        table.restoreToVersion(log.head().version)
    open_store(str(tmp_path / "t")).delete(log.snapshot(2).adds["path"].to_pylist())
    with pytest.raises(MissingFileError, match="ignoreMissingFiles"):
        table.restoreToVersion(2)
    with setting(spark, "spark.sql.files.ignoreMissingFiles", "true"):
        assert table.restoreToVersion(2).collect()[0].num_restored_files == 1


def test_history_and_detail_have_delta_spark_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = three_versions(tmp_path / "a table")
    history = table.history()
    texts = T.MapType(T.StringType(), T.StringType())
    assert [(f.name, f.dataType.simpleString()) for f in history.schema.fields] == [
        ("version", "bigint"),
        ("timestamp", "timestamp"),
        ("userId", "string"),
        ("userName", "string"),
        ("operation", "string"),
        ("operationParameters", texts.simpleString()),
        (
            "job",
            "struct<jobId:string,jobName:string,jobRunId:string,runId:string,jobOwnerId:string,triggerType:string>",
        ),
        ("notebook", "struct<notebookId:string>"),
        ("clusterId", "string"),
        ("readVersion", "bigint"),
        ("isolationLevel", "string"),
        ("isBlindAppend", "boolean"),
        ("operationMetrics", texts.simpleString()),
        ("userMetadata", "string"),
        ("engineInfo", "string"),
    ]
    assert [(r.version, r.operation) for r in history.select("version", "operation").collect()] == [
        (2, "WRITE"),
        (1, "WRITE"),
        (0, "WRITE"),
    ]
    last = table.history(1).select("operationParameters.mode")
    assert [tuple(r) for r in last.collect()] == [("Overwrite",)]
    detail = table.detail()
    assert [(f.name, f.dataType.simpleString()) for f in detail.schema.fields] == [
        ("format", "string"),
        ("id", "string"),
        ("name", "string"),
        ("description", "string"),
        ("location", "string"),
        ("createdAt", "timestamp"),
        ("lastModified", "timestamp"),
        ("partitionColumns", "array<string>"),
        ("clusteringColumns", "array<string>"),
        ("numFiles", "bigint"),
        ("sizeInBytes", "bigint"),
        ("properties", "map<string,string>"),
        ("minReaderVersion", "int"),
        ("minWriterVersion", "int"),
        ("tableFeatures", "array<string>"),
    ]
    row = detail.collect()[0]
    assert (row.format, row.numFiles, row.location) == ("delta", 1, f"file:{tmp_path}/a table")
    assert (row.tableFeatures, row.partitionColumns) == (["appendOnly", "invariants"], [])
    with setting(spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
        first, second = (detail_of.createdAt for detail_of in (table.detail().collect()[0], row))
        assert first == second, "an instant is the same in every zone"


def test_clones(spark: SparkSession, tmp_path: Path) -> None:
    table = three_versions(tmp_path / "t")
    shallow = table.clone(str(tmp_path / "shallow"), isShallow=True, properties={"owner": "me"})
    assert isinstance(shallow, DeltaTable)
    assert numbers(shallow.toDF()) == [2]
    assert shallow.detail().collect()[0].properties == {"owner": "me"}
    deep = table.cloneAtVersion(1, f"delta.`{tmp_path}/deep`")
    assert numbers(deep.toDF()) == [1]
    with pytest.raises(TableExistsError):
        table.clone(str(tmp_path / "deep"))
    with pytest.raises(AnalysisException, match=r"2999-01-01.* is after the newest version"):
        table.cloneAtTimestamp("2999-01-01", str(tmp_path / "deep"), replace=True)
    newest = table.history(1).select(F.col("timestamp").cast("string")).collect()[0][0]
    later = table.cloneAtTimestamp(newest, str(tmp_path / "deep"), replace=True)
    assert numbers(later.toDF()) == [2]
    assert later.history(1).collect()[0].operation == "CLONE"
    trilake.register(spark)
    named = table.clone("a_clone_by_name")
    assert numbers(DeltaTable.forName(spark, "a_clone_by_name").toDF()) == numbers(named.toDF()) == [2]
    assert numbers(spark.table("a_clone_by_name")) == [2]
    spark.sql("DROP TABLE a_clone_by_name")
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((1,), "target needs to be a string"),
        (("/x", "yes"), "isShallow needs to be a boolean"),
        (("/x", True, 1), "replace needs to be a boolean"),
        (("/x", True, True, ["a"]), "needs to be a dict"),
        (("/x", True, True, {"a": 1}), "All property values including 1 needs to be a string"),
    ]
    for arguments, text in wrong:
        with pytest.raises(ValueError, match=text):
            table.clone(*arguments)
    with pytest.raises(ValueError, match="version needs to be an int"):
        table.cloneAtVersion("1", "/x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timestamp needs to be a string"):
        table.cloneAtTimestamp(1, "/x")  # type: ignore[arg-type]


def test_convert_as_in_delta_spark_documentation(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([("a", 1), ("b", 2), ("c", 3)], ["key", "value"])
    expected = sorted(map(tuple, df.collect()))

    def answer(table: DeltaTable) -> list[tuple[Any, ...]]:
        return sorted(tuple(r) for r in table.toDF().select("key", "value").collect())

    df.write.format("parquet").save(str(tmp_path / "plain"))
    table = DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path}/plain`")
    assert answer(table) == expected
    assert isinstance(DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path}/plain`"), DeltaTable), "twice is once"
    assert table.history().count() == 1
    for n, schema in enumerate((T.StructType().add("value", T.IntegerType(), True), "value int", None)):
        path = str(tmp_path / f"partitioned {n}")
        df.write.partitionBy("value").format("parquet").save(path)
        converted = DeltaTable.convertToDelta(spark, f"parquet.`{path}`", schema)
        assert answer(converted) == expected
        assert converted.toDF().schema["value"].dataType == T.IntegerType()
        assert answer(DeltaTable.forPath(spark, path)) == expected
    for identifier, text in (
        (f"{tmp_path}/plain", "parquet"),
        (f"orc.`{tmp_path}/plain`", "orc"),
        ("no_such_table_here", "cannot be found"),
        (f"parquet.`{tmp_path}/nothing`", "no file"),
    ):
        with pytest.raises(AnalysisException, match=text):
            DeltaTable.convertToDelta(spark, identifier)
    with pytest.raises(TypeError, match="partitionSchema"):
        DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path}/x`", ["a"])  # type: ignore[arg-type]


def test_conversion_keeps_values_that_files_lack(sql: SparkSession) -> None:
    """Spark fills columns added with a default in older files; a Delta table has nulls there."""
    sql.sql("CREATE TABLE test_filled (id INT, d INT DEFAULT 7) USING parquet")
    try:
        sql.sql("INSERT INTO test_filled (id) VALUES (1)")
        sql.sql("ALTER TABLE test_filled ADD COLUMN n INT DEFAULT NULL")
        sql.sql("ALTER TABLE test_filled ADD COLUMN e INT DEFAULT 5")
        sql.sql("INSERT INTO test_filled VALUES (2, 8, 9, 6)")
        before = sorted(sql.table("test_filled").collect())
        assert [r.e for r in before] == [5, 6]
        with pytest.raises(SchemaMismatchError, match="have 5 in column e, which the file lacks"):
            DeltaTable.convertToDelta(sql, "test_filled")
        assert sorted(sql.table("test_filled").collect()) == before
        sql.sql("CREATE TABLE test_filled_2 USING parquet AS SELECT * FROM test_filled")
        with pytest.raises(AnalysisException, match="cannot be found"):
            sql.sql("CONVERT TO DELTA default.no_such_table_here")
        for _ in range(2):
            sql.sql("CONVERT TO DELTA default.test_filled_2")
            assert sorted(DeltaTable.forName(sql, "test_filled_2").toDF().collect()) == before
    finally:
        for name in ("test_filled", "test_filled_2"):
            sql.sql(f"DROP TABLE IF EXISTS {name}")


def test_conversion_by_name_takes_the_rows_and_properties_of_the_table(sql: SparkSession, tmp_path: Path) -> None:
    """Folders that the catalog does not list were converted, too, and properties were lost."""
    name, place = "test_listed", tmp_path / "t"
    sql.sql(
        f"CREATE TABLE {name} (id BIGINT, p STRING) USING parquet PARTITIONED BY (p) LOCATION '{place}'"
        " TBLPROPERTIES ('kept' = 'yes')"
    )
    try:
        sql.sql(f"INSERT INTO {name} VALUES (1, 'a b'), (2, NULL)")
        sql.range(9).write.parquet(f"{place}/p=orphan")
        sql.range(9).write.parquet(f"{place}/q=1/r=2")
        sql.sql(f"ALTER TABLE {name} ADD PARTITION (p = 'own') LOCATION '{tmp_path}/own'")
        sql.range(3, 4).write.mode("append").parquet(f"{tmp_path}/own")
        sql.catalog.refreshTable(name)
        assert sql.table(name).count() == 3
        with pytest.raises(AnalysisException, match="files outside of its folder"):
            sql.sql(f"CONVERT TO DELTA {name}")
        sql.sql(f"ALTER TABLE {name} DROP PARTITION (p = 'own')")
        sql.sql(f"CONVERT TO DELTA {name}")
        assert sorted(sql.table(name).collect()) == [(1, "a b"), (2, None)]
        assert trilake.open(place).properties["kept"] == "yes"
    finally:
        sql.sql(f"DROP TABLE IF EXISTS {name}")


def test_iceberg_tables_are_converted_in_place(spark: SparkSession, tmp_path: Path) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    catalog.create_namespace("ns")
    rows = pa.table({"id": [1, 2, 3], "s": ["a", None, "c"]})
    source = catalog.create_table("ns.t", rows.schema, f"{tmp_path}/t")
    source.append(rows)
    source.overwrite(rows.slice(1))
    catalog.close()
    with pytest.raises(AnalysisException, match="is an Iceberg table"):
        DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path}/t`")
    table = DeltaTable.convertToDelta(spark, f"iceberg.`{tmp_path}/t`")
    assert sorted(map(tuple, table.toDF().collect())) == [(2, None), (3, "c")]
    table.delete("s IS NULL")
    assert table.toDF().where("s = 'c'").count() == 1


def test_every_type_written_by_spark_is_converted(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql(
        """
        SELECT CAST(id AS INT) i, id l, CAST(id AS SMALLINT) s, CAST(id AS TINYINT) b, id % 2 = 0 t,
               CAST(id AS FLOAT) f, IF(id = 3, DOUBLE('NaN'), DOUBLE(id)) d, CAST(id AS DECIMAL(20, 3)) m,
               CAST(CAST(id AS STRING) AS BINARY) y, TIMESTAMP'2020-01-01 01:02:03.456789' ts,
               CAST(TIMESTAMP_NTZ'1900-01-01 00:00:00.000001' AS TIMESTAMP_NTZ) ntz,
               ARRAY(id, NULL) a, MAP('k', id) mp, NAMED_STRUCT('x', id, 'z', ARRAY(NAMED_STRUCT('w', id))) st,
               CONCAT('ä ', id) v, DATE'2020-02-29' + CAST(id AS INT) dd,
               CASE WHEN id % 3 > 0 THEN CONCAT('p/', id % 3, ' =') END p,
               TIMESTAMP'2021-06-01 12:00:00' + MAKE_INTERVAL(0, 0, 0, 0, id % 2) pt
        FROM RANGE(8)
        """
    )
    with setting(spark, "spark.sql.session.timeZone", "America/Los_Angeles"):
        expected = df.toArrow()
        df.write.partitionBy("p", "pt").parquet(str(tmp_path / "t"))
        inferred = spark.read.parquet(str(tmp_path / "t")).schema
        table = DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path}/t`")
        assert table.toDF().schema.simpleString() == inferred.simpleString()
        found = table.toDF().select(expected.column_names).toArrow()
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))
    assert trilake.open(tmp_path / "t").count("d > 1e300") == 1, "NaN is greater than all else"
    assert table.toDF().where("d > 1e300").count() == 1
    assert trilake.open(tmp_path / "t").count("l = 5") == 1


def test_named_parquet_tables_are_converted(spark: SparkSession, tmp_path: Path) -> None:
    trilake.register(spark)
    spark.range(3).selectExpr("id AS n", "'007' AS p").write.partitionBy("p").option(
        "path", str(tmp_path / "t")
    ).format("parquet").saveAsTable("old_parquet")
    try:
        table = DeltaTable.convertToDelta(spark, "old_parquet")
        assert numbers(table.toDF().where("p = '007'")) == [0, 1, 2]
        assert numbers(DeltaTable.forName(spark, "old_parquet").toDF()) == [0, 1, 2]
        assert DeltaTable.convertToDelta(spark, "old_parquet").history().count() == 1
    finally:
        spark.sql("DROP TABLE IF EXISTS old_parquet")


def test_columns_only_in_the_catalog_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(2).write.parquet(str(tmp_path / "files"))
    spark.sql(f"CREATE TABLE wider_parquet (id BIGINT, note STRING) USING parquet LOCATION '{tmp_path}/files'")
    try:
        rows = sorted(spark.table("wider_parquet").collect())
        assert rows[0].note is None
        table = DeltaTable.convertToDelta(spark, "wider_parquet")
        assert sorted(table.toDF().collect()) == rows
    finally:
        spark.sql("DROP TABLE IF EXISTS wider_parquet")


def test_managed_parquet_tables_are_converted(spark: SparkSession) -> None:
    """They were rejected: no statement changes the format of a name and keeps its files."""
    trilake.register(spark)
    rows = spark.range(4).selectExpr("id AS n", "nullif(id % 2, 0) AS p")
    rows.write.format("parquet").partitionBy("p").saveAsTable("managed_parquet")
    place = str(spark.sql("DESCRIBE TABLE EXTENDED managed_parquet").where("col_name = 'Location'").collect()[0][1])
    try:
        DeltaTable.convertToDelta(spark, "managed_parquet")
        spark.createDataFrame([(9, 9)], "n long, p long").write.format("delta").mode("append").saveAsTable(
            "managed_parquet"
        )
        assert sorted(tuple(r) for r in spark.table("managed_parquet").where("p IS NOT NULL").collect()) == [
            *((1, 1), (3, 1)),
            (9, 9),
        ]
        assert numbers(DeltaTable.forName(spark, "managed_parquet").toDF().where("p IS NULL")) == [0, 2]
        entry = find_entry(spark, ["managed_parquet"])
        assert entry is not None
        assert (entry.provider, entry.managed) == ("delta", True)
        assert DeltaTable.convertToDelta(spark, "managed_parquet").history().count() == 2
    finally:
        spark.sql("DROP TABLE managed_parquet")
    assert not Path(place.removeprefix("file:")).exists(), "the files went with the name"


def test_generate_as_in_delta_spark_documentation(spark: SparkSession, tmp_path: Path) -> None:
    trilake.write(spark.range(100).repartition(4), tmp_path / "t")
    table = DeltaTable.forPath(spark, str(tmp_path / "t"))
    table.generate("symlink_format_manifest")
    lines = (tmp_path / "t" / "_symlink_format_manifest" / "manifest").read_text().splitlines()
    assert len(lines) == table.detail().collect()[0].numFiles
    assert sum(pq.read_metadata(line.removeprefix("file:")).num_rows for line in lines) == 100
    with pytest.raises(AnalysisException, match="symlink_format_manifest"):
        table.generate("hive")


def test_many_tasks_run_as_a_job(spark: SparkSession, tmp_path: Path) -> None:
    here = many_runner(spark, open_store(str(tmp_path)), least=3)
    assert sorted(here(len, ["a", "bb"])) == [1, 2]
    assert sorted(here(len, ["a", "bb", "ccc"])) == [1, 2, 3]
    in_memory = many_runner(spark, MemoryStore(), least=1)
    assert sorted(in_memory(lambda rows: rows.num_rows, [LISTING.empty_table()])) == [0]
    # Footers, copies and deletions in tasks.
    source = tmp_path / "many"
    source.mkdir()
    for n in range(40):
        pq.write_table(pa.table({"n": [n]}), source / f"f{n:02d}.parquet")
    table = DeltaTable.convertToDelta(spark, f"parquet.`{source}`")
    copy = table.clone(str(tmp_path / "copy"))
    assert numbers(copy.toDF()) == list(range(40))
    assert len(list((tmp_path / "copy").glob("*.parquet"))) == 40
    assert clone_location(spark, "delta.`/a``b`") == ("/a`b", None, None)
