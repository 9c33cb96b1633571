"""Closing many data files: concurrently up to the store's limit, in order, and none after a write is abandoned."""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa
import pytest

import trilake
from trilake.delta.files.write_files import Closing
from trilake.errors import StorageError
from trilake.storage import durable
from trilake.storage.local_writer import _GROUP_THREADS, GroupWriter, LocalWriter


class File:
    """A file that records whether it was closed or discarded; ``close`` waits for ``gate``."""

    def __init__(self, number: int, gate: threading.Event, *, fails: bool = False) -> None:
        self.number, self.gate, self.fails = number, gate, fails
        self.closed = self.discarded = False

    def close(self, now_ms: int) -> dict[str, Any]:
        assert self.gate.wait(10)
        if self.fails:
            raise StorageError("the disk is full")
        self.closed = True
        return {"number": self.number, "at": now_ms}

    def discard(self) -> None:
        self.discarded = True


def _open() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


def test_files_close_concurrently_and_report_in_order() -> None:
    first, others = threading.Event(), threading.Barrier(2, timeout=10)

    class Meeting(File):
        """Closes only while another file closes."""

        def close(self, now_ms: int) -> dict[str, Any]:
            others.wait()
            first.set()
            return super().close(now_ms)

    closing = Closing(3)
    closing.end(File(0, first), 10, last=False)
    for i in (1, 2):
        closing.end(Meeting(i, first), 10 + i, last=False)
    assert [a["number"] for a in closing.actions()] == [0, 1, 2]
    assert [a["at"] for a in closing.actions()] == [10, 11, 12]


@pytest.mark.parametrize(("at_once", "last"), [(1, False), (8, True)])
def test_single_file_needs_no_thread(at_once: int, last: bool) -> None:
    before, closing = threading.active_count(), Closing(at_once)
    file = File(0, _open())
    closing.end(file, 0, last=last)
    assert file.closed
    assert threading.active_count() == before
    assert len(closing.actions()) == 1


def test_failure_is_raised_and_pending_files_are_discarded() -> None:
    gate = threading.Event()
    closing = Closing(1)
    closing._at_once = 2  # two files wait, and the first occupies one thread of the pool
    files = [File(0, gate), File(1, gate)]
    for file in files:
        closing.end(file, 0, last=False)
    threading.Timer(0.05, gate.set).start()
    closing.abandon()
    assert all(f.closed or f.discarded for f in files)
    closing = Closing(2)
    bad = File(0, _open(), fails=True)
    closing.end(bad, 0, last=False)
    closing.end(File(1, _open()), 0, last=False)
    with pytest.raises(StorageError, match="full"):
        closing.actions()
    closing.abandon()


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "with their file system"])
def test_no_file_appears_after_an_abandoned_write(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    monkeypatch.setattr(durable, "_syncs_file_systems", lambda: together)
    monkeypatch.setattr(durable, "_kind", lambda fd: 0xEF53)
    monkeypatch.setattr(durable, "_unwritten", lambda: 0)
    ended: list[str] = []
    land, name = LocalWriter.land, GroupWriter.give_name

    def slow(self: Any) -> None:
        if "part-" in self.name:
            if len(ended) == 2:
                raise StorageError("the disk is full")
            ended.append(self.name)
            time.sleep(0.05)
        land(self)

    def named(self: Any) -> None:
        if len(ended) == 2:
            raise StorageError("the disk is full")
        ended.append(self.name)
        name(self)

    monkeypatch.setattr(LocalWriter, "land", slow)
    monkeypatch.setattr(GroupWriter, "give_name", named)
    with pytest.raises(StorageError, match="full"):
        trilake.write(pa.table({"p": range(200), "x": range(200)}), tmp_path, partition_by="p")
    time.sleep(0.1)
    assert not list(tmp_path.rglob("*.parquet*"))
    assert not list(tmp_path.rglob("*.json"))


def test_partition_files_are_synced_by_several_threads(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_syncs_file_systems", lambda: False)
    barrier, met = threading.Barrier(_GROUP_THREADS), []
    land = LocalWriter.land

    def together(self: Any) -> None:
        if "part-" in self.name:
            met.append(barrier.wait(10))
        land(self)

    monkeypatch.setattr(LocalWriter, "land", together)
    count = 2 * _GROUP_THREADS
    done = trilake.write(pa.table({"p": range(count), "x": range(count)}), tmp_path, partition_by="p")
    assert done.files_added == count == len(met)
    paths = trilake.open(tmp_path).files()["path"].to_pylist()
    assert len(set(paths)) == count
    assert sorted(trilake.open(tmp_path).to_arrow()["x"].to_pylist()) == list(range(count))
