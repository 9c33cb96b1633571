"""Log cleanup: what is deleted, what is kept, and that versions within the retention stay readable."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.delta.tables import add, lines, metadata, protocol, remove, rows
from tests.fault_store import FaultStore, SimulatedCrash
from tests.runtimes import runtime_in_ms
from trilake.delta.log.checkpoint_writer import TOP_LEVEL_FORMAT, write_checkpoint
from trilake.delta.log.commit_times import monotonic
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import DAY_MS, cleanup_log, cutoff_time, expired
from trilake.delta.log.log_compaction import compact_log
from trilake.delta.log.segment import LAST_CHECKPOINT, SIDECARS, checkpoint_key, checksum_key, commit_key
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.standard import standard_engine
from trilake.errors import ClockError, CorruptLogError, InvalidArgumentError, TrilakeError, UnsupportedProtocolError
from trilake.storage.memory import MemoryStore

HOUR_MS = 3_600_000
FEATURES = ["v2Checkpoint", "inCommitTimestamp", "domainMetadata"]
V7 = protocol(3, 7, readerFeatures=["v2Checkpoint"], writerFeatures=FEATURES)


@dataclass
class _World:
    """A log in memory and the clock of its writers."""

    now: int = 1_000 * DAY_MS
    ids: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=lambda: self.now)
        self.log = DeltaLog(self.store, standard_engine())
        self.runtime = runtime_in_ms(
            lambda: self.now, new_id=lambda: f"{next(self.ids):08d}-0000-4000-8000-000000000000"
        )

    def commit(self, version: int, *actions: Any, at: int | None = None) -> None:
        now, self.now = self.now, self.now if at is None else at
        self.store.put(commit_key(version), lines(actions or [add(f"f{version}")]))
        self.now = now

    def checkpoint(self, version: int, **options: Any) -> None:
        write_checkpoint(self.log, self.log.snapshot(version), self.runtime, **options)

    @property
    def names(self) -> list[str]:
        return [o.key.removeprefix("_delta_log/") for o in self.store.list("_delta_log")]


def _daily(versions: int, *, checkpoints: Iterable[int] = (), **conf: str) -> _World:
    """One commit at noon of each day from day 1,000 on; the clock is an hour after the last one."""
    world = _World()
    for v in range(versions):
        world.now = (1_000 + v) * DAY_MS + 12 * HOUR_MS
        first = [V7, metadata(**conf), add("f0")] if v == 0 else []
        world.commit(v, *first)
        if v in checkpoints:
            world.checkpoint(v)
    world.now += HOUR_MS
    return world


def _content(s: Snapshot) -> Any:
    return rows(s.adds.drop_columns(["dataChange"])), s.protocol, s.metadata, dict(s.state.txns)


def test_cleanup_deletes_expired_files() -> None:
    world = _daily(20, checkpoints=[5, 10, 15])
    for v in (4, 9, 10, 14):
        world.store.put(checksum_key(v), b"{}")
    compact_log(world.log, 6, 9)
    compact_log(world.log, 10, 12)
    compact_log(world.log, 11, 13)
    # Cutoff: midnight of the day of version 13, so version 12 is the state at that time.
    planned = cleanup_log(world.log, world.runtime, dry_run=True, retention_ms=6 * DAY_MS)
    assert len(world.names) == 20 + 3 + 1 + 4 + 3
    result = cleanup_log(world.log, world.runtime, retention_ms=6 * DAY_MS)
    assert result == planned
    assert result.oldest_version == 10
    assert result.cutoff_ms == 1_013 * DAY_MS
    assert world.names == sorted(
        [
            *(f"{v:020d}.json" for v in range(10, 20)),
            *(f"{v:020d}.checkpoint.parquet" for v in (10, 15)),
            *(f"{v:020d}.crc" for v in (10, 14)),
            f"{11:020d}.{13:020d}.compacted.json",
            "_last_checkpoint",
        ]
    )
    assert list(result.keys) == sorted(result.keys)  # oldest first
    assert [world.log.snapshot(v).adds.num_rows for v in range(10, 20)] == list(range(11, 21))
    with pytest.raises(TrilakeError, match="oldest readable version is 10"):
        world.log.snapshot(9)
    assert cleanup_log(world.log, world.runtime, retention_ms=6 * DAY_MS).keys == ()


def test_clock_ahead_of_the_store_deletes_nothing() -> None:
    world = _daily(20, checkpoints=[5, 10, 15])
    names = world.names
    ahead = runtime_in_ms(lambda: world.now + 40 * DAY_MS)
    with pytest.raises(ClockError, match="ahead of the store's"):
        cleanup_log(world.log, ahead, retention_ms=6 * DAY_MS)
    assert world.names == names


def test_retention_is_a_property() -> None:
    conf = {"delta.logRetentionDuration": "interval 3 days", "delta.checkpointInterval": "100"}
    world = _daily(20, checkpoints=[5, 10, 15], **conf)
    assert cleanup_log(world.log, world.runtime).oldest_version == 15
    world = _daily(40, checkpoints=[5, 10, 35])
    assert cleanup_log(world.log, world.runtime).oldest_version == 5  # the default is 30 days


def test_invalid_retention_property_deletes_nothing() -> None:
    world = _daily(20, checkpoints=[5], **{"delta.logRetentionDuration": "6 months 1 day"})
    with pytest.raises(InvalidArgumentError, match="not a duration"):
        cleanup_log(world.log, world.runtime)
    assert len(world.names) == 22


@pytest.mark.parametrize("retention", [-1, -DAY_MS])
def test_negative_retention_is_rejected(retention: int) -> None:
    world = _daily(2)
    with pytest.raises(InvalidArgumentError, match="negative"):
        cleanup_log(world.log, world.runtime, retention_ms=retention)


def test_young_log_is_kept() -> None:
    world = _daily(20, checkpoints=[10])
    before = world.names
    assert cleanup_log(world.log, world.runtime, retention_ms=30 * DAY_MS).oldest_version is None
    assert world.names == before
    assert not expired(world.log, world.log.head(), world.runtime)


def test_commit_at_midnight_is_the_cutoff_state() -> None:
    world = _World()
    for v in range(4):
        world.now = (1_000 + v) * DAY_MS
        world.commit(v, *([protocol(), metadata(), add("f0")] if v == 0 else ()))
        world.checkpoint(v)
    assert cleanup_log(world.log, world.runtime, retention_ms=2 * DAY_MS).oldest_version == 1


def test_checkpoint_is_written_when_it_frees_more() -> None:
    world = _daily(30, checkpoints=[2, 28], **{"delta.checkpointInterval": "10"})
    expected = {v: _content(world.log.snapshot(v)) for v in range(24, 30)}
    planned = cleanup_log(world.log, world.runtime, dry_run=True, retention_ms=5 * DAY_MS)
    assert checkpoint_key(24).removeprefix("_delta_log/") not in world.names
    result = cleanup_log(world.log, world.runtime, retention_ms=5 * DAY_MS)
    assert result == planned
    assert result.oldest_version == 23
    assert getattr(world.log.hint(), "version", None) == 28  # the newest, not the one just made
    assert {v: _content(world.log.snapshot(v)) for v in range(24, 30)} == expected


def test_inconsistent_log_is_kept() -> None:
    gap = _daily(20, checkpoints=[5, 10])
    gap.store.delete([commit_key(12)])
    damaged = _daily(20, checkpoints=[5, 10])
    damaged.store.put(checkpoint_key(10), b"PAR1 no checkpoint")
    for world, error in ((gap, True), (damaged, True)):
        before = world.names
        if error:
            with pytest.raises(TrilakeError):
                cleanup_log(world.log, world.runtime, retention_ms=3 * DAY_MS)
        assert world.names == before
    # The newest version is readable, the checkpoint at the cutoff is not.
    later = _daily(20, checkpoints=[5, 10, 15])
    later.store.put(checkpoint_key(10), b"PAR1 no checkpoint")
    before = later.names
    assert cleanup_log(later.log, later.runtime, retention_ms=6 * DAY_MS).oldest_version is None
    assert later.names == before


@pytest.mark.parametrize("kind", ["add", "remove"])
@pytest.mark.parametrize("newest", [False, True])
def test_unreadable_checkpoint_prevents_cleanup(kind: str, newest: bool) -> None:
    """Its protocol and metadata are readable, and the earlier commits still have everything."""
    world = _World()
    for v in range(12):
        world.now = (1_000 + v) * DAY_MS + 12 * HOUR_MS
        first = [V7, metadata(**{"delta.logRetentionDuration": "interval 2 days"}), add("f0")] if v == 0 else []
        more = [remove(f"f{v - 1}", deletionTimestamp=world.now), add(f"f{v}")] if v else []
        world.commit(v, *first, *more)
    world.now += HOUR_MS
    for v in (8,) if newest else (8, 11):
        world.checkpoint(v)
    _damage(world, checkpoint_key(8), kind)
    before, expected = world.names, _content(world.log.snapshot())
    try:
        done = cleanup_log(world.log, world.runtime)
    except CorruptLogError:
        pass
    else:
        assert not done.keys
    assert world.names == before
    assert _content(world.log.snapshot()) == expected


def _damage(world: _World, key: str, kind: str) -> None:
    """Corrupt the pages with the paths of one kind of actions."""
    content = bytearray(world.store.read(key))
    footer = pq.ParquetFile(io.BytesIO(content)).metadata
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    columns = [g.column(i) for g in groups for i in range(g.num_columns)]
    for column in (c for c in columns if c.path_in_schema == f"{kind}.path"):
        start = column.dictionary_page_offset or column.data_page_offset
        for i in range(start, start + column.total_compressed_size):
            content[i] ^= 0xFF
    world.store.put(key, bytes(content))


def test_unwritable_table_is_not_cleaned_up() -> None:
    world = _daily(20, checkpoints=[10])
    world.commit(20, protocol(3, 7, readerFeatures=[], writerFeatures=["unheardOf"]))
    with pytest.raises(UnsupportedProtocolError, match="unheardOf"):
        cleanup_log(world.log, world.runtime, retention_ms=3 * DAY_MS)


@pytest.mark.parametrize(("protected", "oldest"), [("11", 15), ("15", 15), ("16", None), ("no number", None)])
def test_protected_checkpoints_are_deleted_all_or_none(protected: str, oldest: int | None) -> None:
    conf = {"delta.requireCheckpointProtectionBeforeVersion": protected, "delta.checkpointInterval": "100"}
    world = _daily(20, checkpoints=[5, 10, 15], **conf)
    assert cleanup_log(world.log, world.runtime, retention_ms=3 * DAY_MS).oldest_version == oldest


def test_in_commit_timestamps_decide_if_enabled() -> None:
    conf = {"delta.enableInCommitTimestamps": "true", "delta.checkpointInterval": "100"}
    world = _World()
    for v in range(20):  # the table was copied: all file times are of today
        time = {"commitInfo": {"inCommitTimestamp": (1_000 + v) * DAY_MS + 12 * HOUR_MS}}
        first = [V7, metadata(**conf), add("f0")] if v == 0 else [add(f"f{v}")]
        world.commit(v, time, *first, at=2_000 * DAY_MS)
        if v in (5, 10, 15):
            world.checkpoint(v)
    world.now = 1_019 * DAY_MS + 13 * HOUR_MS
    assert expired(world.log, world.log.head(), runtime_in_ms(lambda: world.now + 30 * DAY_MS))
    assert cleanup_log(world.log, world.runtime, retention_ms=6 * DAY_MS).oldest_version == 10


def test_missing_in_commit_timestamp_stops_the_cleanup() -> None:
    conf = {"delta.enableInCommitTimestamps": "true"}
    world = _daily(20, checkpoints=[10], **conf)
    before = world.names
    with pytest.raises(TrilakeError, match="has no inCommitTimestamp"):
        cleanup_log(world.log, world.runtime, retention_ms=3 * DAY_MS)
    assert world.names == before


@pytest.mark.parametrize("times", [1, 100])
def test_concurrent_cleanup_of_a_commit(times: int) -> None:
    world = _World()
    for v in range(20):
        time = {"commitInfo": {"inCommitTimestamp": (1_000 + v) * DAY_MS + 12 * HOUR_MS}}
        first = [V7, metadata(**{"delta.enableInCommitTimestamps": "true"}), add("f0")] if v == 0 else [add(f"f{v}")]
        world.commit(v, time, *first)
        if v in (5, 10):
            world.checkpoint(v)
    world.now = 1_019 * DAY_MS + 13 * HOUR_MS
    left = iter(range(times))

    def take_the_oldest(op: str, key: str) -> None:
        oldest = world.names[0]
        if op == "read" and key.endswith(oldest) and next(left, None) is not None:
            world.store.delete([key])

    log = DeltaLog(FaultStore(world.store, before=take_the_oldest), standard_engine())
    result = cleanup_log(log, world.runtime, retention_ms=6 * DAY_MS)
    assert result.oldest_version == (10 if times == 1 else None)
    assert DeltaLog(world.store, standard_engine()).snapshot().adds.num_rows == 20
    if times > 1:
        assert not expired(log, log.head(), world.runtime)


def test_decreasing_file_times_are_adjusted() -> None:
    assert monotonic([5, 3, 3, 9, 1]) == [5, 6, 7, 9, 10]
    assert cutoff_time(3 * DAY_MS, DAY_MS) == 2 * DAY_MS
    world = _World()
    # Version 0 has today's time, so all later versions count as at least as young.
    for v in range(5):
        at = world.now if v == 0 else world.now - 50 * DAY_MS
        world.commit(v, *([protocol(), metadata(), add("f0")] if v == 0 else ()), at=at)
    world.checkpoint(4)
    assert cleanup_log(world.log, world.runtime, retention_ms=3 * DAY_MS).oldest_version is None


# --- sidecars --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", ["json", "parquet"])
def test_sidecars_of_deleted_checkpoints_are_deleted(extension: str) -> None:
    conf = {"delta.checkpointPolicy": "v2", TOP_LEVEL_FORMAT: extension, "delta.checkpointInterval": "100"}
    world = _daily(20, checkpoints=[5, 10, 15], **{**conf, "delta.logRetentionDuration": "interval 6 days"})
    old = (1_003 * DAY_MS, "orphan"), (world.now - 2 * HOUR_MS, "of-a-checkpoint-being-written")
    now = world.now
    for world.now, name in old:
        world.store.put(f"{SIDECARS}/{name}.parquet", b"x")
    world.now = now
    assert len(world.names) == 20 + 3 + 3 + 2 + 1
    result = cleanup_log(world.log, world.runtime)
    assert result.oldest_version == 10
    gone = [k for k in result.keys if k.startswith(SIDECARS)]
    assert len(gone) == 2
    assert f"{SIDECARS}/orphan.parquet" in gone
    assert [world.log.snapshot(v).adds.num_rows for v in range(10, 20)] == list(range(11, 21))
    assert f"{SIDECARS.removeprefix('_delta_log/')}/of-a-checkpoint-being-written.parquet" in world.names


def test_unreadable_checkpoint_keeps_all_sidecars() -> None:
    world = _daily(20, checkpoints=[5, 15], **{"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "100"})
    world.now -= 10 * DAY_MS
    world.store.put(f"{SIDECARS}/orphan.parquet", b"x")
    world.now += 10 * DAY_MS
    world.store.put(f"_delta_log/{16:020d}.checkpoint.{0:08d}-0000-4000-8000-000000000000.parquet", b"no Parquet")
    world.store.delete([LAST_CHECKPOINT])
    world.commit(20, V7)
    world.checkpoint(15)
    before = {n for n in world.names if n.startswith("_sidecars")}
    with pytest.raises(TrilakeError):
        cleanup_log(world.log, world.runtime, retention_ms=DAY_MS)
    assert before <= set(world.names)


# --- any history, any time -------------------------------------------------------------------------------------------


_COIN: st.SearchStrategy[bool] = st.booleans()


@st.composite
def _worlds(draw: st.DrawFn) -> _World:
    world = _World()
    live: list[str] = []
    ict = draw(_COIN)
    conf: dict[str, str] = {"delta.checkpointInterval": draw(st.sampled_from(["2", "5"]))}
    conf |= {"delta.enableInCommitTimestamps": "true"} if ict else {}
    if draw(_COIN):
        conf |= {"delta.checkpointPolicy": "v2", TOP_LEVEL_FORMAT: "json" if draw(st.booleans()) else "parquet"}
    count = draw(st.integers(1, 12))
    for v in range(count):
        world.now += draw(st.sampled_from([0, HOUR_MS, DAY_MS, 3 * DAY_MS]))
        actions: list[Any] = [{"commitInfo": {"inCommitTimestamp": world.now + v}}]
        actions += [V7, metadata(**conf)] if v == 0 else []
        if draw(_COIN) and live:
            actions.append(remove(live.pop(), deletionTimestamp=world.now))
        actions.append(add(f"f{v}"))
        live.append(f"f{v}")
        world.commit(v, *actions)
        kind = draw(st.sampled_from(["none", "none", "whole", "parts", "incomplete"]))
        if kind == "incomplete":
            world.store.put(f"_delta_log/{v:020d}.checkpoint.{1:010d}.{2:010d}.parquet", b"x")
        elif kind != "none":
            world.checkpoint(v, part_size=1 if kind == "parts" else None)
        if v > 1 and draw(st.integers(0, 3)) == 0:
            compact_log(world.log, draw(st.integers(0, v - 1)), v)
    world.now += draw(st.sampled_from([0, DAY_MS, 5 * DAY_MS, 40 * DAY_MS]))
    return world


class _Dying(FaultStore):
    """Crashes in the ``after``th delete after deleting an arbitrary part of its keys."""

    def __init__(self, inner: MemoryStore, after: int, keep: int) -> None:
        super().__init__(inner)
        self.after, self.keep = after, keep

    def delete(self, keys: Iterable[str]) -> None:
        names = list(keys)
        self.after -= 1
        if self.after < 0:
            self.inner.delete([k for i, k in enumerate(names) if (self.keep >> (i % 16)) & 1 == 0])
            raise SimulatedCrash("in a delete")
        super().delete(names)


def _readable(log: DeltaLog) -> dict[int, Any]:
    result = {}
    for v in range(20):
        try:
            result[v] = _content(log.snapshot(v))
        except TrilakeError:
            continue
    return result


def _needed(world: _World, before: dict[int, Any], retention: int) -> dict[int, Any]:
    """The versions that must be kept: those since the cutoff, and the one current at that time."""
    cutoff = cutoff_time(world.now, retention)
    commits = world.log.commits()
    times = world.log.commit_times(commits, world.log.head().metadata)
    current = max((v for (v, _), t in zip(commits, times, strict=True) if t <= cutoff), default=0)
    return {v: c for v, c in before.items() if v >= current}


@settings(max_examples=examples(12), deadline=None)
@given(_worlds(), st.integers(0, 20 * DAY_MS), st.integers(0, 3), st.integers(0, 2**16 - 1), st.booleans())
def test_versions_within_retention_stay_readable(
    world: _World, retention: int, after: int, keep: int, crash: bool
) -> None:
    before = _readable(world.log)
    needed = _needed(world, before, retention)
    newest = max(before)
    if crash:
        dying = DeltaLog(_Dying(world.store, after, keep), standard_engine())
        try:
            cleanup_log(dying, world.runtime, retention_ms=retention)
        except SimulatedCrash:
            # Remaining older versions read correctly or not at all.
            assert {v: c for v, c in _readable(world.log).items() if before[v] != c} == {}
            assert needed.items() <= _readable(world.log).items()
    result = cleanup_log(world.log, world.runtime, retention_ms=retention)
    left = _readable(world.log)
    assert needed.items() <= left.items()
    assert left.items() <= before.items()
    assert world.log.snapshot().version == newest
    if result.oldest_version is not None:
        assert min(left) == result.oldest_version
        assert all(int(n[:20]) >= result.oldest_version for n in world.names if n[0] == "0")
    assert set(result.keys).isdisjoint(f"_delta_log/{n}" for n in world.names)
