"""Rows of Parquet files by position and copies that keep dictionaries equal those of a plain reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import opened
from trilake.delta.commands.rows.row_changes import changed_files, whole_rows
from trilake.delta.scan.parquet_rows import as_dictionaries, as_strings, dictionary_columns, rows_as_stored, rows_at
from trilake.delta.scan.read import read_positions
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import CorruptFileError, MissingFileError
from trilake.parquet.files import checked_footer, open_parquet

COUNT = 20_000


def _data() -> pa.Table:
    few = ["x", "yy", None, "zzz"]
    return pa.table(
        {
            "id": pa.array(range(COUNT), pa.int64()),
            "few": pa.array([few[i % 4] for i in range(COUNT)]),
            "many": [f"text {i}" for i in range(COUNT)],
            "o": pa.array([{"few": few[i % 4]} for i in range(COUNT)]),
            "p": [("u", "v")[i % 2] for i in range(COUNT)],
        }
    )


def _table(path: Path, **options: Any) -> ArrowDeltaTable:
    """Return a table with four row groups per file; only ``p`` is not in the files."""
    trilake.write(_data(), path, partition_by=["p"], **options)
    for file in path.rglob("*.parquet"):
        pq.write_table(pq.read_table(file, partitioning=None), file, row_group_size=COUNT // 8, store_schema=False)
    return opened(path)


def _rows(batches: Any) -> list[tuple[int, dict[str, Any]]]:
    return [(int(p), r) for positions, batch in batches for p, r in zip(positions, batch.to_pylist(), strict=True)]


def test_rows_at_positions(tmp_path: Path) -> None:
    table = _table(tmp_path)
    plan = whole_rows(table.snapshot)
    for source in changed_files(table.snapshot, [0, 1]):
        everything = _rows(read_positions(table.log.store, source.file, plan))
        assert _rows(rows_as_stored(table.log.store, source.file, plan)) == everything
        for expected in ([0], [2499, 2500, 9999], [7000], list(range(0, 10_000, 3)), []):
            places = np.array(expected, np.int64)
            assert _rows(rows_at(table.log.store, source.file, plan, places)) == [everything[i] for i in expected]


def test_strings_with_few_values_stay_dictionaries(tmp_path: Path) -> None:
    table = _table(tmp_path)
    (source, _) = changed_files(table.snapshot, [0, 1])
    with pa.OSFile(str(tmp_path / source.file.path)) as data:
        file = open_parquet(data)
        assert dictionary_columns(file.metadata, checked_footer(data, file)) == ["few"]
    _, batch = next(rows_as_stored(table.log.store, source.file, whole_rows(table.snapshot)))
    assert [f.name for f in batch.schema if pa.types.is_dictionary(f.type)] == ["few"]
    assert as_strings(batch).schema.field("few").type == pa.string()
    assert as_dictionaries(as_strings(batch), ["few"]).equals(batch)
    assert as_strings(as_strings(batch)).equals(as_strings(batch))


@pytest.mark.parametrize("feed", [True, False])
def test_copies_keep_dictionaries(tmp_path: Path, feed: bool) -> None:
    _table(tmp_path, properties={"delta.enableChangeDataFeed": "true"} if feed else None)
    opened(tmp_path).delete("id % 10 = 3")
    opened(tmp_path).update({"few": "concat(few, few)", "many": "'m'"}, "id % 10 = 4")
    result = opened(tmp_path).to_arrow().sort_by("id").to_pylist()
    expected = []
    for row in _data().to_pylist():
        few = row["few"]
        if row["id"] % 10 == 4:
            row = {**row, "few": few and few * 2, "many": "m"}
        if row["id"] % 10 != 3:
            expected.append(row)
    assert result == expected
    for add in opened(tmp_path).snapshot.adds.to_pylist():
        column = pq.read_metadata(tmp_path / add["path"]).row_group(0).column(1)
        assert column.path_in_schema == "few"
        assert column.has_dictionary_page
        stats = orjson.loads(add["stats"])
        rows = [r["few"] for r in expected if r["p"] == dict(add["partitionValues"])["p"]]
        strings = [t for t in rows if t is not None]
        assert (stats["numRecords"], stats["nullCount"]["few"]) == (len(rows), rows.count(None))
        assert (stats["minValues"]["few"], stats["maxValues"]["few"]) == (min(strings), max(strings))
    if feed:
        changes = opened(tmp_path).changes(1, 2)
        counts = {r["values"]: r["counts"] for r in changes["_change_type"].value_counts().to_pylist()}
        assert counts == {"delete": COUNT // 10, "update_preimage": COUNT // 10, "update_postimage": COUNT // 10}


def test_string_column_that_outgrows_its_dictionary(tmp_path: Path) -> None:
    _table(tmp_path)
    opened(tmp_path).update({"few": "concat(many, repeat('.', 300))"}, "id % 3 > 0")
    result = {r["id"]: r["few"] for r in opened(tmp_path).to_arrow(["id", "few"]).to_pylist()}
    expected = {r["id"]: r["many"] + "." * 300 if r["id"] % 3 else r["few"] for r in _data().to_pylist()}
    assert result == expected


def test_deleted_rows_stay_deleted(tmp_path: Path) -> None:
    _table(tmp_path, properties={"delta.enableDeletionVectors": "true"})
    opened(tmp_path).delete("id between 100 and 199 or id = 9999")
    trilake.alter(str(tmp_path)).set_properties({"delta.enableDeletionVectors": "false"})
    result = opened(tmp_path).delete("id = 5")
    assert (result.rows, result.metrics["numDeletionVectorsRemoved"]) == (1, 1)
    left = set(opened(tmp_path).to_arrow()["id"].to_pylist())
    assert left == set(range(COUNT)) - set(range(100, 200)) - {9999, 5}


def test_missing_and_damaged_files_are_errors(tmp_path: Path) -> None:
    table = _table(tmp_path)
    plan = whole_rows(table.snapshot)
    first, second = changed_files(table.snapshot, [0, 1])
    (tmp_path / first.file.path).unlink()
    path = tmp_path / second.file.path
    path.write_bytes(path.read_bytes()[:-100])
    expected = np.array([1], np.int64)
    for source, error in ((first, MissingFileError), (second, CorruptFileError)):
        with pytest.raises(error):
            list(rows_at(table.log.store, source.file, plan, expected))
        with pytest.raises(error):
            list(rows_as_stored(table.log.store, source.file, plan))
