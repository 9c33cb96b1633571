"""Versions: listings, both naming schemes, and tags."""

from __future__ import annotations

import json

import pytest

from trilake.errors import (
    CorruptLogError,
    InvalidArgumentError,
    TableNotFoundError,
    VersionNotFoundError,
)
from trilake.lance.versions.versions import (
    choose_version,
    delete_tag,
    exists,
    list_versions,
    manifest_key,
    read_tag,
    read_tags,
    write_tag,
)
from trilake.storage.memory import MemoryStore


def store_with(*keys: str) -> MemoryStore:
    store = MemoryStore()
    for key in keys:
        store.put(key, b"x")
    return store


def test_versions_are_listed_and_may_have_gaps() -> None:
    store = store_with(
        "_versions/2.manifest",
        "_versions/10.manifest",
        "_versions/latest_version_hint.json",
        "_versions/.tmp_11.manifest_x",
        "_versions/12.manifest-abc",
        "_latest.manifest",
    )
    found = list_versions(store)
    assert (found.scheme, found.versions, found.latest) == ("v1", (2, 10), 10)
    assert found.key(2) == "_versions/2.manifest"
    assert exists(store)
    assert choose_version(store, found, None) == 10
    assert choose_version(store, found, 2) == 2
    with pytest.raises(VersionNotFoundError, match="no version 3"):
        choose_version(store, found, 3)


def test_v2_manifest_names_count_down() -> None:
    assert manifest_key(1, "v2") == "_versions/18446744073709551614.manifest"
    store = store_with(manifest_key(1, "v2"), manifest_key(7, "v2"))
    found = list_versions(store)
    assert (found.scheme, found.versions) == ("v2", (1, 7))
    store.put("_versions/3.manifest", b"x")
    with pytest.raises(CorruptLogError, match="two naming schemes"):
        list_versions(store)


def test_no_versions() -> None:
    store = store_with("data/x.lance")
    found = list_versions(store)
    assert (found.versions, found.latest, exists(store)) == ((), 0, False)
    with pytest.raises(TableNotFoundError):
        choose_version(store, found, None)


def test_tags_are_created_moved_and_deleted() -> None:
    store = MemoryStore()
    assert read_tags(store) == {}
    dataset = write_tag(store, "first", 1, size=10, now_ns=1_700_000_000_123_456_789)
    assert dataset.created == dataset.updated == "2023-11-14T22:13:20.123456789Z"
    with pytest.raises(InvalidArgumentError, match="already"):
        write_tag(store, "first", 2, size=10, now_ns=0)
    moved = write_tag(store, "first", 2, size=10, now_ns=10**18, update=True)
    assert (moved.version, moved.created) == (2, dataset.created)
    assert read_tags(store) == {"first": moved}
    assert json.loads(store.read("_refs/tags/first.json").to_pybytes())["manifestSize"] == 10
    with pytest.raises(VersionNotFoundError):
        write_tag(store, "other", 2, size=10, now_ns=0, update=True)
    delete_tag(store, "first")
    assert read_tags(store) == {}
    with pytest.raises(VersionNotFoundError):
        read_tag(store, "first")


@pytest.mark.parametrize("name", ["", "a/b", "..", "a..b", ".x", "x.lock", "a b", "a\n"])
def test_invalid_tag_names_are_rejected(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        write_tag(MemoryStore(), name, 1, size=1, now_ns=0)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"version": 0}', b'{"version": true}', b'{"version": "1"}'])
def test_damaged_tags(content: bytes) -> None:
    store = MemoryStore()
    store.put("_refs/tags/t.json", content)
    with pytest.raises(CorruptLogError):
        read_tags(store)


def test_tags_name_the_branch_of_their_version() -> None:
    store = MemoryStore()
    store.put("_refs/tags/t.json", b'{"version": 1, "branch": "b"}')
    assert {name: (tag.branch, tag.version) for name, tag in read_tags(store).items()} == {"t": ("b", 1)}
