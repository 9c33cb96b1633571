"""The local store: what reaches the disk and in which order, and what is left when a step fails."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trilake.errors import ObjectExistsError, ObjectNotFoundError, StorageError, UnknownOutcomeError
from trilake.storage import open_store
from trilake.storage import renameat as renameat_module
from trilake.storage.base import Store
from trilake.storage.durable import make_folder
from trilake.storage.local import MAP_FROM


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "t"


@pytest.fixture
def store(root: Path) -> Store:
    return open_store(root)


def files(root: Path) -> list[str]:
    """Every name below the folder, temporary ones too."""
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())


def fails_with(code: int):
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


# --- promise 3: durable ----------------------------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """The calls that matter to durability, as ``name path``, temporary names shortened."""
    seen: list[str] = []

    def shown(path: object) -> str:
        text = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fspath(path)  # type: ignore[call-overload]
        name = os.path.relpath(text, root.parent)
        return f"{os.path.dirname(name)}/TEMP" if ".trilake-" in name else name

    def record(name: str):
        real = getattr(os, name)

        def call(*args: object, **kwargs: object):
            seen.append(" ".join([name, *map(shown, args[:2] if name in ("link", "rename") else args[:1])]))
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    make_folder(str(root.parent))  # known to this process already
    for name in ("fsync", "link", "rename", "unlink", "mkdir"):
        record(name)
    return seen


def test_3_folders_made_by_another_process_are_synced_into_those_above(
    store: Store, root: Path, steps: list[str]
) -> None:
    (root / "a" / "b").mkdir(parents=True)
    steps.clear()
    store.put("a/b/k", b"x")
    made = ["fsync .", "fsync t", "fsync t/a"]
    assert steps == ["fsync t/a/b/TEMP", *made, "rename t/a/b/TEMP t/a/b/k", "fsync t/a/b"]
    steps.clear()
    store.put("a/b/l", b"x")
    assert steps == ["fsync t/a/b/TEMP", "rename t/a/b/TEMP t/a/b/l", "fsync t/a/b"]
    # A folder of the same name need not be the same folder.
    (root / "a").rename(root / "old")
    (root / "a" / "b").mkdir(parents=True)
    steps.clear()
    store.put("a/b/k", b"x")
    assert steps == ["fsync t/a/b/TEMP", "fsync t", "fsync t/a", "rename t/a/b/TEMP t/a/b/k", "fsync t/a/b"]


def test_3_put_if_absent_syncs_the_file_before_its_name_and_the_folder_after(
    store: Store, root: Path, steps: list[str]
) -> None:
    store.put("log/first", b"x")
    steps.clear()
    store.put_if_absent("log/0", b"x")
    assert steps == ["fsync t/log/TEMP", "link t/log/TEMP t/log/0", "unlink t/log/TEMP", "fsync t/log"]


@pytest.mark.parametrize("how", ["put", "open_output"])
def test_3_put_and_close_sync_the_file_before_its_name_and_the_folder_after(
    store: Store, root: Path, steps: list[str], how: str
) -> None:
    store.put("k", b"old")
    steps.clear()
    if how == "put":
        store.put("k", b"new")
    else:
        with store.open_output("k") as file:
            file.write(b"new")
            assert steps == []
    assert steps == ["fsync t/TEMP", "rename t/TEMP t/k", "fsync t"]


def test_3_new_folders_are_synced_into_those_above(store: Store, steps: list[str]) -> None:
    store.put("a/b/k", b"x")
    made = ["mkdir t", "fsync .", "mkdir t/a", "fsync t", "mkdir t/a/b", "fsync t/a"]
    assert steps == [*made, "fsync t/a/b/TEMP", "rename t/a/b/TEMP t/a/b/k", "fsync t/a/b"]


def test_3_a_group_syncs_each_file_before_its_name_and_each_folder_once_after(
    store: Store, root: Path, steps: list[str]
) -> None:
    group = store.write_group()
    for key in ("p=1/a", "p=2/a", "p=1/b", "c"):
        with group.open_output(key) as file:
            file.write(b"x")
    assert steps == ["mkdir t", "mkdir t/p=1", "mkdir t/p=2"]
    assert list(store.list()) == []
    steps.clear()
    group.finish()
    places = [f"t/{folder}{name}" for folder, name in [("p=1/", "a"), ("p=2/", "a"), ("p=1/", "b"), ("", "c")]]
    landed = [f"{os.path.dirname(p)}/TEMP" for p in places]
    named = [f"rename {temp} {p}" for temp, p in zip(landed, places, strict=True)]
    assert sorted(steps[:8]) == sorted([*(f"fsync {temp}" for temp in landed), *named])
    assert all(steps.index(f"fsync {temp}") < steps.index(name) for temp, name in zip(landed, named, strict=True))
    # ``.`` holds the new ``t``, and ``t`` the new folders and a file.
    assert sorted(steps[8:]) == ["fsync .", "fsync t", "fsync t/p=1", "fsync t/p=2"]
    # What is durable already is not forced again.
    steps.clear()
    with (again := store.write_group()).open_output("p=1/c") as file:
        file.write(b"x")
    again.finish()
    assert steps == ["fsync t/p=1/TEMP", "rename t/p=1/TEMP t/p=1/c", "fsync t/p=1"]


def test_3_a_group_forces_folders_that_another_process_has_made(store: Store, root: Path, steps: list[str]) -> None:
    (root / "a" / "b").mkdir(parents=True)
    steps.clear()
    with (group := store.write_group()).open_output("a/b/k") as file:
        file.write(b"x")
    group.finish()
    assert steps[:2] == ["fsync t/a/b/TEMP", "rename t/a/b/TEMP t/a/b/k"]
    assert sorted(steps[2:]) == ["fsync .", "fsync t", "fsync t/a", "fsync t/a/b"]


def test_3_a_loser_writes_nothing(store: Store, steps: list[str]) -> None:
    store.put("k", b"x")
    steps.clear()
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("k", b"y")
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


def test_1_a_killed_process_leaves_whole_files_and_temporary_ones(store: Store, root: Path) -> None:
    for i in range(3):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(root), str(i * 10_000)], stdout=subprocess.PIPE)
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.1 + 0.037 * i)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
    found = list(store.list())
    assert len(found) > 3
    for meta in found:
        value = bytes([int(meta.key.split("/")[1]) % 251])
        assert store.read(meta.key).to_pybytes() == value * (200_000 if meta.key.startswith("log/") else 400_000)
    left = [meta.key for meta in store.unfinished()]
    assert len(left) <= 3
    assert sorted([m.key for m in found] + left) == files(root)
    store.delete(left)
    assert list(store.unfinished()) == []
    assert list(store.list()) == found


# --- failing steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["put", "put_if_absent"])
@pytest.mark.parametrize(
    ("step", "code", "hint"),
    [("fsync", errno.ENOSPC, "space"), ("fsync", errno.EIO, ""), ("open", errno.EACCES, "owner")],
)
def test_6_a_failure_before_the_name_leaves_nothing(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, method: str, step: str, code: int, hint: str
) -> None:
    root.mkdir()
    if step == "open":
        monkeypatch.setattr("io.FileIO", fails_with(code))
    else:
        monkeypatch.setattr(os, step, fails_with(code))
    with pytest.raises(StorageError) as caught:
        getattr(store, method)("k", b"x")
    assert not isinstance(caught.value, (UnknownOutcomeError, ObjectExistsError, ObjectNotFoundError))
    assert hint in str(caught.value)
    assert caught.value.context["file"] == str(root / "k")
    assert files(root) == []


def no_folder_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("method", ["put", "put_if_absent"])
def test_6_a_failure_after_the_name_is_an_unknown_outcome(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    store.put("other", b"x")
    no_folder_can_be_forced(monkeypatch)
    with pytest.raises(UnknownOutcomeError):
        getattr(store, method)("k", b"x")
    assert files(root) == ["k", "other"]


@pytest.mark.parametrize("count", [1, 5, 200])
@pytest.mark.parametrize("failing", [True, False], ids=["a file", "no file"])
def test_6_a_group_that_is_given_up_leaves_no_temporary_file(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, count: int, failing: bool
) -> None:
    """The files that have their names are for the caller to delete, who knows them."""
    group = store.write_group()
    if failing:
        monkeypatch.setattr(os, "fsync", fails_with(errno.EIO))
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


def test_6_a_group_whose_folder_cannot_be_forced_is_an_unknown_outcome(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_folder_can_be_forced(monkeypatch)
    with (group := store.write_group()).open_output("a/k") as file:
        file.write(b"x")
    with pytest.raises(UnknownOutcomeError):
        group.finish()
    monkeypatch.undo()
    # The folders are not taken for durable: the next write forces them.
    seen: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append(os.readlink(f"/proc/self/fd/{fd}")))
    store.put("a/l", b"x")
    assert {str(root), str(root.parent)} <= set(seen)


def test_6_a_write_that_failed_cannot_be_closed_into_an_object(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = store.open_output("k")
    file.write(b"begin")
    monkeypatch.setattr(os, "fsync", fails_with(errno.ENOSPC))
    with pytest.raises(StorageError, match="No space"):
        file.close()
    assert files(root) == []
    monkeypatch.undo()
    file = store.open_output("k")
    with pytest.raises(TypeError):
        file.write("text")  # type: ignore[arg-type]
    file.close()
    assert files(root) == ["k"]  # nothing was begun, so nothing is missing


def test_a_full_disk_while_writing_discards_the_file(store: Store, root: Path) -> None:
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


def test_an_interrupt_leaves_no_temporary_file(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(fd: int) -> None:
        raise KeyboardInterrupt

    root.mkdir()
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.put_if_absent("k", b"x")
    assert files(root) == []


def test_a_file_where_a_folder_must_be(store: Store, root: Path) -> None:
    store.put("a", b"x")
    with pytest.raises(StorageError, match="must be a folder"):
        store.put("a/b", b"x")
    with pytest.raises(StorageError, match="must be a folder"):
        store.put_if_absent("a/b/c", b"x")
    store.put("d/e", b"x")
    with pytest.raises(StorageError):
        store.put("d", b"x")
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("d", b"x")
    with pytest.raises(StorageError, match="cannot delete"):
        store.delete(["d"])
    assert files(root) == ["a", "d/e"]


# --- file systems without hard links ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_2_without_hard_links_the_name_is_given_by_a_rename_that_replaces_nothing(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "link", fails_with(code))
    monkeypatch.setattr(os.path, "lexists", lambda path: False)  # the other writer comes after the first look
    store.put_if_absent("k", b"first")
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("k", b"second")
    assert (root / "k").read_bytes() == b"first"
    assert files(root) == ["k"]


@pytest.mark.parametrize("answer", ["missing", errno.ENOSYS, errno.EINVAL])
def test_2_where_neither_works_the_write_is_refused(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    class Library:
        def __init__(self, name: object, use_errno: bool) -> None:
            if answer != "missing":
                self.renameat2 = lambda *args: -1

    monkeypatch.setattr(os, "link", fails_with(errno.EPERM))
    monkeypatch.setattr(renameat_module.ctypes, "CDLL", Library)
    monkeypatch.setattr(renameat_module.ctypes, "get_errno", lambda: answer)
    with pytest.raises(StorageError, match="two writers could both win"):
        store.put_if_absent("k", b"x")
    assert files(root) == []


def test_2_an_own_link_whose_reply_was_lost_is_a_success(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link(source: str, target: str) -> None:
        real(source, target)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(os, "link", link)
    store.put_if_absent("k", b"x")
    assert files(root) == ["k"]


# --- reading and listing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, MAP_FROM - 1, MAP_FROM, MAP_FROM + 1, 3 * MAP_FROM])
def test_files_of_every_size_are_read_whole(store: Store, root: Path, size: int) -> None:
    data = os.urandom(size)
    root.mkdir()
    (root / "k").write_bytes(data)
    buffer = store.read("k")
    (root / "k").unlink()
    assert buffer.to_pybytes() == data


def test_folders_and_special_files_are_no_objects(store: Store, root: Path) -> None:
    (root / "folder").mkdir(parents=True)
    os.mkfifo(root / "pipe")
    (root / "nowhere").symlink_to("missing")
    (root / "zero").symlink_to("/dev/zero")
    assert list(store.list()) == []
    for key in ("folder", "pipe", "nowhere", "zero"):
        for call in (store.head, store.open_input, store.read, lambda k: store.read_range(k, 0, 10)):
            with pytest.raises(ObjectNotFoundError):
                call(key)


def test_temporary_files_are_hidden_from_every_reader(store: Store, root: Path) -> None:
    file = store.open_output("log/k")
    (name,) = os.listdir(root / "log")
    assert name.startswith(".")
    assert name.endswith(".tmp")
    assert list(store.list()) == []
    assert [m.key for m in store.unfinished()] == [m.key for m in store.unfinished("log")] == [f"log/{name}"]
    assert list(store.unfinished("other")) == []
    file.close()
    assert list(store.unfinished()) == []


def test_links_are_followed_but_not_in_circles(store: Store, root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x").write_bytes(b"1")
    store.put("a/k", b"12")
    (root / "a" / "again").symlink_to(root / "a")
    (root / "b").symlink_to(elsewhere)
    (root / "c").symlink_to(root / "a" / "k")
    assert [(m.key, m.size) for m in store.list()] == [("a/again/k", 2), ("a/k", 2), ("b/x", 1), ("c", 2)]


def test_names_that_are_no_text_are_listed_in_byte_order(store: Store, root: Path) -> None:
    root.mkdir()
    names = [b"a", b"\x80", b"\xc3\xa4", b"\xf0\x9f\x98\x80", b"\xff"]
    for name in names:
        (root / os.fsdecode(name)).write_bytes(name)
    assert [os.fsencode(m.key) for m in store.list()] == sorted(names)
    assert [store.read(m.key).to_pybytes() for m in store.list()] == sorted(names)
    assert [os.fsencode(m.key) for m in store.list(start_after=os.fsdecode(b"\xc3\xa4"))] == names[3:]


def test_a_listing_begins_behind_any_text(store: Store, root: Path) -> None:
    keys = ["a", "a.b", "aa/b/c", "aa/b0", "aa/é", "ab/x", "a\x7f", "b/c/d", "bé/x", "é", "éa/b", "z\udcff/k", "😀/a"]
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(b"")
    keys.sort(key=os.fsencode)
    for after in [*keys, *(k[:i] for k in keys for i in range(len(k))), "aa/b/", "aa/a", "b/c!", "zz", "a/"]:
        expected = [k for k in keys if os.fsencode(k) > os.fsencode(after)]
        assert [m.key for m in store.list(start_after=after)] == expected, after
        inside = [k for k in expected if k.startswith("aa/")]
        assert [m.key for m in store.list("aa", start_after=after)] == inside, after


def test_listing_after_a_key_looks_at_nothing_before_it(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("", "a/", "b/"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for i in range(50):
            (root / folder / f"{i:03}").write_bytes(b"")
    seen: list[str] = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: seen.append(path) or real(path, **how))
    assert [m.key for m in store.list(start_after="b/046")] == ["b/047", "b/048", "b/049"]
    assert seen == ["b/", "047", "048", "049"]
    assert next(store.list("a", start_after="a/040")).key == "a/041"
    assert seen[4:] == ["041"]


def test_a_folder_that_cannot_be_listed_is_an_error(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a/k", b"1")
    monkeypatch.setattr(os, "scandir", fails_with(errno.EACCES))
    with pytest.raises(StorageError, match="permissions"):
        list(store.list())


def test_files_that_cannot_be_mapped_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("k", b"content")
    monkeypatch.setattr("pyarrow.memory_map", fails_with(errno.ENODEV))
    with store.open_input("k") as file:
        assert file.read() == b"content"


# --- links -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, root: Path) -> Path:
    """A folder of somebody else's with one file, which ``root/a/link`` names."""
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "k").write_bytes(b"theirs")
    (root / "a").mkdir(parents=True)
    (root / "a" / "link").symlink_to(other, target_is_directory=True)
    return other


