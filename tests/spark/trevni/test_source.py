"""``spark.read.format("trevni")`` and ``df.write.format("trevni")``."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import trilake
from tests.trevni.crafted import Block, Col, craft, zigzag
from trilake import trevni
from trilake.spark.session.sources.rows_source import Piece
from trilake.spark.trevni.source import TrevniDataSource, TrevniReader


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Partition folders with 100 rows each; ``n`` ascends, in blocks of a few rows."""
    root = tmp_path / "a folder %20"
    for i, part in enumerate(["a", "b"]):
        path = root / f"p={part}" / "x.trv"
        path.parent.mkdir(parents=True)
        rows = pa.table({"n": range(100 * i, 100 * i + 100), "s": [f"text {j}" for j in range(100)]})
        trevni.write(rows, path, columns={"n": {"values": True}}, block_size=64, codec="deflate")
    return root


def read_partitions(path: Path, schema: str, **options: str) -> tuple[list[Piece], pa.Table]:
    """Plan and read with the source in this process."""
    declared = StructType()
    for column in schema.split(", "):
        name, _, type_ = column.partition(" ")
        declared = declared.add(name, type_)
    reader = TrevniDataSource({"path": str(path), **options}).reader(declared)
    assert isinstance(reader, TrevniReader)
    partitions = [p for p in reader.partitions() if isinstance(p, Piece)]
    batches = [batch for p in partitions for batch in reader.read(p)]
    return partitions, pa.Table.from_batches(batches, schema=reader.declared)


def test_register_offers_both_names(session: SparkSession) -> None:
    assert {"trevni", "trilake-trevni"} <= set(trilake.register(session))


def test_folder_is_read_with_its_partitions(session: SparkSession, folder: Path) -> None:
    df = session.read.format("trevni").load(str(folder))
    assert df.schema.simpleString() == "struct<n:bigint,s:string,p:string>"
    found = df.groupBy("p").agg(F.count("*").alias("c"), F.sum("n").alias("s"), F.max("s").alias("m")).collect()
    assert {r.p: (r.c, r.s, r.m) for r in found} == {"a": (100, 4950, "text 99"), "b": (100, 14950, "text 99")}


def test_file_and_glob(folder: Path) -> None:
    source = TrevniDataSource({"path": str(folder / "p=a" / "x.trv")})
    assert source.schema().simpleString() == "struct<n:bigint,s:string>"
    assert TrevniDataSource({"path": str(folder / "p=[b]")}).schema().names == ["n", "s", "p"]
    assert read_partitions(folder / "p=*" / "x.trv", "n long")[1].num_rows == 200


def test_given_schema_projects_and_casts(folder: Path) -> None:
    _, rows = read_partitions(folder, "P string, N decimal(20,0), other integer")
    assert rows.schema.names == ["P", "N", "other"]
    assert rows["N"].to_pylist() == [Decimal(i) for i in range(200)]
    assert rows["P"].to_pylist() == ["a"] * 100 + ["b"] * 100
    assert rows["other"].null_count == 200
    with pytest.raises(trilake.TrilakeError, match="SCHEMA_MISMATCH"):
        read_partitions(folder, "s integer")


