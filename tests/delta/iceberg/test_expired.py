"""Metadata of expired snapshots: what is deleted and when, and what is kept."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import trilake
from tests.delta.iceberg.test_concurrent import UNIFORM, append
from tests.fault_store import FaultStore
from trilake.delta.iceberg import sync as syncing
from trilake.delta.iceberg.avro import File
from trilake.delta.iceberg.newest_metadata import HINT, metadata_key, metadata_location, newest_metadata
from trilake.errors import StorageError
from trilake.storage import Store, open_store

FEW = {**UNIFORM, "write.metadata.previous-versions-max": "2"}


@pytest.fixture(autouse=True)
def _three_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncing, "_SNAPSHOTS", 3)
    monkeypatch.setattr("trilake.delta.iceberg.manifests.MERGE_COUNT", 3)


def table(uri: str, commits: int = 0) -> Store:
    store = open_store(uri)
    trilake.write({"n": [1]}, uri, properties=FEW)
    for i in range(commits):
        append(store, f"f{i}", remove=(f"f{i - 2}",) if i > 2 else ())
    return store


def named(store: Store) -> set[str]:
    """The keys reachable from the newest metadata file and the earlier ones it names."""
    prefix, newest = f"{metadata_location(store)}/", newest_metadata(store)
    earlier = [e["metadata-file"].removeprefix(prefix) for e in newest.content.get("metadata-log", ())]
    keys = {HINT, metadata_key(newest.number), *earlier}
    for key in [metadata_key(newest.number), *earlier]:
        number = int(key.removeprefix("metadata/v").removesuffix(".metadata.json"))
        for snapshot in json.loads(bytes(store.read(metadata_key(number))))["snapshots"]:
            path = snapshot["manifest-list"].removeprefix(prefix)
            manifests = File(bytes(store.read(path))).records()
            keys |= {path, *(m["manifest_path"].removeprefix(prefix) for m in manifests)}
    return keys


def check(store: Store, *, tidy: bool = True) -> None:
    there = {m.key for m in store.list("metadata")}
    assert not named(store) - there
    if tidy:
        assert not there - named(store)


def test_manifests_are_deleted_with_their_last_reference() -> None:
    store = table("memory://expired-manifests")
    for i in range(9):
        append(store, f"f{i}", remove=(f"f{i - 2}",) if i > 2 else ())
        check(store)
    assert len(newest_metadata(store).content["snapshots"]) == 3


def test_interrupted_deletion_is_finished_by_the_next(caplog: pytest.LogCaptureFixture) -> None:
    at = deletions = 0
    while at <= deletions:
        store, deletions = table(f"memory://expired-stopped-{at}", 6), 0

        def fail(op: str, key: str, at: int = at) -> None:
            nonlocal deletions
            deletions += op == "delete"
            if op == "delete" and deletions > at:
                raise StorageError("stopped", file=key)

        append(FaultStore(store, before=fail), "more")
        check(store, tidy=False)
        append(store, "last")
        check(store)
        at += 1
    assert at > 3
    assert "could not be deleted" in caplog.text


@pytest.mark.parametrize("damage", ["list", "metadata", "json"])
def test_damaged_remaining_metadata_prevents_deletion(damage: str) -> None:
    store = table(f"memory://expired-damaged-{damage}", 6)
    number = newest_metadata(store).number
    oldest = metadata_key(number - 1)
    path = json.loads(bytes(store.read(oldest)))["snapshots"][0]["manifest-list"]
    if damage == "list":
        store.put(path.removeprefix(f"{metadata_location(store)}/"), b"")
    elif damage == "json":
        store.put(oldest, b"{}")
    else:
        store.delete([oldest])
    before = {m.key for m in store.list("metadata")}
    append(store, "more")
    assert before <= {m.key for m in store.list("metadata")}


def test_files_with_other_names_or_locations_are_kept() -> None:
    store = table("memory://expired-names", 5)
    first = newest_metadata(store).number - 2
    content = bytes(store.read(metadata_key(first)))
    store.put("metadata/notes.avro", b"")
    store.put("_delta_log/x.avro", b"")
    other = f"snap-1-0-{'0' * 8}-0000-0000-0000-{'0' * 12}.avro"
    text = f'"{metadata_location(store)}/metadata/notes.avro", "x/../metadata/../_delta_log/{other}"'
    store.put(f"_delta_log/{other}", b"")
    store.put(metadata_key(first), content.replace(b'"location"', f'"x": [{text}], "location"'.encode()))
    append(store, "more")
    assert metadata_key(first) not in {m.key for m in store.list("metadata")}
    assert {"metadata/notes.avro", "_delta_log/x.avro", f"_delta_log/{other}"} <= {m.key for m in store.list()}


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    store = table(str(tmp_path / "t"), 4)
    metadata = tmp_path / "t" / "metadata"
    (tmp_path / "t" / "metadata").rename(elsewhere)
    metadata.symlink_to(elsewhere)
    before = set(elsewhere.iterdir())
    syncing._LAST.clear()
    append(store, "more")
    assert before <= set(elsewhere.iterdir())


def test_rebuild_leaves_nothing_behind() -> None:
    store = table("memory://expired-rebuild", 4)
    trilake.sync_iceberg(store.uri, rebuild=True)
    for i in range(5):
        append(store, f"g{i}")
    check(store)


def test_slow_converter_keeps_later_metadata() -> None:
    store, slept = table("memory://expired-slept", 3), list[str]()

    def others(op: str, key: str) -> None:
        if op == "put" and key.endswith(".avro") and not slept:
            slept.append(key)
            for i in range(8):
                append(store, f"other{i}")

    append(FaultStore(store, before=others), "slow")
    assert slept
    assert newest_metadata(store).version == 12
    check(store)
    append(store, "after")
    assert newest_metadata(store).version == 13
    assert int(bytes(store.read(HINT))) == newest_metadata(store).number


def test_concurrent_converters_keep_referenced_files(tmp_path: Path) -> None:
    store = table(str(tmp_path))

    def work(name: str) -> None:
        for i in range(6):
            append(open_store(str(tmp_path)), f"{name}{i}", remove=(f"{name}{i - 1}",) if i else ())

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, "abc"))
    append(store, "last")
    check(store, tidy=False)
