"""Lance datasets and Trevni folders as sources and sinks of Structured Streaming."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import trilake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> Iterator[None]:
    trilake.register(spark)
    yield
    for query in spark.streams.active:
        query.stop()


def rows(first: int) -> pa.Table:
    ids = range(first, first + 3)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [[float(i)] * 2 for i in ids]})


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_a_stream_from_folder_to_folder(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """In batches, over a restart, and with a batch whose end Spark did not note."""
    source, target, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"

    def run() -> None:
        df = spark.readStream.format(format).option("maxFilesPerTrigger", 2).load(str(source))
        writer = df.writeStream.format(format).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start(str(target)).awaitTermination()

    def ids() -> list[int]:
        return sorted(trilake.open(target).to_arrow(["id"])["id"].to_pylist())

    for i in range(3):
        trilake.write(rows(3 * i), source, mode="append", format=format)
    run()
    assert ids() == list(range(9))
    assert sum(f.name.isdigit() for f in (checkpoint / "commits").iterdir()) == 2
    for file in (checkpoint / "commits").glob("*1*"):
        file.unlink()
    trilake.write(rows(9), source, mode="append", format=format)
    run()
    assert ids() == list(range(12))
