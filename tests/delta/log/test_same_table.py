"""A table dropped or recreated while a writer or the upkeep of the old one is running."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import write
from tests.fault_store import FaultStore
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.commit import transaction
from trilake.delta.engine import Engine
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import cleanup_log
from trilake.delta.log.log_compaction import compact_log
from trilake.delta.log.segment import checkpoint_key, commit_key
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import MetadataChangedError
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore

ONE, OTHER = pa.table({"id": [1]}), pa.table({"x": ["a"]})
CHANGES: dict[str, Callable[[str], Any]] = {
    "append": lambda place: trilake.write(pa.table({"id": [9]}), place, mode="append"),
    "overwrite": lambda place: trilake.write(pa.table({"id": [9]}), place, mode="overwrite"),
    "delete": lambda place: trilake.open(place).delete("id = 1"),
    "restore": lambda place: trilake.open(place).restore(0),
}


def _write(place: str, rows: pa.Table, versions: int) -> None:
    for _ in range(versions):
        trilake.write(rows, place, mode="append")


def _drop(place: str) -> None:
    store = open_store(place)
    store.delete([meta.key for meta in store.list()])


def _replace_before_commit(monkeypatch: pytest.MonkeyPatch, place: str, rows: pa.Table, versions: int) -> None:
    original = transaction._content
    done: list[bool] = []

    def late(*args: Any) -> bytes:
        if not done:
            done.append(True)
            _drop(place)
            _write(place, rows, versions)
        return original(*args)

    monkeypatch.setattr(transaction, "_content", late)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("versions", [1, 2, 5])
@pytest.mark.parametrize("rows", [ONE, OTHER], ids=["same columns", "other columns"])
def test_change_is_not_committed_to_a_recreated_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, versions: int, rows: pa.Table
) -> None:
    """It would reference deleted files of the old table and make the new one unreadable."""
    place = str(tmp_path / "t")
    _write(place, ONE, 2)
    _replace_before_commit(monkeypatch, place, rows, versions)
    with pytest.raises(MetadataChangedError, match="was replaced by another table"):
        CHANGES[change](place)
    table = trilake.open(place)
    assert table.version == versions - 1
    assert table.to_arrow().to_pydict() == {rows.column_names[0]: rows[0].to_pylist() * versions}


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_not_committed_to_a_dropped_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A log starting with version 2 is unreadable and would block a new table."""
    place = str(tmp_path / "t")
    _write(place, ONE, 2)
    _replace_before_commit(monkeypatch, place, ONE, 0)
    with pytest.raises(MetadataChangedError, match="was dropped"):
        CHANGES[change](place)
    assert not DeltaLog(open_store(place)).exists()
    _write(place, OTHER, 1)
    assert trilake.open(place).to_arrow().to_pydict() == {"x": ["a"]}


