"""Replacements for parts of Spark's data source API that older releases lack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake import register, write
from trilake.errors import UnsupportedSparkError
from trilake.spark.lance.source import LanceDataSource
from trilake.spark.patches import stream_writer
from trilake.spark.session import compat
from trilake.spark.session.sources import api as source_api
from trilake.spark.session.sources import python_source


def test_releases_are_parsed_as_major_and_minor() -> None:
    assert compat.parse_release("3.5.9") == (3, 5)
    assert compat.parse_release("4.10.0.dev2") == (4, 10)


class _Counting:
    """A stream of numbers, whose offset is the number of values read."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.starts: list[int] = []

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        assert isinstance(limit, source_api.ReadAllAvailable)
        self.starts.append(start["n"])
        return {"n": max(self.newest, start["n"])}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        return list(range(start["n"], end["n"]))

    def read(self, partition: Any) -> Iterator[Any]:
        return iter([partition])


def test_release_without_limits_continues_after_its_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_api, "HAS_ADMISSION", False)
    inner = _Counting(3)
    reader: Any = source_api.stream_reader(inner)  # type: ignore[arg-type]
    assert reader.initialOffset() == {"n": 0}
    assert reader.latestOffset() == {"n": 3}
    assert reader.partitions({"n": 0}, {"n": 3}) == [0, 1, 2]
    inner.newest = 5
    assert reader.latestOffset() == {"n": 5}
    # A restarted query passes the last offset before it requests a new one.
    again: Any = source_api.stream_reader(inner)  # type: ignore[arg-type]
    assert again.partitions({"n": 5}, {"n": 5}) == []
    inner.newest = 7
    assert again.latestOffset() == {"n": 7}
    assert inner.starts == [0, 3, 5]


def test_unsupported_limit_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_api, "HAS_ADMISSION", False)
    with pytest.raises(UnsupportedSparkError, match="maxFilesPerTrigger"):
        source_api.stream_reader(_Counting(1), {"maxFilesPerTrigger"})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["delta", "lance", "trevni"])
def test_stream_with_unsupported_limit_is_rejected_early(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The error came from the stream's planning process, as a StreamingQueryException."""
    register(spark)
    write(pa.table({"n": [1]}), tmp_path / "t", format=name)
    monkeypatch.setattr(source_api, "HAS_ADMISSION", False)
    stream = spark.readStream.format(name)
    with pytest.raises(UnsupportedSparkError, match="maxFilesPerTrigger"):
        stream.option("MAXFILESPERTRIGGER", 1).load(str(tmp_path / "t"))
    with pytest.raises(UnsupportedSparkError, match="maxFilesPerTrigger"):
        spark.readStream.load(str(tmp_path / "t"), format=name, maxFilesPerTrigger=1)
    assert spark.readStream.format(name).load(str(tmp_path / "t")).isStreaming


def test_stream_of_a_name_with_unsupported_limit_is_rejected(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(spark)
    spark.range(3).write.format("delta").saveAsTable("streamed_with_limits")
    try:
        monkeypatch.setattr(source_api, "HAS_ADMISSION", False)
        with pytest.raises(UnsupportedSparkError, match="maxBytesPerTrigger"):
            spark.readStream.option("maxBytesPerTrigger", "1m").table("streamed_with_limits")
        lookups: list[str] = []
        monkeypatch.setattr(stream_writer, "session_options", lambda _, place, given: lookups.append(place) or given)
        assert spark.readStream.table("streamed_with_limits").columns == ["id"]
        assert len(lookups) == 1, "the process that plans the stream has none of the session's credentials"
    finally:
        spark.sql("DROP TABLE streamed_with_limits")


def test_sources_are_read_without_the_data_source_api_of_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_source, "HAS_DATA_SOURCES", False)
    write(pa.table({"n": [1, 2, 3], "s": ["a", None, "c"]}), tmp_path / "l", format="lance")
    write(pa.table({"n": [4], "s": ["d"]}), tmp_path / "l", format="lance", mode="append")
    df = python_source.source_frame(spark, LanceDataSource, str(tmp_path / "l"), {"filter": "n <> 2"})
    assert sorted(tuple(r) for r in df.collect()) == [(1, "a"), (3, "c"), (4, "d")]
    only = T.StructType([T.StructField("s", T.StringType())])
    frame = python_source.source_frame(spark, LanceDataSource, str(tmp_path / "l"), {}, only)
    assert frame.columns == ["s"]
    assert frame.count() == 4


def test_sink_without_data_sources_uses_foreach_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_api, "HAS_ARROW_SINKS", False)
    monkeypatch.setattr(source_api, "HAS_DATA_SOURCES", False)
    sink: Any = object()
    assert source_api.stream_writer(sink, T.StructType()) is sink
    monkeypatch.setattr(source_api, "HAS_DATA_SOURCES", True)
    assert source_api.stream_writer(sink, T.StructType()) is not sink
