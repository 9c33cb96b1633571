"""Columns that are SQL expressions, ``columns={"name": "SQL"}``; expected values are from pylance 14.0.2."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import ExpressionError, InvalidArgumentError, TrilakeError
from trilake.expr import evaluate_all
from trilake.lance import LanceDataset

ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "s": ["ab", "b", None, "ad"],
        "x": [1.5, 2.5, 3.5, 4.5],
        "note": [{"email": f"e{i}"} for i in range(1, 5)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8), pa.float32()), 2),
    }
)
NEAREST = {"column": "v", "q": [0, 0], "k": 2}


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    return lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2, max_rows_per_group=2)


def test_scan_expressions(dataset: LanceDataset) -> None:
    table = dataset.to_table(columns={"y": "x * 2", "id": "id", "l": "length(s)", "e": "note.email"})
    assert table.to_pydict() == {
        "y": [3.0, 5.0, 7.0, 9.0],
        "id": [1, 2, 3, 4],
        "l": [2, 1, None, 2],
        "e": ["e1", "e2", "e3", "e4"],
    }
    assert table.schema.types == [pa.float64(), pa.int64(), pa.int32(), pa.string()]
    scanner = dataset.scanner(columns={"y": "x*2"}, filter="id > 2", limit=1, with_row_id=True)
    assert scanner.to_table().to_pylist() == [{"y": 7.0, "_rowid": 1 << 32}]
    assert (scanner.projected_schema.names, scanner.count_rows()) == (["y", "_rowid"], 1)
    assert "ProjectionExec: expr=[x*2 as y, _rowid as _rowid]" in scanner.explain_plan()
    assert dataset.to_table(columns={"c": "1", "again": "id"}, limit=2).to_pydict() == {"c": [1, 1], "again": [1, 2]}
    assert dataset.to_table(columns={"c": "'k'"}).to_pydict() == {"c": ["k"] * 4}
    assert dataset.to_table(columns={"r": "_rowid"}, filter="id > 3").to_pylist() == [{"r": (1 << 32) + 1}]
    assert dataset.to_table(columns={"w": "v", "s": "note"}, limit=1).to_pylist() == [
        {"w": [0.0, 1.0], "s": {"email": "e1"}}
    ]


def test_list_index_past_the_end_is_null(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"l": [["a", "b"], ["c"], [], None]}), tmp_path / "lists")
    columns = {"first": "l[1]", "second": "l[2]", "far": "l[9]"}
    assert dataset.to_table(columns=columns).to_pydict() == {
        "first": ["a", "c", None, None],
        "second": ["b", None, None, None],
        "far": [None] * 4,
    }


def test_search_expressions(dataset: LanceDataset) -> None:
    doubled = dataset.to_table(columns={"id": "id", "d": "_distance * 2"}, nearest=NEAREST)
    assert doubled.to_pylist() == [
        {"id": 1, "d": 2.0, "_distance": 1.0},
        {"id": 2, "d": 26.0, "_distance": 13.0},
    ]
    named = dataset.to_table(columns={"_distance": "_distance", "id": "id"}, nearest=NEAREST, with_row_id=True)
    assert named.schema.names == ["_distance", "id", "_rowid"]


def test_take_expressions(dataset: LanceDataset) -> None:
    dataset.delete("id = 1")
    columns = {"y": "x + id", "r": "_rowid"}
    assert dataset.take([2, 0], columns).to_pylist() == [{"y": 8.5, "r": (1 << 32) + 1}, {"y": 4.5, "r": 1}]
    assert dataset.scanner(columns=columns).take([1]).to_pylist() == [{"y": 6.5, "r": 1 << 32}]
    assert dataset.head(1, columns=columns).to_pylist() == dataset.scanner(columns=columns).head(1).to_pylist()
    second = dataset.get_fragments()[1]
    assert second.take([1], columns).to_pylist() == [{"y": 8.5, "r": (1 << 32) + 1}]
    assert second.to_table(columns={"y": "x"}).to_pylist() == [{"y": 3.5}, {"y": 4.5}]
    assert [b.record_batch.to_pylist() for b in dataset.scanner(columns={"y": "id"}).scan_batches()] == [
        [{"y": 2}],
        [{"y": 3}, {"y": 4}],
    ]
    assert dataset.sample(3, {"n": "id * 10"}, randomize_order=False).to_pydict() == {"n": [20, 30, 40]}


def test_dataset_column_may_have_any_name() -> None:
    odd = lance.write_dataset(pa.table({"a b": [1], "_rowid": [7]}), "memory://projection-names", mode="overwrite")
    assert odd.to_table(columns={"n": "a b", "m": "`a b` + 1", "r": "_rowid"}).to_pylist() == [{"n": 1, "m": 2, "r": 7}]


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ({}, InvalidArgumentError, "at least one column"),
        ({"y": "nope + 1"}, ExpressionError, "column 'nope' not found"),
        ({"y": "sum(x)"}, ExpressionError, "aggregate"),
        ({"y": "_distance"}, ExpressionError, "column '_distance' not found"),
        ({"y": "10 / (id - 1)"}, ExpressionError, "zero"),
        ({"y": "x ++"}, TrilakeError, "parsed"),
        ({"y": 3}, TypeError, "got 3"),
    ],
)
def test_invalid_expressions_are_rejected(
    dataset: LanceDataset, columns: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        dataset.to_table(columns=columns)


def test_row_groups_are_evaluated_together(monkeypatch: pytest.MonkeyPatch) -> None:
    many = lance.write_dataset(ROWS.take(np.arange(400) % 4), "memory://projection-groups", max_rows_per_group=4)
    calls: list[int] = []

    def counted(expressions: Any, rows: Any) -> Any:
        calls.append(rows.num_rows)
        return evaluate_all(expressions, rows)

    monkeypatch.setattr("trilake.lance.scan.projection.evaluate_all", counted)
    assert many.to_table(columns={"n": "id + 1"})["n"].to_pylist() == [2, 3, 4, 5] * 100
    assert calls == [400]


_COUNT = count()


@pytest.fixture
def addressed() -> lance.LanceDataset:
    """Two fragments with a row deleted in each: of the ids 0 to 6, 2 and 5 are deleted."""
    rows = pa.table(
        {"id": range(7), "s": [{"a": i, "b": str(i)} for i in range(7)]},
        schema=pa.schema(
            [("id", pa.int64()), ("s", pa.struct([("a", pa.int64()), ("b", pa.string())]))], metadata={"k": "v"}
        ),
    )
    uri = f"memory://projection-addresses-{next(_COUNT)}"
    ds = lance.write_dataset(rows, uri, max_rows_per_file=4)
    ds.delete("id IN (2, 5)")
    return ds


@pytest.mark.parametrize(
    "columns",
    [
        ["_rowid"],
        ["_rowaddr"],
        ["_rowaddr", "_rowid"],
        ["_rowid", "id"],
        ["id", "_rowaddr", "s"],
        ["s.b", "_rowid", "id"],
    ],
)
def test_requested_row_ids_are_columns(addressed: lance.LanceDataset, columns: list[str]) -> None:
    ids = [0, 1, 3, 1 << 32, (1 << 32) + 2]
    got = addressed.to_table(columns)
    assert (got.schema.names, got.schema.metadata) == (columns, {b"k": b"v"})
    for name in {"_rowid", "_rowaddr"}.intersection(columns):
        assert (got[name].type, got[name].to_pylist()) == (pa.uint64(), ids)
    if "id" in columns:
        assert got["id"].to_pylist() == [0, 1, 3, 4, 6]
    if "s.b" in columns:
        assert got["s.b"].to_pylist()[1] == "1"
    assert addressed.scanner(columns).projected_schema == got.schema
    assert addressed.take([4, 0], columns).to_pylist() == got.take([4, 0]).to_pylist()
    assert addressed._take_rows([ids[4], ids[0]], columns).to_pylist() == got.take([4, 0]).to_pylist()
    assert addressed.get_fragments()[1].take([1], columns).to_pylist() == got.take([4]).to_pylist()
    assert addressed.to_table(columns, filter="id = 6").to_pylist() == got.take([4]).to_pylist()
    assert addressed.scanner(columns).count_rows() == 5
    assert addressed.head(2, columns=columns).to_pylist() == got.slice(0, 2).to_pylist()
    assert pa.Table.from_batches(addressed.to_batches(columns, batch_size=1)).to_pylist() == got.to_pylist()


def test_addresses_of_rows_come_last(addressed: lance.LanceDataset) -> None:
    both: dict[str, Any] = {"with_row_id": True, "with_row_address": True}
    assert addressed.to_table(["id"], with_row_address=True).schema.names == ["id", "_rowaddr"]
    assert addressed.to_table(**both).schema.names == ["id", "s", "_rowid", "_rowaddr"]
    assert addressed.take([0], ["_rowaddr", "id"], **both).schema.names == ["_rowaddr", "id", "_rowid"]
    assert addressed.to_table({"n": "id + 1"}, **both).schema.names == ["n", "_rowid", "_rowaddr"]
    assert addressed.to_pandas(["id"], with_row_address=True)["_rowaddr"].tolist()[3] == 1 << 32


def test_distance_column_keeps_the_requested_position() -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([float(i) for i in range(8)], pa.float32()), 2)
    ds = lance.write_dataset(pa.table({"id": range(4), "v": vectors}), "memory://projection-near", mode="overwrite")
    near = {"column": "v", "q": [2.0, 3.0], "k": 2}
    got = ds.to_table(["_distance", "_rowid", "id"], nearest=near)
    assert got.to_pydict() == {"_distance": [0.0, 8.0], "_rowid": [1, 0], "id": [1, 0]}
    assert ds.to_table(["id", "_rowaddr"], nearest=near).schema.names == ["id", "_rowaddr", "_distance"]
    assert ds.to_table(["_distance"], nearest=near, filter="_rowid = 0").to_pydict() == {"_distance": [8.0]}
    several = {"column": "v", "q": [[2.0, 3.0], [0.0, 1.0]], "k": 1}
    for search, first in ((near, []), (several, ["query_index"])):
        for columns, names in ((["id"], ["id"]), (["_distance"], ["_distance"]), ({"x": "_distance"}, ["x"])):
            for ids in ([], ["_rowid"], ["_rowaddr"]):
                more = {"with_row_id": "_rowid" in ids, "with_row_address": "_rowaddr" in ids}
                got = ds.to_table(columns, nearest=search, disable_scoring_autoprojection=True, **more)
                assert (got.schema.names, len(got)) == ([*first, *names, *ids], 2)
    assert ds.to_table(["_distance", "query_index"], nearest=several).schema.names == ["query_index", "_distance"]


def test_stored_column_named_rowid_is_a_column() -> None:
    ds = lance.write_dataset(pa.table({"_rowaddr": ["a", "b"]}), "memory://projection-own", mode="overwrite")
    assert ds.to_table(["_rowaddr"]).to_pydict() == {"_rowaddr": ["a", "b"]}
    assert ds.to_table(["_rowaddr", "_rowid"]).to_pydict() == {"_rowaddr": ["a", "b"], "_rowid": [0, 1]}