def test_rewritten_log_is_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored copy has other file times."""
    place = str(tmp_path / "t")
    _write(place, ONE, 1)
    store, original = open_store(place), transaction._content

    def touched(*args: Any) -> bytes:
        key = "_delta_log/00000000000000000000.json"
        store.put(key, store.read(key).to_pybytes() + b"\n")
        return original(*args)

    monkeypatch.setattr(transaction, "_content", touched)
    _write(place, ONE, 1)
    assert trilake.open(place).count() == 2


@pytest.mark.parametrize("versions", [2, 5])
def test_update_detects_a_recreated_table(tmp_path: Path, versions: int) -> None:
    place = str(tmp_path / "t")
    _write(place, ONE, 2)
    log = DeltaLog(open_store(place), trilake.open(place).snapshot.engine)
    old = log.snapshot()
    _drop(place)
    _write(place, OTHER, versions)
    new = log.update(old)
    assert (new.version, new.adds.num_rows, new.schema.fields[0].name) == (versions - 1, versions, "x")


# --- upkeep of the log -----------------------------------------------------------------------------------------------


def _run_upkeep(log: DeltaLog, upkeep: str) -> object:
    runtime = log.engine.runtime
    if upkeep == "compaction":
        return compact_log(log, 1, 3)
    return cleanup_log(log, runtime) if upkeep == "clean-up" else write_checkpoint(log, log.snapshot(), runtime)


def _rows(store: MemoryStore, engine: Engine, rows: pa.Table, versions: int, **properties: str) -> None:
    for _ in range(versions):
        write(DeltaLog(store, engine), rows, properties=properties)


def _recreate(store: MemoryStore, engine: Engine, versions: int) -> None:
    store.delete([meta.key for meta in store.list()])
    _rows(store, engine, OTHER, versions)


@pytest.mark.parametrize("upkeep", ["checkpoint", "checkpoint of version 2", "compaction", "clean-up"])
@pytest.mark.parametrize("versions", [0, 1, 6])
def test_upkeep_leaves_a_recreated_table_alone(upkeep: str, versions: int) -> None:
    """A checkpoint of the old table would replace commits of the new one, and a cleanup would delete them."""
    now, days = [0], 24 * 3_600_000
    properties = {"delta.checkpointInterval": "3"}
    if upkeep.endswith("2"):
        properties |= {"delta.checkpointPolicy": "v2"}
    store = MemoryStore(clock=lambda: now[0] * days)
    runtime = replace(SYSTEM_RUNTIME, clock_ns=lambda: now[0] * days * 1_000_000)
    engine = standard_engine(runtime=runtime)
    _rows(store, engine, ONE, 5, **properties)
    now[0] = 40

    def intrude(op: str, key: str) -> None:
        if op == "head" and key == commit_key(3 if upkeep == "compaction" else 4) and now[0] == 40:
            now[0] = 41
            _recreate(store, engine, versions)

    with pytest.raises(MetadataChangedError):
        _run_upkeep(DeltaLog(FaultStore(store, before=intrude), engine), upkeep)
    assert now[0] == 41
    if versions:
        table = ArrowDeltaTable(store, engine)
        assert (table.version, table.to_arrow().to_pydict()) == (versions - 1, {"x": ["a"] * versions})
    else:
        assert list(store.list()) == []


@pytest.mark.parametrize("versions", [1, 4, 6])
@pytest.mark.parametrize("newest", ["checkpoint", "compaction"])
def test_checkpoint_version_detects_a_recreated_table(newest: str, versions: int) -> None:
    store, engine = MemoryStore(clock=count(1).__next__), standard_engine()
    _rows(store, engine, ONE, 4)
    log = DeltaLog(store, engine)
    if newest == "checkpoint":
        write_checkpoint(log, log.snapshot(), engine.runtime)
    else:
        compact_log(log, 1, 3)
    old = log.snapshot()
    assert old.segment.newest_file is not None
    assert newest[:7] in old.segment.newest_file.key
    assert log.update(old) is old
    _recreate(store, engine, versions)
    new = log.update(old)
    assert (new.version, new.adds.num_rows, new.schema.fields[0].name) == (versions - 1, versions, "x")


def test_cleanup_stops_if_its_checkpoint_gets_damaged() -> None:
    """It would rely on a file whose current content it has not read."""
    now, days = [0], 24 * 3_600_000
    store = MemoryStore(clock=lambda: now[0] * days)
    engine = standard_engine(runtime=replace(SYSTEM_RUNTIME, clock_ns=lambda: now[0] * days * 1_000_000))
    _rows(store, engine, ONE, 4, **{"delta.checkpointInterval": "3"})
    now[0] = 40
    checkpoint = checkpoint_key(3)
    logs = {meta.key for meta in store.list("_delta_log")}
    assert checkpoint in logs

    def intrude(op: str, key: str) -> None:
        if op == "head" and key == checkpoint and now[0] == 40:
            now[0] = 41
            store.put(checkpoint, b"PAR1, and nothing else")

    with pytest.raises(MetadataChangedError):
        _run_upkeep(DeltaLog(FaultStore(store, before=intrude), engine), "clean-up")
    assert now[0] == 41
    assert {meta.key for meta in store.list("_delta_log")} >= logs
    assert ArrowDeltaTable(store, engine).count() == 4
