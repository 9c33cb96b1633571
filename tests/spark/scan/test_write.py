"""Files written by Spark equal those of trilake's writer, and a failed job leaves nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import trilake
from tests.spark.native_files import settings
from tests.spark.scan.test_local_rows import TYPED
from trilake.delta.commands.maintenance.analyze import compute_statistics
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import plan_write
from trilake.delta.files.file_plan import FilePlan
from trilake.delta.log.log import DeltaLog
from trilake.delta.rules.constraints import RowSession
from trilake.delta.standard import standard_engine
from trilake.errors import ConstraintViolatedError
from trilake.spark.delta import write as delta_write
from trilake.spark.scan.write import native_write_obstacle
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.settings import overridden
from trilake.storage import open_store

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
#: Needed for special characters in column names.
MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    trilake.register(spark)


def job(df: DataFrame) -> DataFrame:
    """The rows as an RDD, so that a job writes them."""
    return df.coalesce(1)


def obstacle(df: DataFrame, path: Path, **request: Any) -> str | None:
    log = DeltaLog(open_store(str(path)), standard_engine())
    plan = plan_write(log, WriteRequest("append", from_spark(df.schema), **request), session=RowSession())
    return native_write_obstacle(df, log.store, plan.files)


def both_ways(df: DataFrame, folder: Path, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> tuple[Path, Path]:
    """Two tables of the same rows: one written by Spark, and one written through Arrow."""
    with monkeypatch.context() as patch:
        patch.setattr(type(df), "mapInArrow", lambda *_: pytest.fail("rows go through Python"))
        trilake.write(df, folder / "spark", **fields)
    with monkeypatch.context() as patch:
        patch.setattr(delta_write, "native_write_obstacle", lambda *_: "because")
        trilake.write(df, folder / "arrow", **fields)
    return folder / "spark", folder / "arrow"


def parquet_schema(table: Path) -> list[tuple[str, str, str]]:
    """The leaf columns of a table's files: path and types."""
    (file,) = table.glob("*.parquet")
    schema = pq.ParquetFile(file).schema
    leaves = [schema.column(i) for i in range(len(schema.names))]
    return [(c.path, c.physical_type, str(c.logical_type)) for c in leaves]


def field_ids(table: Path) -> list[bytes | None]:
    """The ids of all columns and struct fields in its files, depth first."""
    (file,) = table.glob("*.parquet")

    def walk(f: pa.Field, *, named: bool) -> Iterator[bytes | None]:
        if named:
            yield (f.metadata or {}).get(b"PARQUET:field_id")
        of_map = pa.types.is_map(f.type)
        inside = [f.type.key_field, f.type.item_field] if of_map else map(f.type.field, range(f.type.num_fields))
        for child in inside:
            yield from walk(child, named=pa.types.is_struct(f.type))

    return [i for f in pq.read_schema(file) for i in walk(f, named=True)]


@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_every_type_is_written_like_by_trilake(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapping: str
) -> None:
    df = job(spark.sql(TYPED))
    properties = {"delta.columnMapping.mode": mapping}
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        ours, arrow = both_ways(df, tmp_path, monkeypatch, properties=properties)
    rows = [trilake.open(t).to_arrow() for t in (ours, arrow)]
    assert rows[0].equals(rows[1])
    assert rows[0].num_rows == 3
    if mapping == "none":  # physical names are random
        stats = [trilake.open(t).files()["stats"].to_pylist() for t in (ours, arrow)]
        assert stats[0] == stats[1]
        assert parquet_schema(ours) == parquet_schema(arrow)
    else:
        kinds = [[(k, t) for _, k, t in parquet_schema(table)] for table in (ours, arrow)]
        assert kinds[0] == kinds[1]
        assert field_ids(ours) == field_ids(arrow)
        assert None not in field_ids(ours)
        assert len(field_ids(ours)) == 20, field_ids(ours)
    assert spark.conf.get(_TIMESTAMPS) == "INT96"
    again = trilake.read(spark, ours).toArrow()
    assert again.num_rows == 3


def test_columns_match_by_name_and_missing_ones_are_null(spark: SparkSession, tmp_path: Path) -> None:
    odd = tmp_path / "a table % +ü {x} #1?"
    first = spark.range(4).selectExpr("id AS `a``b c.d`", "CAST(id AS STRING) AS Name", "named_struct('x', id) AS s")
    trilake.write(first, odd, properties=MAPPED)
    trilake.write(spark.range(2).selectExpr("CAST(id AS STRING) AS NAME", "id AS `A``b C.d`"), odd, mode="append")
    found = trilake.open(odd).to_arrow()
    assert found.schema.names == ["a`b c.d", "Name", "s"]
    assert found["s"].null_count == 2
    assert sorted(found["a`b c.d"].to_pylist()) == [0, 0, 1, 1, 2, 3]
    assert sorted(p.name for p in odd.iterdir() if not p.name.endswith(".parquet")) == ["_delta_log"]


