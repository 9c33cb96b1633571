"""Small files of a group on a local disk: one sync of the file system where that is safe, else one per file."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from tests.storage.local_files import fails_with, files
from trilake.errors import StorageError, UnknownOutcomeError
from trilake.storage import durable, local_writer
from trilake.storage.base import Store
from trilake.storage.durable import FileSystem, make_folder

COUNT = local_writer._TOGETHER + 4
EXT4 = 0xEF53


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """Sync calls on an ext4: ``sync`` is one file or folder, ``force`` the whole file system."""
    seen: list[str] = []
    rename = os.rename
    make_folder(str(root.parent))
    monkeypatch.setattr(durable, "_syncs_file_systems", lambda: True)
    monkeypatch.setattr(durable, "_kind", lambda fd: EXT4)
    monkeypatch.setattr(durable, "_unwritten", lambda: 0)
    monkeypatch.setattr(durable, "sync_file_system", lambda fd: seen.append("force"))
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append(f"sync {os.readlink(f'/proc/self/fd/{fd}')}"))

    def renamed(old: str, new: str) -> None:
        rename(old, new)
        seen.append("rename")

    monkeypatch.setattr(os, "rename", renamed)
    return seen


def write(store: Store, count: int, *, size: int = 1, start: int = 0) -> None:
    group = store.write_group()
    try:
        for i in range(start, start + count):
            with group.open_output(f"p={i % 7}/{i}") as file:
                file.write(bytes([i % 251]) * size)
        group.finish()
    except BaseException:
        group.abandon()
        raise


def opened() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_3_file_system_is_synced_before_and_after_renames(local_store: Store, steps: list[str]) -> None:
    before = opened()
    write(local_store, COUNT)
    assert steps == ["force", *["rename"] * COUNT, "force"]
    assert {m.key: local_store.read(m.key).to_pybytes() for m in local_store.list()} == {
        f"p={i % 7}/{i}": bytes([i]) for i in range(COUNT)
    }
    assert opened() == before
    # The folders now count as durable.
    steps.clear()
    local_store.put("p=1/x", b"x")
    assert [s for s in steps if "TEMP" not in s and ".trilake-" not in s] == ["rename", f"sync {steps[-1][5:]}"]


def test_3_later_files_are_synced_in_batches(
    local_store: Store, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_writer, "_TOGETHER_MOST", 20)
    write(local_store, 50)
    assert steps.count("rename") == 50
    assert steps[0] == steps[-1] == "force"
    assert steps.count("force") == 2 + 1 + 1  # two batches, the rest, the renames
    assert [s for s in steps if s.startswith("sync")] == []
    assert len(list(local_store.list())) == 50


@pytest.mark.parametrize("why", ["no such call", "unknown file system", "not looked at", "others write", "few files"])
def test_3_fallback_syncs_each_file_and_folder(
    local_store: Store, steps: list[str], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "no such call":
        monkeypatch.setattr(durable, "_syncs_file_systems", lambda: False)
    elif why == "unknown file system":
        monkeypatch.setattr(durable, "_kind", lambda fd: 0x794C7630)  # overlayfs
    elif why == "not looked at":
        monkeypatch.setattr(durable, "_kind", fails_with(errno.EIO))
    elif why == "others write":
        monkeypatch.setattr(durable, "_unwritten", lambda: 1 << 30)
    count = local_writer._TOGETHER - 1 if why == "few files" else COUNT
    before = opened()
    write(local_store, count)
    assert "force" not in steps
    assert sum(".trilake-" in s for s in steps if s.startswith("sync")) == count
    assert sum(".trilake-" not in s for s in steps if s.startswith("sync")) == 7 + 2
    assert opened() == before


def test_3_file_on_another_file_system_is_synced_alone(
    local_store: Store, root: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = durable.FolderGroup.device
    monkeypatch.setattr(durable.FolderGroup, "device", lambda self, p: -1 if p.endswith("p=3") else real(self, p))
    write(local_store, COUNT)
    forced = [s for s in steps if s.startswith("sync")]
    assert [s for s in forced if ".trilake-" in s and "p=3" not in s] == []
    assert sum(".trilake-" in s for s in forced) == len([i for i in range(COUNT) if i % 7 == 3])
    assert [s for s in forced if ".trilake-" not in s] == [f"sync {root}/p=3"]


def test_3_large_files_are_synced_alone_and_folders_together(local_store: Store, steps: list[str]) -> None:
    group = local_store.write_group()
    for i in range(COUNT):
        with group.open_output(f"p={i}/f") as file:
            file.write(bytes(200_000))
            file.write(bytes(200_000))
    group.finish()
    assert sum(".trilake-" in s for s in steps) == COUNT
    assert steps[-1] == "force"
    assert steps.count("force") == 1
    assert {m.size for m in local_store.list()} == {400_000}


def test_6_failed_file_system_sync_leaves_nothing(
    local_store: Store, root: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = opened()
    monkeypatch.setattr(durable, "sync_file_system", fails_with(errno.EIO))
    with pytest.raises(StorageError, match="cannot write the file") as caught:
        write(local_store, COUNT)
    assert not isinstance(caught.value, UnknownOutcomeError)
    assert str(caught.value.context["file"]).startswith(str(root))
    assert files(root) == []
    assert opened() == before


def test_6_failed_sync_of_renames_is_an_unknown_outcome(
    local_store: Store, root: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def second(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(durable, "sync_file_system", second)
    with pytest.raises(UnknownOutcomeError):
        write(local_store, COUNT)
    assert len(files(root)) == COUNT
    # The folders do not count as durable: the next write syncs them.
    local_store.put("p=1/x", b"x")
    assert {f"sync {root}", f"sync {root.parent}"} <= set(steps)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("what", ["create", "rename"])
def test_6_failed_file_creation_leaves_no_temporary_file(
    local_store: Store, root: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch, what: str, code: int
) -> None:
    threads: list[int] = []
    name = "io.FileIO" if what == "create" else "os.rename"
    real = __import__("io").FileIO if what == "create" else os.rename

    def fails(*args: object) -> object:
        threads.append(threading.get_ident())
        if threads[-1] != threads[0]:
            time.sleep(0.002)  # the other thread goes on after the failure
        elif threads.count(threads[0]) == 5:
            raise OSError(code, os.strerror(code))
        return real(*args)

    monkeypatch.setattr(name, fails)
    with pytest.raises(StorageError, match="cannot"):
        write(local_store, COUNT)
    assert [f for f in files(root) if ".trilake-" in f] == []
    assert len(files(root)) == (0 if what == "create" else 4 + COUNT // 2)


def test_folder_removed_before_finish_is_recreated(local_store: Store, root: Path, steps: list[str]) -> None:
    group = local_store.write_group()
    for i in range(COUNT):
        with group.open_output(f"p={i}/f") as file:
            file.write(b"x")
    for i in range(COUNT):
        (root / f"p={i}").rmdir()
    root.rmdir()
    group.finish()
    assert len(files(root)) == COUNT


def test_partial_writes_are_completed(local_store: Store, steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    class Slow(io.FileIO):
        def write(self, data, /):
            return super().write(memoryview(data)[:3])

    monkeypatch.setattr("io.FileIO", Slow)
    write(local_store, COUNT, size=10)
    assert {local_store.read(m.key).to_pybytes() for m in local_store.list()} == {bytes([i]) * 10 for i in range(COUNT)}


def test_real_file_system_sync_and_its_errors(tmp_path: Path) -> None:
    system = FileSystem.of(str(tmp_path))
    if system is not None:
        system.force()
        assert system.device == tmp_path.stat().st_dev
        system.close()
    if durable._syncs_file_systems():
        with pytest.raises(OSError, match="Bad file descriptor"):
            durable.sync_file_system(-1)
    assert FileSystem.of(str(tmp_path / "none")) is None
    assert durable._unwritten() >= 0


@pytest.mark.parametrize(
    ("release", "reports"), [("5.7.19", False), ("5.8.0-rc1", True), ("6.18.44-x", True), ("x", False)]
)
def test_syncfs_needs_a_kernel_that_reports_errors(
    monkeypatch: pytest.MonkeyPatch, release: str, reports: bool
) -> None:
    class Name:
        def __init__(self) -> None:
            self.release = release

    class Library:
        syncfs = fstatfs = None

    monkeypatch.setattr(os, "uname", Name)
    monkeypatch.setattr(durable, "_library", Library)
    monkeypatch.setattr(durable.sys, "platform", "linux")
    assert durable._syncs_file_systems.__wrapped__() is reports


def test_6_failed_small_file_leaves_no_temporary_file(
    local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = local_store.write_group()
    with group.open_output("k") as file:
        file.write(b"x")
    monkeypatch.setattr(local_writer.LocalWriter, "_append", fails_with(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        group.finish()
    group.abandon()
    assert files(root) == []
