"""Staging folders: invisible until published, removed afterwards, and found if their writer died."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trilake.errors import StorageError
from trilake.storage import open_store
from trilake.storage.staging import Staging, staging


def staged(path: Path) -> Staging:
    result = staging(open_store(str(path)))
    assert result is not None
    return result


def write(folder: Staging, **files: str) -> None:
    Path(folder.path).mkdir(exist_ok=True)
    for name, text in files.items():
        Path(folder.path, name).write_text(text)


def test_publish_moves_files_and_removes_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "a % ü" / "t"
    store = open_store(str(root))
    with staged(root) as folder:
        write(folder, a="one", b="three", c="left out")
        assert folder.names() == ["a", "b", "c"]
        assert (folder.size("a"), folder.size("b")) == (3, 5)
        assert list(store.list()) == []
        assert sorted(m.key.rpartition("/")[2] for m in store.unfinished()) == ["a", "b", "c"]
        folder.publish({"a": "x.parquet", "b": "p=1/y.parquet"})
        assert [m.key for m in store.list()] == ["p=1/y.parquet", "x.parquet"]
    assert sorted(str(p.relative_to(root)) for p in root.rglob("*")) == ["p=1", "p=1/y.parquet", "x.parquet"]
    assert bytes(store.read("p=1/y.parquet")) == b"three"


def test_exception_leaves_nothing_staged(tmp_path: Path) -> None:
    def fails() -> None:
        with staged(tmp_path / "t") as folder:
            write(folder, a="one")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert list((tmp_path / "t").iterdir()) == []


def test_failed_publish_removes_the_other_files(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file where a folder must be")
    with staged(tmp_path) as folder:
        write(folder, a="one", b="two")
        with pytest.raises(StorageError, match="a parent of the path is a file"):
            folder.publish({"a": "x", "b": "blocked/y"})
    assert [p.name for p in tmp_path.iterdir()] == ["blocked"]


def test_files_of_a_dead_writer_are_listed_as_unfinished(tmp_path: Path) -> None:
    folder = staged(tmp_path).__enter__()
    write(folder, a="one")
    deep = Path(folder.path, "_temporary", "0")
    deep.mkdir(parents=True)
    (deep / "b").write_text("two")
    (tmp_path / "c").write_text("three")
    store = open_store(str(tmp_path))
    assert [m.key for m in store.list()] == ["c"]
    result = [m.key for m in store.unfinished()]
    assert [os.path.basename(k) for k in result] == ["b", "a"]
    assert [m.key for m in store.unfinished(os.path.dirname(result[1]))] == result
    store.delete(result)
    assert list(store.unfinished()) == []


def test_errors_name_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StorageError, match="a parent of the path is a file"),
        staged(tmp_path / "file" / "t"),
    ):
        pass
    with staged(tmp_path / "t") as folder:
        with pytest.raises(StorageError, match="no such file"):
            folder.names()
        with pytest.raises(StorageError):
            folder.size("a")
        with pytest.raises(StorageError):
            folder.publish({"a": "b"})


def test_memory_store_has_no_staging() -> None:
    assert staging(open_store("memory://nowhere")) is None
