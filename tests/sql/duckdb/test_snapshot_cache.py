"""Tables that were queried before: a log is read again only if it has changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

import trilake
from trilake.delta.log.log import DeltaLog
from trilake.sql.duckdb.table_paths import SnapshotCache

_LONG_AGO = (1_700_000_000, 1_700_000_000)


def _age(place: Path, times: tuple[float, float] = _LONG_AGO) -> None:
    for path in (place / "_delta_log").iterdir():
        os.utime(path, times)


@pytest.fixture
def read() -> Iterator[list[str]]:
    """The log files that were read."""
    seen: list[str] = []
    original = DeltaLog.read_files

    def spy(log: DeltaLog, keys: list[str]) -> object:
        seen.extend(keys)
        return original(log, keys)

    with patch.object(DeltaLog, "read_files", spy):
        yield seen


def _rows(known: SnapshotCache, place: Path) -> list[dict[str, int]]:
    return list(known.open(str(place), {}).to_arrow().sort_by("n").to_pylist())


def test_unchanged_log_is_read_once(tmp_path: Path, read: list[str]) -> None:
    known, place = SnapshotCache(), tmp_path / "t"
    trilake.write({"n": [1]}, place)
    _age(place)
    read.clear()
    assert [_rows(known, place) for _ in range(3)] == [[{"n": 1}]] * 3
    assert len(read) == 1


def test_each_commit_is_seen(tmp_path: Path) -> None:
    known, place = SnapshotCache(), tmp_path / "t"
    trilake.write({"n": [1]}, place)
    for n in range(2, 6):
        _age(place)
        assert len(_rows(known, place)) == n - 1
        trilake.write({"n": [n]}, place, mode="append")
        assert len(_rows(known, place)) == n


def test_replaced_table_at_the_same_path_is_seen(tmp_path: Path, read: list[str]) -> None:
    known, place = SnapshotCache(), tmp_path / "t"
    trilake.write({"n": [1]}, place)
    _age(place)
    assert _rows(known, place) == [{"n": 1}]
    shutil.rmtree(place)
    trilake.write({"n": [2]}, place)
    _age(place, (1_700_000_001, 1_700_000_001))
    assert _rows(known, place) == [{"n": 2}]


def test_recent_log_is_read_each_time(tmp_path: Path, read: list[str]) -> None:
    known, place = SnapshotCache(), tmp_path / "t"
    trilake.write({"n": [1]}, place)
    read.clear()
    for _ in range(3):
        assert _rows(known, place) == [{"n": 1}]
    assert len(read) == 3
    assert not known.versions.values


def test_large_file_list_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, place = SnapshotCache(), tmp_path / "t"
    trilake.write({"n": [1]}, place)
    _age(place)
    monkeypatch.setattr("trilake.sql.duckdb.table_paths._LARGEST", 10)
    assert _rows(known, place) == [{"n": 1}]
    assert not known.versions.values


def test_cached_tables_are_limited(tmp_path: Path) -> None:
    known, first = SnapshotCache(), tmp_path / "0"
    for n in range(33):
        place = tmp_path / str(n)
        trilake.write({"n": [n]}, place)
        _age(place)
        known.open(str(place), {})
        known.open(str(first), {})
    assert len(known.versions.values) == 32
    assert next(reversed(known.versions.values))[0].endswith("/0")
    assert not any(uri.endswith("/1") for uri, _ in known.versions.values)


def test_options_are_part_of_the_cache_key(tmp_path: Path) -> None:
    known, place = SnapshotCache(), tmp_path / "t"
    trilake.write({"n": [1]}, place)
    _age(place)
    known.open(str(place), {})
    known.open(str(place), {"allow_other_stores": "true"})
    assert len(known.versions.values) == 2
