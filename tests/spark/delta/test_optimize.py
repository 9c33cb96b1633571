"""``DeltaTable.optimize()`` on Spark: delta-spark's builder, its metrics and settings; optimized writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from trilake.delta.commands.optimize.optimize import OptimizeRequest, optimize
from trilake.delta.commit import row_tracking
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.optimize import RESULT, OptimizeRunner, conjuncts, history_predicates, print_condition
from trilake.spark.delta.table import DeltaTable
from trilake.storage import open_store


@contextmanager
def conf(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Temporary settings below ``spark.databricks.delta``; two underscores stand for a dot."""
    names = {f"spark.databricks.delta.{k.replace('__', '.')}": v for k, v in settings.items()}
    try:
        for name, value in names.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def files(path: Path, count: int = 3, each: int = 4, **more: Any) -> str:
    """A table of small files, without Spark."""
    for n in range(count):
        ids = range(n * each, (n + 1) * each)
        trilake.write(pa.table({"id": ids, "p": [f"p{i % 2}" for i in ids]}), path, mode="append", **more)
        more.pop("properties", None)
    return str(path)


def test_compaction_returns_what_delta_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    path = files(tmp_path / "t", partition_by=["p"])
    table = DeltaTable.forPath(spark, path)
    found = table.optimize().where("p = 'p1' AND p IS NOT NULL").executeCompaction()
    assert found.schema == RESULT
    assert found.columns == ["path", "metrics"]
    row = found.first()
    assert row is not None
    assert row.path.endswith("/t")
    m = row.metrics
    assert (m.numFilesAdded, m.numFilesRemoved, m.partitionsOptimized, m.numBatches) == (1, 3, 1, 1)
    assert (m.totalConsideredFiles, m.totalFilesSkipped, m.numTableColumns) == (3, 0, 2)
    assert m.filesRemoved.totalFiles == 3
    assert m.zOrderStats is None
    (last, *_) = trilake.open(path).history().to_pylist()
    # As Spark prints the parsed predicate, which delta-spark records.
    assert dict(last["operationParameters"])["predicate"] == """["('p = p1)","isnotnull('p)"]"""
    # The other partition, and the first again: several bins are tasks of one job.
    files(tmp_path / "t")
    m = table.optimize().executeCompaction().select("metrics.*").head()
    assert m is not None
    assert (m.numFilesAdded, m.numFilesRemoved, m.partitionsOptimized) == (2, 10, 2)
    assert sorted(trilake.open(path).to_arrow()["id"].to_pylist()) == sorted([*range(12)] * 2)


def test_zorder_and_its_errors(spark: SparkSession, tmp_path: Path) -> None:
    path = files(tmp_path / "t", partition_by=["p"], properties={"delta.dataSkippingNumIndexedCols": "0"})
    builder = DeltaTable.forPath(spark, path).optimize()
    with pytest.raises(TypeError, match=r"Z-order column must be str\. Found 1 with type <class 'int'>"):
        builder.executeZOrderBy("id", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="partitionFilter needs to be a string"):
        builder.where(1)  # type: ignore[arg-type]
    for columns, says in [
        (["p"], "p is a partition column. Z-Ordering can only be performed on data columns"),
        (["nope"], "Z-Ordering column nope does not exist in data schema"),
        (["id"], "would be ineffective"),
    ]:
        with pytest.raises(AnalysisException, match=says):
            builder.executeZOrderBy(columns)
    with pytest.raises(InvalidArgumentError, match="Predicate references non-partition column 'id'"):
        DeltaTable.forPath(spark, path).optimize().where("id = 1").executeCompaction()
    with conf(spark, optimize__zorder__checkStatsCollection__enabled="false"):
        m = builder.executeZOrderBy("id").select("metrics.*").head()
    assert m is not None
    assert (m.numFilesAdded, m.numFilesRemoved) == (2, 6)
    assert (m.zOrderStats.strategyName, m.zOrderStats.numOutputCubes) == ("all", 2)


@pytest.mark.parametrize(
    "condition", ["p = 'a'", "p = 'a' AND q > 1 AND r IS NOT NULL", "p IN ('a', 'b') OR q = 2", "NOT p LIKE 'x%'"]
)
def test_conditions_are_printed_equally_without_the_jvm(spark: SparkSession, condition: str) -> None:
    """Spark Connect does not expose its parser, but its EXPLAIN output."""
    assert conjuncts(print_condition(spark, condition)) == history_predicates(spark, condition)


