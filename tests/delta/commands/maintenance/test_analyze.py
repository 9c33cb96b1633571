"""Missing statistics are computed once, without changing rows."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import opened
from trilake.delta.commands.maintenance.analyze import check_columns, compute_statistics
from trilake.errors import InvalidArgumentError


def _rows() -> pa.Table:
    nested = pa.array([{"x": 1, "y": b"b"}, {"x": None, "y": None}, None])
    return pa.table({"n": [1, 2, None], "s": nested, "l": [[1], [], None], "p": ["a b", "c", "c"]})


def _without_statistics(path: Path, version: int, fields: dict[str, object] | None) -> None:
    """Remove the statistics of a commit's files, as some engines omit them."""
    file = path / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = None if fields is None else json.dumps(fields)
    file.write_text("".join(json.dumps(a) + "\n" for a in actions))
    (path / "_delta_log" / f"{version:020d}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("fields", [None, {"numRecords": 3}, {"numRecords": 3, "nullCount": {"n": 1}}])
def test_missing_statistics_are_computed_from_rows(
    tmp_path: Path, mapping: str, fields: dict[str, object] | None
) -> None:
    properties = {"delta.columnMapping.mode": mapping, "delta.enableDeletionVectors": "true"}
    trilake.write(_rows(), tmp_path, partition_by="p", properties=properties)
    stated = {a["path"]: json.loads(a["stats"]) for a in opened(tmp_path).snapshot.adds.to_pylist()}
    _without_statistics(tmp_path, 0, fields)
    before = opened(tmp_path)
    assert compute_statistics(before.log).num_files == 2
    after = opened(tmp_path)
    assert {a["path"]: json.loads(a["stats"]) for a in after.snapshot.adds.to_pylist()} == stated
    assert after.to_arrow().sort_by("p").equals(before.to_arrow().sort_by("p"))
    assert compute_statistics(after.log).num_files == 0
    assert opened(tmp_path).version == 1
    assert compute_statistics(after.log, everything=True).num_files == 2


def test_deleted_rows_count_and_bounds_are_not_tight(tmp_path: Path) -> None:
    trilake.write(pa.table({"n": [1, 2, 3]}), tmp_path, properties={"delta.enableDeletionVectors": "true"})
    opened(tmp_path).delete("n = 3")
    compute_statistics(opened(tmp_path).log, everything=True)
    [file] = opened(tmp_path).snapshot.adds.to_pylist()
    stats = json.loads(file["stats"])
    assert (stats["numRecords"], stats["maxValues"], stats["tightBounds"]) == (3, {"n": 3}, False)
    assert opened(tmp_path).to_arrow()["n"].to_pylist() == [1, 2]


def test_computed_double_statistics_enable_skipping(tmp_path: Path) -> None:
    for x in ([1.0, 2.0], [1.0, float("nan")]):
        deltalake.write_deltalake(str(tmp_path), pa.table({"x": x}), mode="append")
    assert len(opened(tmp_path).explain("x > 5").kept) == 2
    assert compute_statistics(opened(tmp_path).log, everything=True).num_files == 2
    table = opened(tmp_path)
    assert len(table.explain("x > 5").kept) == 1
    assert table.count("x > 5") == 1  # NaN, which is above all numbers in Spark
    assert set(table.explain("x < 1").files["kept"].to_pylist()) == {False}
    assert deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 4


def test_columns_without_statistics_are_rejected(tmp_path: Path) -> None:
    trilake.write(_rows(), tmp_path, partition_by="p", properties={"delta.dataSkippingStatsColumns": "n"})
    snapshot = opened(tmp_path).snapshot
    check_columns(snapshot, [("N",), ("p",)])
    for path, message in (
        (("s", "x"), "no statistics are collected"),
        (("s",), "no statistics are collected for column s"),
        (("nope",), "no column 'nope'"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            check_columns(snapshot, [path])
