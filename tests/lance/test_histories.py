"""Random histories against a list of rows, at every version; several processes; a crash at every step."""

from __future__ import annotations

import datetime as dt
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from tests.fault_store import Fault, FaultStore, SimulatedCrash
from trilake import lance
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import StorageError, TrilakeError, UnknownOutcomeError
from trilake.lance import LanceDataset, cleanup
from trilake.lance.commands import columns, compaction, delete, update
from trilake.lance.commands.fragment_writer import WriteOptions
from trilake.lance.commands.write import write
from trilake.lance.scan.snapshot import Snapshot
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore

pytestmark = pytest.mark.long

Rows = list[dict[str, Any]]
_count = iter(range(10**6))


def table(start: int, count: int, names: list[str]) -> pa.Table:
    return pa.table({n: pa.array([f"{n}{start + i}" if n != "id" else start + i for i in range(count)]) for n in names})


class Histories(RuleBasedStateMachine):
    """Commands on a dataset and on lists; handles may be stale."""

    handles: Bundle[int] = Bundle("handles")

    @initialize(target=handles, count=st.integers(0, 20), rows=st.integers(1, 5), groups=st.integers(1, 3))
    def begin(self, count: int, rows: int, groups: int) -> int:
        self.options = {"max_rows_per_file": rows, "max_rows_per_group": groups}
        self.next = count
        data = table(0, count, ["id", "a"]).cast(pa.schema({"id": pa.int64(), "a": pa.string()}))
        self.ds = lance.write_dataset(data, f"memory://histories-{next(_count)}", **self.options)
        self.rows: dict[int, Rows] = {1: data.to_pylist()}
        self.names: dict[int, list[str]] = {1: ["id", "a"]}
        return 1

    def did(self, rows: Rows, names: list[str] | None = None) -> int:
        latest = max(self.rows)
        self.ds.checkout_latest()
        assert self.ds.version in (latest, latest + 1, latest + 2)
        for version in range(latest + 1, self.ds.version + 1):
            # A compaction makes two versions; the first has the rows from before.
            self.rows[version] = rows if version == self.ds.version else self.rows[latest]
            self.names[version] = (names or self.names[latest]) if version == self.ds.version else self.names[latest]
        return self.ds.version

    @property
    def now(self) -> Rows:
        return self.rows[max(self.rows)]

    @rule(target=handles, count=st.integers(0, 8))
    def append(self, count: int) -> int:
        names = self.names[max(self.rows)]
        data = table(self.next, count, names)
        self.next += count
        lance.write_dataset(data.cast(self.ds.schema), self.ds.uri, mode="append", **self.options)
        return self.did(self.now + data.to_pylist())

    @rule(target=handles, count=st.integers(0, 8))
    def overwrite(self, count: int) -> int:
        data = table(self.next, count, ["id", "b"]).cast(pa.schema({"id": pa.int64(), "b": pa.string()}))
        self.next += count
        lance.write_dataset(data, self.ds.uri, mode="overwrite", **self.options)
        return self.did(data.to_pylist(), ["id", "b"])

    @rule(target=handles, modulus=st.integers(1, 7), rest=st.integers(0, 6), at=handles)
    def delete(self, modulus: int, rest: int, at: int) -> int:
        # From a possibly stale handle: rows that match in the newest version are deleted.
        stale = self.ds.checkout_version(at)
        try:
            stale.delete(f"id % {modulus} = {rest}")
        except TrilakeError:
            return self.did(self.now)
        return self.did([r for r in self.now if r["id"] % modulus != rest])

    @rule(target=handles, modulus=st.integers(1, 7), rest=st.integers(0, 6))
    def update(self, modulus: int, rest: int) -> int:
        hit = [r for r in self.now if r["id"] % modulus == rest]
        self.ds.update({"id": "id + 1000"}, f"id % {modulus} = {rest}")
        kept = [r for r in self.now if r["id"] % modulus != rest]
        return self.did(kept + [r | {"id": r["id"] + 1000} for r in hit])

    @rule(target=handles)
    def add_column(self) -> int:
        name = f"c{next(_count)}"
        self.ds.add_columns({name: "concat('v', id)"})
        names = [*self.names[max(self.rows)], name]
        return self.did([r | {name: f"v{r['id']}"} for r in self.now], names)

    @rule(target=handles)
    def drop_column(self) -> int:
        names = self.names[max(self.rows)]
        if len(names) < 3:
            return max(self.rows)
        self.ds.drop_columns([names[-1]])
        return self.did([{k: v for k, v in r.items() if k != names[-1]} for r in self.now], names[:-1])

    @rule(target=handles, at=handles)
    def restore(self, at: int) -> int:
        self.ds.checkout_version(at).restore()
        return self.did(self.rows[at], self.names[at])

    @rule(target=handles, size=st.integers(1, 40))
    def compact(self, size: int) -> int:
        old = {f.fragment_id for f in self.ds.get_fragments()}
        self.ds.optimize.compact_files(target_rows_per_fragment=size, max_rows_per_group=3)
        # Rewritten rows follow the kept ones, and both keep their order.
        stays = [f.to_table().to_pylist() for f in self.ds.get_fragments() if f.fragment_id in old]
        kept = [row for rows in stays for row in rows]
        return self.did(kept + [row for row in self.now if row not in kept])

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        if self.now:
            ranks = data.draw(st.lists(st.integers(0, len(self.now) - 1), max_size=5))
            assert self.ds.take(ranks).to_pylist() == [self.now[i] for i in ranks]

    @invariant()
    def every_version_is_unchanged(self) -> None:
        if not hasattr(self, "ds"):
            return
        assert self.ds.to_table().to_pylist() == self.now
        assert len(self.ds) == len(self.now)
        ids = [f.fragment_id for f in self.ds.get_fragments()]
        assert len(set(ids)) == len(ids)

    def teardown(self) -> None:
        if hasattr(self, "ds"):
            for version, rows in self.rows.items():
                assert self.ds.checkout_version(version).to_table().to_pylist() == rows
            self.ds.validate()
            self.ds.cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
            assert lance.dataset(self.ds.uri).to_table().to_pylist() == self.now


