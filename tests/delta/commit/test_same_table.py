"""A table that is dropped, or made anew, while a writer of the old one is at work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from trilake.delta.commit import transaction
from trilake.delta.log.log import DeltaLog
from trilake.errors import MetadataChangedError
from trilake.storage import open_store

ONE, OTHER = pa.table({"id": [1]}), pa.table({"x": ["a"]})
CHANGES: dict[str, Callable[[str], Any]] = {
    "append": lambda place: trilake.write(pa.table({"id": [9]}), place, mode="append"),
    "overwrite": lambda place: trilake.write(pa.table({"id": [9]}), place, mode="overwrite"),
    "delete": lambda place: trilake.open(place).delete("id = 1"),
    "restore": lambda place: trilake.open(place).restore(0),
}


def _write(place: str, rows: pa.Table, versions: int) -> None:
    for _ in range(versions):
        trilake.write(rows, place, mode="append")


def _drop(place: str) -> None:
    store = open_store(place)
    store.delete([meta.key for meta in store.list()])


def _replace_before_commit(monkeypatch: pytest.MonkeyPatch, place: str, rows: pa.Table, versions: int) -> None:
    own = transaction._content
    done: list[bool] = []

    def late(*args: Any) -> bytes:
        if not done:
            done.append(True)
            _drop(place)
            _write(place, rows, versions)
        return own(*args)

    monkeypatch.setattr(transaction, "_content", late)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("versions", [1, 2, 5])
@pytest.mark.parametrize("rows", [ONE, OTHER], ids=["same columns", "other columns"])
def test_a_change_does_not_go_into_a_table_that_was_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, versions: int, rows: pa.Table
) -> None:
    """It would name files that went with the old table, and nobody could read the new one."""
    place = str(tmp_path / "t")
    _write(place, ONE, 2)
    _replace_before_commit(monkeypatch, place, rows, versions)
    with pytest.raises(MetadataChangedError, match="was replaced by another one"):
        CHANGES[change](place)
    table = trilake.open(place)
    assert table.version == versions - 1
    assert table.to_arrow().to_pydict() == {rows.column_names[0]: rows[0].to_pylist() * versions}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_does_not_go_where_a_table_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A log that begins with version 2 could not be read, and no table could be made there."""
    place = str(tmp_path / "t")
    _write(place, ONE, 2)
    _replace_before_commit(monkeypatch, place, ONE, 0)
    with pytest.raises(MetadataChangedError, match="was dropped"):
        CHANGES[change](place)
    assert not DeltaLog(open_store(place)).exists()
    _write(place, OTHER, 1)
    assert trilake.open(place).to_arrow().to_pydict() == {"x": ["a"]}


def test_a_table_whose_log_was_written_again_is_the_same_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a copy of it that is brought back has other times."""
    place = str(tmp_path / "t")
    _write(place, ONE, 1)
    store, own = open_store(place), transaction._content

    def touched(*args: Any) -> bytes:
        key = "_delta_log/00000000000000000000.json"
        store.put(key, store.read(key).to_pybytes() + b"\n")
        return own(*args)

    monkeypatch.setattr(transaction, "_content", touched)
    _write(place, ONE, 1)
    assert trilake.open(place).count() == 2


@pytest.mark.parametrize("versions", [2, 5])
def test_a_version_that_is_known_is_not_that_of_a_table_made_anew(tmp_path: Path, versions: int) -> None:
    place = str(tmp_path / "t")
    _write(place, ONE, 2)
    log = DeltaLog(open_store(place), trilake.open(place).snapshot.engine)
    old = log.snapshot()
    _drop(place)
    _write(place, OTHER, versions)
    new = log.update(old)
    assert (new.version, new.adds.num_rows, new.schema.fields[0].name) == (versions - 1, versions, "x")
