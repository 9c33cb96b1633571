"""Lance datasets changed and indexed by Spark's tasks, and vectors of Spark ML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.ml.linalg import DenseVector, Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake import lance
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.lance.commands.merge_insert import MergeInsert
from trilake.lance.file.errors import IndexExistsError
from trilake.spark.lance import index_jobs as lance_index_jobs
from trilake.spark.lance import jobs, ml_vectors
from trilake.spark.lance.merge_job import merge_insert

ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "n": pa.array(range(100), pa.int64()), "s": ["old"] * 100})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    where = str(tmp_path / "t")
    lance.write_dataset(ROWS, where, max_rows_per_file=30).delete("id = 7")
    return where


def source(session: SparkSession, first: int, last: int) -> DataFrame:
    # Nondeterministic: a merge must compute it once.
    return session.range(first, last).selectExpr("'new' AS s", "id", "id * 10 AS n")


def test_a_task_reads_and_changes_many_small_fragments(session: SparkSession, tmp_path: Path) -> None:
    """A task per fragment took a minute for 500 fragments of ten rows."""
    where = str(tmp_path / "t")
    lance.write_dataset(ROWS.slice(0, 60), where, max_rows_per_file=1)
    df = session.read.format("lance").load(where)
    assert df.rdd.getNumPartitions() == 9
    assert [row.id for row in df.collect()] == list(range(60))
    tracker = session.sparkContext.statusTracker()
    session.sparkContext.setJobGroup("small fragments", "")
    try:
        assert jobs.delete(session, where, "id % 2 = 0").count() == 30
        assert jobs.update(session, where, {"s": "'new'"}, "id % 4 = 1").num_rows_updated == 15
    finally:
        session.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    stages = [tracker.getJobInfo(job).stageIds for job in tracker.getJobIdsForGroup("small fragments")]  # type: ignore[union-attr]
    tasks = [tracker.getStageInfo(stage).numTasks for some in stages for stage in some]  # type: ignore[union-attr]
    assert tasks
    assert max(tasks) <= 10
    rows = lance.dataset(where).to_table(["id", "s"]).to_pylist()
    assert sorted(r["id"] for r in rows) == list(range(1, 60, 2))
    assert {r["id"] for r in rows if r["s"] == "new"} == set(range(1, 60, 4))


@pytest.mark.parametrize(
    "what",
    [
        MergeInsert(("id",), update=True, insert=True),
        MergeInsert(
            ("id",),
            update=True,
            update_if="source.n > target.n + 820 AND target.s = 'old'",
            delete_unmatched=True,
            delete_if="id < 5",
        ),
        MergeInsert(("id",), insert=True, delete_matched=True),
    ],
    ids=["upsert", "conditional", "delete"],
)
def test_merge_is_equal_with_and_without_spark(session: SparkSession, uri: str, what: MergeInsert) -> None:
    from trilake.lance.commands.merge_insert import merge_insert as here

    rows = source(session, 90, 110)
    start = lance.dataset(uri)
    stats = merge_insert(session, uri, rows, "id", what)
    found = lance.dataset(uri)
    assert found.version == start.version + 1
    start.restore()
    snapshot, expected = here(lance.dataset(uri).snapshot, what, pa.Table.from_pandas(rows.toPandas()))
    assert stats == expected
    merged = lance.LanceDataset.of(snapshot, uri).to_table().sort_by("id")
    assert found.to_table().sort_by("id") == merged


def test_backquoted_names_can_be_merged(session: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "t")
    lance.write_dataset(pa.table({"k`": pa.array([1, 2], pa.int64()), "a`.b": pa.array([1, 2], pa.int64())}), where)
    source = session.createDataFrame([(2, 20), (3, 30)], "`k``` BIGINT, `a``.b` BIGINT")
    stats = merge_insert(session, where, source, "k`", MergeInsert(("k`",), update=True, insert=True))
    assert (stats.num_inserted_rows, stats.num_updated_rows) == (1, 1)
    assert sorted(lance.dataset(where).to_table()["a`.b"].to_pylist()) == [1, 20, 30]


def test_invalid_merges_are_rejected(session: SparkSession, uri: str) -> None:
    twice = source(session, 1, 3).union(source(session, 2, 3))
    version = lance.dataset(uri).version
    with pytest.raises(InvalidArgumentError, match="several"):
        merge_insert(session, uri, twice, "id")
    with pytest.raises(InvalidArgumentError, match="1 row matches, but when_matched_fail is set"):
        merge_insert(session, uri, source(session, 99, 101), "id", MergeInsert(("id",), fail_matched=True, insert=True))
    with pytest.raises(SchemaMismatchError):
        merge_insert(session, uri, session.range(3), "id")
    with pytest.raises(InvalidArgumentError):
        merge_insert(session, uri, source(session, 1, 2), "zz")
    assert lance.dataset(uri).version == version


def test_index_built_in_tasks(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(8, 16)) * 4
    rows = (centres[rng.integers(0, 8, 2000)] + rng.normal(size=(2000, 16))).astype(np.float32)
    rows[5] = np.nan
    where = str(tmp_path / "v")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 16)
    made = lance.write_dataset(pa.table({"id": range(2000), "v": vectors}), where, max_rows_per_file=700)
    made.delete("id % 10 = 3")
    monkeypatch.setattr(lance_index_jobs, "_ROWS", 700)
    monkeypatch.setattr(lance_index_jobs, "_PARTS", 2)
    monkeypatch.setattr(lance_index_jobs, "_STEPS", 4)
    how: dict[str, Any] = {"num_partitions": 4, "num_sub_vectors": 8}
    live = np.array([i for i in range(2000) if i % 10 != 3 and i != 5])
    for large in (1 << 27, 0):  # centroids trained on the driver and in tasks
        monkeypatch.setattr(lance_index_jobs, "_LARGE", large)
        snapshot = lance_index_jobs.create_index(session, where, "v", replace=not large, **how)
        ds = lance.dataset(where)
        assert snapshot.version == ds.version
        stats = ds.stats.index_stats("v_idx")
        sizes = [p["size"] for p in stats["partitions"]]
        assert sum(sizes) == len(live)
        assert [p.name for p in (tmp_path / "v" / "_indices" / stats["uuid"]).iterdir() if p.is_file()] != []
        hits = 0
        for q in rows[live[:20]]:
            near = {"column": "v", "q": q, "k": 10, "nprobes": 4, "refine_factor": 4}
            best = live[np.argsort(((rows[live] - q) ** 2).sum(1))[:10]]
            hits += len(set(best.tolist()) & set(ds.to_table(columns=["id"], nearest=near)["id"].to_pylist()))
        assert hits >= 190
    with pytest.raises(IndexExistsError):
        lance_index_jobs.create_index(session, where, "v", **how)


def test_spark_ml_vectors_in_a_catalog_table(session: SparkSession, tmp_path: Path) -> None:
    """``saveAsTable`` failed with an unknown type 'udt', while ``save`` wrote vectors."""
    df = session.createDataFrame([(1, Vectors.dense([1.0, 2.0]))], ["id", "f"])
    try:
        df.write.format("lance").option("path", str(tmp_path / "t")).saveAsTable("ml_vectors_named")
        df.write.format("lance").mode("overwrite").saveAsTable("ml_vectors_named")
        df.write.format("lance").mode("append").saveAsTable("ml_vectors_named")
        assert session.table("ml_vectors_named").select("f").collect() == [(DenseVector([1.0, 2.0]),)] * 2
    finally:
        session.sql("DROP TABLE IF EXISTS ml_vectors_named")


def test_spark_ml_vectors(session: SparkSession, tmp_path: Path) -> None:
    rows = [(1, Vectors.dense([1.0, 2.0, 3.0])), (2, Vectors.sparse(3, [1], [5.0])), (3, Vectors.sparse(3, [], []))]
    df = session.createDataFrame(rows, ["id", "f"])
    where = str(tmp_path / "ml")
    df.write.format("lance").mode("append").save(where)
    df.write.format("lance").mode("append").save(where)
    ds = lance.dataset(where)
    assert ds.schema.field("f").type == pa.list_(pa.float64(), 3)
    assert sorted(map(tuple, ds.to_table()["f"].to_pylist())) == sorted([(1, 2, 3), (0, 5, 0), (0, 0, 0)] * 2)
    found = session.read.format("lance").load(where)
    assert isinstance(found.schema["f"].dataType, VectorUDT)
    assert found.where("id = 2").select("f").first() == (DenseVector([0.0, 5.0, 0.0]),)
    arrays = session.read.format("lance").option("mlVectors", "").load(where)
    assert arrays.schema["f"].dataType.simpleString() == "array<double>"
    stats = merge_insert(session, where, df.withColumn("id", F.col("id") + 2), "id", MergeInsert(("id",), insert=True))
    assert stats.num_inserted_rows == 2
    # The same with trilake.write and trilake.read, as 32-bit floats, and for arrays with the size of the first row.
    again = str(tmp_path / "again")
    trilake.write(df, again, format="lance", properties={"vectors": "f:3", "vectorType": "float"})
    assert lance.dataset(again).schema.field("f").type == pa.list_(pa.float32(), 3)
    assert trilake.read(session, again).where("id = 1").select("f").first() == (DenseVector([1.0, 2.0, 3.0]),)
    plain = str(tmp_path / "plain")
    numbers = session.range(10).selectExpr("id", "array(cast(id AS double), 1.0D) AS v")
    numbers.write.format("lance").option("vectors", "v").option("vectorType", "double").mode("append").save(plain)
    assert lance.dataset(plain).schema.field("v").type == pa.list_(pa.float64(), 2)
    as_ml = session.read.format("lance").option("mlVectors", "*").load(plain)
    assert as_ml.where("id = 4").select("v").first() == (DenseVector([4.0, 1.0]),)


def test_invalid_vectors_are_rejected(session: SparkSession, tmp_path: Path) -> None:
    uneven = session.createDataFrame([(1, Vectors.dense([1.0])), (2, Vectors.dense([1.0, 2.0]))], ["id", "f"])
    where = str(tmp_path / "t")
    with pytest.raises((PySparkException, SchemaMismatchError)):
        uneven.repartition(2, "id").write.format("lance").mode("append").save(where)
    with pytest.raises(ValueError):
        lance.dataset(where)
    assert not list(Path(where).rglob("*.lance"))
    with pytest.raises((PySparkException, SchemaMismatchError), match="size of the vectors"):
        uneven.where("id > 5").write.format("lance").mode("append").save(where)


def test_sparse_and_dense_vectors_as_lists() -> None:
    given: list[Any] = [
        {"type": 1, "size": None, "indices": None, "values": [1.0, 2.0]},
        None,
        {"type": 0, "size": 4, "indices": [0, 3], "values": [7.0, 8.0]},
        {"type": 0, "size": 2, "indices": [], "values": []},
        {"type": 1, "size": None, "indices": None, "values": []},
    ]
    lists = ml_vectors.as_lists(pa.array(given, ml_vectors.STRUCT))
    assert lists.to_pylist() == [[1.0, 2.0], None, [7.0, 0.0, 0.0, 8.0], [0.0, 0.0], []]
    again = ml_vectors.as_vectors(lists)
    assert ml_vectors.as_lists(again).to_pylist() == lists.to_pylist()
    wrong: list[Any] = [
        {"type": 0, "size": 2, "indices": [2], "values": [1.0]},
        {"type": 0, "size": 2, "indices": [-1], "values": [1.0]},
        {"type": 0, "size": 2, "indices": [0, 1], "values": [1.0]},
        {"type": 0, "size": 1 << 30, "indices": [], "values": []},
    ]
    for bad in wrong:
        with pytest.raises(trilake.TrilakeError):
            ml_vectors.as_lists(pa.array([bad], ml_vectors.STRUCT))