def test_special_characters_in_column_names(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(3).selectExpr("id AS ` ,;{}()\n\t=`", "named_struct('ä b', id) AS s", "NULL AS nothing")
    trilake.write(df.drop("nothing"), tmp_path / "t", properties=MAPPED)
    assert trilake.open(tmp_path / "t").to_arrow().schema.names == [" ,;{}()\n\t=", "s"]
    assert trilake.read(spark, tmp_path / "t").select("s.`ä b`").count() == 3
    # Spark's Parquet writer does not support void columns.
    trilake.write(df, tmp_path / "void", properties=MAPPED)
    assert trilake.open(tmp_path / "void").count() == 3


def test_bounds_are_omitted_if_unknown(spark: SparkSession, tmp_path: Path) -> None:
    long = "ß" * 40_000
    df = spark.sql(
        "SELECT id AS i, CASE WHEN id = 1 THEN double('NaN') WHEN id = 2 THEN NULL ELSE double(id) END AS d,"
        f" float('-0.0') AS z, concat('{long}', id) AS t FROM range(1, 5, 1, 1)"
    )
    trilake.write(df, tmp_path / "t")
    table = trilake.open(tmp_path / "t")
    stats = table.files()["stats"][0].as_py()
    assert '"numRecords":4' in stats
    assert '"d"' not in stats.split('"maxValues"')[1].split("}")[0]
    # NaN is greater than all numbers, on every read path.
    assert table.count("d > 100") == 1
    assert trilake.read(spark, tmp_path / "t", filter="d > 100").count() == 1
    assert table.count("z = 0") == 4
    assert table.count(f"t > '{'ß' * 30}'") == 4


def test_row_groups_with_nan_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """Files written by Spark include NaN as the greatest value in row group bounds."""
    rows = spark.sql("SELECT CASE WHEN id = 7 THEN double('NaN') ELSE double(id) END AS d FROM range(0, 40000, 1, 1)")
    rows.write.option("parquet.block.size", 4096).parquet(str(tmp_path / "t"))
    (file,) = (tmp_path / "t").glob("*.parquet")
    assert pq.read_metadata(file).num_row_groups > 1
    trilake.convert_to_delta(tmp_path / "t")
    table = trilake.open(tmp_path / "t")
    assert (table.count("d > 1e9"), table.count("d >= 39999"), table.count("d = 'NaN'")) == (1, 2, 1)


@pytest.mark.parametrize("more", [[], ["s"], [f"c{i}" for i in range(100)]], ids=["flat", "structs", "wide"])
def test_nan_missing_in_the_bounds_of_other_writers(spark: SparkSession, tmp_path: Path, more: list[str]) -> None:
    """Spark skips row groups by them: conditions on such a column are not pushed down, unlike others, or
    the reader ignores bounds."""
    path = str(tmp_path / "t")
    rows = {"id": [1, 2], "d": [1.0, float("nan")], "l": [[1.0], []], **{c: [float("nan"), 1.0] for c in more}}
    if more == ["s"]:
        rows["s"] = [{"f": float("nan")}, {"f": 1.0}]
    deltalake.write_deltalake(path, pa.table(rows))
    assert spark.read.format("parquet").load(path).where("d > 5").count() == 0
    nested = ["s.f > 5", "s.f <= 1"] if more == ["s"] else []
    wide = [f"{more[-1]} > 5", "c0 < 5"] if len(more) > 1 else []
    for frame in (trilake.read(spark, path), spark.read.format("delta").load(path)):
        found = [frame.where(c).count() for c in ("d > 5", "d = double('NaN')", "d = 1", "d < 1", *nested, *wide)]
        assert found == [1, 1, 1, 0, *[1 for _ in (*nested, *wide)]]
        assert frame.selectExpr("sum(IF(isnan(d), 0, d))", "max(d) > 5").first() == (1.0, True)
    plan = trilake.read(spark, path).where("id > 1 AND d > 5")
    pushed = ["IsNotNull(id)", "IsNotNull(d)"] * bool(more) + ["GreaterThan(id,1)", "GreaterThan(d,5.0)"] * bool(more)
    assert f"PushedFilters: [{', '.join(pushed or ['IsNotNull(id)', 'GreaterThan(id,1)'])}]" in _plan(plan)
    assert trilake.open(path).count("d > 5") == 1
    compute_statistics(trilake.open(path).log, everything=True)  # does not affect the bounds in the file
    assert trilake.read(spark, path).where("d > 5").count() == 1
    trilake.open(path).update({"d": "d + 0"})
    plan = trilake.read(spark, path).where("d > 5")
    assert "GreaterThan(d,5.0)" in _plan(plan)
    assert plan.count() == 1


def _plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_all_nan_and_empty_files(spark: SparkSession, tmp_path: Path) -> None:
    trilake.write(spark.sql("SELECT double('NaN') AS d FROM range(0, 3, 1, 1)"), tmp_path / "t")
    trilake.write(spark.range(9).selectExpr("double(id) AS d").where("d > 100"), tmp_path / "t", mode="append")
    table = trilake.open(tmp_path / "t")
    assert (table.version, table.count(), table.count("d > 1")) == (1, 3, 3)
    assert table.files().num_rows == 1


@pytest.mark.parametrize("text", ["nothing", "x" * 70_000])
def test_null_in_a_not_null_column(spark: SparkSession, tmp_path: Path, text: str) -> None:
    trilake.create(tmp_path / "t", pa.schema([pa.field("i", pa.int64(), False), pa.field("t", pa.string(), False)]))
    good = spark.range(3).selectExpr("nullif(id, -1) AS i", f"'{text}' AS t")
    assert obstacle(good, tmp_path / "t") is None
    trilake.write(good, tmp_path / "t", mode="append")
    with pytest.raises(ConstraintViolatedError, match=r"NOT NULL constraint violated for column: t, .* i = 2"):
        trilake.write(good.selectExpr("i", "CASE WHEN i <> 2 THEN t END AS t"), tmp_path / "t", mode="append")
    assert trilake.open(tmp_path / "t").count() == 3
    assert [p.name for p in (tmp_path / "t").iterdir() if p.is_dir()] == ["_delta_log"]


def test_failed_job_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    trilake.write(spark.range(5), tmp_path / "t")
    before = sorted(p for p in tmp_path.rglob("*"))
    bad = spark.range(100, numPartitions=4).selectExpr("CASE WHEN id = 70 THEN raise_error('boom') ELSE id END AS id")
    with pytest.raises(trilake.TrilakeError, match=r"unchanged and no files remain.*boom"):
        trilake.write(bad, tmp_path / "t", mode="append")
    assert sorted(p for p in tmp_path.rglob("*")) == before


def test_writes_that_spark_cannot_do(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(3).selectExpr("id", "CAST(id AS STRING) AS s", "CAST(id AS INT) AS n")
    trilake.write(df, tmp_path / "t")
    assert obstacle(df, tmp_path / "t") is None
    assert obstacle(df.select("s", "id"), tmp_path / "t") is None
    assert "column n is bigint, expected int" in str(obstacle(df.withColumn("n", df.id), tmp_path / "t"))
    reasons: Mapping[str, Mapping[str, Any]] = {
        "partitioned": {"partition_by": ("n",)},
        "sets delta.targetFileSize": {"properties": {"delta.targetFileSize": "1m"}},
        "trevni": {"data_format": "trevni"},
    }
    for i, (reason, fields) in enumerate(reasons.items()):
        assert reason in str(obstacle(df, tmp_path / f"new{i}", **fields))
        trilake.write(df, tmp_path / f"new{i}", **fields)
        assert trilake.open(tmp_path / f"new{i}").count() == 3
    trilake.create(tmp_path / "nested", pa.schema([("s", pa.struct([pa.field("x", pa.int64(), False)]))]))
    trilake.create(tmp_path / "made", {"id": "long", "twice": "long"}, generated={"twice": "id * 2"})
    assert "must be computed or checked" in str(obstacle(spark.range(3), tmp_path / "made"))
    inside = spark.range(1).selectExpr("named_struct('x', id) AS s")
    assert "nested values of column s" in str(obstacle(inside, tmp_path / "nested"))
    with settings(spark, {"spark.master": "spark://host:7077"}):
        assert "do not share this disk" in str(obstacle(df, tmp_path / "t"))
    memory = plan_write(
        DeltaLog(open_store("memory://x"), standard_engine()), WriteRequest("append", from_spark(df.schema))
    )
    assert isinstance(memory.files, FilePlan)
    assert "local disks" in str(native_write_obstacle(df, open_store("memory://x"), memory.files))


def test_settings_are_kept_until_the_last_user_finishes(spark: SparkSession) -> None:
    key, other = "spark.sql.shuffle.partitions", "spark.sql.trilake.test"
    before = spark.conf.get(key)
    inside, go = threading.Event(), threading.Event()

    def first() -> None:
        with overridden(spark, {key: "17", other: "x"}):
            inside.set()
            go.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    with overridden(spark, {key: "17"}):
        go.set()
        thread.join()
        assert spark.conf.get(key) == "17"
        assert spark.conf.get(other, None) is None
    assert spark.conf.get(key) == before
    with pytest.raises(ZeroDivisionError), overridden(spark, {key: "18"}):
        raise ZeroDivisionError
    assert spark.conf.get(key) == before


def test_other_libraries_read_files_written_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    df = spark.range(1000, numPartitions=3).selectExpr("id", "timestamp_micros(id * 1000000) AS at", "id % 7 AS g")
    trilake.write(df, tmp_path / "t")
    trilake.write(df, tmp_path / "t", mode="append")
    table = DeltaTable(str(tmp_path / "t"))
    assert table.to_pyarrow_table().num_rows == 2000
    assert len(table.file_uris()) == 6
    stats = table.get_add_actions(flatten=True)
    columns = pa.table(stats)
    assert sum(columns["num_records"].to_pylist()) == 2000
    assert min(columns["min.id"].to_pylist()) == 0
    assert columns["max.at"].null_count == 0
