"""A dataset that is recreated while a write or clean-up of the old one runs: the new one stays unchanged."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trilake import lance
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import TrilakeError
from trilake.lance import cleanup
from trilake.lance.commands.fragment_writer import write_fragments
from trilake.lance.commands.stream_sink import commit_batch
from trilake.lance.commands.write import Mode, plan_write
from trilake.lance.file.errors import DatasetNotFoundError
from trilake.lance.versions import transaction
from trilake.lance.versions.versions import list_versions
from trilake.storage import open_store
from trilake.storage.base import ObjectMeta, Store
from trilake.table.streams import BatchId

ROW = pa.table({"id": [4]})
OLD, NEW = pa.table({"id": [1, 2, 3]}), pa.table({"id": [7, 8, 9]})
CHANGES: dict[str, Callable[[Any], Any]] = {
    "append": lambda found: lance.write_dataset(ROW, found.uri, mode="append"),
    "delete": lambda found: found.delete("id = 1"),
    "delete all": lambda found: found.delete("true"),
    "update": lambda found: found.update({"id": "5"}, "id = 1"),
    "compact": lambda found: found.optimize.compact_files(),
    "overwrite": lambda found: lance.write_dataset(ROW, found.uri, mode="overwrite"),
    "batch": lambda found: _batch(found.uri, "append"),
    "batch that replaces": lambda found: _batch(found.uri, "overwrite"),
}


def _batch(uri: str, mode: Mode) -> None:
    store = open_store(uri)
    plan = plan_write(store, mode, SYSTEM_RUNTIME)
    target = plan.target(ROW.schema)
    fragments = write_fragments(store, ROW.to_batches(), target, plan.options, SYSTEM_RUNTIME)
    commit_batch(store, plan, target, BatchId("query", 0), fragments)


def _make(place: Path, rows: pa.Table, versions: int) -> None:
    shutil.rmtree(place, ignore_errors=True)
    for _ in range(versions):
        lance.write_dataset(rows, place, mode="append")


@pytest.mark.parametrize("versions", [0, 1, 2, 4])
@pytest.mark.parametrize("change", CHANGES)
def test_change_conflicts_with_a_recreated_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, versions: int
) -> None:
    """Its fragments reuse the ids of the old ones."""
    place = tmp_path / "d"
    _make(place, OLD, 2)
    found = lance.dataset(place)
    original = transaction.commit
    done: list[bool] = []

    def late(*args: Any, **more: Any) -> Any:
        if not done:
            done.append(True)
            _make(place, NEW, versions)
        return original(*args, **more)

    monkeypatch.setattr(transaction, "commit", late)
    with pytest.raises(TrilakeError):
        CHANGES[change](found)
    assert done
    if versions:
        assert lance.dataset(place).to_table()["id"].to_pylist() == [7, 8, 9] * versions
    else:
        assert not list_versions(open_store(place)).versions


def test_removed_version_is_not_taken_for_a_recreation(tmp_path: Path) -> None:
    """After a clean-up, a handle on a removed version can still commit if nothing conflicts."""
    place = tmp_path / "d"
    _make(place, OLD, 1)
    found = lance.dataset(place)
    lance.write_dataset(ROW, place, mode="append")
    found.delete("id = 1")
    assert sorted(lance.dataset(place).to_table()["id"].to_pylist()) == [2, 3, 4]


@pytest.mark.parametrize("versions", [0, 1, 4])
def test_cleanup_spares_versions_of_a_recreated_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: int
) -> None:
    """The only version of the new dataset has the number of a version to remove."""
    place = tmp_path / "d"
    _make(place, OLD, 3)
    original = cleanup._delete
    done: list[bool] = []

    def late(store: Store, metas: Iterable[ObjectMeta]) -> None:
        if not done:
            done.append(True)
            _make(place, NEW, versions)
        original(store, metas)

    monkeypatch.setattr(cleanup, "_delete", late)
    with pytest.raises(DatasetNotFoundError, match="dropped or replaced"):
        lance.dataset(place).cleanup_old_versions(dt.timedelta(0))
    assert len(list_versions(open_store(place)).versions) == versions
