"""The local store: what reaches the disk in which order, and what remains when a step fails."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.storage.local_files import fails_with, files
from trilake.errors import ObjectExistsError, ObjectNotFoundError, StorageError, UnknownOutcomeError
from trilake.storage import durable, local_writer, open_store
from trilake.storage.base import Store
from trilake.storage.durable import make_folder

# --- promise 3: durable ----------------------------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """The system calls that matter for durability, as ``name path``, with temporary names shortened."""
    seen: list[str] = []

    def short(path: object) -> str:
        text = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fspath(path)  # type: ignore[call-overload]
        name = os.path.relpath(text, root.parent)
        return f"{os.path.dirname(name)}/TEMP" if ".trilake-" in name else name

    def record(name: str):
        real = getattr(os, name)

        def call(*args: object, **kwargs: object):
            seen.append(" ".join([name, *map(short, args[:2] if name in ("link", "rename") else args[:1])]))
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    make_folder(str(root.parent))  # already known to this process
    for name in ("fsync", "link", "rename", "unlink", "mkdir"):
        record(name)
    return seen


def test_3_parents_of_folders_from_other_processes_are_synced(local_store: Store, root: Path, steps: list[str]) -> None:
    (root / "a" / "b").mkdir(parents=True)
    steps.clear()
    local_store.put("a/b/k", b"x")
    made = ["fsync .", "fsync t", "fsync t/a"]
    assert steps == ["fsync t/a/b/TEMP", *made, "rename t/a/b/TEMP t/a/b/k", "fsync t/a/b"]
    steps.clear()
    local_store.put("a/b/l", b"x")
    assert steps == ["fsync t/a/b/TEMP", "rename t/a/b/TEMP t/a/b/l", "fsync t/a/b"]
    # A folder with the same name may be a new folder.
    (root / "a").rename(root / "old")
    (root / "a" / "b").mkdir(parents=True)
    steps.clear()
    local_store.put("a/b/k", b"x")
    assert steps == ["fsync t/a/b/TEMP", "fsync t", "fsync t/a", "rename t/a/b/TEMP t/a/b/k", "fsync t/a/b"]


def test_3_put_if_absent_syncs_file_then_links_then_syncs_folder(
    local_store: Store, root: Path, steps: list[str]
) -> None:
    local_store.put("log/first", b"x")
    steps.clear()
    local_store.put_if_absent("log/0", b"x")
    assert steps == ["fsync t/log/TEMP", "link t/log/TEMP t/log/0", "unlink t/log/TEMP", "fsync t/log"]


@pytest.mark.parametrize("how", ["put", "open_output"])
def test_3_put_and_close_sync_file_then_rename_then_sync_folder(
    local_store: Store, root: Path, steps: list[str], how: str
) -> None:
    local_store.put("k", b"old")
    steps.clear()
    if how == "put":
        local_store.put("k", b"new")
    else:
        with local_store.open_output("k") as file:
            file.write(b"new")
            assert steps == []
    assert steps == ["fsync t/TEMP", "rename t/TEMP t/k", "fsync t"]


def test_3_parents_of_new_folders_are_synced(local_store: Store, steps: list[str]) -> None:
    local_store.put("a/b/k", b"x")
    made = ["mkdir t", "mkdir t/a", "mkdir t/a/b", "fsync .", "fsync t", "fsync t/a"]
    assert steps == [*made, "fsync t/a/b/TEMP", "rename t/a/b/TEMP t/a/b/k", "fsync t/a/b"]


def test_3_group_syncs_files_before_renames_and_folders_once(local_store: Store, root: Path, steps: list[str]) -> None:
    group = local_store.write_group()
    for key in ("p=1/a", "p=2/a", "p=1/b", "c"):
        with group.open_output(key) as file:
            file.write(b"x")
    assert steps == ["mkdir t", "mkdir t/p=1", "mkdir t/p=2"]
    assert list(local_store.list()) == []
    steps.clear()
    group.finish()
    places = [f"t/{folder}{name}" for folder, name in [("p=1/", "a"), ("p=2/", "a"), ("p=1/", "b"), ("", "c")]]
    landed = [f"{os.path.dirname(p)}/TEMP" for p in places]
    named = [f"rename {temp} {p}" for temp, p in zip(landed, places, strict=True)]
    assert sorted(steps[:8]) == sorted([*(f"fsync {temp}" for temp in landed), *named])
    assert all(steps.index(f"fsync {temp}") < steps.index(name) for temp, name in zip(landed, named, strict=True))
    # ``.`` holds the new ``t``, and ``t`` the new folders and a file.
    assert sorted(steps[8:]) == ["fsync .", "fsync t", "fsync t/p=1", "fsync t/p=2"]
    # What is already durable is not synced again.
    steps.clear()
    with (again := local_store.write_group()).open_output("p=1/c") as file:
        file.write(b"x")
    again.finish()
    assert steps == ["fsync t/p=1/TEMP", "rename t/p=1/TEMP t/p=1/c", "fsync t/p=1"]


def test_3_group_syncs_folders_created_by_another_process(local_store: Store, root: Path, steps: list[str]) -> None:
    (root / "a" / "b").mkdir(parents=True)
    steps.clear()
    with (group := local_store.write_group()).open_output("a/b/k") as file:
        file.write(b"x")
    group.finish()
    assert steps[:2] == ["fsync t/a/b/TEMP", "rename t/a/b/TEMP t/a/b/k"]
    assert sorted(steps[2:]) == ["fsync .", "fsync t", "fsync t/a", "fsync t/a/b"]


def test_3_losing_put_if_absent_writes_nothing(local_store: Store, steps: list[str]) -> None:
    local_store.put("k", b"x")
    steps.clear()
    with pytest.raises(ObjectExistsError):
        local_store.put_if_absent("k", b"y")
    assert steps == []


# --- promise 1: killed at any moment ---------------------------------------------------------------------------------


WRITER = """
import itertools, sys
from trilake.storage import open_store
store = open_store(sys.argv[1])
print("ready", flush=True)
for i in itertools.count(int(sys.argv[2])):
    store.put_if_absent(f"log/{i}", bytes([i % 251]) * 200_000)
    with store.open_output(f"data/{i}") as file:
        for _ in range(4):
            file.write(bytes([i % 251]) * 100_000)
