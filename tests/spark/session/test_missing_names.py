"""Each row of the table in ``internals.py``: if a private name is missing, rows are the same, or the call fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaClass, JavaMember
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake import DeltaTable
from trilake.errors import ConflictError, TrilakeError
from trilake.spark.live_frames import frames
from trilake.spark.live_frames.frames import pinned
from trilake.spark.session import internals

#: JVM methods and classes, by their row in the table.
ROWS: dict[str, tuple[str, ...]] = {
    "the plan of a frame": ("queryExecution",),
    "the text of a column": ("expression",),
    "how Spark parses and keeps names": ("sessionState",),
    "settings of the session in one call": ("getAll",),
    "whether delta-spark's jar is there": ("getContextClassLoader",),
    "columns and filters of a query for our sources": ("DataSourceV2Relation",),
    "what a frame reads": ("collectLeaves", "subqueriesAll"),
    "files chosen when a query is planned": ("location",),
    "partition values that no folder spells": ("PartitionDirectory", "executeCollect"),
    "the session that is active": ("setActiveSession",),
    "many columns at once": ("compile",),
    "columns that hold no nulls": ("KnownNotNull", "copy"),
    "numbers that a plan carries": ("UnsafeArrayData", "fromPrimitiveArray", "Invoke"),
    "a table's name before columns": ("SubqueryAlias", "AliasIdentifier"),
    "a newer version in a frame": ("transformWithSubqueries",),
    "a hidden column of a frame": ("hiddenOutputTag", "setTagValue"),
}
#: The result of a scenario step that is not supported.
FAILED = "failed"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    yield spark
    trilake.uninstall(spark)


def take_away(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Hide JVM methods and classes with these names, as py4j reports missing ones."""
    call, make = JavaMember.__call__, JavaClass.__call__

    def called(self: Any, *args: Any) -> Any:
        if self.name in names:
            raise Py4JError(f"Method {self.name}([]) does not exist")
        return call(self, *args)

    def made(self: Any, *args: Any) -> Any:
        if self._fqn.rsplit(".", 1)[-1] in names:
            raise TypeError("'JavaPackage' object is not callable")
        return make(self, *args)

    patch.setattr(JavaMember, "__call__", called)
    patch.setattr(JavaClass, "__call__", made)
    patch.setattr(frames, "_probed", {})
    patch.setattr(internals, "_logged", set())


def append(path: str, *ids: int) -> None:
    trilake.write(pa.table({"id": list(ids), "p": ["x"] * len(ids), "n": [0.5] * len(ids)}), path, mode="append")


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(r) for r in frame.collect())


def scenario(session: SparkSession, path: str) -> dict[str, object]:
    """The result of each step: its rows or ``FAILED``."""
    ids = [1, 2, 3, 4, 5, 6]
    properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    table = pa.table({"id": ids, "p": [*"aabbcc"], "n": [float(i) for i in ids]})
    trilake.write(table.cast(pa.schema([("id", pa.int64(), False), ("p", pa.string()), ("n", pa.float64())])), path)
    trilake.alter(path).set_properties(properties)
    trilake.open(path).delete("id = 2")
    steps: dict[str, Callable[[], object]] = {
        "filter": lambda: rows(session.read.format("delta").load(path).where("p = 'b' AND n > 3")),
        "files": lambda: session.read.format("delta").load(path).select("_metadata.file_name").distinct().count() > 0,
        "SQL": lambda: rows(
            session.sql(f"SELECT id FROM delta.`{path}` WHERE id NOT IN (SELECT id FROM delta.`{path}` WHERE p = 'c')")
        ),
        "merge": lambda: _merge(session, path),
        "own rows": lambda: _own_rows(session, path),
        "frames": lambda: _frames(session, path),
    }
    out: dict[str, object] = {}
    for name, step in steps.items():
        try:
            out[name] = step()
        except (TrilakeError, PySparkException, Py4JError):
            out[name] = FAILED
    return out


def _merge(session: SparkSession, path: str) -> object:
    source = session.read.format("delta").load(path).where("id > 4").withColumn("n", F.lit(9.0))
    merge = DeltaTable.forPath(session, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().execute()
    return sorted(trilake.open(path).to_arrow()["n"].to_pylist())


def _own_rows(session: SparkSession, path: str) -> object:
    """Rows that another writer adds while a table is overwritten with its own rows are not lost."""
    kept = pinned(session.read.format("delta").load(path).where("id < 5"))
    append(path, 7)
    try:
        kept.write.format("delta").mode("overwrite").save(path)
    except ConflictError:
        return 7 in trilake.open(path).to_arrow()["id"].to_pylist()
    return 7 in trilake.open(path).to_arrow()["id"].to_pylist()


def _frames(session: SparkSession, path: str) -> object:
    frame = session.read.format("delta").load(path).select("id")
    before = rows(frame)
    append(path, 8)
    return rows(frame) == sorted([*before, (8,)]) or "pinned"


@pytest.fixture(scope="module")
def right(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    trilake.install(spark)
    try:
        return scenario(spark, str(tmp_path_factory.mktemp("right") / "t"))
    finally:
        trilake.uninstall(spark)


@pytest.mark.parametrize("row", ROWS)
def test_missing_private_names_never_give_wrong_rows(
    session: SparkSession, tmp_path: Path, right: dict[str, object], row: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert FAILED not in right.values()
    assert right["frames"] is right["own rows"] is True
    with pytest.MonkeyPatch.context() as patch:
        take_away(patch, *ROWS[row])
        answers = scenario(session, str(tmp_path / "t"))
    for step, answer in answers.items():
        if answer == "pinned":
            assert "DataFrames keep the version of their first read" in caplog.text
        else:
            assert answer in (right[step], FAILED), f"{step} without {row}"
