"""A write into a folder is atomic across failures and crashes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from tests.fault_store import Fault, FaultStore, SimulatedCrash
from trilake.errors import (
    CorruptFileError,
    ObjectExistsError,
    StorageError,
    TableNotFoundError,
    UnknownOutcomeError,
    WriteFailedError,
)
from trilake.storage import ObjectMeta, Store, open_store, staging
from trilake.storage.memory import MemoryStore
from trilake.trevni import TrevniFile, TrevniTable, write_table
from trilake.trevni.tables import jobs
from trilake.trevni.tables.dataset import list_files
from trilake.trevni.tables.row_groups import StagedFile
from trilake.trevni.tables.table_write import (
    TableWritePlan,
    clean,
    finish_table_write,
    give_up,
    plan_table_write,
    write_rows,
)

SCHEMA = pa.schema([("n", pa.int64())])
WEEK = jobs.STALE_MS
OLD, NEW = [1, 2], [10, 11, 12]


def batches(*values: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": pa.array(values, pa.int64())})


def visible_rows(store: Store) -> list[int]:
    """The visible rows."""
    return sorted(v for f in list_files(store) for v in TrevniFile((store, f.key)).read()["n"].to_pylist())


def table_of_two_files() -> MemoryStore:
    store = MemoryStore()
    for value in OLD:
        append(store, value)
    return store


def append(store: Store, *values: int, mode: str = "append") -> None:
    plan = plan_table_write(store, SCHEMA, mode=mode)
    finish_table_write(store, plan, write_rows(store, plan, batches(*values)))


def staged(store: Store, mode: str) -> tuple[TableWritePlan, list[StagedFile]]:
    """A job of three files, ready to publish."""
    plan = plan_table_write(store, SCHEMA, mode=mode)
    return plan, [f for i, v in enumerate(NEW) for f in write_rows(store, plan, batches(v), task=str(i))]


def steps(mode: str) -> int:
    """The number of calls of a complete publication."""
    inner = table_of_two_files()
    plan, files = staged(inner, mode)
    store = FaultStore(inner)
    finish_table_write(store, plan, files)
    return sum(bool(call.keys) for call in store.calls)


def expected(mode: str) -> list[list[int]]:
    return [OLD, NEW if mode == "overwrite" else OLD + NEW]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_driver_dies_at_any_step(mode: str, when: Literal["before", "after"]) -> None:
    outcomes = []
    for nth in range(1, steps(mode) + 1):
        inner = table_of_two_files()
        plan, files = staged(inner, mode)
        store = FaultStore(inner, [Fault(nth=nth, kind="crash", when=when)])
        with suppress(SimulatedCrash):
            finish_table_write(store, plan, files)
        rows = visible_rows(inner)
        assert rows in expected(mode), nth
        if not store.crashed:  # checking a missing file raises before "after"
            assert (when, rows) == ("after", expected(mode)[1])
            continue
        outcomes.append(rows)
        # The next write succeeds, and a week later nothing of the dead job is left.
        append(inner, 99)
        assert visible_rows(inner) == sorted([*rows, 99])
        jobs.finish_stale_jobs(inner, 10**15)
        jobs.finish_stale_jobs(inner, 2 * 10**15)
        assert visible_rows(inner) == sorted([*rows, 99])
        assert len(list(inner.list())) == len(list_files(inner))
    # Once committed, it stays so.
    assert len(outcomes) > 12
    assert outcomes == sorted(outcomes, key=expected(mode).index)
    assert {tuple(o) for o in outcomes} == {tuple(o) for o in expected(mode)}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_store_fails_at_any_step(mode: str, when: Literal["before", "after"]) -> None:
    for nth in range(1, steps(mode) + 1):
        inner = table_of_two_files()
        plan, files = staged(inner, mode)
        store = FaultStore(inner, [Fault(nth=nth, when=when)])
        try:
            finish_table_write(store, plan, files)
        except UnknownOutcomeError:
            assert visible_rows(inner) in expected(mode), nth
        except StorageError:  # while the folder was listed
            assert visible_rows(inner) == OLD, nth
        except WriteFailedError:
            assert visible_rows(inner) == OLD, nth
        else:
            assert visible_rows(inner) == expected(mode)[1], nth
        append(inner, 99)
        assert 99 in visible_rows(inner)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_store_fails_permanently(mode: str) -> None:
    """The rollback fails, too: moved files stay hidden."""
    for nth in range(1, steps(mode) + 1):
        inner = table_of_two_files()
        plan, files = staged(inner, mode)
        with suppress(StorageError, WriteFailedError):
            finish_table_write(FaultStore(inner, [Fault(nth=nth, times=10**6)]), plan, files)
        assert visible_rows(inner) in expected(mode), nth


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_readers_see_all_or_nothing_at_every_step(mode: str) -> None:
    inner = table_of_two_files()
    plan, files = staged(inner, mode)
    views: list[list[int]] = []
    finish_table_write(FaultStore(inner, before=lambda op, key: views.append(visible_rows(inner))), plan, files)
    assert views == sorted(views, key=expected(mode).index)
    assert {tuple(v) for v in views} == {tuple(v) for v in expected(mode)}
    assert len(list(inner.list())) == len(list_files(inner))


class SlowListing(MemoryStore):
    """Listings are not atomic: ``between`` runs after the first object."""

    def between(self) -> None: ...

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
        early = list(super().list(prefix, start_after))
        self.between()
        late = list(super().list(prefix, start_after))
        cut = early[len(early) // 2].key if early else ""
        yield from (m for m in early if m.key < cut)
        yield from (m for m in late if m.key >= cut)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_job_runs_during_one_listing(mode: str) -> None:
    store = SlowListing()
    for value in OLD:
        append(store, value)
    todo = [staged(store, mode)]

    def between() -> None:
        while todo:
            finish_table_write(store, *todo.pop())

    store.between = between  # type: ignore[method-assign]
    assert visible_rows(store) == expected(mode)[1]


def test_listings_never_agree() -> None:
    store = SlowListing()
    numbers = iter(range(10**6))
    append(store, 1)
    store.between = lambda: store.put(f"part-9{next(numbers):06d}.trv", b"")  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="faster than"):
        list_files(store)


def test_files_outside_of_plans_are_visible(tmp_path: Path) -> None:
    write_table({"n": [1]}, tmp_path)
    (mine,) = tmp_path.iterdir()
    for name in ("part-00000-copy.trv", "other.trv", mine.name.replace("0", "1")):
        (tmp_path / name).write_bytes(mine.read_bytes())
    assert TrevniTable(tmp_path).count() == 4


def test_partition_folders_and_globs_respect_jobs(tmp_path: Path) -> None:
    data = {"n": [1, 2], "p": ["x", "y"]}
    write_table(data, tmp_path, partition_by=["p"])
    store = open_store(tmp_path)
    plan = plan_table_write(store, pa.schema([("n", pa.int64()), ("p", pa.string())]), mode="append")
    files = write_rows(store, plan, [pa.record_batch(data)])
    crashing = FaultStore(store, [Fault("put_if_absent", "*.end", kind="crash")])
    with pytest.raises(SimulatedCrash):
        finish_table_write(crashing, plan, files)
    assert len(list(tmp_path.rglob("p=x/*.trv"))) == 2
    for location, count in ((tmp_path, 2), (tmp_path / "p=x", 1), (f"{tmp_path}/p=x/*.trv", 1), (f"{tmp_path}/*", 2)):
        assert TrevniTable(location).count() == count


def test_rename_fails_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table({"n": OLD}, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    store = open_store(tmp_path)
    plan, files = staged(store, "overwrite")
    rename, synced = os.rename, []

    def failing(source: str, target: str) -> None:
        if target.endswith(files[1].key):
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(WriteFailedError, match="file 2 of 3"):
        finish_table_write(store, plan, files)
    monkeypatch.setattr(os, "rename", rename)
    assert visible_rows(store) == OLD
    clean(store, plan)
    assert sorted(tmp_path.rglob("*")) == before
    # Names reach the disk before the job is committed.
    monkeypatch.setattr(staging, "sync_folder", lambda path: synced.append((path, visible_rows(store))))
    append(store, 7)
    assert synced == [(str(tmp_path), OLD)]


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_driver_dies_between_renames(mode: str, nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    for value in OLD:
        append(store, value)
    plan, files = staged(store, mode)
    rename, count = os.rename, 0

    def dying(source: str, target: str) -> None:
        nonlocal count
        if "part-" in os.path.basename(target) and "_staged" not in target:
            count += 1
        if count > nth:
            raise SimulatedCrash
        rename(source, target)
        if count == nth:
            raise SimulatedCrash

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", dying)
        patch.setattr(jobs, "record_outcome", None)  # a dead process does not roll back
        with pytest.raises(SimulatedCrash):
            finish_table_write(store, plan, files)
    assert len(list(tmp_path.glob("*.trv"))) == len(OLD) + nth
    assert visible_rows(store) == OLD
    append(store, 99)
    assert visible_rows(store) == [*OLD, 99]
    jobs.finish_stale_jobs(store, 10**15)
    jobs.finish_stale_jobs(store, 2 * 10**15)
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) == len(OLD) + 1
    assert not (tmp_path / "_staged").exists()


def test_tasks_of_an_aborted_job_stage_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    plan = plan_table_write(store, SCHEMA, mode="append")

    def batches_after_abort() -> Iterator[pa.RecordBatch]:
        yield from batches(1)
        give_up(store, plan)
        yield from batches(2)

    for rows in (batches_after_abort(), batches(3)):
        with pytest.raises((WriteFailedError, StorageError)):
            write_rows(store, plan, rows)
    assert [p.name for p in tmp_path.rglob("*")] == ["_staged", f"{plan.write_id}.end"]
    # It cannot be committed, either.
    with pytest.raises(TableNotFoundError):
        TrevniTable(tmp_path)
    other = plan_table_write(store, SCHEMA, mode="append")
    files = write_rows(store, other, batches(4))
    give_up(store, other)
    with pytest.raises(WriteFailedError):
        finish_table_write(store, other, files)
    append(store, 5)
    assert visible_rows(store) == [5]


def test_committed_job_cannot_be_aborted() -> None:
    inner = table_of_two_files()
    plan, files = staged(inner, "append")
    with pytest.raises(SimulatedCrash):
        finish_table_write(
            FaultStore(inner, [Fault("put_if_absent", "*.end", kind="crash", when="after")]), plan, files
        )
    give_up(inner, plan)
    assert visible_rows(inner) == OLD + NEW


def test_lost_reply_to_the_commit_is_resolved() -> None:
    inner = table_of_two_files()
    plan, files = staged(inner, "append")
    finish_table_write(FaultStore(inner, [Fault("put_if_absent", "*.end", when="after")]), plan, files)
    assert visible_rows(inner) == OLD + NEW
    plan, files = staged(inner, "append")
    faults = [Fault("put_if_absent", "*.end", when="after"), Fault("read", "*.end")]
    with pytest.raises(UnknownOutcomeError, match="all or none of the write's rows"):
        finish_table_write(FaultStore(inner, faults), plan, files)
    assert visible_rows(inner) == sorted(OLD + NEW + NEW)


def test_cleanup_removes_only_old_jobs(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, 1)
    plan = plan_table_write(store, SCHEMA, mode="append")
    (file,) = write_rows(store, plan, batches(2))
    unfinished = store.open_output(f"_staged/{'0' * 32}-1-1/x.trv")
    unfinished.write(b"half")
    now = max(m.modified_ms for m in store.list())
    jobs.finish_stale_jobs(store, now + WEEK)
    assert store.head(file.staged).size == file.size
    jobs.finish_stale_jobs(store, now + WEEK + 60_000)
    assert [p.suffix for p in tmp_path.iterdir()] == [".trv"]
    assert visible_rows(store) == [1]
    with pytest.raises(WriteFailedError):
        finish_table_write(store, plan, [file])
    assert visible_rows(store) == [1]


def test_driver_of_an_aborted_job_cannot_commit() -> None:
    inner = table_of_two_files()
    plan, files = staged(inner, "append")

    def too_late(op: str, key: str) -> None:
        if op == "put_if_absent" and key.endswith(".end"):
            jobs.finish_stale_jobs(inner, 10**15)

    with pytest.raises(WriteFailedError):
        finish_table_write(FaultStore(inner, before=too_late), plan, files)
    assert visible_rows(inner) == OLD


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("now", [0, 10**15], ids=["at once", "a week later"])
def test_job_stays_committed_during_a_cleanup(mode: str, now: int) -> None:
    """The job's driver removes its records at any call of the sweep: the outcome of the job never changes."""
    for nth in range(1, 20):
        inner = table_of_two_files()
        plan, files = staged(inner, mode)
        crash = Fault("put_if_absent", "*.end", kind="crash", when="after")
        with pytest.raises(SimulatedCrash):
            finish_table_write(FaultStore(inner, [crash]), plan, files)
        job = jobs.plan_of(inner, plan.write_id)
        assert job is not None
        calls = 0

        def complete_cleanup(op: str, key: str) -> None:
            nonlocal calls
            calls += 1
            if calls == nth:  # noqa: B023 - used at once
                jobs.complete(inner, plan.write_id, job, "committed")  # noqa: B023

        jobs.finish_stale_jobs(FaultStore(inner, before=complete_cleanup), now)
        assert visible_rows(inner) == expected(mode)[1], nth
    assert calls < nth


