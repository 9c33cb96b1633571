"""What a table may delete: its own file names, not behind a link or in another table, old by the store's clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault_store import Fault, FaultStore
from trilake.errors import ClockError, StorageError
from trilake.storage import Store, open_store
from trilake.storage.memory import MemoryStore
from trilake.storage.ownership import Territory, agreed_time, check_own, discard, old_temporaries, own_keys, store_time

HOUR = 3_600_000


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(tmp_path / "t") if request.param == "local" else MemoryStore()


@pytest.mark.parametrize(
    "mark",
    [
        "_delta_log/0.json",
        "_versions/1.manifest",
        "_staged/x.plan",
        ".hoodie/hoodie.properties",
        "metadata/v1.metadata.json",
    ],
)
def test_nested_table_folder_is_foreign(store: Store, mark: str) -> None:
    for key in ("a/x", "a/b/x", "a/b/c/x", f"a/b/{mark}", "x"):
        store.put(key, b"")
    assert Territory(store).foreign(["", "a", "a/b", "a/b/c"]) == ["a/b", "a/b/c"]
    assert own_keys(store, ["x", "a/x", "a/b/x", "a/b/c/x"], r"(.*/)?x", what="test") == ["x", "a/x"]


def test_own_keys_match_format_names_at_their_depth_only(store: Store) -> None:
    given = ["data/a.lance", "data/b/a.lance", "data/a.lance.txt", "other/a.lance", "a.lance"]
    for key in given:
        store.put(key, b"")
    assert own_keys(store, given, r"data/[^/]+\.lance", what="test") == ["data/a.lance"]


def test_folders_behind_links_are_foreign(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t")
    store.put("a/x", b"")
    (tmp_path / "other" / "b").mkdir(parents=True)
    (tmp_path / "other" / "b" / "x").write_bytes(b"")
    (tmp_path / "t" / "link").symlink_to(tmp_path / "other", target_is_directory=True)
    assert own_keys(store, ["a/x", "link/b/x"], r".*", what="test") == ["a/x"]
    check_own(store, ["a/x"], what="test")
    with pytest.raises(StorageError, match="behind a symbolic link"):
        check_own(store, ["a/x", "link/b/x"], what="test")


def test_clock_ahead_of_the_store_is_rejected() -> None:
    store = MemoryStore(clock=lambda: 1000 * HOUR)
    assert store_time(store) == 1000 * HOUR
    assert agreed_time(store, 1000 * HOUR + 60_000) == 1000 * HOUR + 60_000
    assert agreed_time(store, 10 * HOUR) == 10 * HOUR
    with pytest.raises(ClockError, match="ahead of the store's"):
        agreed_time(store, 1001 * HOUR)
    assert list(store.list()) == []


def test_failed_discard_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    store = FaultStore(MemoryStore(), [Fault("delete")])
    store.put("x", b"")
    discard(store, ["x"])
    assert "remain in" in caplog.text


def test_temporary_folder_is_as_old_as_its_newest_file(tmp_path: Path) -> None:
    import os

    store = open_store(tmp_path)
    names = [f".trilake-{n * 24}.tmp" for n in "abcdef"]
    paths = {
        "file": names[0],
        "young": names[1],
        "folder": f"p=1/{names[2]}/files/part-0",
        "half": f"{names[3]}/files/part-0",
        "fresh": f"{names[3]}/files/part-1",
        "table": f"t/{names[4]}",
        "log": "t/_delta_log/0.json",
        "foreign": ".trilake-notes.tmp",
    }
    for what, key in paths.items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(b"")
        old = 10 if what not in ("young", "fresh") else 1000
        os.utime(tmp_path / key, (old, old))
    result = {m.key for m in old_temporaries(store, "", 500_000)}
    assert result == {paths["file"], paths["folder"]}
