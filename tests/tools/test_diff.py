"""``diff`` of two tables, or of two versions of one."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import trilake
from trilake.errors import InvalidArgumentError


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    return f"memory://diff-{request.node.name}"


def test_diff_versions_by_key(place: str) -> None:
    trilake.write(pa.table({"id": [1, 2, 3, 4], "n": [1, 2, 3, 4], "s": ["a", "b", "c", None]}), place)
    table = trilake.open(place)
    table.update({"n": "n + 1", "s": "'z'"}, "id = 2")
    table.delete("id = 3")
    trilake.write(pa.table({"id": [9], "n": [9], "s": ["q"]}), place, mode="append")
    found = trilake.diff(place, before_version=0, key="id")
    rows = found.rows
    assert rows is not None
    assert (rows.added, rows.removed, rows.changed, rows.same) == (1, 1, 1, 2)
    assert rows.columns_changed == {"n": 1, "s": 1}
    assert rows.added_rows.to_pylist() == [{"id": 9, "n": 9, "s": "q"}]
    assert rows.removed_rows.to_pylist() == [{"id": 3, "n": 3, "s": "c"}]
    assert rows.changed_rows.sort_by("n").to_pylist() == [
        {"id": 2, "n": 2, "s": "b", "_side": "before"},
        {"id": 2, "n": 3, "s": "z", "_side": "after"},
    ]
    assert not found.equal
    assert (found.before.version, found.after.version) == (0, 3)
    json.loads(found.to_json())


def test_whole_row_diff_counts_duplicates(place: str) -> None:
    trilake.write(pa.table({"n": [1, 1, 2, None]}), place)
    trilake.write(pa.table({"n": [1, 2, 2, None]}), place, mode="overwrite")
    rows = trilake.diff(place, before_version=0).rows
    assert rows is not None
    assert (rows.added, rows.removed, rows.same, rows.changed) == (1, 1, 3, 0)
    assert rows.added_rows["n"].to_pylist() == [2]
    assert rows.removed_rows["n"].to_pylist() == [1]


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_tables_of_two_formats(format: str, place: str) -> None:
    data = pa.table({"n": [1, 2, 3], "s": ["a", "b", "c"]})
    trilake.write(data, f"{place}-a")
    trilake.write(data.slice(0, 2), f"{place}-b", format=format)
    found = trilake.diff(f"{place}-a", f"{place}-b")
    assert found.rows is not None
    assert (found.rows.added, found.rows.removed, found.rows.same) == (0, 1, 2)
    assert found.after.format == format
    assert found.files.same == 0


def test_schema_properties_and_files(place: str) -> None:
    trilake.write(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}), place)
    trilake.alter(place).set_properties({"delta.appendOnly": "false"})
    trilake.write(pa.table({"c": [1.5], "a": pa.array([2], pa.int32())}), place, mode="append", schema_mode="merge")
    found = trilake.diff(place, before_version=0, rows=False)
    assert [(c.column, c.kind) for c in found.schema] == [("c", "added")]
    assert [(p.key, p.before, p.after) for p in found.properties] == [("delta.appendOnly", None, "false")]
    assert (found.files.added.num_rows, found.files.removed.num_rows, found.files.same) == (1, 0, 1)
    assert found.rows is None
    assert "<script>" not in found._repr_html_()


def test_equal_tables_have_no_differences(place: str) -> None:
    trilake.write(pa.table({"n": [1, 2]}), place)
    table = trilake.open(place)
    assert table.diff(table).equal
    assert table.diff(table, key="n", filter="n > 1").rows.same == 1  # type: ignore[union-attr]


def test_incomparable_tables_are_rejected(place: str) -> None:
    trilake.write(pa.table({"k": [1, 1], "n": [1, 2]}), place)
    with pytest.raises(InvalidArgumentError, match="is not unique"):
        trilake.diff(place, place, key="k")
    with pytest.raises(InvalidArgumentError, match="'x'"):
        trilake.diff(place, place, key="x")
    with pytest.raises(InvalidArgumentError, match="limit"):
        trilake.diff(place, place, limit=-1)
    with pytest.raises(InvalidArgumentError, match="got an open table"):
        trilake.diff(trilake.open(place), place, before_version=0)
    with pytest.raises(InvalidArgumentError, match="nothing to compare"):
        trilake.diff(trilake.open(place))
    with pytest.raises(InvalidArgumentError, match="columns must not be empty"):
        trilake.diff(place, place, columns=[])
    for how in ({"key": "k"}, {"columns": ["k"]}):
        with pytest.raises(InvalidArgumentError, match="no effect with rows=False"):
            trilake.diff(place, place, rows=False, **how)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="both tables are open"):
        trilake.diff(trilake.open(place), trilake.open(place), format="delta")
