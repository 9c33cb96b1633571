"""Auto compaction: after which commits and on which partitions it runs, and that it never fails a write."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import new_uri, opened
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.optimize.optimize import AutoCompaction
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import plan_write
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.storage import open_store

AUTO = {"delta.autoOptimize.autoCompact": "true"}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[AutoCompaction]:
    """Compact from three files on; the first list entry is the current setting."""
    current = [AutoCompaction(min_files=3)]
    for module in ("trilake.api.definitions", "trilake.delta.format"):
        monkeypatch.setattr(f"{module}.standard_engine", lambda: standard_engine(compaction=lambda _: current[0]))
    return current


def append(uri: str, *partitions: str, **more: Any) -> int | None:
    data = pa.table({"id": pa.array(range(len(partitions)), pa.int64()), "p": list(partitions)})
    return trilake.write(data, uri, mode="append", partition_by=["p"], **more).version


def operations(uri: str) -> list[str]:
    return [str(r["operation"]) for r in opened(uri).history().to_pylist()][::-1]


@pytest.mark.parametrize(
    ("properties", "compacts"),
    [
        ({}, False),
        (AUTO, True),
        ({"delta.autoOptimize.autoCompact": "auto"}, True),
        ({"delta.autoOptimize.autoCompact": "false"}, False),
        ({"delta.autoOptimize": "true"}, True),
    ],
)
def test_table_property_enables_auto_compaction(
    few: list[AutoCompaction], properties: dict[str, str], compacts: bool
) -> None:
    uri = new_uri()
    append(uri, "a", properties=properties)
    append(uri, "a")
    assert append(uri, "a") == 2, "the write says its own version"
    assert operations(uri) == ["WRITE"] * 3 + ["OPTIMIZE"] * compacts
    assert opened(uri).files().num_rows == (1 if compacts else 3)
    if compacts:
        (last,) = opened(uri).history(1).to_pylist()
        assert dict(last["operationParameters"])["auto"] == "true"


def test_session_setting_overrides_the_table(few: list[AutoCompaction]) -> None:
    uri = new_uri()
    few[0] = replace(few[0], enabled=False)
    for n in range(4):
        append(uri, "a", properties=AUTO if n == 0 else None)
    assert operations(uri) == ["WRITE"] * 4
    few[0] = replace(few[0], enabled=True)
    append(uri, "a")
    assert operations(uri)[-1] == "OPTIMIZE"


def test_fifty_small_files_are_compacted() -> None:
    uri = new_uri()
    for n in range(49):
        append(uri, "a", properties=AUTO if n == 0 else None)
    assert opened(uri).files().num_rows == 49
    append(uri, "a")
    assert opened(uri).files().num_rows == 1
    assert opened(uri).count() == 50


def test_only_written_partitions_are_compacted(few: list[AutoCompaction]) -> None:
    uri = new_uri()
    few[0] = replace(few[0], enabled=False)
    for n in range(3):
        append(uri, "a", "b", properties=AUTO if n == 0 else None)
    few[0] = replace(few[0], enabled=None)
    append(uri, "b", "c")
    counts = [dict(v)["p"] for v in opened(uri).files()["partition_values"].to_pylist()]
    assert sorted(counts) == ["a", "a", "a", "b", "c"]
    assert opened(uri).count() == 8


def test_large_files_do_not_count(few: list[AutoCompaction]) -> None:
    uri = new_uri()
    few[0] = replace(few[0], min_size=1)
    for n in range(5):
        append(uri, "a", properties=AUTO if n == 0 else None)
    assert operations(uri) == ["WRITE"] * 5
    few[0] = replace(few[0], min_size=None)
    append(uri, "a")
    assert operations(uri)[-1] == "OPTIMIZE"


def test_compacted_files_respect_max_size(few: list[AutoCompaction]) -> None:
    uri = new_uri()
    append(uri, "a", properties=AUTO)
    size = opened(uri).files()["size"].to_pylist()[0]
    few[0] = replace(few[0], max_size=2 * size + size // 2, min_files=4)
    for _ in range(3):
        append(uri, "a")
    assert opened(uri).files().num_rows == 2


def test_row_changes_trigger_compaction(few: list[AutoCompaction]) -> None:
    uri = new_uri()
    properties = {
        **AUTO,
        "delta.enableDeletionVectors": "true",
    }  # without vectors, the delete itself would combine the small files
    few[0] = replace(few[0], enabled=False)
    for n in range(3):
        append(uri, "a", "a", properties=properties if n == 0 else None)
    few[0] = replace(few[0], enabled=None)
    opened(uri).delete("id = 1")
    assert operations(uri)[-2:] == ["DELETE", "OPTIMIZE"]
    assert opened(uri).to_arrow()["id"].to_pylist() == [0, 0, 0]


def test_commits_without_rows_do_not_trigger_compaction(few: list[AutoCompaction]) -> None:
    uri = new_uri()
    few[0] = replace(few[0], enabled=False)
    for n in range(3):
        append(uri, "a", properties=AUTO if n == 0 else None)
    few[0] = replace(few[0], enabled=None)
    Alter(opened(uri).log).set_properties({"team": "x"})
    assert operations(uri)[-1] == "SET TBLPROPERTIES"


def test_clustered_files_are_not_compacted(few: list[AutoCompaction]) -> None:
    uri = new_uri()
    trilake.create(uri, {"id": "bigint"}, cluster_by="id", properties=AUTO)
    data = pa.table({"id": range(100)})
    for _ in range(2):
        trilake.write(data, uri, mode="append")
    opened(uri).optimize(target_size=300)
    cubes = opened(uri).files().num_rows
    assert cubes > 3
    for _ in range(3):
        trilake.write(data, uri, mode="append")
    assert operations(uri)[-1] == "OPTIMIZE"
    assert opened(uri).files().num_rows == cubes + 1
    assert opened(uri).snapshot.adds["clusteringProvider"].null_count == 1


def test_failed_compaction_does_not_fail_the_write(few: list[AutoCompaction], caplog: pytest.LogCaptureFixture) -> None:
    uri = new_uri()
    append(uri, "a", properties=AUTO)
    append(uri, "a")
    path = opened(uri).files()["path"].to_pylist()[0]
    open_store(uri).delete([path])
    with caplog.at_level(logging.WARNING, logger="trilake.delta"):
        assert append(uri, "a") == 2
    assert operations(uri) == ["WRITE"] * 3
    assert "compaction after it failed" in caplog.text
    assert path in caplog.text


def test_failing_engine_does_not_fail_the_write(few: list[AutoCompaction]) -> None:
    def broken(function: Any, tasks: Any) -> Any:
        raise RuntimeError("no executors")

    uri = new_uri()
    few[0] = replace(few[0], run=broken)
    for n in range(3):
        append(uri, "a", properties=AUTO if n == 0 else None)
    assert operations(uri) == ["WRITE"] * 3


@pytest.mark.parametrize(
    ("option", "properties", "files"),
    [
        (None, {}, 300),
        (None, {"delta.autoOptimize.optimizeWrite": "true"}, 100),
        (True, {}, 100),
        (False, {"delta.autoOptimize": "true"}, 300),
    ],
)
def test_optimized_writes_make_fewer_files(
    option: bool | None, properties: dict[str, str], files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a hundred partitions arrive interleaved and cannot be buffered."""
    monkeypatch.setattr("trilake.delta.files.write_files._SPLIT_SIZE", 1)
    rows = pa.table({"n": range(300), "p": [i % 100 for i in range(300)]})
    request = WriteRequest("append", from_arrow(rows.schema), ("p",), properties, optimize_write=option)
    log = DeltaLog(open_store(new_uri()), standard_engine())
    plan = plan_write(log, request)
    written = write_files(log.store, replace(plan.files, buffer_size=1), rows.to_batches(max_chunksize=1))
    assert len(written.actions) == files
