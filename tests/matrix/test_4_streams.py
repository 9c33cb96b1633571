"""Streams from and to trilake's formats."""

from __future__ import annotations

from typing import Any

import pytest

import trilake
from tests.matrix.calls import MODE, NEVER, Lake, since


def _numbers(lake: Lake, name: str) -> object:
    """A stream that every release supports: new files of a folder."""
    folder = lake.path(f"numbers-{name}")
    lake.simple().write.parquet(folder)
    return lake.spark.readStream.schema("id bigint, s string").parquet(folder)


@since(3, 5, connect=(4, 0))
def test_stream_into_delta(lake: Lake) -> None:
    """`df.writeStream.format("delta")`"""
    stream = _numbers(lake, "delta").writeStream.format("delta")  # type: ignore[attr-defined]
    stream = stream.option("checkpointLocation", lake.path("cp-into-delta")).trigger(availableNow=True)
    lake.wait(stream.start(lake.path("into-delta")))
    assert trilake.open(lake.path("into-delta")).count() == 50


@pytest.mark.parametrize("name", ["lance", "trevni"])
@since(3, 5, connect=(4, 0))
def test_stream_into_others(lake: Lake, name: str) -> None:
    """`df.writeStream.format("lance")`, `format("trevni")`"""
    stream = _numbers(lake, name).writeStream.format(name)  # type: ignore[attr-defined]
    stream = stream.option("checkpointLocation", lake.path(f"cp-into-{name}")).trigger(availableNow=True)
    lake.wait(stream.start(lake.path(f"into-{name}")))
    assert trilake.open(lake.path(f"into-{name}")).count() == 50


@pytest.mark.parametrize("name", ["delta", "lance", "trevni"])
@since(4, 0)
def test_stream_from(lake: Lake, name: str) -> None:
    """`spark.readStream.format("delta")`, `format("lance")`, `format("trevni")`, restarted from the checkpoint"""
    source, target = lake.path(f"stream-{name}"), lake.path(f"streamed-{name}")
    trilake.write(lake.simple(), source, format=name)
    for round in (1, 2):
        stream = lake.spark.readStream.format(name).load(source).writeStream.format(name)
        stream = stream.option("checkpointLocation", lake.path(f"cp-from-{name}")).trigger(availableNow=True)
        lake.wait(stream.start(target))
        assert trilake.open(target, format=name).count() == 50 * round
        trilake.write(lake.simple(50, 50 * round), source, format=name, mode="append")


@pytest.mark.parametrize("name", ["delta", "lance", "trevni"])
@since(3, 5, connect=(4, 0))
def test_to_table(lake: Lake, name: str) -> None:
    """`df.writeStream.toTable` with names in the catalog and paths"""
    for number, target in enumerate((f"matrix_to_{name}", f"{name}.`{lake.path(f'to-{name}')}`")):
        stream = _numbers(lake, f"to-{name}-{number}").writeStream.format(name)  # type: ignore[attr-defined]
        stream = stream.option("checkpointLocation", lake.path(f"cp-to-{name}-{number}")).trigger(availableNow=True)
        lake.wait(stream.toTable(target))
        assert lake.spark.table(target).where("id > 39").count() == 10
    lake.spark.sql(f"DROP TABLE matrix_to_{name}")


@pytest.mark.parametrize("name", ["delta", "lance", "trevni"])
@since(4, 0)
def test_stream_table(lake: Lake, name: str) -> None:
    """`spark.readStream.table` with names in the catalog and paths"""
    for number, source in enumerate((f"matrix_stream_{name}", f"{name}.`{lake.path(f'stream-of-{name}')}`")):
        lake.simple().write.format(name).saveAsTable(source)
        stream = lake.spark.readStream.table(source).where("id > 39").writeStream.format(name)
        stream = stream.option("checkpointLocation", lake.path(f"cp-of-{name}-{number}")).trigger(availableNow=True)
        lake.wait(stream.start(lake.path(f"streamed-of-{name}-{number}")))
        assert trilake.open(lake.path(f"streamed-of-{name}-{number}"), format=name).count() == 10
    lake.spark.sql(f"DROP TABLE matrix_stream_{name}")


@since(4, 2)
def test_stream_limits(lake: Lake) -> None:
    """`maxFilesPerTrigger` and `maxBytesPerTrigger` of a stream from Delta"""
    source = lake.path("limited")
    for n in range(3):
        trilake.write(lake.simple(10, 10 * n), source, mode="append")
    stream = lake.spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(source).writeStream
    stream = stream.format("delta").option("checkpointLocation", lake.path("cp-limited")).trigger(availableNow=True)
    lake.wait(stream.start(lake.path("limited-target")))
    assert trilake.open(lake.path("limited-target")).count() == 30
    assert len(trilake.DeltaTable.forPath(lake.spark, lake.path("limited-target")).history().collect()) >= 3


def test_foreach_batch(lake: Lake) -> None:
    """`trilake.foreach_batch.append`, `merge`"""
    trilake.write(lake.simple(10), lake.path("batch-merge"))
    known: Any = {"app_id": "matrix"} if MODE == "connect" else {}
    merge = trilake.foreach_batch.merge(
        lake.path("batch-merge"), "t.id = s.id", update_all=True, insert_all=True, **known
    )
    append = trilake.foreach_batch.append(lake.path("batch-append"), **known)
    for name, function in (("merge", merge), ("append", append)):
        stream = _numbers(lake, f"batch-{name}").writeStream.foreachBatch(function)  # type: ignore[attr-defined]
        stream = stream.option("checkpointLocation", lake.path(f"cp-batch-{name}")).trigger(availableNow=True)
        lake.wait(stream.start())
        assert trilake.open(lake.path(f"batch-{name}")).count() == 50


@since(3, 5, connect=NEVER)
def test_write_stream(lake: Lake) -> None:
    """`trilake.write_stream`"""
    stream = _numbers(lake, "write-stream")
    lake.wait(
        trilake.write_stream(stream, lake.path("write-stream"), checkpoint=lake.path("cp-ws"), available_now=True)  # type: ignore[arg-type]
    )
    assert trilake.open(lake.path("write-stream")).count() == 50
