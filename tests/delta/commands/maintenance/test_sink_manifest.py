"""Converting a folder of Spark's streaming file sink uses the files that the sink committed."""

from __future__ import annotations

import pytest

from tests.delta.commands.maintenance.parquet_folder import folder, read
from trilake.delta.commands.maintenance.convert import committed_files, convert_to_delta
from trilake.delta.standard import standard_engine
from trilake.errors import CorruptFileError, MissingFileError
from trilake.storage.memory import MemoryStore
from trilake.tools.convert.parquet import find

_PLACE = "file:///some/p%3D1%20folder"


def _put(store: MemoryStore, batch: str, *paths: str, action: str = "add") -> None:
    lines = [f'{{"path":"{_PLACE}/{p}","size":9,"isDir":false,"action":"{action}"}}' for p in paths]
    store.put(f"_spark_metadata/{batch}", "\n".join(["v1", *lines]).encode())


def test_uncommitted_files_are_omitted() -> None:
    store = folder("a.parquet", "b c.parquet", "again.parquet")
    _put(store, "0", "a.parquet")
    _put(store, "1", "b%20c.parquet")
    store.put("_spark_metadata/.1.crc", b"x")
    assert [f.key for f in find(store)[1]] == ["a.parquet", "b c.parquet"]
    assert convert_to_delta(store, standard_engine()).num_files == 2
    assert read(store) == [{"n": 0}, {"n": 1}]


def test_all_files_count_without_by_manifest() -> None:
    store = folder("a.parquet", "again.parquet")
    _put(store, "0", "a.parquet")
    assert convert_to_delta(store, standard_engine(), by_manifest=False).num_files == 2


def test_compact_manifest_replaces_earlier_ones() -> None:
    keys = {"p=1/a.parquet", "p=1/b.parquet", "a.parquet"}
    store = MemoryStore()
    for batch in range(9):
        _put(store, str(batch), "gone.parquet")
    _put(store, "9.compact", "p%3D1/a.parquet")
    _put(store, "10", "p%3D1/b.parquet")
    keys |= {m.key for m in store.list()}
    assert committed_files(store, keys) == frozenset({"p=1/a.parquet", "p=1/b.parquet"})


def test_incomplete_manifest_is_an_error() -> None:
    store = folder("a.parquet", "b.parquet")
    _put(store, "0", "a.parquet")
    _put(store, "2", "b.parquet")
    with pytest.raises(CorruptFileError, match=r"a gap.*batches 0, 2"):
        convert_to_delta(store, standard_engine())
    _put(store, "1", "c.parquet")
    with pytest.raises(MissingFileError, match=r"'c\.parquet'"):
        convert_to_delta(store, standard_engine())
    for text in (b"v2\n", b"v1\n{", b'v1\n["a"]', b'v1\n{"size":1}'):
        store.put("_spark_metadata/1", text)
        with pytest.raises(CorruptFileError, match="file list of the streaming sink"):
            convert_to_delta(store, standard_engine())


def test_folder_without_manifest_uses_all_files() -> None:
    assert committed_files(MemoryStore(), {"a.parquet", "_spark_metadata/.0.crc"}) is None