"""


def test_1_killed_process_leaves_only_whole_or_temporary_files(local_store: Store, root: Path) -> None:
    for i in range(3):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(root), str(i * 10_000)], stdout=subprocess.PIPE)
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.1 + 0.037 * i)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
    result = list(local_store.list())
    assert len(result) > 3
    for meta in result:
        value = bytes([int(meta.key.split("/")[1]) % 251])
        assert local_store.read(meta.key).to_pybytes() == value * (200_000 if meta.key.startswith("log/") else 400_000)
    left = [meta.key for meta in local_store.unfinished()]
    assert len(left) <= 3
    assert sorted([m.key for m in result] + left) == files(root)
    local_store.delete(left)
    assert list(local_store.unfinished()) == []
    assert list(local_store.list()) == result


# --- failing steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["put", "put_if_absent"])
@pytest.mark.parametrize(
    ("step", "code", "hint"),
    [("fsync", errno.ENOSPC, "space"), ("fsync", errno.EIO, ""), ("open", errno.EACCES, "owner")],
)
def test_6_failure_before_the_rename_leaves_nothing(
    local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, method: str, step: str, code: int, hint: str
) -> None:
    root.mkdir()
    if step == "open":
        monkeypatch.setattr("io.FileIO", fails_with(code))
    else:
        monkeypatch.setattr(os, step, fails_with(code))
    with pytest.raises(StorageError) as caught:
        getattr(local_store, method)("k", b"x")
    assert not isinstance(caught.value, (UnknownOutcomeError, ObjectExistsError, ObjectNotFoundError))
    assert hint in str(caught.value)
    assert caught.value.context["file"] == str(root / "k")
    assert files(root) == []


def test_6_file_with_too_long_a_name_does_not_exist(local_store: Store) -> None:
    for key in ("x" * 300, f"p={'x' * 300}/f"):
        for call in (local_store.read, local_store.head, local_store.open_input):
            with pytest.raises(ObjectNotFoundError):
                call(key)
        local_store.delete([key])
        assert list(local_store.list(f"{key}/")) == []
        with pytest.raises(StorageError, match=r"File name too long.*shorter name") as caught:
            local_store.put(key, b"x")
        assert not isinstance(caught.value, ObjectNotFoundError)


def fail_folder_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("method", ["put", "put_if_absent"])
def test_6_failure_after_the_rename_is_an_unknown_outcome(
    local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    local_store.put("other", b"x")
    fail_folder_syncs(monkeypatch)
    with pytest.raises(UnknownOutcomeError):
        getattr(local_store, method)("k", b"x")
    assert files(root) == ["k", "other"]


@pytest.mark.parametrize("count", [1, 5, 200])
@pytest.mark.parametrize("failing", [True, False], ids=["a file", "no file"])
def test_6_abandoned_group_leaves_no_temporary_file(
    local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, count: int, failing: bool
) -> None:
    """The caller deletes the files that already have their final names."""
    group = local_store.write_group()
    if failing:
        monkeypatch.setattr(os, "fsync", fails_with(errno.EIO))
        monkeypatch.setattr(durable, "sync_file_system", fails_with(errno.EIO))
    begun = group.open_output("begun")

    def write(*, finish: bool) -> None:
        for i in range(count):
            with group.open_output(f"{i % 3}/{i}") as file:
                file.write(b"x")
        if finish:
            group.finish()

    if failing:
        with pytest.raises(StorageError, match="cannot write the file"):
            write(finish=True)
    else:
        write(finish=False)
    begun.discard()  # type: ignore[attr-defined]
    group.abandon()
    assert [f for f in files(root) if ".trilake-" in f] == []
    assert failing <= (files(root) == [])


def test_6_group_folder_sync_failure_is_an_unknown_outcome(
    local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_folder_syncs(monkeypatch)
    with (group := local_store.write_group()).open_output("a/k") as file:
        file.write(b"x")
    with pytest.raises(UnknownOutcomeError):
        group.finish()
    monkeypatch.undo()
    # The folders do not count as durable: the next write syncs them.
    seen: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append(os.readlink(f"/proc/self/fd/{fd}")))
    local_store.put("a/l", b"x")
    assert {str(root), str(root.parent)} <= set(seen)


def test_6_failed_write_cannot_be_closed_into_an_object(
    local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = local_store.open_output("k")
    file.write(b"begin")
    monkeypatch.setattr(os, "fsync", fails_with(errno.ENOSPC))
    with pytest.raises(StorageError, match="No space"):
        file.close()
    assert files(root) == []
    monkeypatch.undo()
    file = local_store.open_output("k")
    with pytest.raises(TypeError):
        file.write("text")  # type: ignore[arg-type]
    file.close()
    assert files(root) == ["k"]  # nothing was written, so nothing is missing


def test_full_disk_during_write_discards_the_file(local_store: Store, root: Path) -> None:
    script = """
