"""Frames follow their tables, or stay pinned to a version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from trilake.errors import InvalidArgumentError
from trilake.spark.live_frames import frames


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    append(path, 1, 2)
    return path


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.register(spark)
    yield spark
    trilake.unregister(spark)


def append(path: str, *ids: int) -> None:
    trilake.write(pa.table({"id": list(ids)}), path, mode="append")


def test_setting_pins_frames(session: SparkSession, conf: Callable[[str, str], None], table: str) -> None:
    before = session.read.format("delta").load(table)
    conf(frames.FRAMES, "pinned")
    pinned = session.read.format("delta").load(table)
    append(table, 3)
    assert (before.count(), pinned.count(), pinned.where("id > 0").count()) == (3, 2, 2)
    conf(frames.FRAMES, "FOLLOW")
    after = session.read.format("delta").load(table)
    append(table, 4)
    assert (before.count(), pinned.count(), after.count()) == (4, 2, 4)
    conf(frames.FRAMES, "never")
    with pytest.raises(InvalidArgumentError, match="must be follow or pinned, got 'never'"):
        session.read.format("delta").load(table)


def test_unregister_restores_spark_frames(session: SparkSession, table: str) -> None:
    frame = session.read.format("delta").load(table)
    made, unused = frame.where("id > 1"), frame.groupBy().agg(F.sum("id"))
    frame_class = type(session.range(1))
    append(table, 3)
    assert made.count() == 2
    trilake.unregister(session)
    assert type(frame) is type(made) is type(unused) is frame_class
    append(table, 4)
    assert (made.count(), unused.first()) == (2, (3,))
    trilake.register(session)


def test_unsupported_spark_pins_frames(
    session: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(*_: Any) -> Any:
        raise TypeError("'JavaPackage' object is not callable")

    with monkeypatch.context() as patch:
        patch.setattr(frames, "template", missing)
        patch.setattr(frames, "_probed", {})
        frame = session.read.format("delta").load(table)
        assert "DataFrames keep the version of their first read" in caplog.text
    made = frame.where("id > 0")
    append(table, 3)
    assert (frame.count(), made.count()) == (2, 2)
    assert session.read.format("delta").load(table).count() == 3
