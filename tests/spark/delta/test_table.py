"""``trilake.read``, ``trilake.write`` of DataFrames, and ``DeltaTable``."""

from __future__ import annotations

import datetime as dt
import decimal
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import trilake
from trilake.errors import InvalidArgumentError, MissingFileError, TableNotFoundError
from trilake.spark.delta import row_addresses
from trilake.spark.delta.reading import read as delta_read


def plan(df: DataFrame) -> str:
    """Spark's physical plan."""
    return df._jdf.queryExecution().executedPlan().toString()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a table % +ü")


def typed(spark: SparkSession) -> DataFrame:
    return spark.sql(
        """
        SELECT CAST(id AS INT) i, id l, CAST(id AS SMALLINT) s, CAST(id AS TINYINT) b, id % 2 = 0 t,
               CAST(id AS FLOAT) f, CAST(id AS DOUBLE) d, CAST(id AS DECIMAL(20, 3)) m, CONCAT('ä ', id) v,
               CAST(CAST(id AS STRING) AS BINARY) y, DATE'2020-02-29' + CAST(id AS INT) dd,
               TIMESTAMP'2020-01-01 01:02:03.456789' + MAKE_INTERVAL(0, 0, 0, 0, 0, 0, id) ts,
               CAST(TIMESTAMP_NTZ'1900-01-01 00:00:00.000001' AS TIMESTAMP_NTZ) ntz,
               ARRAY(id, NULL) a, MAP('k', id) mp, NAMED_STRUCT('x', id, 'z', ARRAY(NAMED_STRUCT('w', id))) st,
               CAST(NULL AS STRING) nothing, CASE WHEN id % 3 > 0 THEN CONCAT('p/', id % 3, ' =') END p
        FROM RANGE(20)
        """
    )


def same(left: pa.Table, right: pa.Table) -> bool:
    def text(t: pa.Table) -> list[str]:
        return sorted(map(repr, t.to_pylist()))

    return left.column_names == right.column_names and text(left) == text(right)


@pytest.mark.parametrize("partition_by", [None, ["p"], ["dd", "ts", "t"], ["m", "y"]])
def test_every_type_round_trips_on_every_path(spark: SparkSession, path: str, partition_by: list[str] | None) -> None:
    trilake.register(spark)
    df = typed(spark)
    expected = df.toArrow()
    result = trilake.write(df, path, partition_by=partition_by)
    assert (result.version, result.rows_added) == (0, 20)
    assert same(trilake.read(spark, path).toArrow(), expected)
    assert same(spark.read.format("delta").load(path).toArrow(), expected)
    opened = trilake.open(path)
    assert same(opened.to_arrow(), expected)
    assert opened.protocol.min_reader_version == 3  # type: ignore[attr-defined]  # timestamp_ntz is a table feature


def test_native_reads_prune_partitions_columns_and_row_groups(spark: SparkSession, path: str) -> None:
    trilake.write(spark.range(100).selectExpr("id", "id % 4 AS p", "'x' AS unused"), path, partition_by="p")
    df = trilake.read(spark, path).where("p = 1 AND id > 90").select("id")
    assert sorted(r.id for r in df.collect()) == [93, 97]
    text = plan(df)
    assert "PartitionFilters: [" in text
    assert "p#" in text.split("PartitionFilters: [")[1].split("]")[0]
    assert "GreaterThan(id,90)" in text
    assert "unused" not in text.split("ReadSchema")[1]


def test_read_filters_columns_and_versions(spark: SparkSession, path: str) -> None:
    trilake.write(pa.table({"n": [1, 2, 3], "x": [1.0, float("nan"), None]}), path)
    trilake.write(pa.table({"n": [4], "x": [0.0]}), path, mode="append")
    assert [r.n for r in trilake.read(spark, path, version=0, filter="x > 100").collect()] == [2]
    # A pyarrow expression keeps Arrow's rules: no comparison with NaN is true.
    assert trilake.read(spark, path, filter=pc.field("x") > 100).collect() == []
    assert trilake.read(spark, path, columns=["X"]).columns == ["x"]
    when = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    assert trilake.read(spark, path, timestamp=when).count() == 4
    with pytest.raises(trilake.TrilakeError, match="no column 'nope'"):
        trilake.read(spark, path, columns=["nope"])