import resource, sys
from trilake.errors import StorageError
from trilake.storage import open_store
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = open_store(sys.argv[1])
file = store.open_output("k")
try:
    for _ in range(8):
        file.write(bytes(1 << 19))
except StorageError as e:
    print(e.code)
file.close()
print([m.key for m in store.list()], [m.key for m in store.unfinished()])
"""
    done = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["STORAGE", "[] []"], done.stderr


def test_interrupt_leaves_no_temporary_file(local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(fd: int) -> None:
        raise KeyboardInterrupt

    root.mkdir()
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        local_store.put_if_absent("k", b"x")
    assert files(root) == []


def test_file_as_parent_folder_is_rejected(local_store: Store, root: Path) -> None:
    local_store.put("a", b"x")
    with pytest.raises(StorageError, match="a parent of the path is a file"):
        local_store.put("a/b", b"x")
    with pytest.raises(StorageError, match="a parent of the path is a file"):
        local_store.put_if_absent("a/b/c", b"x")
    local_store.put("d/e", b"x")
    with pytest.raises(StorageError):
        local_store.put("d", b"x")
    with pytest.raises(ObjectExistsError):
        local_store.put_if_absent("d", b"x")
    with pytest.raises(StorageError, match="cannot delete"):
        local_store.delete(["d"])
    assert files(root) == ["a", "d/e"]


@pytest.mark.parametrize("bad", [0, 99])
def test_6_failed_deletion_among_many_files_leaves_only_its_part(local_store: Store, root: Path, bad: int) -> None:
    keys = [f"p={i // 40}/{i}" for i in range(100)]
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(b"x")
    local_store.delete([*keys[:30], "p=9/missing", *keys[30:]])
    assert files(root) == []
    local_store.put(f"{keys[bad]}/below", b"x")
    others = keys[25:] if bad == 0 else keys[:75]
    for key in others:
        local_store.put(key, b"x")
    with pytest.raises(StorageError, match="cannot delete"):
        local_store.delete(keys)
    assert files(root) == [f"{keys[bad]}/below"]


# --- file systems without hard links ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_2_exclusive_rename_replaces_hard_links(
    local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "link", fails_with(code))
    monkeypatch.setattr(os.path, "lexists", lambda path: False)  # the other writer comes after the first check
    local_store.put_if_absent("k", b"first")
    with pytest.raises(ObjectExistsError):
        local_store.put_if_absent("k", b"second")
    assert (root / "k").read_bytes() == b"first"
    assert files(root) == ["k"]


@pytest.mark.parametrize("answer", ["missing", errno.ENOSYS, errno.EINVAL])
def test_2_write_without_link_or_exclusive_rename_is_rejected(
    local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    class Library:
        def __init__(self, name: object, use_errno: bool) -> None:
            if answer != "missing":
                self.renameat2 = lambda *args: -1

    monkeypatch.setattr(os, "link", fails_with(errno.EPERM))
    monkeypatch.setattr(local_writer.ctypes, "CDLL", Library)
    monkeypatch.setattr(local_writer.ctypes, "get_errno", lambda: answer)
    with pytest.raises(StorageError, match="two writers could both succeed"):
        local_store.put_if_absent("k", b"x")
    assert files(root) == []


def test_2_link_with_lost_reply_counts_as_success(
    local_store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link(source: str, target: str) -> None:
        real(source, target)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(os, "link", link)
    local_store.put_if_absent("k", b"x")
    assert files(root) == ["k"]


# --- small files in order --------------------------------------------------------------------------------------------


def test_ordered_write_changes_last_byte_in_place(tmp_path: Path) -> None:
    store, path = open_store(str(tmp_path)), tmp_path / "hint"
    path.write_bytes(b"12")
    reader = path.open("rb", buffering=0)
    store.put_in_order([], [("hint", b"13", False)])
    assert (reader.read(), path.stat().st_ino) == (b"13", os.fstat(reader.fileno()).st_ino)
    store.put_in_order([], [("hint", b"20", False)])
    reader.seek(0)
    assert (reader.read(), path.read_bytes()) == (b"13", b"20")
    assert os.listdir(tmp_path) == ["hint"]


@pytest.mark.parametrize("kind", ["hard link", "symbolic link", "folder behind a link"])
def test_ordered_write_changes_no_linked_file_in_place(tmp_path: Path, kind: str) -> None:
    elsewhere, table = tmp_path / "elsewhere", tmp_path / "table"
    elsewhere.mkdir()
    table.mkdir()
    (elsewhere / "hint").write_bytes(b"12")
    key = "hint"
    if kind == "hard link":
        os.link(elsewhere / "hint", table / "hint")
    elif kind == "symbolic link":
        (table / "hint").symlink_to(elsewhere / "hint")
    else:
        (table / "metadata").symlink_to(elsewhere)
        key = "metadata/hint"
    with suppress(StorageError):
        open_store(str(table)).put_in_order([], [(key, b"13", False)])
    assert (elsewhere / "hint").read_bytes() == b"12"
