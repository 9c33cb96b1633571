"""Every option in a chain of calls is applied or rejected, never ignored."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import trilake
from tests.spark.patches.frames import two_rows
from trilake.errors import FilterError, InvalidArgumentError

FORMATS = ("delta", "lance", "trevni")


def _made(folder: Path, format: str, name: str = "t", rows: int = 3) -> str:
    path = str(folder / f"{format}-{name}")
    trilake.write(
        pa.table({"key": ["x", "y", "x"][:rows], "value": pa.array(range(1, rows + 1), pa.int32())}),
        path,
        format=format,
    )
    return path


@pytest.mark.parametrize("format", FORMATS)
def test_filter_option_selects_rows_of_every_format(session: SparkSession, tmp_path: Path, format: str) -> None:
    path = _made(tmp_path, format)
    reader = session.read.format(format)
    assert reader.option("filter", "value > 1").load(path).count() == 2
    assert [r.key for r in reader.schema("key string").load(path).collect()] == ["y", "x"]  # the chain continues
    with pytest.raises((FilterError, AnalysisException)):
        session.read.format(format).option("filter", "").load(path).count()


@pytest.mark.parametrize("format", FORMATS)
def test_filter_option_is_case_insensitive(session: SparkSession, tmp_path: Path, format: str) -> None:
    df = session.read.format(format).option("FILTER", "value > 1").load(_made(tmp_path, format))
    assert [tuple(r) for r in df.where("key = 'x'").collect()] == [("x", 3)]


def test_filter_option_with_change_feed_is_rejected(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    trilake.write(pa.table({"n": [1, 2]}), path, properties={"delta.enableChangeDataFeed": "true"})
    feed = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    assert feed.load(path).count() == 2
    with pytest.raises(InvalidArgumentError, match="not supported for a change feed"):
        feed.option("filter", "n > 1").load(path)


@pytest.mark.parametrize("format", FORMATS)
def test_two_paths_are_rejected(session: SparkSession, tmp_path: Path, format: str) -> None:
    first, second = _made(tmp_path, format), _made(tmp_path, format, "u", rows=1)
    with pytest.raises(InvalidArgumentError, match=r"the option path is .*, but the call names"):
        session.read.format(format).option("path", first).load(second)
    with pytest.raises(InvalidArgumentError, match=r"the option path is .*, but the call names"):
        two_rows(session).write.format(format).mode("append").option("Path", first).save(second)
    with pytest.raises(InvalidArgumentError, match=r"the option path is .*, but the call names"):
        session.readStream.format(format).option("path", first).load(second)
    assert session.read.format(format).option("path", f"file://{second}").load(second).count() == 1


@pytest.mark.parametrize("format", FORMATS)
def test_name_and_path_of_another_table_are_rejected(session: SparkSession, tmp_path: Path, format: str) -> None:
    name, path = f"unheard_{format}", _made(tmp_path, format, "u")
    two_rows(session).write.format(format).saveAsTable(name)
    try:
        with pytest.raises(InvalidArgumentError, match="doesn't match the specified location"):
            session.read.option("path", path).table(name)
        with pytest.raises(InvalidArgumentError, match="doesn't match the specified location"):
            two_rows(session).write.option("path", path).insertInto(name)
        with pytest.raises(InvalidArgumentError, match="can't be used together with bucketBy"):
            two_rows(session).write.bucketBy(2, "key").insertInto(name)
        if hasattr(two_rows(session).write, "clusterBy"):
            with pytest.raises(InvalidArgumentError, match="can't be used together with clusterBy"):
                two_rows(session).write.clusterBy("key").insertInto(name)
        assert session.table(name).count() == 2
    finally:
        session.sql(f"DROP TABLE {name}")


def test_numeric_options_accept_only_digits(session: SparkSession, tmp_path: Path) -> None:
    path = _made(tmp_path, "delta")
    with pytest.raises(InvalidArgumentError, match="must be an integer, got"):
        session.read.format("delta").option("versionAsOf", "0_0").load(path)
    with pytest.raises(InvalidArgumentError, match="must be an integer, got"):
        two_rows(session).write.format("delta").mode("append").option("maxRecordsPerFile", "1_0").save(path)
