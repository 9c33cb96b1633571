"""First writes and overwrites of a folder are serialized; appends do not wait."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest

from tests.fault_store import Fault, FaultStore, SimulatedCrash
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import TableExistsError, TrilakeError
from trilake.storage import Store
from trilake.storage.memory import MemoryStore
from trilake.trevni import TrevniFile
from trilake.trevni.tables import jobs, row_groups
from trilake.trevni.tables.dataset import list_files
from trilake.trevni.tables.table_write import TableWritePlan, finish_table_write, plan_table_write, write_rows

SCHEMA = pa.schema([("n", pa.int64())])
#: The job id decides which job yields.
LESSER, GREATER = "0" * 32, "f" * 32


class Clock:
    """Waits without sleeping, and records the time."""

    def __init__(self) -> None:
        self.waited = 0.0
        self.runtime = replace(SYSTEM_RUNTIME, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.waited += seconds


def _begun(store: Store, mode: str, id: str) -> TableWritePlan:
    plan = replace(plan_table_write(store, SCHEMA, mode=mode), write_id=id)
    assert not plan.nothing
    return plan


def _end(store: Store, plan: TableWritePlan, value: int, clock: Clock) -> str:
    rows = [pa.record_batch({"n": pa.array([value], pa.int64())})]
    try:
        done = finish_table_write(store, plan, write_rows(store, plan, rows), runtime=clock.runtime)
    except TrilakeError as e:
        return type(e).__name__
    return "written" if done.files_added else "nothing"


def _raced(mode: str, other: str, ids: tuple[str, str], nth: int) -> tuple[tuple[str, ...], list[int]]:
    """The results of both writes, and the final rows; only the first write if it makes fewer than ``nth`` calls."""
    store, clock, calls, second = MemoryStore(), Clock(), count(1), list[str]()
    first, later = _begun(store, mode, ids[0]), _begun(store, other, ids[1])

    def run_concurrently(op: str, key: str) -> None:
        if next(calls) == nth:
            second.append(_end(store, later, 2, clock))

    outcome = _end(FaultStore(store, before=run_concurrently), first, 1, clock)
    return (outcome, *second), _visible_rows(store)


def _visible_rows(store: Store) -> list[int]:
    return sorted(v for f in list_files(store) for v in TrevniFile((store, f.key)).read()["n"].to_pylist())


@pytest.mark.parametrize("ids", [(LESSER, GREATER), (GREATER, LESSER)], ids=["lesser", "greater"])
@pytest.mark.parametrize(
    "modes", ["error error", "ignore error", "error ignore", "overwrite overwrite", "overwrite ignore"]
)
def test_concurrent_exclusive_writes_are_serialized(modes: str, ids: tuple[str, str]) -> None:
    """The second write runs completely at each call of the first; both found the folder empty."""
    observed = set[tuple[str, ...]]()
    mode, other = modes.split()
    for nth in count(1):
        outcomes, seen = _raced(mode, other, ids, nth)
        if len(outcomes) == 1:
            break
        observed.add(outcomes)
        assert len(seen) == 1
        assert outcomes[seen[0] - 1] == "written"
        assert outcomes != ("written", "written") or "overwrite" in (mode, other)
    rejected = {"error": "TableExistsError", "ignore": "nothing", "overwrite": "written"}
    assert observed <= {
        ("written", rejected[other]),
        (rejected[mode], "written"),
        # It made no progress during the wait.
        ("WriteFailedError", "written"),
    }
    assert len(observed) > 1


def test_appends_do_not_wait() -> None:
    store, clock = MemoryStore(), Clock()
    dead = _crashed(store, "overwrite", LESSER)
    assert jobs.alone_at_work(store, "") == [dead]
    assert _end(store, _begun(store, "append", GREATER), 5, clock) == "written"
    assert (clock.waited, _visible_rows(store)) == (0, [5])


@pytest.mark.parametrize("ids", [(LESSER, GREATER), (GREATER, LESSER)], ids=["lesser", "greater"])
def test_dead_write_is_aborted_after_a_while(ids: tuple[str, str]) -> None:
    store, clock = MemoryStore(), Clock()
    dead = _crashed(store, "error", ids[0])
    assert _end(store, _begun(store, "overwrite", ids[1]), 2, clock) == "written"
    assert row_groups.PATIENCE_S <= clock.waited < row_groups.PATIENCE_S + 2
    assert jobs.record_outcome(store, dead, "committed") == "aborted"
    assert _end(store, _begun(store, "overwrite", "8" * 32), 3, clock) == "written"
    assert clock.waited < row_groups.PATIENCE_S + 2  # once
    assert _visible_rows(store) == [3]


@pytest.mark.parametrize("job_id", [LESSER, "b" * 32, GREATER + "f"], ids=["least", "between", "greatest"])
def test_write_that_waits_for_a_dead_one_is_not_aborted(job_id: str) -> None:
    """The timeouts for the waiting and for the dead write ran in parallel, and a live write was aborted."""
    store, clock = MemoryStore(), Clock()
    dead = _crashed(store, "error", GREATER)
    waiting = "8" * 32
    jobs.begin(store, waiting, jobs.Plan(("part-8.trv",), alone=True))

    def sleep(seconds: float) -> None:
        clock.waited += seconds
        if not jobs.is_at_work(store, dead):
            jobs.record_outcome(store, waiting, "committed")

    runtime = replace(clock.runtime, sleep=sleep)
    plan = row_groups.begin_alone(store, job_id, jobs.Plan(("part-0.trv",)), tuple, runtime)
    assert plan.alone
    assert jobs.record_outcome(store, waiting, "aborted") == "committed"
    assert clock.waited < row_groups.PATIENCE_S + 4


def _crashed(store: MemoryStore, mode: str, id: str) -> str:
    """The id of a write whose process died after moving its files, before its commit."""
    plan = _begun(store, mode, id)
    with pytest.raises(SimulatedCrash):
        _end(FaultStore(store, [Fault("put_if_absent", "*.end", kind="crash")]), plan, 1, Clock())
    return plan.write_id


def test_concurrently_created_table_stays() -> None:
    """The late write removes its staged files."""
    for mode, error in ("error", TableExistsError), ("ignore", None):
        store, clock = MemoryStore(), Clock()
        plan = _begun(store, mode, LESSER)
        assert _end(store, _begun(store, "append", GREATER), 7, clock) == "written"
        assert _end(store, plan, 1, clock) == ("nothing" if error is None else error.__name__)
        assert [meta.key.startswith("part-") for meta in store.list()] == [True]
        assert _visible_rows(store) == [7]
