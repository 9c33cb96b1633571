"""Rows that subqueries and a MERGE source read from the changed table count as reads of its commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trilake
from delta.tables import DeltaTable
from trilake.delta.commands.write.delete import RowCommand
from trilake.errors import ConcurrentAppendError, ConcurrentDeleteReadError, ConflictError
from trilake.spark.delta.merge import job
from trilake.spark.live_frames.frames import pinned
from trilake.spark.session.compat import RELEASE
from trilake.sql.spark.rows import dml

_MERGE = "MERGE INTO {t} t USING (SELECT 0L AS p) s ON t.p = s.p AND t.p = 0 WHEN MATCHED"
_ROWS, _JOB = (RowCommand, "finish"), (job, "finish_merge")
#: Changes of partition 0 that read partition 1, with the function that commits them.
_CHANGES: dict[str, tuple[tuple[Any, str], str]] = {
    "a value of UPDATE": (_ROWS, "UPDATE {t} SET id = (SELECT sum(id) FROM {t} WHERE p = 1) WHERE p = 0"),
    "a condition of UPDATE": (
        _ROWS,
        "UPDATE {t} SET id = 9 WHERE p = 0 AND id IN (SELECT id - 2 FROM {t} WHERE p = 1)",
    ),
    "a condition of DELETE": (_ROWS, "DELETE FROM {t} WHERE p = 0 AND id IN (SELECT id - 2 FROM {t} WHERE p = 1)"),
    "a value of MERGE": (
        _JOB,
        _MERGE + " THEN UPDATE SET id = (SELECT sum(id) FROM {t} WHERE p = 1)",
    ),
    "a condition of MERGE": (
        _JOB,
        _MERGE + " AND t.id < (SELECT sum(id) FROM {t} WHERE p = 1) THEN DELETE",
    ),
}


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Ids 0 to 5, two in each of three partitions."""
    path = str(tmp_path / "t")
    trilake.write(pa.table({"id": range(6), "p": [0, 0, 1, 1, 2, 2]}), path, partition_by="p")
    return path


@pytest.fixture
def before_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[Any, str], Callable[[], object]], None]:
    """Run a function once before a change commits."""

    def before(place: tuple[Any, str], act: Callable[[], object]) -> None:
        finish: Callable[..., Any] = getattr(*place)

        def late(*args: Any, **named: Any) -> Any:
            monkeypatch.setattr(*place, finish)
            act()
            return finish(*args, **named)

        monkeypatch.setattr(*place, late)

    return before


def _rows(path: str) -> list[tuple[int, int]]:
    rows = trilake.open(path).to_arrow()
    return sorted(zip(rows["p"].to_pylist(), rows["id"].to_pylist(), strict=True))


@pytest.mark.parametrize("change", _CHANGES)
def test_change_conflicts_with_delete_of_subquery_rows(
    sql: SparkSession, table: str, before_commit: Callable[[type, Callable[[], object]], None], change: str
) -> None:
    job, text = _CHANGES[change]
    before_commit(job, lambda: trilake.open(table).delete("p = 1"))
    with pytest.raises(ConcurrentDeleteReadError):
        sql.sql(text.format(t=f"delta.`{table}`"))
    assert _rows(table) == [(0, 0), (0, 1), (2, 4), (2, 5)]


def test_subquery_does_not_conflict_with_other_partitions(
    sql: SparkSession, table: str, before_commit: Callable[[type, Callable[[], object]], None]
) -> None:
    job, text = _CHANGES["a value of UPDATE"]
    before_commit(job, lambda: trilake.open(table).delete("p = 2"))
    sql.sql(text.format(t=f"delta.`{table}`"))
    assert _rows(table) == [(0, 5), (0, 5), (1, 2), (1, 3)]


@pytest.mark.parametrize("text", ["DELETE FROM {t} WHERE", "UPDATE {t} SET id = 9 WHERE"])
def test_subquery_reads_the_version_that_is_changed(
    sql: SparkSession, table: str, before_commit: Callable[[tuple[Any, str], Callable[[], object]], None], text: str
) -> None:
    before_commit((dml, "localized"), lambda: trilake.write(pa.table({"id": [7], "p": [0]}), table, mode="append"))
    t = f"delta.`{table}`"
    counts = sql.sql(f"{text.format(t=t)} id = (SELECT max(id) FROM {t})").collect()
    assert counts[0].num_affected_rows == 1
    assert {(0, 7), (2, 4)} <= set(_rows(table))
    assert (2, 5) not in _rows(table)


@pytest.mark.parametrize("condition", ["t.id = s.id", "t.id = s.id AND t.p = 0"])
def test_stale_merge_source_conflicts_with_changed_rows(sql: SparkSession, table: str, condition: str) -> None:
    """Later appended rows would be deleted as not matched by the source."""
    rows = pinned(sql.read.format("delta").load(table))
    source, other = (rows.where(w).selectExpr("id", "p").alias("s") for w in ("p < 2", "p = 2"))
    trilake.write(pa.table({"id": [9], "p": [0]}), table, mode="append")

    def merge(source: Any) -> None:
        into = DeltaTable.forPath(sql, table).alias("t").merge(source, condition)
        into.whenNotMatchedBySourceDelete("t.p = 0").execute()

    before = _rows(table)
    with pytest.raises(ConcurrentAppendError, match="read the table again"):
        merge(source)
    assert _rows(table) == before
    merge(other)
    assert _rows(table) == [(1, 2), (1, 3), (2, 4), (2, 5)]


def test_view_of_a_stale_frame_in_a_condition(sql: SparkSession, table: str) -> None:
    pinned(sql.read.format("delta").load(table)).where("p = 1").createOrReplaceTempView("older")
    text = f"DELETE FROM delta.`{table}` WHERE id IN (SELECT id + {{}} FROM older)"
    try:
        trilake.open(table).optimize()
        trilake.open(table).update({"id": "id + 100"}, "p = 2")
        sql.sql(text.format(-2))
        assert _rows(table) == [(1, 2), (1, 3), (2, 104), (2, 105)]
        trilake.open(table).update({"id": "id + 100"}, "p = 1")
        for changed in (102, 1000):  # no row has an id above 1000
            with pytest.raises(ConflictError, match="read the table again"):
                sql.sql(text.format(changed))
    finally:
        sql.catalog.dropTempView("older")


@pytest.mark.skipif(RELEASE < (4, 0), reason="Spark knows no subqueries of frames before 4.0")
def test_columns_of_a_frame_as_a_subquery(sql: SparkSession, table: str) -> None:
    most = sql.read.format("delta").load(table).where("p = 1").groupBy().max("id").scalar()
    trilake.open(table).update({"id": "id + 100"}, "p = 1")
    with pytest.raises(ConflictError, match="read the table again"):
        DeltaTable.forPath(sql, table).update("p = 0", {"id": most})