def test_settings_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    path = files(tmp_path / "t", properties={"delta.enableDeletionVectors": "true"})
    table = DeltaTable.forPath(spark, path)
    with conf(spark, optimize__minFileSize="1"):
        assert table.optimize().executeCompaction().select("metrics.numFilesAdded").collect()[0][0] == 0
    with conf(spark, optimize__maxFileSize="x"), pytest.raises(InvalidArgumentError, match=r"maxFileSize must .*'x'"):
        table.optimize().executeCompaction()
    trilake.write(trilake.open(path).schema.empty_table(), path, mode="overwrite", replace_where="id = 1")
    m = table.optimize().executePurge().select("metrics.*").head()
    assert m is not None
    assert (m.numFilesRemoved, m.deletionVectorStats.numDeletionVectorRowsRemoved) == (1, 1)
    with conf(spark, autoCompact__enabled="true", autoCompact__minNumFiles="4"):
        trilake.write(trilake.read(spark, path).limit(1), path, mode="append")
    assert trilake.open(path).files().num_rows == 1, "three files and the new one"


def test_writes_are_optimized(spark: SparkSession, tmp_path: Path) -> None:
    trilake.register(spark)
    rows = spark.range(0, 400, numPartitions=4).withColumn("p", F.col("id") % 3)
    path = tmp_path / "t"
    rows.write.format("delta").partitionBy("p").option("optimizeWrite", "true").save(str(path))
    assert trilake.open(path).files().num_rows == 3
    with conf(spark, optimizeWrite__enabled="true"):
        rows.write.format("delta").mode("append").save(str(path))
    assert trilake.open(path).files().num_rows == 6
    trilake.alter(path).set_properties({"delta.autoOptimize.optimizeWrite": "true"})
    rows.write.format("delta").mode("append").save(str(path))
    assert trilake.open(path).files().num_rows == 9
    rows.write.format("delta").mode("append").option("optimizeWrite", "false").save(str(path))
    assert trilake.open(path).files().num_rows > 12
    assert trilake.open(path).count() == 1600
    assert spark.conf.get("spark.sql.adaptive.coalescePartitions.parallelismFirst") == "true"


def test_large_zorder_uses_a_shuffle(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t")
    rng = np.random.default_rng(0)
    properties = {"delta.enableRowTracking": "true", "delta.columnMapping.mode": "name"}
    for n in range(3):
        data = pa.table({"x y": rng.integers(0, 1000, 2000), "d": [Decimal(n)] * 2000, "l": [[n, None]] * 2000})
        trilake.write(data, path, mode="append", properties=properties if n == 0 else None)
    before = trilake.open(path).to_arrow()
    size = sum(trilake.open(path).files()["size"].to_pylist())
    monkeypatch.setattr("trilake.spark.delta.optimize._READ_BYTES", 1)
    run = OptimizeRunner(spark, large=1)
    log = DeltaLog(open_store(path), standard_engine())
    request = OptimizeRequest(zorder_by=("`x y`",), target_size=size // 4, memory=20_000)
    done = optimize(log, request, run=run)
    assert (done.files_removed, done.files_added) == (3, 4)
    files = trilake.open(path).files()
    assert sum(files["num_records"].to_pylist()) == 6000
    assert max(files["num_records"].to_pylist()) < 2000
    assert trilake.open(path).files("`x y` = 500").num_rows <= 2
    after = trilake.open(path).to_arrow()
    assert sorted(map(repr, after.to_pylist())) == sorted(map(repr, before.to_pylist()))
    # Rows keep their row ids.
    snapshot = log.snapshot()
    name = snapshot.metadata.configuration[row_tracking.ID_COLUMN]
    ids = [i for p in files["path"].to_pylist() for i in pq.read_table(tmp_path / "t" / p)[name].to_pylist()]
    assert sorted(ids) == list(range(6000))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("optimize__maxDeletedRowsRatio", "a number between 0 and 1"),
        ("optimize__maxFileSize", "an integer"),
        ("optimize__zorder__checkStatsCollection__enabled", "true or false"),
    ],
)
def test_invalid_setting_is_named(spark: SparkSession, tmp_path: Path, name: str, says: str) -> None:
    """An invalid share of deleted rows raised a ValueError, and an invalid boolean was false."""
    table = DeltaTable.forPath(spark, files(tmp_path / "t"))
    with conf(spark, **{name: "some"}), pytest.raises(InvalidArgumentError, match=says):
        table.optimize().executeCompaction()
