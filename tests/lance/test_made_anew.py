"""A dataset that is made anew while a writer of the old one is at work: rows of the new one stay."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import TrilakeError
from trilake.lance.versions import transaction

OLD, NEW = pa.table({"id": [1, 2, 3]}), pa.table({"id": [7, 8, 9]})
CHANGES: dict[str, Callable[[Any], Any]] = {
    "append": lambda found: lance.write_dataset(pa.table({"id": [4]}), found.uri, mode="append"),
    "delete": lambda found: found.delete("id = 1"),
    "delete all": lambda found: found.delete("true"),
    "update": lambda found: found.update({"id": "5"}, "id = 1"),
    "compact": lambda found: found.optimize.compact_files(),
}


def _make(place: Path, rows: pa.Table, versions: int) -> None:
    shutil.rmtree(place, ignore_errors=True)
    for _ in range(versions):
        lance.write_dataset(rows, place, mode="append")


@pytest.mark.parametrize("versions", [1, 2, 4])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_does_not_go_into_a_dataset_that_was_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, versions: int
) -> None:
    """Its fragments have the numbers of the old ones."""
    place = tmp_path / "d"
    _make(place, OLD, 2)
    found = lance.dataset(place)
    own = transaction.commit
    done: list[bool] = []

    def late(*args: Any, **more: Any) -> Any:
        if not done:
            done.append(True)
            _make(place, NEW, versions)
        return own(*args, **more)

    monkeypatch.setattr(transaction, "commit", late)
    with pytest.raises(TrilakeError):
        CHANGES[change](found)
    assert done
    assert lance.dataset(place).to_table()["id"].to_pylist() == [7, 8, 9] * versions


def test_a_version_that_is_gone_is_not_another_dataset_s(tmp_path: Path) -> None:
    """Who has read it may go on where no other commit is in the way, as after a clean-up."""
    place = tmp_path / "d"
    _make(place, OLD, 1)
    found = lance.dataset(place)
    lance.write_dataset(pa.table({"id": [4]}), place, mode="append")
    found.delete("id = 1")
    assert sorted(lance.dataset(place).to_table()["id"].to_pylist()) == [2, 3, 4]
