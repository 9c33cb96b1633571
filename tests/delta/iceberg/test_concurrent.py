"""Concurrent and failed conversions: Iceberg metadata catches up, and commits succeed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import trilake
from tests.fault_store import FaultStore
from trilake.delta import standard
from trilake.delta.commit.transaction import CommitEvent, CommitPlan, commit
from trilake.delta.iceberg import sync as syncing
from trilake.delta.iceberg.avro import File
from trilake.delta.iceberg.manifests import live_files
from trilake.delta.iceberg.newest_metadata import HINT, metadata_location, newest_metadata
from trilake.delta.iceberg.sync import sync
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import StorageError
from trilake.storage import Store, open_store

UNIFORM = {"delta.universalFormat.enabledFormats": "iceberg", "delta.enableIcebergCompatV2": "true"}


def create(store: Store) -> None:
    """Create a table; its files are never read."""
    trilake.write({"n": [1]}, store.uri, properties=UNIFORM, storage_options=dict(store.options))


def append(store: Store, *names: str, remove: tuple[str, ...] = ()) -> None:
    log = DeltaLog(store, standard_engine())
    stats = json.dumps({"numRecords": 1})
    added = [
        {
            "add": {
                "path": n,
                "size": 1,
                "partitionValues": {},
                "modificationTime": 1,
                "dataChange": True,
                "stats": stats,
            }
        }
        for n in names
    ]
    removed = [{"remove": {"path": n, "deletionTimestamp": 1, "dataChange": True}} for n in remove]
    commit(log, log.head(), CommitPlan("WRITE", {}, [*added, *removed]))


def check(store: Store, *, tidy: bool = True) -> None:
    """Check that snapshots match their versions, the hint names the newest, and no files are left over."""
    log, newest = DeltaLog(store, standard_engine()), newest_metadata(store)
    location = metadata_location(store)
    assert newest.version == log.head().version
    assert bytes(store.read(HINT)) == str(newest.number).encode()
    used = {HINT, *(f"metadata/v{n}.metadata.json" for n in range(1, newest.number + 1))}
    for snapshot in newest.content["snapshots"]:
        path = snapshot["manifest-list"]
        adds = log.snapshot(int(snapshot["summary"]["delta-version"])).adds
        assert sorted(p for p, _ in live_files(store, location, path)) == sorted(
            f"{location}/{p}" for p in adds["path"].to_pylist()
        )
        records = File(bytes(store.read(path.removeprefix(f"{location}/")))).records()
        used |= {p.removeprefix(f"{location}/") for p in (path, *(r["manifest_path"] for r in records))}
    assert [int(s["summary"]["delta-version"]) for s in newest.content["snapshots"]] == list(range(newest.version + 1))
    if tidy:
        assert {m.key for m in store.list("metadata")} == used


class Table:
    """A table in memory whose second commit is interrupted at one of its requests."""

    def __init__(self, uri: str) -> None:
        self.inner = open_store(f"memory://{uri}")
        create(self.inner)
        self.requests = 0

    def second(self, at: int, then: Callable[[str], None]) -> int:
        """Commit, calling ``then`` before request number ``at``; returns the number of requests."""

        def before(op: str, key: str) -> None:
            if self.requests == at:
                self.requests += 1
                then(key)
            self.requests += 1

        self.requests = 0
        append(FaultStore(self.inner, before=before), "b", "c")
        return self.requests


@pytest.mark.parametrize(("what", "cached"), [("remove", True), ("two", False)])
def test_concurrent_commits_are_converted_once(what: str, cached: bool) -> None:
    at = requests = 0
    while at <= requests:
        table = Table(f"concurrent-{what}-{cached}-{at}")
        append(table.inner, "a")

        def other(key: str, table: Table = table) -> None:
            del key
            if not cached:
                syncing._LAST.clear()
            append(table.inner, "other", remove=("a",) if what == "remove" else ())
            if what == "two":
                append(table.inner, "more")

        requests = table.second(at, other)
        check(table.inner)
        append(table.inner, "d")
        check(table.inner)
        at += 1
    assert at > 10


def test_failed_request_does_not_fail_the_commit(caplog: pytest.LogCaptureFixture) -> None:
    at = requests = 0
    while at <= requests:
        table = Table(f"failed-{at}")
        log = DeltaLog(table.inner, standard_engine())

        def fail(key: str, log: DeltaLog = log) -> None:
            if log.head().version == 1:
                raise StorageError("no space left", file=key)

        requests = table.second(at, fail)
        assert log.head().version == 1
        append(table.inner, "d")
        check(table.inner, tidy=False)
        at += 1
    assert "is committed, but its Iceberg metadata could not be written" in caplog.text


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_threads_convert_concurrently(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    options: Mapping[str, Any] = request.getfixturevalue("s3_options") if kind == "s3" else {}
    uri = f"s3://lake/{tmp_path.name}" if kind == "s3" else str(tmp_path / "t")
    store = open_store(uri, dict(options))
    create(store)

    def work(name: str) -> None:
        for i in range(2):
            append(open_store(uri, dict(options)), f"{name}{i}", remove=(f"{name}{i - 1}",) if i else ())

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, "abc"))
    assert sync(DeltaLog(store, standard_engine())) == 6
    check(store)


def test_damaged_metadata_is_converted_as_a_whole(tmp_path: Path) -> None:
    for damage in ("v2.metadata.json", "snap-*", "*-m0.avro"):
        store = open_store(str(tmp_path / damage.strip("*-")))
        create(store)
        append(store, "a")
        for file in (tmp_path / damage.strip("*-") / "metadata").glob(damage):
            file.write_bytes(b"")
        syncing._LAST.clear()
        append(store, "b", remove=("a",))
        newest = newest_metadata(store)
        snapshot = newest.content["snapshots"][-1]
        assert (newest.version, len(newest.content["snapshots"])) == (2, 1 if damage != "*-m0.avro" else 3)
        assert len(dict(live_files(store, metadata_location(store), snapshot["manifest-list"]))) == 2


def test_lost_manifests_are_written_again(tmp_path: Path) -> None:
    uri = str(tmp_path)
    trilake.write({"n": [1]}, uri, properties=UNIFORM)
    for file in tmp_path.glob("metadata/*-m0.avro"):
        file.unlink()
    assert trilake.sync_iceberg(uri) == 0
    assert [f.code for f in trilake.verify(uri, depth="files")] == ["delta.iceberg-differs"]
    assert trilake.sync_iceberg(uri, rebuild=True) == 0
    assert trilake.verify(uri, depth="files").ok


def test_old_metadata_files_are_deleted() -> None:
    store = open_store("memory://old-metadata")
    properties = {**UNIFORM, "write.metadata.previous-versions-max": "3"}
    trilake.write({"n": [1]}, store.uri, properties=properties)
    for name in "abcdef":
        append(store, name)
    names = {m.key for m in store.list("metadata") if m.key.endswith(".json")}
    assert names == {f"metadata/v{n}.metadata.json" for n in (4, 5, 6, 7)}
    assert len(newest_metadata(store).content["metadata-log"]) == 3


def test_conversions_may_run_out_of_commit_order(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory://other-order")
    create(store)
    events: list[CommitEvent] = []
    with monkeypatch.context() as patch:
        patch.setattr(standard, "update_iceberg", events.append)
        append(store, "a")
        append(store, "b", remove=("a",))
    for event in reversed(events):
        standard.update_iceberg(event)
    check(store)


def test_overtaken_conversion_reads_the_metadata_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory://overtaken")
    create(store)
    append(store, "a")
    kept = dict(syncing._LAST)
    append(store, "b")
    syncing._LAST.clear()
    syncing._LAST.update(kept)
    append(store, "c", remove=("b",))
    check(store)
    with monkeypatch.context() as patch:
        patch.setattr(standard, "update_iceberg", lambda event: None)
        append(store, "d", remove=("a", "c"))
    append(store, "e")
    check(store)