def test_nothing_is_deleted_behind_a_link(store: Store, elsewhere: Path) -> None:
    with pytest.raises(StorageError, match="behind a link"):
        store.delete(["a/link/k"])
    assert (elsewhere / "k").read_bytes() == b"theirs"
    store.delete(["a/link"])  # the link itself is a name in the table's own folder
    assert (elsewhere / "k").read_bytes() == b"theirs"


@pytest.mark.parametrize("how", ["put", "open_output"])
def test_nothing_is_replaced_behind_a_link_but_new_files_may_come(
    store: Store, root: Path, elsewhere: Path, how: str
) -> None:
    def write(key: str) -> None:
        if how == "put":
            store.put(key, b"ours")
            return
        with store.open_output(key) as file:
            file.write(b"ours")

    with pytest.raises(StorageError, match="behind a link"):
        write("a/link/k")
    assert (elsewhere / "k").read_bytes() == b"theirs"
    write("a/link/new")
    assert store.read("a/link/new").to_pybytes() == b"ours"
    assert files(elsewhere) == ["k", "new"]


def test_a_table_may_be_opened_by_a_link(tmp_path: Path, root: Path) -> None:
    root.mkdir()
    (tmp_path / "name").symlink_to(root, target_is_directory=True)
    linked = open_store(tmp_path / "name")
    linked.put("k", b"1")
    linked.put("k", b"2")
    linked.delete(["k"])
    assert files(root) == []
