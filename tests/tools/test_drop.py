"""``trilake.drop`` deletes only the table's files, in an order that makes an interrupted drop repeatable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

import trilake
from trilake.delta.format import DELTA
from trilake.errors import (
    ConflictError,
    CorruptLogError,
    StorageError,
    TableNotFoundError,
    TrilakeError,
    UnsupportedProtocolError,
)
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore
from trilake.table.dropping import as_files, drop_files


def _files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() or p.is_symlink()}


def _table(place: Path, format: str = "delta") -> Path:
    partitions = {} if format == "lance" else {"partition_by": "p"}
    trilake.write({"p": [1, 2], "n": [1, 2]}, place, format=format, **partitions)
    trilake.write({"p": [1, 3], "n": [3, 4]}, place, format=format, mode="append")
    return place


def _checkpointed(place: Path) -> Path:
    properties = {"delta.checkpointInterval": "2", "delta.checkpointPolicy": "v2"}
    for n in range(4):
        trilake.write({"p": [n], "n": [n]}, place, mode="append", partition_by="p", properties=properties)
        properties = {}
    return place


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_drop_removes_a_table_and_its_folder(tmp_path: Path, format: str) -> None:
    place = _table(tmp_path / "t", format)
    before = _files(place)
    listed = trilake.drop(place, dry_run=True)
    assert listed.dry_run
    assert set(listed.paths) == before == _files(place)
    done = trilake.drop(place)
    assert (done.paths, done.size, done.dry_run) == (listed.paths, listed.size, False)
    assert not place.exists()
    assert tmp_path.exists()


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_drop_keeps_foreign_files(tmp_path: Path, format: str) -> None:
    place = tmp_path / "t"
    place.mkdir()
    for name in ("notes.txt", ".hidden", "_docs/readme.md"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("mine")
        os.utime(place / name, (0, 0))
    trilake.write({"n": [1]}, tmp_path / "made", format=format)
    shutil.copytree(tmp_path / "made", place, dirs_exist_ok=True)
    inner = "data/inner" if format == "lance" else "inner"
    trilake.write({"n": [1, 2]}, place / inner)
    others = {"notes.txt", ".hidden", "_docs/readme.md"} | {f"{inner}/{f}" for f in _files(place / inner)}
    done = trilake.drop(place, format=format)
    assert set(done.foreign["path"].to_pylist()) == others == _files(place)
    assert trilake.open(place / inner).count() == 2


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_drop_does_not_follow_links(tmp_path: Path, format: str) -> None:
    place, outside = _table(tmp_path / "t", format), tmp_path / "outside"
    folder = next(iter({"lance": ["data"]}.get(format, ["p=1"])))
    shutil.move(place / folder, outside)
    (place / folder).symlink_to(outside)
    kept = _files(outside)
    done = trilake.drop(place)
    assert _files(outside) == kept
    assert all(path.startswith(f"{folder}/") for path in done.foreign["path"].to_pylist())
    assert _files(place) == {folder}


def test_drop_rejects_a_log_behind_a_link(tmp_path: Path) -> None:
    place = _table(tmp_path / "t")
    shutil.move(place / "_delta_log", tmp_path / "log")
    (place / "_delta_log").symlink_to(tmp_path / "log")
    with pytest.raises(StorageError, match="behind a symbolic link"):
        trilake.drop(place)
    assert trilake.open(place).count() == 4


def test_drop_removes_leftovers_of_delta_writers(tmp_path: Path) -> None:
    place = _checkpointed(tmp_path / "t")
    trilake.open(place).generate("symlink_format_manifest")
    trilake.open(place).delete("n = 1")
    log = place / "_delta_log"
    for name in (".00000000000000000000.json.crc", "_last_vacuum_info"):
        (log / name).write_text("x")
    data = next(p for p in place.rglob("*.parquet") if "_delta_log" not in str(p))
    data.with_name(f".{data.name}.crc").write_text("x")
    (place / "p=1" / "part-lost.snappy.parquet").write_text("an uncommitted file")
    trilake.drop(place)
    assert not place.exists()


@pytest.mark.parametrize("cleaned", [False, True])
def test_interrupted_drop_can_be_repeated(tmp_path: Path, cleaned: bool) -> None:
    place = _checkpointed(tmp_path / "made")
    if cleaned:
        for version in 0, 1:
            (place / "_delta_log" / f"{version:020}.json").unlink()
    files = trilake.drop(place, dry_run=True).paths
    named = [f for f in files if "_sidecars" not in f] if cleaned else files
    for deleted in range(1, len(named)):
        died = tmp_path / f"t{deleted}"
        shutil.copytree(place, died)
        for path in files[:deleted]:
            (died / path).unlink()
        assert set(trilake.drop(died).paths) <= set(files[deleted:])
        assert not _files(died)


def test_drop_rejects_unreadable_tables(tmp_path: Path) -> None:
    corrupt, foreign = _table(tmp_path / "corrupt"), _table(tmp_path / "foreign")
    (corrupt / "_delta_log" / f"{1:020}.json").write_text("{")
    feature = '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["x"],"writerFeatures":["x"]}}'
    (foreign / "_delta_log" / f"{2:020}.json").write_text(feature)
    for place, error in ((corrupt, CorruptLogError), (foreign, UnsupportedProtocolError)):
        before = _files(place)
        with pytest.raises(error):
            trilake.drop(place)
        assert _files(place) == before


@pytest.mark.parametrize("name", ["none", "plain", "table/p=1"])
def test_drop_needs_a_table(tmp_path: Path, name: str) -> None:
    _table(tmp_path / "table")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "rows.csv").write_text("n\n1\n")
    before = _files(tmp_path)
    with pytest.raises(TableNotFoundError):
        trilake.drop(tmp_path / name)
    assert _files(tmp_path) == before


def test_drop_rejects_a_folder_of_a_delta_table(tmp_path: Path) -> None:
    trilake.write({"p": [1], "n": [1]}, tmp_path / "t", partition_by="p", data_format="trevni")
    with pytest.raises(TableNotFoundError, match="inside the Delta table"):
        trilake.drop(tmp_path / "t" / "p=1")
    assert trilake.open(tmp_path / "t").count() == 1


def test_drop_of_trevni_keeps_tables_below(tmp_path: Path) -> None:
    trilake.write({"n": [1]}, tmp_path / "lake" / "a", format="trevni")
    trilake.write({"n": [2]}, tmp_path / "lake" / "b", format="trevni")
    assert trilake.drop(tmp_path / "lake").files.num_rows == 0
    assert trilake.open(tmp_path / "lake" / "a").count() == 1


def test_drop_of_one_trevni_file_keeps_its_folder(tmp_path: Path) -> None:
    trilake.write({"n": [1]}, tmp_path / "made", format="trevni")
    file = next((tmp_path / "made").glob("*.trv"))
    (tmp_path / "made" / "other.trv").write_bytes(file.read_bytes())
    assert trilake.drop(file).paths == [file.name]
    assert _files(tmp_path / "made") == {"other.trv"}


def test_drop_reports_a_concurrent_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    trilake.write({"n": [1]}, "memory://drop-race", mode="overwrite")
    delete = MemoryStore.delete

    def racing(self: MemoryStore, keys: Iterable[str]) -> None:
        names = list(keys)
        self.put(f"_delta_log/{1:020}.json", b"{}")
        delete(self, names)

    monkeypatch.setattr(MemoryStore, "delete", racing)
    with pytest.raises(ConflictError, match="another process wrote"):
        trilake.drop("memory://drop-race")


def test_drop_keeps_the_files_of_a_shallow_clone(tmp_path: Path) -> None:
    source = _table(tmp_path / "source")
    trilake.open(source).clone(tmp_path / "clone")
    trilake.drop(tmp_path / "clone")
    assert not (tmp_path / "clone").exists()
    assert trilake.open(source).count() == 4


def test_drop_removes_every_corpus_table_completely(shared: Path, tmp_path: Path) -> None:
    dropped = 0
    for place in sorted((shared / "corpus" / "delta" / "golden").iterdir())[::12]:
        copy = tmp_path / place.name
        if not (place / "delta" / "_delta_log").is_dir():
            continue
        shutil.copytree(place / "delta", copy)
        try:
            done = trilake.drop(copy)
        except TrilakeError:
            assert _files(copy) == _files(place / "delta")
            continue
        assert _files(copy) == set(done.foreign["path"].to_pylist())
        dropped += 1
    assert dropped > 5


def test_drop_files_delete_the_log_last(tmp_path: Path) -> None:
    store = open_store(str(_table(tmp_path / "t")))
    files = DELTA.table_files(store)
    keys = files.files["path"].to_pylist()
    assert keys[-1] == f"_delta_log/{0:020}.json"
    assert keys[-2] == f"_delta_log/{1:020}.json"
    drop_files(type(files)(store, as_files([]), keep_root=True))
    assert trilake.open(tmp_path / "t").count() == 4
