"""Rows that a DataFrame reads from its target table count as reads of the commit, which conflicts if they changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

import trilake
from trilake.delta.commands.merge.commit import MergeResult
from trilake.delta.commands.rows.row_changes import Runner
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import WritePlan, WriteResult, finish_write
from trilake.delta.files.file_plan import WrittenFiles
from trilake.delta.log.log import DeltaLog
from trilake.errors import ConcurrentAppendError, ConcurrentDeleteReadError, ConflictError
from trilake.spark.delta.merge import job
from trilake.spark.delta.write import write_dataframe
from trilake.spark.session.schemas import from_spark


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Ids 0 to 5, two in each of three partitions."""
    path = str(tmp_path / "t")
    trilake.write(pa.table({"id": range(6), "p": [0, 0, 1, 1, 2, 2]}), path, partition_by="p")
    return path


def _append(df: DataFrame, path: str, change_concurrently: Callable[[], object] = lambda: None, **request: Any) -> bool:
    """Write a frame during a concurrent commit; whether the commit is a blind append."""

    def finish(log: DeltaLog, plan: WritePlan, written: Iterable[WrittenFiles], *, run: Runner) -> WriteResult:
        change_concurrently()
        return finish_write(log, plan, written, run=run)

    write = WriteRequest(**{"mode": "append", "schema": from_spark(df.schema), **request})
    write_dataframe(df, path, {}, write, finish=finish)
    return bool(trilake.open(path).history(1).to_pylist()[0]["isBlindAppend"])


def _ids(path: str) -> list[int]:
    return sorted(trilake.open(path).to_arrow()["id"].to_pylist())


def test_only_writes_from_other_tables_are_blind_appends(sql: SparkSession, table: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    trilake.write(pa.table({"id": [7], "p": [7]}), other)
    sql.read.format("delta").load(table).createOrReplaceTempView("own_rows")
    sql.read.format("delta").load(other).createOrReplaceTempView("rows_of_others")
    try:
        blind = {
            query: _append(sql.sql(query), table)
            for query in (
                "SELECT 7L AS id, 7L AS p",
                "SELECT * FROM rows_of_others",
                f"SELECT * FROM delta.`{table}` VERSION AS OF 0",
                "SELECT * FROM own_rows WHERE p = 1",
                "SELECT (SELECT max(id) FROM own_rows) AS id, 3L AS p",
                "SELECT * FROM rows_of_others WHERE id NOT IN (SELECT id FROM own_rows)",
                "WITH x AS (SELECT max(id) AS m FROM own_rows) SELECT m AS id, 1L AS p FROM x",
                f"SELECT o.* FROM rows_of_others o JOIN delta.`{table}` t ON t.p = o.p",
            )
        }
    finally:
        sql.catalog.dropTempView("own_rows")
        sql.catalog.dropTempView("rows_of_others")
    assert list(blind.values()) == [True, True, True, False, False, False, False, False], blind


@pytest.mark.parametrize(
    ("where", "removed", "error"),
    [
        ("true", "p = 0", ConcurrentDeleteReadError),
        ("p = 1", "p = 1", ConcurrentDeleteReadError),
        ("p = 1", "p = 2", None),
    ],
)
@pytest.mark.parametrize("isolation", ["WriteSerializable", "Serializable"])
def test_append_conflicts_with_delete_of_read_rows(
    sql: SparkSession, table: str, where: str, removed: str, error: type[ConflictError] | None, isolation: Any
) -> None:
    df = sql.read.format("delta").load(table).where(where).selectExpr("id + 10 AS id", "p")
    before = _ids(table)

    def change_concurrently() -> None:
        trilake.open(table).delete(removed)

    if error is None:
        _append(df, table, change_concurrently, isolation=isolation)
        assert _ids(table) == [0, 1, 2, 3, 12, 13]
    else:
        with pytest.raises(error):
            _append(df, table, change_concurrently, isolation=isolation)
        assert set(_ids(table)) < set(before)


@pytest.mark.parametrize(
    ("p", "isolation", "error"),
    [(1, "WriteSerializable", None), (1, "Serializable", ConcurrentAppendError), (2, "Serializable", None)],
)
def test_concurrent_appends_follow_the_isolation_level(
    sql: SparkSession, table: str, p: int, isolation: Any, error: type[ConflictError] | None
) -> None:
    df = sql.read.format("delta").load(table).where("p = 1").selectExpr("id + 10 AS id", "p")

    def change_concurrently() -> None:
        trilake.write(pa.table({"id": [99], "p": [p]}), table, mode="append")

    if error is None:
        assert not _append(df, table, change_concurrently, isolation=isolation)
    else:
        with pytest.raises(error):
            _append(df, table, change_concurrently, isolation=isolation)


def test_overwrite_with_stale_own_rows_conflicts(sql: SparkSession, table: str) -> None:
    """It would delete unseen rows; a partial overwrite conflicts only in its part."""

    def old(where: str = "p > 0") -> DataFrameWriter:
        return sql.read.format("delta").load(table).where(where).write.format("delta").mode("overwrite")

    whole, part = old(), old("p = 1").option("replaceWhere", "p = 1")
    trilake.write(pa.table({"id": [99], "p": [0]}), table, mode="append")
    with pytest.raises(ConflictError, match="read the table again"):
        whole.save(table)
    part.save(table)
    assert _ids(table) == [0, 1, 2, 3, 4, 5, 99]
    part = old("p = 1").option("replaceWhere", "p = 1")
    trilake.open(table).update({"id": "id + 100"}, "p = 1")
    with pytest.raises(ConflictError, match="read the table again"):
        part.save(table)
    old().save(table)
    assert _ids(table) == [4, 5, 102, 103]


def test_dynamic_overwrite_without_partitions_replaces_all(
    sql: SparkSession, tmp_path: Path, conf: Callable[[str, str], None]
) -> None:
    conf("spark.sql.sources.partitionOverwriteMode", "dynamic")
    path = str(tmp_path / "plain")
    trilake.write(pa.table({"id": [1, 2]}), path)
    old = sql.read.format("delta").load(path).where("id = 1").write.format("delta").mode("overwrite")
    trilake.write(pa.table({"id": [3]}), path, mode="append")
    with pytest.raises(ConflictError, match="read the table again"):
        old.save(path)


def test_own_newest_rows_are_appended_repeatedly(sql: SparkSession, table: str) -> None:
    derived = sql.read.format("delta").load(table).where("p = 1").selectExpr("id + 10 AS id", "p")
    for _ in range(2):
        derived.write.format("delta").mode("append").save(table)
    assert _ids(table)[6:] == [12, 12, 13, 13, 22, 23]


def test_merge_reads_the_tables_of_its_source(sql: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"delta.`{table}`"
    source = f"(SELECT id + 10 AS id, p FROM {name} WHERE p = 1)"
    merge = f"MERGE INTO {name} t USING {source} s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    finish = job.finish_merge

    def after(removed: str) -> Callable[..., MergeResult]:
        def late(*args: Any) -> MergeResult:
            trilake.open(table).delete(removed)
            return finish(*args)

        return late

    monkeypatch.setattr(job, "finish_merge", after("p = 2"))
    sql.sql(merge)
    assert _ids(table) == [0, 1, 2, 3, 12, 13]
    trilake.open(table).delete("id > 10")
    monkeypatch.setattr(job, "finish_merge", after("p = 1"))
    with pytest.raises(ConcurrentDeleteReadError):
        sql.sql(merge)
    assert _ids(table) == [0, 1]
