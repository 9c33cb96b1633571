"""A damaged manifest of an older version: that version gives a typed error, the others open, and nothing is deleted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import CorruptLogError
from trilake.lance.pylance.lance_dataset import LanceDataset

DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "cut": lambda manifest, newest: manifest[: len(manifest) // 2],
    "empty": lambda manifest, newest: b"",
    "zeros": lambda manifest, newest: bytes(len(manifest)),
    "end": lambda manifest, newest: manifest[:-1],
    "another's": lambda manifest, newest: newest,
}


def damaged(name: str, version: int, how: str) -> LanceDataset:
    uri = f"memory://damaged-versions-{name}"
    for i in range(3):
        dataset = lance.write_dataset(
            pa.table({"a": [i]}), uri, mode="overwrite", data_storage_version="legacy", enable_v2_manifest_paths=False
        )
    store = dataset.snapshot.store
    manifest, newest = (bytes(store.read(f"_versions/{v}.manifest")) for v in (version, dataset.version))
    store.put(f"_versions/{version}.manifest", DAMAGE[how](manifest, newest))
    return dataset


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_version_fails_and_others_open(how: str) -> None:
    uri = damaged(f"open-{how}", 2, how).uri
    with pytest.raises(CorruptLogError):
        lance.dataset(uri, 2)
    assert [lance.dataset(uri, v).to_table()["a"].to_pylist() for v in (1, None)] == [[0], [2]]


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("age", [0, 365])
def test_cleanup_deletes_nothing(how: str, age: int) -> None:
    """Whether the damaged version is expired or retained: its files are unknown."""
    dataset = damaged(f"clean-{how}-{age}", 2, how)
    store = dataset.snapshot.store
    before = [m.key for m in store.list()]
    with pytest.raises(CorruptLogError):
        dataset.cleanup_old_versions(dt.timedelta(days=age), delete_unverified=True)
    assert [m.key for m in store.list()] == before


@pytest.mark.parametrize("how", DAMAGE)
def test_writes_continue_and_its_restore_is_rejected(how: str) -> None:
    dataset = damaged(f"write-{how}", 2, how)
    lance.write_dataset(pa.table({"a": [7]}), dataset.uri, mode="append")
    with pytest.raises(CorruptLogError):
        dataset.commit(dataset.uri, lance.LanceOperation.Restore(2))
    assert lance.dataset(dataset.uri).to_table()["a"].to_pylist() == [2, 7]