Histories.TestCase.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
TestHistories = Histories.TestCase


# --- crashes and failures at every step -------------------------------------------------------------------------------

START = pa.table({"id": pa.array(range(40), pa.int64()), "t": [str(i) for i in range(40)]})


def begun() -> MemoryStore:
    store = MemoryStore()
    write(store, START.schema, START.to_batches(), "create", SYSTEM_RUNTIME, WriteOptions(10, 5))
    return store


def _append(store: Store) -> object:
    return write(store, START.schema, START.slice(0, 5).to_batches(), "append", SYSTEM_RUNTIME, WriteOptions(5, 5))


def _delete(store: Store) -> object:
    return delete.delete(Snapshot.open(store, SYSTEM_RUNTIME), "id % 3 = 0")


def _update(store: Store) -> object:
    return update.update(Snapshot.open(store, SYSTEM_RUNTIME), {"t": "'x'"}, "id < 15")


def _add(store: Store) -> object:
    return columns.add(Snapshot.open(store, SYSTEM_RUNTIME), {"n": "id + 1"})


def _compact(store: Store) -> object:
    return compaction.compact(Snapshot.open(store, SYSTEM_RUNTIME))


COMMANDS: dict[str, Callable[[Store], object]] = {
    "append": _append,
    "delete": _delete,
    "update": _update,
    "add columns": _add,
    "compact": _compact,
}


def content(store: Store) -> list[str]:
    found = Snapshot.open(store, SYSTEM_RUNTIME)
    return sorted(map(str, pa.Table.from_batches(found.scan(found.plan()), schema=found.schema).to_pylist()))


@pytest.mark.parametrize("name", COMMANDS)
def test_crash_at_any_step_is_atomic(name: str) -> None:
    run = COMMANDS[name]
    counted = FaultStore(begun())
    run(counted)
    before, after = content(begun()), content(counted.inner)
    seen = []
    for step in range(1, len(counted.calls) + 1):
        inner = begun()
        try:
            run(FaultStore(inner, [Fault(nth=step, kind="crash", when="after")]))
        except SimulatedCrash:
            pass
        else:
            continue  # threads needed fewer calls this time
        found = content(inner)
        assert found in (before, after)
        seen.append(found == after)
        cleanup.cleanup(inner, 0, SYSTEM_RUNTIME, delete_unverified=True)
        assert content(inner) == found
    assert seen == sorted(seen)
    assert True in seen


@pytest.mark.parametrize("name", COMMANDS)
def test_failure_at_any_step_is_reported_correctly(name: str) -> None:
    run = COMMANDS[name]
    counted = FaultStore(begun())
    run(counted)
    before, after = content(begun()), content(counted.inner)
    for when in ("before", "after"):
        for step in range(1, len(counted.calls) + 1):
            inner = begun()
            try:
                run(FaultStore(inner, [Fault(nth=step, when=when)]))  # type: ignore[arg-type]
            except UnknownOutcomeError:
                assert content(inner) in (before, after)
            except TrilakeError:
                assert content(inner) == before
            else:
                assert content(inner) == after


def test_failed_write_leaves_no_files() -> None:
    inner = begun()
    files = {m.key for m in inner.list("data")}
    store = FaultStore(inner, [Fault("put_if_absent", "_versions/*", error=StorageError("no"))])
    with pytest.raises(StorageError):
        _append(store)
    assert {m.key for m in inner.list("data")} == files


# --- processes --------------------------------------------------------------------------------------------------------


def _work(uri: str, worker: int) -> None:
    for i in range(4):
        start = 1000 * (worker + 1) + 10 * i
        rows = pa.table({"id": pa.array(range(start, start + 10), pa.int64())})
        lance.write_dataset(rows, uri, mode="append")
        lance.dataset(uri).delete(f"id = {start}")


def test_concurrent_processes(tmp_path: Path) -> None:
    ds = lance.write_dataset(pa.table({"id": pa.array(range(10), pa.int64())}), tmp_path / "t")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(str(tmp_path / "t"), w)) for w in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert [w.exitcode for w in workers] == [0, 0, 0]
    ds = LanceDataset(tmp_path / "t")
    expected = set(range(10)) | {1000 * (w + 1) + 10 * i + j for w in range(3) for i in range(4) for j in range(1, 10)}
    assert sorted(r["id"] for r in ds.to_table().to_pylist()) == sorted(expected)
    assert ds.version == 1 + 3 * 4 * 2
    ds.validate()
