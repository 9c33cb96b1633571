"""``spark.read.format("lance")`` and ``df.write.format("lance")``."""

from __future__ import annotations

import datetime as dt
import logging
import re
from pathlib import Path
from typing import Any
from unittest import mock

import lance as pylance
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import trilake
from trilake import lance
from trilake.lance.commands.fragment_writer import WriteOptions
from trilake.lance.table import LanceTable
from trilake.lance.versions.versions import Listing
from trilake.spark.lance import frames
from trilake.spark.lance import jobs as lance_jobs
from trilake.spark.lance.frames import read_dataframe, write_dataframe
from trilake.spark.lance.source import LanceDataSource, LanceReader, LanceWriter, _join_batches
from trilake.spark.lance.vectors import vector_sizes
from trilake.spark.session.sources.rows_source import Piece
from trilake.storage import open_store

ROWS = pa.table(
    {
        "id": pa.array(range(400), pa.int64()),
        "name": [f"n{i % 9}" for i in range(400)],
        "v": pa.array([[i, i + 1.0] for i in range(400)], pa.list_(pa.float32(), 2)),
        "kind": pa.array(["a", "b"] * 200).dictionary_encode(),
        "s": [{"x": i, "y": str(i)} for i in range(400)],
    }
)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    where = str(tmp_path / "t")
    ds = lance.write_dataset(ROWS, where, max_rows_per_file=100, max_rows_per_group=20)
    ds.delete("id % 10 = 0")
    return where


def read(uri: str, schema: str, **options: str) -> tuple[list[Piece], pa.Table]:
    """Plan and read with the source in this process."""
    declared = StructType()
    for column in schema.split(", "):
        name, _, type_ = column.partition(" ")
        declared = declared.add(name, type_)
    reader = LanceDataSource({"path": uri, **options}).reader(declared)
    assert isinstance(reader, LanceReader)
    partitions = [p for p in reader.partitions() if isinstance(p, Piece)]
    batches = [b for p in partitions for b in reader.read(p)]
    return partitions, pa.Table.from_batches(batches, schema=reader.declared)


def test_options_columns_and_partitions(uri: str) -> None:
    partitions, rows = read(uri, "NAME string, id decimal(20,0), _rowid long")
    assert len(partitions) == 4
    assert rows.schema.names == ["NAME", "id", "_rowid"]
    assert rows["_rowid"].to_pylist()[-1] == (3 << 32) + 99
    assert read(uri, "id long", version="1")[1].num_rows == 400
    lance.dataset(uri).tags.create("old", 1)
    assert read(uri, "id long", tag="old")[1].num_rows == 400
    assert read(uri, "name string", filter="id > 305 AND id < 308")[1]["name"].to_pylist() == ["n0", "n1"]
    assert read(uri, "id long", filter="id < 0")[1].num_rows == 0
    assert vector_sizes("v:2, w") == {"v": 2, "w": None}
    for bad in ({"version": "9"}, {"version": "1", "tag": "old"}, {"nope": "1"}, {"batchSize": "0"}):
        with pytest.raises(trilake.TrilakeError):
            read(uri, "id long", **bad)
    with pytest.raises(trilake.TrilakeError, match="column 'z' not found"):
        read(uri, "z long")
    for text in ("v:0", ":3", "v:x"):
        with pytest.raises(trilake.TrilakeError):
            vector_sizes(text)


def test_reading_in_spark(session: SparkSession, uri: str) -> None:
    df = session.read.format("lance").load(uri)
    assert df.schema.simpleString() == (
        "struct<id:bigint,name:string,v:array<float>,kind:string,s:struct<x:bigint,y:string>>"
    )
    assert df.rdd.getNumPartitions() == 4
    found = df.where("id < 200").groupBy("kind").agg(F.count("*").alias("c"), F.max(F.col("v")[1]).alias("m")).collect()
    assert {r.kind: (r.c, r.m) for r in found} == {"a": (80, 199.0), "b": (100, 200.0)}
    assert df.count() == 360
    ids = session.read.format("trilake-lance").option("rowId", "true").load(uri).select("_rowid", "id").collect()
    assert all((r._rowid >> 32) * 100 + (r._rowid & 0xFFFFFFFF) == r.id for r in ids)
    table = LanceTable(open_store(uri), version=1)
    assert read_dataframe(session, table, columns=["name"], filter="id = 5").collect()[0].name == "n5"


