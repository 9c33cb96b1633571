"""After a power failure at any step a table opens with every acknowledged version and no partial change."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.conftest import SOAK
from tests.simulation.crash_states import Recorder, states, store_of
from trilake import lance
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import cleanup_log
from trilake.delta.log.log_compaction import compact_log
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.lance.cleanup import cleanup
from trilake.lance.table import LanceTable
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore

#: Random disks per step; the soak checks more than 20,000 disks.
VARIANTS = 90 if SOAK else 1
Rows = list[tuple[int, str]]


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{i}" for i in ids]})


def sorted_rows(table: Any) -> Rows:
    result = table.to_arrow()
    return sorted(zip(result["id"].to_pylist(), result["v"].to_pylist(), strict=True))


def delta_steps(uri: str) -> list[Callable[[], Any]]:
    def table() -> ArrowDeltaTable:
        result = trilake.open(uri)
        assert isinstance(result, ArrowDeltaTable)
        return result

    def merge() -> None:
        merged = table().merge(rows(2, 50), "t.id = s.id", source_alias="s", target_alias="t")
        merged.when_matched_update({"v": "'merged'"}).when_not_matched_insert({"id": "s.id", "v": "s.v"}).execute()

    log = DeltaLog(open_store(uri), standard_engine())
    properties = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "4"}
    return [
        lambda: trilake.write(rows(1, 2, 3), uri, properties=properties),
        lambda: trilake.write(rows(4, 5), uri, mode="append"),
        lambda: table().delete("id = 4"),
        lambda: table().update({"v": "'u'"}, "id = 5"),
        merge,
        lambda: table().optimize(),
        lambda: write_checkpoint(log, log.snapshot(), log.engine.runtime),
        lambda: compact_log(log, 1, 3),
        lambda: table().vacuum(0, enforce_retention=False),
        lambda: trilake.write(rows(9), uri, mode="overwrite"),
        lambda: table().restore(table().version - 1),
        lambda: cleanup_log(log, SYSTEM_RUNTIME, retention_ms=0),
        lambda: trilake.write(rows(10), uri, mode="append"),
    ]


def lance_steps(uri: str) -> list[Callable[[], Any]]:
    def dataset() -> Any:
        return lance.dataset(uri)

    return [
        lambda: lance.write_dataset(rows(1, 2, 3, 4), uri, max_rows_per_file=2, max_rows_per_group=2),
        lambda: lance.write_dataset(rows(5, 6), uri, mode="append"),
        lambda: dataset().delete("id = 2"),
        lambda: dataset().create_scalar_index("id", "BTREE"),
        lambda: dataset().update({"v": "'u'"}, "id = 5"),
        lambda: (
            dataset().merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows(1, 7))
        ),
        lambda: compacted(uri),
        lambda: cleanup(open_store(uri), 0, SYSTEM_RUNTIME),
        lambda: lance.write_dataset(rows(8), uri, mode="overwrite"),
    ]


def compacted(uri: str) -> None:
    lance.dataset(uri).optimize.compact_files()


def open_delta(store: MemoryStore) -> Any:
    return ArrowDeltaTable(store, standard_engine())


def survives(
    root: Path, steps: Callable[[str], list[Callable[[], Any]]], open_table: Callable[[MemoryStore], Any], variants: int
) -> int:
    """Run the steps, check every disk that a failure may leave, and return the number of disks."""
    uri = str(root / "t")
    (root / "t").mkdir()
    recorder = Recorder(uri)
    by_version: dict[int, Rows] = {}
    with recorder.recording():
        for step in steps(uri):
            step()
            table = trilake.open(uri)
            by_version[table.version] = sorted_rows(table)
            recorder.acknowledged(table.version)
    for version in range(max(by_version)):
        if version not in by_version and (version > 0 or min(by_version) == 0):
            by_version[version] = by_version[min(v for v in by_version if v > version)]
    rng = random.Random(17)
    known: set[int] = set()
    count = 0
    for number, acknowledged, objects in states(recorder.events, rng, variants):
        count += 1
        digest = hash((acknowledged, frozenset((k, hash(v)) for k, v in objects.items())))
        if digest in known:
            continue
        known.add(digest)
        store = store_of(objects)
        where = f"a failure after step {number}, {recorder.events[number]}"
        try:
            if acknowledged < 0 and not any("_delta_log" in k or "_versions" in k for k in objects):
                continue
            result = open_table(store)
            assert result.version >= acknowledged, where
            assert sorted_rows(result) == by_version[result.version], where
        except trilake.TableNotFoundError:
            assert acknowledged < 0, where
    return count


def test_delta_survives_power_failure_at_any_step(tmp_path: Path) -> None:
    assert survives(tmp_path, delta_steps, open_delta, VARIANTS) >= (15_000 if SOAK else 500)


def partitioned_steps(uri: str) -> list[Callable[[], Any]]:
    """Writes whose files in many partitions are synced together."""
    return [
        lambda: trilake.write(rows(*range(6)), uri, partition_by="v"),
        lambda: trilake.write(rows(3, 4, 20, 21), uri, mode="append"),
        lambda: trilake.write(rows(4, 30, 31), uri, mode="overwrite"),
        lambda: trilake.write(rows(*range(40, 54)), uri, mode="append"),
    ]


def test_partitions_survive_power_failure_at_any_step(tmp_path: Path) -> None:
    assert survives(tmp_path, partitioned_steps, open_delta, VARIANTS) >= (3_000 if SOAK else 200)


def test_lance_survives_power_failure_at_any_step(tmp_path: Path) -> None:
    assert survives(tmp_path, lance_steps, LanceTable, VARIANTS) >= (8_000 if SOAK else 300)


@pytest.mark.parametrize("step", ["sync", "folder"])
def test_crash_check_detects_missing_sync(tmp_path: Path, step: str) -> None:
    """The check can fail: drop the events that sync to disk."""
    recorder = Recorder(str(tmp_path))
    with recorder.recording():
        store = open_store(str(tmp_path))
        store.put_if_absent("a", b"whole")
        recorder.acknowledged(0)
    events = [e for e in recorder.events if e.kind != step]
    seen = [o for _, done, o in states(events, random.Random(1), 4) if done == 0]
    assert any(o.get("a") != b"whole" for o in seen)
    seen = [o for _, done, o in states(recorder.events, random.Random(1), 4) if done == 0]
    assert seen
    assert all(o.get("a") == b"whole" for o in seen)