class LandsLater(MemoryStore):
    """While ``on``, the reply to the next put is lost, and the file appears when :meth:`land` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.on = False
        self.late: list[tuple[str, bytes]] = []

    def put(self, key: str, data: bytes | pa.Buffer) -> None:
        if self.on and key.startswith("part-"):
            self.on = False
            self.late.append((key, bytes(memoryview(data))))
            raise UnknownOutcomeError("the reply was lost", file=key)
        super().put(key, data)

    def land(self) -> None:
        """Complete the pending put."""
        while self.late:
            super().put(*self.late.pop())


@pytest.mark.parametrize("sweep", [False, True], ids=["seen", "swept before"])
def test_file_of_a_failed_write_may_appear_later(sweep: bool) -> None:
    store = LandsLater()
    append(store, 1)
    plan, files = staged(store, "append")
    store.on = True
    with pytest.raises(WriteFailedError, match="readers see no change"):
        finish_table_write(store, plan, files)
    if sweep:
        append(store, 2)
    store.land()
    assert visible_rows(store) == ([1, 2] if sweep else [1])
    for now in (10**15, 2 * 10**15):  # a week later nothing of it is left
        jobs.finish_stale_jobs(store, now)
    assert visible_rows(store) == ([1, 2] if sweep else [1])
    assert len(list(store.list())) == len(list_files(store))


def test_append_during_an_overwrite() -> None:
    inner = table_of_two_files()
    replacing = [staged(inner, "overwrite")]

    def replaced(op: str, key: str) -> None:
        if replacing and op == "read_sized":
            finish_table_write(inner, *replacing.pop())

    plan = plan_table_write(FaultStore(inner, before=replaced), SCHEMA, mode="append")
    assert not replacing
    finish_table_write(inner, plan, write_rows(inner, plan, batches(7)))
    assert visible_rows(inner) == [7, *NEW]


def test_damaged_records_raise() -> None:
    store = table_of_two_files()
    store.put("_staged/a.plan", b"{")
    with pytest.raises(CorruptFileError, match="plan"):
        list_files(store)
    store.put("_staged/a.plan", b'{"adds": [], "removes": []}')
    store.put("_staged/a.end", b"perhaps")
    with pytest.raises(CorruptFileError, match="expected 'committed' or 'aborted'"):
        list_files(store)


def test_existing_file_is_not_replaced() -> None:
    store = table_of_two_files()
    plan, files = staged(store, "append")
    store.put(files[1].key, b"mine")
    with pytest.raises(WriteFailedError, match="already exists"):
        finish_table_write(store, plan, files)
    assert store.read(files[1].key).to_pybytes() == b"mine"
    with pytest.raises(ObjectExistsError):
        store.put_if_absent(files[1].key, b"")
