"""Columns that are SQL expressions, ``columns={"name": "SQL"}``; values are those of pylance 14.0.2."""

from __future__ import annotations

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
def made(tmp_path: Path) -> LanceDataset:
    return lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2, max_rows_per_group=2)


def test_columns_of_scans(made: LanceDataset) -> None:
    table = made.to_table(columns={"y": "x * 2", "id": "id", "l": "length(s)", "e": "note.email"})
    assert table.to_pydict() == {
        "y": [3.0, 5.0, 7.0, 9.0],
        "id": [1, 2, 3, 4],
        "l": [2, 1, None, 2],
        "e": ["e1", "e2", "e3", "e4"],
    }
    assert table.schema.types == [pa.float64(), pa.int64(), pa.int32(), pa.string()]
    scanner = made.scanner(columns={"y": "x*2"}, filter="id > 2", limit=1, with_row_id=True)
    assert scanner.to_table().to_pylist() == [{"y": 7.0, "_rowid": 1 << 32}]
    assert (scanner.projected_schema.names, scanner.count_rows()) == (["y", "_rowid"], 1)
    assert "ProjectionExec: expr=[x*2 as y, _rowid as _rowid]" in scanner.explain_plan()
    assert made.to_table(columns={"c": "1", "again": "id"}, limit=2).to_pydict() == {"c": [1, 1], "again": [1, 2]}
    assert made.to_table(columns={"c": "'k'"}).to_pydict() == {"c": ["k"] * 4}
    assert made.to_table(columns={"r": "_rowid"}, filter="id > 3").to_pylist() == [{"r": (1 << 32) + 1}]
    assert made.to_table(columns={"w": "v", "s": "note"}, limit=1).to_pylist() == [
        {"w": [0.0, 1.0], "s": {"email": "e1"}}
    ]


def test_columns_of_searches(made: LanceDataset) -> None:
    doubled = made.to_table(columns={"id": "id", "d": "_distance * 2"}, nearest=NEAREST)
    assert doubled.to_pylist() == [
        {"id": 1, "d": 2.0, "_distance": 1.0},
        {"id": 2, "d": 26.0, "_distance": 13.0},
    ]
    named = made.to_table(columns={"_distance": "_distance", "id": "id"}, nearest=NEAREST, with_row_id=True)
    assert named.schema.names == ["_distance", "id", "_rowid"]


def test_columns_of_single_rows(made: LanceDataset) -> None:
    made.delete("id = 1")
    columns = {"y": "x + id", "r": "_rowid"}
    assert made.take([2, 0], columns).to_pylist() == [{"y": 8.5, "r": (1 << 32) + 1}, {"y": 4.5, "r": 1}]
    assert made.scanner(columns=columns).take([1]).to_pylist() == [{"y": 6.5, "r": 1 << 32}]
    assert made.head(1, columns=columns).to_pylist() == made.scanner(columns=columns).head(1).to_pylist()
    second = made.get_fragments()[1]
    assert second.take([1], columns).to_pylist() == [{"y": 8.5, "r": (1 << 32) + 1}]
    assert second.to_table(columns={"y": "x"}).to_pylist() == [{"y": 3.5}, {"y": 4.5}]
    assert [b.record_batch.to_pylist() for b in made.scanner(columns={"y": "id"}).scan_batches()] == [
        [{"y": 2}],
        [{"y": 3}, {"y": 4}],
    ]
    assert made.sample(3, {"n": "id * 10"}, randomize_order=False).to_pydict() == {"n": [20, 30, 40]}


def test_a_column_of_the_datasets_may_have_any_name() -> None:
    odd = lance.write_dataset(pa.table({"a b": [1], "_rowid": [7]}), "memory://projection-names", mode="overwrite")
    assert odd.to_table(columns={"n": "a b", "m": "`a b` + 1", "r": "_rowid"}).to_pylist() == [{"n": 1, "m": 2, "r": 7}]


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ({}, InvalidArgumentError, "no column to return"),
        ({"y": "nope + 1"}, ExpressionError, "no column 'nope'"),
        ({"y": "sum(x)"}, ExpressionError, "aggregate"),
        ({"y": "_distance"}, ExpressionError, "no column '_distance'"),
        ({"y": "10 / (id - 1)"}, ExpressionError, "zero"),
        ({"y": "x ++"}, TrilakeError, "parsed"),
        ({"y": 3}, TypeError, "made of 3"),
    ],
)
def test_columns_that_cannot_be(made: LanceDataset, columns: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        made.to_table(columns=columns)


def test_row_groups_are_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    many = lance.write_dataset(ROWS.take(np.arange(400) % 4), "memory://projection-groups", max_rows_per_group=4)
    calls: list[int] = []

    def counted(expressions: Any, rows: Any) -> Any:
        calls.append(rows.num_rows)
        return evaluate_all(expressions, rows)

    monkeypatch.setattr("trilake.lance.scan.projection.evaluate_all", counted)
    assert many.to_table(columns={"n": "id + 1"})["n"].to_pylist() == [2, 3, 4, 5] * 100
    assert calls == [400]
