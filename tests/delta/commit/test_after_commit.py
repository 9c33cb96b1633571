"""Work after a commit: when it is due, what it costs, and that a failure does no harm."""

from __future__ import annotations

from typing import Any

import pytest

from tests.delta.tables import add, clocked, fixed_runtime, log_of, metadata, protocol, rows
from tests.fault_store import Fault, FaultStore, SimulatedCrash
from tests.runtimes import runtime_in_ms
from trilake.common.runtime import Runtime
from trilake.delta.commit.after_commit import CHECKSUMS, COMPACTION_INTERVAL, maintain_log
from trilake.delta.commit.transaction import CommitEvent, CommitPlan
from trilake.delta.log.checkpoint_writer import PART_SIZE
from trilake.delta.log.checksum import differences, read_checksum
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Head
from trilake.delta.standard import standard_engine
from trilake.storage.memory import MemoryStore

DAY_MS = 86_400_000
V2 = protocol(3, 7, readerFeatures=["v2Checkpoint"], writerFeatures=["v2Checkpoint"])


def _log(versions: int, *, first: Any = None, clock: int = 1, **conf: Any) -> DeltaLog:
    history = [[{"commitInfo": {}}, add(f"f{v}", size=v)] for v in range(versions)]
    history[0] = [first or protocol(), metadata(**conf), *history[0]]
    return log_of(*history, store=MemoryStore(clock=lambda: clock))


def _conf(key: str, value: str) -> dict[str, Any]:
    return {key: value}


def _event(log: DeltaLog, base: Head) -> CommitEvent:
    """The event of the commit on top of ``base``."""
    return CommitEvent(log, base, CommitPlan("WRITE", {}, []), base.metadata, base.version + 1)


def _upkeep(log: DeltaLog, runtime: Runtime | None = None) -> FaultStore:
    """Run the work after the newest commit; returns the store with its calls."""
    base = log.head(log.head().version - 1)
    seen = FaultStore(log.store)
    maintain_log(_event(DeltaLog(seen, standard_engine(runtime=runtime or fixed_runtime())), base))
    return seen


@pytest.mark.parametrize("versions", [2, 5, 10])
def test_no_upkeep_makes_no_request(versions: int) -> None:
    assert _upkeep(_log(versions)).calls == []


def test_checkpoint_writes_its_checksum() -> None:
    log = _log(11)
    _upkeep(log)
    assert log.snapshot().segment.checkpoint_version == 10
    checksum = read_checksum(log.store, 10)
    assert checksum is not None
    assert differences(checksum, log.snapshot()) == []


def test_no_checksum_when_disabled() -> None:
    log = _log(11, **_conf(CHECKSUMS, "none"))
    _upkeep(log)
    assert read_checksum(log.store, 10) is None


def test_checksum_per_commit_reads_one_commit() -> None:
    log = _log(3, **_conf(CHECKSUMS, "commit"))
    _upkeep(log)
    log.store.put(f"_delta_log/{3:020d}.json", b'{"commitInfo":{}}\n{"add":{"path":"x","partitionValues":{},"size":7,'
                  b'"modificationTime":0,"dataChange":true}}\n')  # fmt: skip
    calls = _upkeep(log).counts()
    assert sum(calls.values()) == 3
    assert "list" not in calls
    checksum = read_checksum(log.store, 3)
    assert checksum is not None
    assert differences(checksum, log.snapshot()) == []


def test_log_compaction_at_its_interval() -> None:
    log = _log(4, **_conf(COMPACTION_INTERVAL, "4"))
    _upkeep(log)
    assert [(a, b) for a, b, _ in log.listing().compactions] == [(0, 3)]


def test_log_cleanup_follows_a_checkpoint_unless_disabled() -> None:
    for enabled, oldest in (("true", 10), ("false", 0)):
        conf: dict[str, Any] = {"delta.enableExpiredLogCleanup": enabled}
        log = _log(11, clock=DAY_MS, **conf)
        _upkeep(clocked(log, lambda: 100 * DAY_MS), runtime_in_ms(lambda: 100 * DAY_MS))
        assert min(log.listing().commits) == oldest


@pytest.mark.parametrize("conf", [{"delta.checkpointInterval": "often"}, {COMPACTION_INTERVAL: "often"}], ids=repr)
def test_invalid_property_is_a_warning(conf: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    _upkeep(_log(3, **conf))
    assert "is committed, but" in caplog.text


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["fail", "crash"])
@pytest.mark.parametrize(
    ("first", "conf"),
    [
        (None, {}),
        (None, {PART_SIZE: "4"}),
        (V2, {"delta.checkpointPolicy": "v2", PART_SIZE: "4"}),
        (None, {"delta.checkpointInterval": "100", CHECKSUMS: "commit", COMPACTION_INTERVAL: "11"}),
    ],
    ids=["classic", "parts", "v2", "compaction"],
)
def test_failure_at_any_call_keeps_the_table(first: Any, conf: dict[str, Any], kind: Any, when: Any) -> None:
    runtime = runtime_in_ms(lambda: 100 * DAY_MS, new_id=fixed_runtime().new_id)
    expected = rows(_log(11, first=first, clock=DAY_MS, **conf).snapshot().adds.drop_columns(["dataChange"]))
    seen = _upkeep(_log(11, first=first, clock=DAY_MS, **conf), runtime)
    total = seen.count()  # calls that name an object can fail
    assert total > 3
    for nth in range(1, total + 1):
        log = _log(11, first=first, clock=DAY_MS, **conf)
        base = log.head(9)
        store = FaultStore(log.store, [Fault(nth=nth, kind=kind, when=when)])
        try:
            maintain_log(_event(DeltaLog(store, standard_engine(runtime=runtime)), base))
            assert not store.crashed  # a call that fails by itself, such as reading a missing object, has no "after"
        except SimulatedCrash:
            assert kind == "crash"
        snapshot = log.snapshot()
        assert snapshot.version == 10
        assert rows(snapshot.adds.drop_columns(["dataChange"])) == expected
        checksum = read_checksum(log.store, 10)
        assert checksum is None or differences(checksum, snapshot) == []
