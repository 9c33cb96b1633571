"""DELETE, UPDATE and MERGE on many small files: the same rows as on few, and overhead per task, not per file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trilake
from tests.delta.tables import opened
from trilake.delta.commands.rows.row_changes import changed_files, whole_rows
from trilake.delta.scan.read import read_positions
from trilake.expr import Filter
from trilake.expr.terms import engine
from trilake.parquet.merged_files import FEWEST
from trilake.storage import durable

_FILES = FEWEST + 16
_VECTORS = {"delta.enableDeletionVectors": "true"}
_PROPERTIES: dict[str, dict[str, str]] = {
    "copies": {},
    "vectors": _VECTORS,
    "feed": {"delta.enableChangeDataFeed": "true"},
    "tracked": {"delta.enableRowTracking": "true"},
    "all": {**_VECTORS, "delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"},
}


def _table(place: str, properties: Mapping[str, str], partitions: int) -> dict[int, tuple[int | None, str]]:
    """Write four rows per file, with one null partition; returns the rows by number."""
    rows = {n: ((n % _FILES) % partitions or None, f"value {n}") for n in range(4 * _FILES)}
    for part in range(_FILES // partitions):
        chosen = {n: r for n, r in rows.items() if (n % _FILES) // partitions == part}
        data = {
            "n": pa.array(list(chosen), pa.int64()),
            "p": pa.array([p for p, _ in chosen.values()], pa.int32()),
            "v": pa.array([v for _, v in chosen.values()]),
        }
        trilake.write(
            pa.table(data), place, mode="append", partition_by=["p"], properties=None if part else dict(properties)
        )
    assert trilake.open(place).files().num_rows == _FILES
    return rows


def _rows(place: str) -> dict[int, tuple[int | None, str]]:
    result = trilake.open(place).to_arrow().to_pylist()
    rows = {r["n"]: (r["p"], r["v"]) for r in result}
    assert len(rows) == len(result)
    return rows


def _ids(place: str) -> dict[int, int]:
    """The row id of each row of a table with row tracking."""
    table = opened(place)
    name = table.snapshot.metadata.configuration["delta.rowTracking.materializedRowIdColumnName"]
    out = {}
    for source in changed_files(table.snapshot, range(table.snapshot.adds.num_rows)):
        for positions, rows in read_positions(table.log.store, source.file, whole_rows(table.snapshot)):
            assert source.base_row_id is not None
            fresh = pa.array(positions + source.base_row_id)
            out |= zip(rows["n"].to_pylist(), pc.coalesce(rows[name], fresh).to_pylist(), strict=True)
    return out


@pytest.mark.parametrize(("kind", "partitions"), [*((kind, _FILES) for kind in _PROPERTIES), ("all", _FILES // 4)])
def test_delete_update_and_merge_change_many_small_files(kind: str, partitions: int, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    rows = _table(place, _PROPERTIES[kind], partitions)
    tracked = _ids(place) if "delta.enableRowTracking" in _PROPERTIES[kind] else {}
    first, second = range(_FILES, 2 * _FILES), range(2 * _FILES, 3 * _FILES)
    assert opened(place).delete(f"n >= {_FILES} AND n < {2 * _FILES}").rows == _FILES
    rows = {n: r for n, r in rows.items() if n not in first}
    assert _rows(place) == rows
    # Each file may have one row deleted by a vector.
    assert opened(place).update({"v": "concat(v, '!')"}, f"n >= {2 * _FILES} AND n < {3 * _FILES}").rows == _FILES
    rows |= {n: (rows[n][0], f"{rows[n][1]}!") for n in second}
    assert _rows(place) == rows
    source = pa.table({"n": pa.array(second, pa.int64()), "w": [str(n) for n in second]})
    merge = opened(place).merge(source, "target.n = source.n")
    merge.when_matched_update({"v": "concat(target.v, source.w)"}).execute()
    rows |= {n: (rows[n][0], f"{rows[n][1]}{n}") for n in second}
    assert _rows(place) == rows
    opened(place).optimize()
    assert _rows(place) == rows
    if tracked:
        assert _ids(place) == {n: i for n, i in tracked.items() if n in rows}
    if "delta.enableChangeDataFeed" in _PROPERTIES[kind]:
        changes = opened(place).changes(_FILES // partitions)
        counts = {c["values"]: c["counts"] for c in pc.value_counts(changes["_change_type"]).to_pylist()}
        assert counts == {"delete": _FILES, "update_preimage": 2 * _FILES, "update_postimage": 2 * _FILES}


@pytest.mark.parametrize("command", ["delete", "update", "merge"])
@pytest.mark.parametrize("kind", ["copies", "vectors"])
def test_statement_overhead_does_not_grow_with_files(
    command: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conditions are evaluated, DuckDB opened and the disk synced a few times, regardless of the number of files."""
    place = str(tmp_path / "t")
    _table(place, _PROPERTIES[kind], _FILES)
    calls = Counter[str]()

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    # Simulate a disk that is synced as a whole, independent of the real one.
    monkeypatch.setattr(durable, "_syncs_file_systems", lambda: True)
    monkeypatch.setattr(durable, "_kind", lambda fd: 0xEF53)
    monkeypatch.setattr(durable, "_unwritten", lambda: 0)
    counted(Filter, "mask")
    counted(engine, "new_connection")
    counted(durable, "sync_file_system")
    counted(durable.os, "fsync")
    table = opened(place)
    if command == "delete":
        table.delete(f"n % {_FILES} >= 0 AND n < {_FILES}")
    elif command == "update":
        table.update({"v": "concat(v, '!')"}, f"n < {_FILES} AND v > ''")
    else:
        source = pa.table({"n": pa.array(range(_FILES), pa.int64()), "w": ["w"] * _FILES})
        table.merge(source, "target.n = source.n").when_matched_update({"v": "concat(target.v, source.w)"}).execute()
    assert max(calls.values()) <= _FILES // 4, calls