def test_filter_with_a_year_that_python_lacks(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where, day = str(tmp_path / "t"), dt.date(2024, 1, 1)
    lance.write_dataset(pa.table({"id": [1, 2], "d": [day, day], "name": ["a", "b"]}), where)
    with caplog.at_level(logging.INFO, "trilake.spark"):
        found = session.read.format("lance").load(where).where("d < DATE '+10000-01-01' AND id = 2").select("id")
        assert [r.id for r in found.collect()] == [2]
    assert re.search(r"columns id, d where .*id = 2", caplog.text)


def test_writing_in_spark(session: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "w")
    df = session.range(0, 1000, numPartitions=3).selectExpr(
        "id", "concat('n', id) AS name", "array(cast(id AS float), 1.5F) AS v"
    )
    df.write.format("lance").option("vectors", "v:2").mode("append").save(where)
    ds = lance.dataset(where)
    assert (ds.version, len(ds.get_fragments()), ds.schema.field("v").type) == (1, 3, pa.list_(pa.float32(), 2))
    df.write.format("lance").mode("append").save(where)
    theirs = pylance.dataset(where)
    assert (theirs.version, theirs.count_rows()) == (2, 2000)
    assert sorted(theirs.to_table(columns=["id"])["id"].to_pylist()) == sorted([*range(1000)] * 2)
    # Columns that the rows lack are null, as in pylance.
    session.range(5).write.format("lance").mode("append").save(where)
    assert pylance.dataset(where).to_table(filter="name IS NULL AND v IS NULL").num_rows == 5
    with pytest.raises(PySparkException, match="select and rename columns"):
        session.range(3).selectExpr("id", "id AS other").write.format("lance").mode("append").save(where)
    session.range(3).write.format("lance").mode("overwrite").save(where)
    assert lance.dataset(where).to_table().num_rows == 3
    nullable = session.sql("SELECT cast(NULL AS bigint) AS id UNION ALL SELECT 7")
    nullable.write.format("lance").mode("append").save(where)
    assert pylance.dataset(where).to_table(filter="id IS NULL").num_rows == 1
    legacy = str(tmp_path / "legacy")
    nullable.where("id = 7").write.format("lance").option("dataStorageVersion", "legacy").save(legacy)
    with pytest.raises(PySparkException, match="null would be lost"):
        nullable.write.format("lance").mode("append").save(legacy)
    kept = str(tmp_path / "masked")
    masked = nullable.write.format("lance").option("dataStorageVersion", "legacy").option("nulls", "mask")
    masked.mode("overwrite").save(kept)
    assert sorted(map(str, lance.dataset(kept).to_table()["id"].to_pylist())) == ["7", "None"]


@pytest.mark.parametrize("mode", ["create", "append"])
def test_abort_after_an_unknown_commit_outcome(tmp_path: Path, mode: Any) -> None:
    """Spark calls ``abort`` whenever ``commit`` raises, even if the commit may have landed."""
    where, schema = str(tmp_path / "t"), StructType().add("id", "long")
    if mode == "append":
        lance.write_dataset(pa.table({"id": [1]}), where)
    writer = LanceWriter.begin(where, {}, schema, mode, WriteOptions())
    messages = [writer.write(iter(pa.table({"id": [7]}).to_batches()))]
    writer.commit(messages)
    writer.abort(messages)
    assert 7 in lance.dataset(where).to_table()["id"].to_pylist()


def test_frames_in_all_modes(session: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "f")
    df = session.range(0, 10, numPartitions=2)
    made, fragments = write_dataframe(df, where, {}, mode="error")
    assert made is not None
    assert (made.version, len(fragments), made.count()) == (1, 2, 10)
    with pytest.raises(trilake.TrilakeError, match="already"):
        write_dataframe(df, where, {}, mode="error")
    assert write_dataframe(df, where, {}, mode="ignore") == (None, [])
    with mock.patch.object(frames, "list_versions", return_value=Listing("v1", ())):  # right after the check
        assert write_dataframe(df, where, {}, mode="ignore") == (None, [])
    failing: Any = (
        session.range(0, 10)
        .selectExpr("assert_true(id < 5) AS x", "id")
        .drop("x")
        .selectExpr("CASE WHEN id = 7 THEN raise_error('broken') ELSE id END AS id")
    )
    with pytest.raises(trilake.TrilakeError, match="unchanged"):
        write_dataframe(failing.selectExpr("cast(id AS bigint) AS id"), where, {}, mode="append")
    assert lance.dataset(where).version == 1


def test_changes_as_jobs(session: SparkSession, uri: str) -> None:
    before = lance.dataset(uri).to_table().to_pylist()
    lance_jobs.delete(session, uri, "id % 10 = 3 OR id < 100")
    left = [r for r in before if r["id"] % 10 != 3 and r["id"] >= 100]
    ds = lance.dataset(uri)
    assert ds.to_table().to_pylist() == left
    assert [f.fragment_id for f in ds.get_fragments()] == [1, 2, 3]
    done = lance_jobs.update(session, uri, {"name": "concat(name, '!')"}, "id % 10 = 7")
    assert done.num_rows_updated == 30
    expected = {r["id"]: r["name"] + ("!" if r["id"] % 10 == 7 else "") for r in left}
    assert {r["id"]: r["name"] for r in lance.dataset(uri).to_table().to_pylist()} == expected
    with pytest.raises(trilake.TrilakeError):
        lance_jobs.update(session, uri, {"nope": "1"})
    with pytest.raises(trilake.TrilakeError, match="division by zero"):
        lance_jobs.update(session, uri, {"id": "id / (id - id)"}, "id = 107")
    metrics = lance_jobs.compact(session, uri)
    assert metrics.fragments_added == 1
    ds = lance.dataset(uri)
    assert {r["id"]: r["name"] for r in ds.to_table().to_pylist()} == expected
    ds.validate()
    assert pylance.dataset(uri).count_rows() == len(expected)


def test_small_batches_are_combined_in_order() -> None:
    batches = [pa.record_batch({"n": range(i * 1000, (i + 1) * 1000)}) for i in range(100)]
    joined = list(_join_batches(iter(batches)))
    assert pa.Table.from_batches(joined) == pa.Table.from_batches(batches).combine_chunks()
    assert [b.num_rows for b in joined[:3]] == [1000, 2000, 4000]
    assert max(b.num_rows for b in joined) < 66_000
    assert len(joined) < 10
    assert list(_join_batches(iter([]))) == []
    wide = [pa.record_batch({"b": [b"x" * (10 << 20)]}) for _ in range(6)]
    assert max(b.num_rows for b in _join_batches(iter(wide))) == 2