@pytest.mark.parametrize("name", ["dv-partitioned-with-checkpoint", "k-cdf-table-with-dv", "rs-table-with-dv-small"])
def test_vectors_apply_inside_the_plan(spark: SparkSession, shared: Path, name: str) -> None:
    path = str(shared / "corpus" / "delta" / "golden" / name / "delta")
    native = trilake.read(spark, path)
    assert same(native.toArrow(), trilake.open(path).to_arrow())
    assert "MapInArrow" not in plan(native)
    assert "BatchScan" not in plan(native)


def test_missing_file_is_an_error(spark: SparkSession, path: str) -> None:
    trilake.write(pa.table({"n": [1, 2, 3]}), path)
    next(Path(path).glob("*.parquet")).unlink()
    df = trilake.read(spark, path)
    trilake.register(spark)
    with pytest.raises(MissingFileError, match="is missing") as found:
        df.collect()
    assert isinstance(found.value, PySparkException)
    assert len(str(found.value).splitlines()) == 1
    spark.range(1).write.parquet(path + "-own")
    own = spark.read.parquet(path + "-own")
    next(Path(path + "-own").glob("*.parquet")).unlink()
    with pytest.raises((PySparkException, Py4JJavaError), match="FILE_NOT_EXIST"):  # Spark's native read, Spark's error
        own.collect()


def test_modes_of_a_dataframe_write(spark: SparkSession, path: str) -> None:
    df = spark.range(5)
    assert trilake.write(df, path).version == 0
    with pytest.raises(trilake.TrilakeError, match="TABLE_EXISTS"):
        trilake.write(df, path)
    assert trilake.write(df, path, mode="ignore").version == 0
    assert trilake.write(df, path, mode="append").version == 1
    assert trilake.write(df, path, mode="overwrite").files_removed > 0
    assert trilake.open(path).count() == 5


def test_overwrite_may_read_the_replaced_table(spark: SparkSession, path: str) -> None:
    trilake.write(spark.range(10), path)
    trilake.write(trilake.read(spark, path).where("id < 4"), path, mode="overwrite")
    assert trilake.open(path).count() == 4
    assert trilake.open(path, version=0).count() == 10


def test_empty_frame_creates_an_empty_table(spark: SparkSession, path: str) -> None:
    trilake.write(spark.range(0), path)
    assert trilake.read(spark, path).count() == 0
    assert trilake.read(spark, path).columns == ["id"]


def test_delta_table(spark: SparkSession, path: str, tmp_path: Path) -> None:
    assert not trilake.DeltaTable.isDeltaTable(spark, path)
    with pytest.raises(trilake.TrilakeError, match="TABLE_NOT_FOUND"):
        trilake.DeltaTable.forPath(spark, path)
    rows = pa.table({"n": [1, 2], "m": [decimal.Decimal("1.5"), None]})
    trilake.write(rows, path, properties={"delta.enableChangeDataFeed": "true"})
    assert trilake.DeltaTable.isDeltaTable(spark, path)
    table = trilake.DeltaTable.forPath(spark, path)
    assert sorted(r.n for r in table.toDF().collect()) == [1, 2]
    assert [r.n for r in table.alias("t").toDF().where("t.n > 1").collect()] == [2]
    trilake.write(rows, path, mode="append")
    assert table.toDF().count() == 4, "toDF shows the newest version"
    history = table.history().collect()
    assert [(r.version, r.operation) for r in history] == [(1, "WRITE"), (0, "WRITE")]
    assert table.history(1).count() == 1
    detail = table.detail().collect()[0]
    assert (detail.format, detail.numFiles, detail.minWriterVersion) == ("delta", 2, 7)
    assert detail.properties == {"delta.enableChangeDataFeed": "true"}
    shutil.rmtree(path)


def test_object_stores_are_read_through_arrow(spark: SparkSession) -> None:
    trilake.write(pa.table({"n": [1]}), "memory://native-rejected", mode="overwrite")
    explanation = trilake.explain(spark, "memory://native-rejected", "n = 2")
    assert explanation.kept == []
    assert "Arrow in Spark's tasks" in str(explanation)
    assert "memory" in str(explanation)


def test_in_memory_table_is_rejected_in_tasks(spark: SparkSession) -> None:
    uri = "memory://not-for-tasks"
    trilake.write(pa.table({"n": [1]}), uri, mode="overwrite")
    with pytest.raises(InvalidArgumentError, match="cannot see a table in memory"):
        trilake.read(spark, uri)
    for format in ("delta", "lance", "trevni"):
        with pytest.raises(InvalidArgumentError, match="cannot see a table in memory"):
            trilake.write(spark.range(3), f"{uri}-{format}", format=format)
        with pytest.raises(TableNotFoundError):
            trilake.open(f"{uri}-{format}")


