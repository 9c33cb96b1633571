"""Spark's classes are patched in one place: guarded, reversible, and without private fields."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter

import trilake
from trilake.errors import InvalidArgumentError, TrilakeError
from trilake.spark.patches import chains, recorder
from trilake.spark.patches.recorder import patch, patched, record_of, undo, watch
from trilake.spark.session.bypass import bypass
from trilake.spark.session.compat import RELEASE


class Reader:
    def load(self, path: str, **options: str) -> str:
        return f"Spark reads {path}{options or ''}"


class Inherits(Reader):
    pass


@pytest.fixture(autouse=True)
def _undone() -> Any:
    yield
    undo("test")
    undo("other")


def _ours(own: Any, self: Any, path: str) -> Any:
    return (lambda: f"we read {path}") if path.endswith(".d") else None


def test_other_calls_reach_spark_unchanged() -> None:
    patch(Reader, "load", _ours, owner="test")
    assert Reader().load("a.d") == "we read a.d"
    assert Reader().load("a.csv") == "Spark reads a.csv"
    assert Reader().load(path="a.csv") == "Spark reads a.csv"


def test_failing_decider_is_logged_once_and_left_to_spark(caplog: pytest.LogCaptureFixture) -> None:
    """A new parameter, a renamed field: the decider fails, the call does not."""
    patch(Reader, "load", _ours, owner="test")
    with caplog.at_level(logging.WARNING, "trilake.spark"):
        assert Reader().load("a.d", sep=";") == "Spark reads a.d{'sep': ';'}"
        assert Reader().load("a.d", sep=";") == "Spark reads a.d{'sep': ';'}"
    assert len([r for r in caplog.records if "does not replace it" in r.message]) == 1


def test_trilake_errors_are_raised() -> None:
    def reject(own: Any, self: Any, path: str) -> Any:
        raise InvalidArgumentError("no")

    patch(Reader, "load", reject, owner="test")
    with pytest.raises(InvalidArgumentError):
        Reader().load("a")


def test_failed_action_is_not_repeated_by_spark() -> None:
    def fail() -> str:
        raise RuntimeError("half done")

    patch(Reader, "load", lambda own, self, path: fail, owner="test")
    with pytest.raises(RuntimeError, match="half done"):
        Reader().load("a")


def test_internal_calls_go_to_spark() -> None:
    patch(Reader, "load", lambda own, self, path: lambda: f"we asked: {self.load(path)}; {own(path)}", owner="test")
    assert Reader().load("a") == "we asked: Spark reads a; Spark reads a"
    with bypass():
        assert Reader().load("a") == "Spark reads a"


def test_newest_decider_runs_first_and_each_can_be_undone() -> None:
    before = Reader.load
    patch(Reader, "load", lambda own, self, path: lambda: "first", owner="test")
    patch(Reader, "load", lambda own, self, path: (lambda: "second") if path == "b" else None, owner="other")
    assert (Reader().load("a"), Reader().load("b")) == ("first", "second")
    undo("test")
    assert (Reader().load("a"), Reader().load("b")) == ("Spark reads a", "second")
    undo("other")
    assert Reader.load is before
    assert patched("test") == []


def test_inherited_method_is_restored() -> None:
    patch(Inherits, "load", _ours, owner="test")
    assert (Inherits().load("a.d"), Reader().load("a.d")) == ("we read a.d", "Spark reads a.d")
    undo("test")
    assert "load" not in vars(Inherits)


def test_later_patches_of_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    patch(Reader, "load", _ours, owner="test")
    below = Reader.load
    monkeypatch.setattr(Reader, "load", lambda self, path: f"theirs, then {below(self, path)}")
    undo("test")
    assert Reader().load("a.d") == "theirs, then Spark reads a.d"


def test_unknown_method_is_not_patched() -> None:
    patch(Reader, "changes", _ours, owner="test")
    assert not hasattr(Reader, "changes")


def test_partially_recorded_chain_has_no_record() -> None:
    def broken(record: Any, path: str) -> None:
        raise KeyError(path)

    watch(Reader, "__init__", lambda record: None, owner="test")
    watch(Reader, "load", broken, owner="test")
    reader = Reader()
    assert record_of(reader) is not None
    reader.load("a")
    assert record_of(reader) is None


def test_chains_of_both_kinds_of_sessions_are_watched(spark: SparkSession) -> None:
    trilake.register(spark)
    df = spark.range(3)
    record = record_of(df.write.format("CSV").option("Sep", True).options(sep=1).mode("append").partitionBy(["id"]))
    assert record is not None
    assert (record.format, record.options, record.mode, record.partition_by) == ("csv", {"sep": "1"}, "append", ("id",))
    assert chains.frame_of(record) is df
    assert [c.__module__ for c in chains.classes("writer")] == [
        "pyspark.sql.readwriter",
        "pyspark.sql.connect.readwriter",
    ]


def test_renamed_private_fields_do_not_break_other_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer's JVM object has only the methods that PySpark itself calls."""
    trilake.register(spark)

    class OnlySave:
        def __init__(self, java: Any) -> None:
            self.java = java

        def __getattr__(self, name: str) -> Any:
            if name in ("format", "mode", "option", "partitionBy"):
                return lambda *args: OnlySave(getattr(self.java, name)(*args))
            if name == "save":
                return self.java.save
            raise AttributeError(name)

    init = DataFrameWriter.__init__

    def strange(self: Any, df: DataFrame) -> None:
        init(self, df)
        self._jwrite = OnlySave(self._jwrite)

    monkeypatch.setattr(DataFrameWriter, "__init__", strange)
    spark.range(3).write.format("csv").save(str(tmp_path / "csv"))
    assert spark.read.schema("id int").csv(str(tmp_path / "csv")).count() == 3
    rows = spark.range(3).selectExpr("id", "id AS p")
    rows.write.format("delta").option("mergeSchema", True).partitionBy("p").save(str(tmp_path / "delta"))
    assert trilake.open(tmp_path / "delta").count() == 3


def test_unregister_restores_the_methods(spark: SparkSession) -> None:
    trilake.register(spark)
    assert patched("register")
    trilake.unregister(spark)
    try:
        for cls in (DataFrameWriter, DataFrameReader):
            assert not [name for name in vars(cls) if hasattr(vars(cls)[name], "__wrapped__")]
        assert patched("register") == []
        assert not [key for key in recorder._replaced if key[0].__module__.startswith("pyspark")]
    finally:
        trilake.register(spark)


@pytest.mark.skipif(RELEASE < (4, 1), reason="Spark has no pipelines before 4.1")
def test_pipeline_definitions_are_left_to_spark() -> None:
    from pyspark.pipelines import graph_element_registry as registry

    patch(Reader, "load", _ours, owner="test")
    assert Reader().load("t.d") == "we read t.d"
    with registry.graph_element_registration_context(object()):
        assert Reader().load("t.d") == "Spark reads t.d"
    assert Reader().load("t.d") == "we read t.d"


def test_trilake_error_in_a_watcher_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    class Writer:
        def save(self) -> str:
            return "saved"

        def __init__(self) -> None:
            pass

    def reject(record: recorder.Record, *args: object) -> None:
        raise InvalidArgumentError("the column is gone")

    watch(Writer, "__init__", reject, owner="test")
    with pytest.raises(TrilakeError, match="the column is gone"):
        Writer()
    undo("test")
    assert not caplog.records
    assert Writer().save() == "saved"
