"""The local store: reading and listing files of every size, with unusual names, and behind links."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.storage.local_files import fails_with, files
from trilake.errors import ObjectNotFoundError, StorageError
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.local import MAP_FROM

# --- reading and listing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, MAP_FROM - 1, MAP_FROM, MAP_FROM + 1, 3 * MAP_FROM])
def test_files_of_every_size_are_read_whole(local_store: Store, root: Path, size: int) -> None:
    data = os.urandom(size)
    root.mkdir()
    (root / "k").write_bytes(data)
    buffer = local_store.read("k")
    (root / "k").unlink()
    assert buffer.to_pybytes() == data


def test_folders_and_special_files_are_not_objects(local_store: Store, root: Path) -> None:
    (root / "folder").mkdir(parents=True)
    os.mkfifo(root / "pipe")
    (root / "nowhere").symlink_to("missing")
    (root / "zero").symlink_to("/dev/zero")
    assert list(local_store.list()) == []
    for key in ("folder", "pipe", "nowhere", "zero"):
        for call in (
            local_store.head,
            local_store.open_input,
            local_store.read,
            lambda k: local_store.read_range(k, 0, 10),
        ):
            with pytest.raises(ObjectNotFoundError):
                call(key)


def test_temporary_files_are_hidden_from_readers(local_store: Store, root: Path) -> None:
    file = local_store.open_output("log/k")
    (name,) = os.listdir(root / "log")
    assert name.startswith(".")
    assert name.endswith(".tmp")
    assert list(local_store.list()) == []
    assert (
        [m.key for m in local_store.unfinished()] == [m.key for m in local_store.unfinished("log")] == [f"log/{name}"]
    )
    assert list(local_store.unfinished("other")) == []
    file.close()
    assert list(local_store.unfinished()) == []


def test_listing_follows_links_but_not_cycles(local_store: Store, root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x").write_bytes(b"1")
    local_store.put("a/k", b"12")
    (root / "a" / "again").symlink_to(root / "a")
    (root / "b").symlink_to(elsewhere)
    (root / "c").symlink_to(root / "a" / "k")
    assert [(m.key, m.size) for m in local_store.list()] == [("a/again/k", 2), ("a/k", 2), ("b/x", 1), ("c", 2)]


def test_non_utf8_names_are_listed_in_byte_order(local_store: Store, root: Path) -> None:
    root.mkdir()
    names = [b"a", b"\x80", b"\xc3\xa4", b"\xf0\x9f\x98\x80", b"\xff"]
    for name in names:
        (root / os.fsdecode(name)).write_bytes(name)
    assert [os.fsencode(m.key) for m in local_store.list()] == sorted(names)
    assert [local_store.read(m.key).to_pybytes() for m in local_store.list()] == sorted(names)
    assert [os.fsencode(m.key) for m in local_store.list(start_after=os.fsdecode(b"\xc3\xa4"))] == names[3:]


def test_listing_starts_after_any_string(local_store: Store, root: Path) -> None:
    keys = ["a", "a.b", "aa/b/c", "aa/b0", "aa/é", "ab/x", "a\x7f", "b/c/d", "bé/x", "é", "éa/b", "z\udcff/k", "😀/a"]
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(b"")
    keys.sort(key=os.fsencode)
    for after in [*keys, *(k[:i] for k in keys for i in range(len(k))), "aa/b/", "aa/a", "b/c!", "zz", "a/"]:
        expected = [k for k in keys if os.fsencode(k) > os.fsencode(after)]
        assert [m.key for m in local_store.list(start_after=after)] == expected, after
        inside = [k for k in expected if k.startswith("aa/")]
        assert [m.key for m in local_store.list("aa", start_after=after)] == inside, after


def test_listing_after_a_key_skips_earlier_entries(
    local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("", "a/", "b/"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for i in range(50):
            (root / folder / f"{i:03}").write_bytes(b"")
    seen: list[str] = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: seen.append(os.path.basename(path)) or real(path, **how))
    assert [m.key for m in local_store.list(start_after="b/046")] == ["b/047", "b/048", "b/049"]
    assert seen == ["047", "048", "049"]  # and no folder: the listing has their types
    assert next(local_store.list("a", start_after="a/040")).key == "a/041"
    assert seen[3:] == ["041"]


def test_unlistable_folder_is_an_error(local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_store.put("a/k", b"1")
    monkeypatch.setattr(os, "scandir", fails_with(errno.EACCES))
    with pytest.raises(StorageError, match="permissions"):
        list(local_store.list())


def test_files_that_cannot_be_memory_mapped_are_read(local_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    local_store.put("k", b"content")
    monkeypatch.setattr("pyarrow.memory_map", fails_with(errno.ENODEV))
    with local_store.open_input("k") as file:
        assert file.read() == b"content"


# --- links -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, root: Path) -> Path:
    """A foreign folder with one file; ``root/a/link`` points to it."""
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "k").write_bytes(b"theirs")
    (root / "a").mkdir(parents=True)
    (root / "a" / "link").symlink_to(other, target_is_directory=True)
    return other


def test_delete_behind_a_link_is_rejected(local_store: Store, elsewhere: Path) -> None:
    with pytest.raises(StorageError, match="behind a symbolic link"):
        local_store.delete(["a/link/k"])
    assert (elsewhere / "k").read_bytes() == b"theirs"
    local_store.delete(["a/link"])  # the link itself is in the folder of the table
    assert (elsewhere / "k").read_bytes() == b"theirs"


@pytest.mark.parametrize("how", ["put", "open_output"])
def test_writes_behind_a_link_create_but_never_replace(
    local_store: Store, root: Path, elsewhere: Path, how: str
) -> None:
    def write(key: str) -> None:
        if how == "put":
            local_store.put(key, b"ours")
            return
        with local_store.open_output(key) as file:
            file.write(b"ours")

    with pytest.raises(StorageError, match="behind a symbolic link"):
        write("a/link/k")
    assert (elsewhere / "k").read_bytes() == b"theirs"
    write("a/link/new")
    assert local_store.read("a/link/new").to_pybytes() == b"ours"
    assert files(elsewhere) == ["k", "new"]


def test_store_can_be_opened_through_a_link(tmp_path: Path, root: Path) -> None:
    root.mkdir()
    (tmp_path / "name").symlink_to(root, target_is_directory=True)
    linked = open_store(tmp_path / "name")
    linked.put("k", b"1")
    linked.put("k", b"2")
    linked.delete(["k"])
    assert files(root) == []
