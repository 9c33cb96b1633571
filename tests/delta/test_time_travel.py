# ruff: noqa: DTZ001 - times without a zone are a distinct type here
"""Versions by time: file times, in-commit timestamps, and their edges."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.delta.tables import add, log_of, metadata, protocol
from tests.fault_store import FaultStore
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.common.timestamps import TimestampLike, timestamp_ms
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.commit_times import timestamp_string
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import choose_segment, commit_key
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import CorruptLogError, InvalidArgumentError, LogGapError, TrilakeError, VersionNotFoundError
from trilake.storage import open_store
from trilake.storage.base import ObjectMeta
from trilake.storage.memory import MemoryStore


def _log(times: list[int]) -> DeltaLog:
    """Return a log whose commit files have these times."""
    remaining = iter(times)
    store = MemoryStore(clock=lambda: next(remaining))
    return log_of(*([add(f"f{i}")] for i in range(len(times))), store=store)


def test_newest_version_at_or_before_a_time() -> None:
    log = _log([100, 200, 300])
    assert [log.version_at(t) for t in (100, 199, 200, 299, 300, 10**15)] == [0, 0, 1, 1, 2, 2]
    assert [log.version_from(t) for t in (0, 100, 101, 200, 300)] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("ms", [0, -1, 2**62, -(2**62), 253_402_300_800_000])
def test_any_time_can_be_formatted(ms: int) -> None:
    assert timestamp_string(ms).endswith("Z")


def test_time_before_the_first_and_after_the_last_commit() -> None:
    log = _log([100_000, 200_000])
    with pytest.raises(VersionNotFoundError, match="oldest commit is version 0") as e:
        log.version_at(99_999)
    assert timestamp_string(100_000) in str(e.value)
    with pytest.raises(VersionNotFoundError, match="newest commit is version 1"):
        log.version_from(200_001)
    assert log.version_at(200_001) == log.version_at(200_000, reached=True) == 1
    with pytest.raises(VersionNotFoundError, match="newest commit is version 1") as e:
        log.version_at(200_001, reached=True)
    assert timestamp_string(200_000) in str(e.value)
    assert e.value.condition == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12))
def test_decreasing_file_times_are_made_monotonic(times: list[int]) -> None:
    log = _log(times)
    result = log.commit_times(log.commits(), log.snapshot().metadata)
    assert all(b > a for a, b in pairwise(result))
    assert all(f >= t for f, t in zip(result, times, strict=True))
    for version, t in enumerate(result):
        assert log.version_at(t) == version
        assert log.version_from(t) == version


def _in_commit(enabled_at: int, times: list[int], file_time: int) -> DeltaLog:
    meta = metadata(
        delta__enableInCommitTimestamps="true",
        delta__inCommitTimestampEnablementVersion=str(enabled_at),
        delta__inCommitTimestampEnablementTimestamp=str(times[0]),
    )
    features = protocol(1, 7, writerFeatures=["inCommitTimestamp"])
    commits = []
    for version in range(enabled_at + len(times)):
        info = {"commitInfo": {"operation": "WRITE", "timestamp": 7}}
        if version >= enabled_at:
            info["commitInfo"]["inCommitTimestamp"] = times[version - enabled_at]
        commits.append([info, *([features, meta] if version == enabled_at else [])])
    return log_of(*commits, store=MemoryStore(clock=lambda: file_time))


def test_in_commit_timestamps_override_file_times() -> None:
    log = _in_commit(0, [1000, 2000, 3000], file_time=9_999_999)
    assert [log.version_at(t) for t in (1000, 1999, 2500, 3000)] == [0, 0, 1, 2]
    with pytest.raises(VersionNotFoundError):
        log.version_at(999)


def test_in_commit_timestamps_enabled_later() -> None:
    log = _in_commit(2, [50_000, 60_000], file_time=40_000)
    assert log.commit_times(log.commits(), log.snapshot().metadata) == [40_000, 40_001, 50_000, 60_000]
    assert log.version_at(40_000) == 0
    assert log.version_at(55_000) == 2


def test_in_commit_timestamps_are_searched_by_bisection() -> None:
    log = _in_commit(3, [1000 + 10 * i for i in range(200)], file_time=50)
    store = FaultStore(log.store)
    counted = DeltaLog(store, log.engine)
    for time, version in ((1000, 3), (2234, 126), (2990, 202), (10**12, 202)):
        # The newest state is read once, and about eight of the two hundred times.
        assert counted.version_at(time) == version
        commits = [c for c in store.calls if c.op == "read" and c.keys[0].endswith(".json")]
        assert len(commits) <= 8
        assert store.count("list") == 1
        store.forget()
    assert counted.version_from(1001) == 4


def test_missing_in_commit_timestamp_falls_back_to_all_times() -> None:
    log = _in_commit(0, [1000, 2000, 3000, 4000], file_time=2500)
    log.store.put(commit_key(1), b'{"commitInfo":{"operation":"WRITE"}}\n')
    expected = log.commit_times(log.commits(), log.head().metadata)
    assert [log.version_at(t) for t in expected[:2]] == [0, 1]


def test_old_version_is_found_without_listing_the_log() -> None:
    log = log_of(*([add(f"f{i}")] for i in range(600)), store=MemoryStore())
    for version in (300, 400, 599):
        write_checkpoint(log, log.snapshot(version), SYSTEM_RUNTIME)
    listed: list[str] = []

    class Listing(MemoryStore):
        def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
            for meta in log.store.list(prefix, start_after):
                listed.append(meta.key)
                yield meta

        def read(self, key: str) -> pa.Buffer:
            return log.store.read(key)

    result = DeltaLog(Listing()).segment(450)
    assert (result.version, result.checkpoint_version, len(result.commits)) == (450, 400, 50)
    assert len(listed) < 250
    assert DeltaLog(Listing()).segment(299) == log.segment(299)
    assert [DeltaLog(Listing()).segment(v) for v in (450, 401, 400, 350)] == [
        replace(choose_segment(log.listing(), uri=log.store.uri, version=v), hint=None) for v in (450, 401, 400, 350)
    ]
    log.store.delete([commit_key(420)])
    with pytest.raises(LogGapError):
        log.segment(450)


@pytest.mark.parametrize(
    ("key", "value"),
    [("delta.inCommitTimestampEnablementVersion", "soon"), ("delta.enableInCommitTimestamps", "maybe")],
)
def test_invalid_timestamp_properties(key: str, value: str) -> None:
    meta = metadata(delta__enableInCommitTimestamps="true")
    meta["metaData"]["configuration"][key] = value
    log = log_of([protocol(), meta, {"commitInfo": {"inCommitTimestamp": "x"}}])
    if value == "soon":
        with pytest.raises(CorruptLogError, match="EnablementVersion"):
            log.version_at(10**14)
    else:
        assert log.version_at(10**14) == 0


@given(st.integers(0, 253_402_300_799_999))
@example(1001)
def test_every_millisecond_round_trips(ms: int) -> None:
    when = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)
    assert timestamp_ms(when) == ms
    assert timestamp_ms(when.isoformat()) == ms
    assert timestamp_ms(when.replace(tzinfo=None)) == ms


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("1970-01-01", 0),
        ("1970-01-01 00:00:01", 1000),
        (" 1970-01-01T00:00:01.5Z ", 1500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59", -1000),
        (2, 2000),
        (1.001, 1001),
        (1700000000.123, 1700000000123),
        (dt.datetime(1970, 1, 2), 86_400_000),
    ],
)
def test_timestamp_formats(value: TimestampLike, ms: int) -> None:
    assert timestamp_ms(value) == ms


@pytest.mark.parametrize(
    "value", ["", "yesterday", "2024-13-01", float("nan"), float("inf"), 10**30, -1e15, True, None, [1], b"x"]
)
def test_invalid_timestamps_are_rejected(value: TimestampLike) -> None:
    with pytest.raises(InvalidArgumentError):
        timestamp_ms(value)


def test_time_travel_on_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log_of([add("a")], [add("b")], [add("c")], store=store)
    for version, seconds in enumerate((1_000, 3_000, 2_000)):  # as after a copy of the last file
        os.utime(tmp_path / commit_key(version), (seconds, seconds))
    assert ArrowDeltaTable(store, standard_engine(), timestamp=1_500).version == 0
    assert ArrowDeltaTable(store, standard_engine(), timestamp="1970-01-01T00:50:00").version == 1
    assert ArrowDeltaTable(store, standard_engine(), timestamp=3_000.001).version == 2
    with pytest.raises(VersionNotFoundError):
        ArrowDeltaTable(store, standard_engine(), timestamp=999)


def test_version_and_timestamp_exclude_each_other() -> None:
    with pytest.raises(InvalidArgumentError, match="cannot both be given"):
        ArrowDeltaTable(_log([1]).store, standard_engine(), version=0, timestamp=1)


@pytest.mark.parametrize("version", [-1, 2, 10**20])
def test_missing_version_is_rejected(version: int) -> None:
    with pytest.raises(VersionNotFoundError, match="newest version is 1"):
        ArrowDeltaTable(_log([1, 2]).store, standard_engine(), version=version)


def test_unsupported_newest_protocol_allows_older_versions() -> None:
    ticks = iter((1000, 2000))
    newer = protocol(3, 7, readerFeatures=["teleportation"], writerFeatures=["teleportation"])
    log = log_of([add("a")], [newer], store=MemoryStore(clock=lambda: next(ticks)))
    with pytest.raises(TrilakeError, match="teleportation"):
        log.snapshot()
    assert log.snapshot(0).adds.num_rows == 1
    assert ArrowDeltaTable(log.store, standard_engine(), version=0).history().num_rows == 1
    assert ArrowDeltaTable(log.store, standard_engine(), timestamp=1).version == 0
    with pytest.raises(TrilakeError, match="teleportation"):
        ArrowDeltaTable(log.store, standard_engine(), timestamp=2)