def test_explain_names_the_read_path(spark: SparkSession, path: str) -> None:
    trilake.write(pa.table({"n": [1], "p": [1]}), path, partition_by="p")
    text = str(trilake.DeltaTable.forPath(spark, path).explain("p = 2"))
    assert "read by Spark's native scan" in text
    assert "p = 2: partition value" in text


@pytest.mark.parametrize("partition_by", ["", "p", "at"])
def test_columns_declared_not_null_are_not_nullable(spark: SparkSession, path: str, partition_by: str) -> None:
    builder = trilake.DeltaTable.create(spark).location(path).addColumn("i", "int", nullable=False, comment="a number")
    builder = builder.addColumn("n", "int").addColumn("p", "int", nullable=False)
    builder = builder.addColumn("at", "timestamp", nullable=False).property("delta.enableDeletionVectors", "true")
    table = (builder.partitionedBy(partition_by) if partition_by else builder).execute()
    rows = (
        "CAST(id AS INT) i",
        "CAST(NULLIF(id, 3) AS INT) n",
        "CAST(id % 2 AS INT) p",
        "TIMESTAMP_MICROS(id % 2 * 7) at",
    )
    expected: list[int] = []
    for ids in (range(0), range(5), range(5, 9)):  # no file, one or two, more
        if ids:
            trilake.write(spark.range(ids.start, ids.stop, 1, 1).selectExpr(*rows), path, mode="append")
        expected += ids
        found = table.toDF()
        assert {f.name: f.nullable for f in found.schema.fields} == {"i": False, "n": True, "p": False, "at": False}
        assert found.schema["i"].metadata == {"comment": "a number"}
        assert sorted(r.i for r in found.collect()) == expected
        assert found.where("n IS NULL").count() == (3 in expected)
        assert [r.i for r in found.where("p = 1 AND at > TIMESTAMP'1970-01-01 00:00:00' AND i < 2").collect()] == [
            1
        ] * (1 in expected)
    table.delete("i = 1")
    assert spark.read.format("delta").load(path).where("i < 3").select("i", "p").schema.fields[0].nullable is False
    assert sorted(r.i for r in table.toDF().collect()) == [0, *range(2, 9)]
    times = table.toDF().selectExpr("unix_millis(_metadata.file_modification_time) AS t").distinct().collect()
    assert all(abs(r.t / 1000 - time.time()) < 600 for r in times)


@pytest.mark.parametrize("way", ["native", "arrow"])
def test_variants_round_trip_in_spark(
    spark: SparkSession, path: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "arrow":
        for module in (delta_read, row_addresses):
            monkeypatch.setattr(module, "scan_obstacle", lambda *_: "it is tested")
    rows = spark.sql(
        """SELECT id, if(id = 0, NULL, parse_json(concat('{"a":', id, '}'))) AS v,
                  array(parse_json('[7]'), CAST(NULL AS variant)) AS l,
                  map('full', parse_json('1'), 'none', CAST(NULL AS variant)) AS m,
                  struct(CAST(NULL AS variant) AS w) AS s
           FROM range(3)"""
    )
    trilake.write(rows, path)
    table = trilake.DeltaTable.forPath(spark, path)
    assert table.toDF().dtypes == rows.dtypes
    assert rows.dtypes[1:4] == [("v", "variant"), ("l", "array<variant>"), ("m", "map<string,variant>")]
    table.update("id = 1", {"v": """parse_json('{"a": "new"}')"""})
    source = spark.sql("""SELECT id, parse_json('{"a": 20}') AS v FROM range(2, 4)""")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedUpdate(set={"v": "s.v"})
    values = {"id": "s.id", "v": "s.v", "l": "array(s.v)", "m": "map('full', s.v)", "s": "NULL"}
    merge.whenNotMatchedInsert(values=values).execute()
    shown = [
        "id",
        "variant_get(v, '$.a', 'string')",
        "to_json(l[0])",
        "size(l)",
        "l[size(l) - 1] IS NULL",
        "to_json(m['full'])",
    ]
    read = table.toDF().selectExpr(*shown, "size(m)", "m['none'] IS NULL", "s IS NULL", "s.w IS NULL").collect()
    before = ("[7]", 2, True, "1", 2, True, False, True)
    assert sorted(map(tuple, read)) == [
        (0, None, *before),
        (1, "new", *before),
        (2, "20", *before),
        (3, "20", '{"a":20}', 1, False, '{"a":20}', 1, True, True, True),
    ]
