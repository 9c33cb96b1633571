"""Cost of a long log: operations list and read only what they need, counted in names and files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import trilake
from bench.logs.delta_logs import append_commit, busy_table, commit_time
from tests.fault_store import FaultStore
from tests.runtimes import runtime_in_ms
from trilake.delta.log import descriptions as history_module
from trilake.delta.log import log as log_module
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import DAY_MS, cleanup_log
from trilake.delta.log.segment import commit_key
from trilake.delta.scan import changes as changes_module
from trilake.delta.standard import standard_engine
from trilake.delta.stream import source as source_module
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.schema import Reading
from trilake.delta.stream.source import DeltaStream
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, VersionNotFoundError
from trilake.storage import open_store
from trilake.storage.base import ObjectMeta

COMMITS, INTERVAL = 420, 50
LAST = COMMITS - 1
#: Commits after the newest checkpoint, which opening the table reads.
TAIL = LAST % INTERVAL


class Counted(FaultStore):
    """A store that counts listed names."""

    listed = 0

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
        for meta in super().list(prefix, start_after):
            self.listed += 1
            yield meta

    def commits_read(self) -> Sequence[str]:
        """The commits that were read since the last :meth:`forget`."""
        return [k for call in self.calls if call.op.startswith("read") for k in call.keys if k.endswith(".json")]

    def forget(self) -> None:
        super().forget()
        self.listed = 0


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat a log of a few hundred commits as long."""
    monkeypatch.setattr(log_module, "_LONG", 100)
    monkeypatch.setattr(source_module, "_LISTED", 40)
    for module in (history_module, changes_module):
        monkeypatch.setattr(module, "BEFORE", 60)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Tables of 420 commits, with and without in-commit timestamps."""
    folders = {stated: tmp_path_factory.mktemp("busy") for stated in (True, False)}
    for stated, folder in folders.items():
        busy_table(folder, commits=COMMITS, interval=INTERVAL, stated=stated)
    return folders


@pytest.fixture(params=[True, False], ids=["stated times", "file times"])
def folder(request: pytest.FixtureRequest, tables: dict[bool, Path]) -> Path:
    return tables[request.param]


def _store(folder: Path) -> Counted:
    return Counted(open_store(str(folder)))


def _log(store: Counted) -> DeltaLog:
    return DeltaLog(store, standard_engine())


def _stream(store: Counted, **options: object) -> DeltaStream:
    log = _log(store)
    head = log.head()
    store.forget()
    return DeltaStream(log, Reading(head.metadata, head.version), StreamOptions(**options))  # type: ignore[arg-type]


def test_open_reads_from_the_newest_checkpoint(folder: Path) -> None:
    store = _store(folder)
    table = ArrowDeltaTable(store, standard_engine())
    assert (table.version, table.count()) == (LAST, 100)
    assert len(store.commits_read()) == TAIL
    assert store.listed <= TAIL + 5
    store.forget()
    assert table.refresh().version == LAST
    assert (store.commits_read(), store.listed) == ([], 2)  # the newest commit, and the hint


def test_limited_history_reads_only_the_last_commits(folder: Path) -> None:
    store = _store(folder)
    table = ArrowDeltaTable(store, standard_engine())
    store.forget()
    rows = table.history(10)
    assert rows["version"].to_pylist() == list(range(LAST, LAST - 10, -1))
    assert rows["timestamp"].cast("int64").to_pylist() == [commit_time(v) for v in range(LAST, LAST - 10, -1)]
    assert len(store.commits_read()) == 10
    assert store.listed < 100


def test_old_version_reads_only_earlier_commits(folder: Path) -> None:
    store = _store(folder)
    assert ArrowDeltaTable(store, standard_engine(), version=233).version == 233
    assert len(store.commits_read()) == 33
    assert store.listed < 150


def test_time_travel_by_in_commit_timestamps_needs_no_listing(tables: dict[bool, Path]) -> None:
    store = _store(tables[True])
    log = _log(store)
    for version in (0, 1, 49, 50, 233, LAST - 1, LAST):
        for offset, until, since in ((0, version, version), (1, version, version + 1), (-1, version - 1, version)):
            time = commit_time(version) + offset
            store.forget()
            if until >= 0:
                assert log.version_at(time) == until
                assert len(store.commits_read()) <= TAIL + 9, time
                assert store.listed < TAIL + 5
            store.forget()
            if since <= LAST and since > 0:
                assert log.version_from(time) == since
                assert len(store.commits_read()) <= TAIL + 9, time
                assert store.listed < TAIL + 5
    assert log.version_from(commit_time(0)) == 0
    assert log.version_at(10**15) == log.version_at(commit_time(LAST), reached=True) == LAST
    with pytest.raises(VersionNotFoundError, match=f"the newest commit is version {LAST}"):
        log.version_at(commit_time(LAST) + 1, reached=True)
    with pytest.raises(VersionNotFoundError, match="is before the oldest commit"):
        log.version_at(commit_time(0) - 1)
    with pytest.raises(VersionNotFoundError, match="is after the newest version"):
        log.version_from(commit_time(LAST) + 1)


def test_time_travel_by_file_times_needs_one_listing(tables: dict[bool, Path]) -> None:
    store = _store(tables[False])
    log = _log(store)
    assert log.version_at(commit_time(233) + 1) == 233
    assert len(store.commits_read()) == TAIL
    assert COMMITS < store.listed < COMMITS + 2 * TAIL
    store.forget()
    assert log.version_from(commit_time(233) + 1) == 234
    assert len(store.commits_read()) == TAIL


def test_time_travel_after_log_cleanup(tmp_path: Path) -> None:
    busy_table(tmp_path, commits=220, interval=INTERVAL, stated=True)
    log = _log(_store(tmp_path))
    files = tmp_path / "_delta_log"
    for version in range(120):
        (files / f"{version:020d}.json").unlink()
    assert [log.version_at(commit_time(v)) for v in (120, 121, 219)] == [120, 121, 219]
    assert [log.version_from(commit_time(v)) for v in (3, 120, 121, 219)] == [120, 120, 121, 219]
    with pytest.raises(VersionNotFoundError, match="the oldest commit is version 120"):
        log.version_at(commit_time(119))
    (files / f"{170:020d}.json").write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}) + "\n")
    assert log.version_at(commit_time(150)) == 150


def test_changes_read_only_their_commits(folder: Path) -> None:
    store = _store(folder)
    table = ArrowDeltaTable(store, standard_engine())
    store.forget()
    changes = table.changes(LAST - 9)
    assert sorted(set(changes["_commit_version"].to_pylist())) == list(range(LAST - 9, LAST + 1))
    times = changes["_commit_timestamp"].cast("int64").to_pylist()
    assert times == [1000 * commit_time(v) for v in changes["_commit_version"].to_pylist()]
    # The newest version and the first changed one are read from their checkpoints on.
    assert len(store.commits_read()) <= 10 + TAIL + (LAST - 9) % INTERVAL
    assert store.listed < 2 * TAIL + 150
    assert table.changes(LAST, LAST + 1).equals(table.changes(LAST, LAST))
    with pytest.raises(InvalidArgumentError, match=f"the newest version is {LAST}"):
        table.changes(LAST + 1, LAST + 1)


def test_stream_reads_only_new_commits(tmp_path: Path) -> None:
    busy_table(tmp_path, commits=130, interval=INTERVAL, stated=True)
    store = _store(tmp_path)
    stream = _stream(store, starting_version="latest", skip_change_commits=True)
    place = stream.initial()
    assert stream.latest(place) == place
    for version in range(130, 133):
        append_commit(tmp_path, version)
        store.forget()
        end = stream.latest(place)
        assert len(stream.batch(place, end).tasks) == 1
        assert store.commits_read() == [commit_key(version)]
        assert store.listed <= 2
        place = end


@pytest.mark.parametrize("feed", [False, True], ids=["rows", "feed"])
def test_stream_far_behind_lists_page_by_page(folder: Path, feed: bool) -> None:
    store = _store(folder)
    options = {"read_change_feed": True} if feed else {"ignore_changes": True}
    stream = _stream(store, starting_version=110, max_files=10, **options)
    place = stream.initial()
    seen: list[int] = []
    while True:
        store.forget()
        end = stream.latest(place, stream.options.limit)
        tasks = stream.batch(place, end).tasks
        if not tasks:
            break
        seen.append(len(tasks))
        if len(seen) > 1:  # the first batches read the table itself
            assert store.listed <= 60
            assert len(store.commits_read()) <= 60
        place = end
    assert sum(seen) == (COMMITS - 110) * (2 if feed else 1)


def test_cleanup_finds_the_cutoff_by_bisection(folder: Path) -> None:
    store = _store(folder)
    now = commit_time(300) // DAY_MS * DAY_MS + 40 * DAY_MS
    retention = now - commit_time(300)
    result = cleanup_log(_log(store), runtime_in_ms(lambda: now), dry_run=True, retention_ms=retention)
    assert result.oldest_version is not None
    assert len(store.commits_read()) <= 2 * TAIL + 12
    assert store.listed <= 2 * (COMMITS + 20)


def test_listing_of_a_version_range_is_bounded(folder: Path) -> None:
    store = _store(folder)
    log = _log(store)
    assert [v for v, _ in log.commits(100, 104)] == list(range(100, 105))
    assert store.listed <= 8
    store.forget()
    assert [v for v, _ in log.commits(most=3)] == [0, 1, 2]
    assert store.listed <= 4
    assert [v for v, _ in log.commits()] == list(range(COMMITS))


def test_has_newer(tmp_path: Path) -> None:
    for i in range(4):
        trilake.write({"id": [i]}, tmp_path, mode="append")
    log = DeltaLog(open_store(str(tmp_path)), standard_engine())
    assert [log.has_newer(v) for v in range(5)] == [True, True, True, False, True]  # version 4 does not exist
    write_checkpoint(log, log.snapshot(), runtime_in_ms(lambda: 0))
    for v in range(4):  # as after log cleanup
        (tmp_path / commit_key(v)).unlink()
    assert [log.has_newer(v) for v in range(4)] == [True, True, True, False]


def test_recreated_table_has_newer_versions(tmp_path: Path) -> None:
    known = []
    for versions in (2, 1, 2, 3):
        for i in range(versions):
            trilake.write({"id": [i] * versions}, tmp_path / "t", mode="append")
        table = trilake.open(tmp_path / "t")
        known.append((table.version, table.opened.segment.newest_file))
        assert [DeltaLog(open_store(str(tmp_path / "t"))).has_newer(*k) for k in known] == [True] * (len(known) - 1) + [
            False
        ]
        shutil.rmtree(tmp_path / "t")
    assert DeltaLog(open_store(str(tmp_path / "t"))).has_newer(*known[-1])