def test_unsupported_types_are_named_and_can_be_cast(tmp_path: Path) -> None:
    path = tmp_path / "t.trv"
    columns = {
        "time": pa.array([5], pa.time64("us")),
        "took": pa.array([6], pa.duration("us")),
        "big": pa.array([2**63], pa.uint64()),
        "word": pa.array(["x"]).dictionary_encode(),
        "ns": pa.array([1000], pa.timestamp("ns")),
    }
    trevni.write(pa.table(columns), path)
    with pytest.raises(trilake.TrilakeError, match=r"time64.*column: time"):
        TrevniDataSource({"path": str(path)}).schema()
    _, rows = read_partitions(path, "time long, took long, big decimal(20,0), word string, ns timestamp_ntz")
    when = dt.datetime(1970, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001 - the column has no zone
    assert rows.to_pylist() == [{"time": 5, "took": 6, "big": Decimal(2**63), "word": "x", "ns": when}]


def test_duplicate_column_names_need_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "t.trv"
    path.write_bytes(craft(1, [Col("a", "int", [Block(1, zigzag(value))]) for value in (1, 2)]))
    with pytest.raises(trilake.TrilakeError, match="the file has duplicate column names 'a'"):
        TrevniDataSource({"path": str(path)}).schema()
    assert read_partitions(path, "a long")[1].to_pylist() == [{"a": 2}]


def test_partition_is_a_file_or_a_row_range(folder: Path) -> None:
    assert len(read_partitions(folder, "n long")[0]) == 2
    partitions, rows = read_partitions(folder, "n long", splitSize="200")
    assert len(partitions) > 4
    assert rows["n"].to_pylist() == list(range(200))


def test_a_task_reads_many_small_files(session: SparkSession, tmp_path: Path) -> None:
    for i in range(60):
        trevni.write(pa.table({"n": [i]}), tmp_path / f"{i:02d}.trv")
    df = session.read.format("trevni").load(str(tmp_path))
    assert df.rdd.getNumPartitions() == 9
    assert sorted(row.n for row in df.collect()) == list(range(60))


def test_filter_option_selects_rows_partitions_and_blocks(folder: Path) -> None:
    partitions, rows = read_partitions(folder, "s string", filter="n >= 150 and p = 'b'")
    assert len(partitions) == 1
    assert rows["s"].to_pylist() == [f"text {i}" for i in range(50, 100)]
    partitions, rows = read_partitions(folder, "s string", filter="p = 'none'")
    assert partitions == [Piece(None)]
    assert rows.num_rows == 0


def test_unknown_options_are_rejected(session: SparkSession, folder: Path) -> None:
    for options in ({"splitsize": "0"}, {"pushfilters": "maybe"}):
        with pytest.raises(trilake.TrilakeError):
            read_partitions(folder, "n long", **options)
    with pytest.raises(PySparkException, match="UNKNOWN_OPTION"):
        session.range(1).write.format("trevni").mode("append").option("codecs", "x").save(str(folder / "new"))


def test_conditions_skip_files_and_blocks(session: SparkSession, folder: Path) -> None:
    damaged = folder / "p=b" / "x.trv"
    damaged.write_bytes(damaged.read_bytes()[:40])  # opening it fails
    df = session.read.format("trevni").load(str(folder))
    assert sorted(r.n for r in df.where("p = 'a' and n > 97").collect()) == [98, 99]
    with pytest.raises(PySparkException, match="CORRUPT_FILE"):
        df.where("n > 97").collect()


def test_written_rows_are_read_back(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    when = dt.datetime(2024, 2, 29, 12, 30, 0, 123456, dt.UTC)
    df = session.range(1000, numPartitions=2).select(
        "id",
        F.when(F.col("id") % 3 == 0, F.concat(F.lit("é"), F.col("id").cast("string"))).alias("s"),
        F.lit(Decimal("12.34")).cast("decimal(30,2)").alias("d"),
        F.lit(when).alias("t"),
        F.array("id", F.lit(None)).alias("a"),
        F.struct(F.col("id").cast("int").alias("x"), F.when(F.col("id") > 5, True).alias("y")).alias("r"),
        F.create_map(F.lit("k"), F.col("id")).alias("m"),
    )
    df.write.format("trevni").mode("overwrite").option("codec", "deflate").save(path)
    files = sorted(Path(path).rglob("*"))
    assert len(files) == 2
    assert {f.suffix for f in files} == {".trv"}
    assert trevni.TrevniFile(files[0]).metadata["trevni.codec"] == b"deflate"
    found = session.read.format("trevni").load(path)
    assert found.schema.simpleString() == df.schema.simpleString()
    assert found.orderBy("id").collect() == df.collect()


def test_failed_job_changes_nothing(session: SparkSession, tmp_path: Path) -> None:
    """Tasks that Spark stops late may leave hidden files, see ``trilake.trevni.tables.jobs``; readers see the old
    rows."""
    path = str(tmp_path / "t")
    session.range(4).write.format("trevni").mode("append").save(path)

    def shown() -> list[Path]:
        return [f for f in sorted(Path(path).rglob("*")) if "_staged" not in f.parts]

    before = shown()
    bad = session.range(2000, numPartitions=2).select(F.expr("if(id = 1999, raise_error('boom'), id)").alias("id"))
    for mode in ("append", "overwrite"):
        with pytest.raises(PySparkException):
            bad.write.format("trevni").mode(mode).option("rowGroupSize", "1k").save(path)
        with pytest.raises(trilake.TrilakeError, match="WRITE_FAILED"):
            trilake.write(bad, path, format="trevni", mode=mode)
        assert shown() == before
        assert sorted(r.id for r in session.read.format("trevni").load(path).collect()) == [0, 1, 2, 3]
    # Their leftovers do not disturb a later job.
    session.range(4, 6).write.format("trevni").mode("append").save(path)
    assert trilake.open(path).to_arrow()["id"].sort().to_pylist() == [0, 1, 2, 3, 4, 5]


def test_write_without_rows_keeps_the_schema(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    session.range(0).write.format("trevni").mode("overwrite").save(path)
    assert len(list(Path(path).rglob("*.trv"))) == 1
    assert session.read.format("trevni").load(path).schema.simpleString() == "struct<id:bigint>"
