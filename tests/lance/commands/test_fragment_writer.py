"""Rows that do not fit the columns of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance as pylance
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import SchemaMismatchError

TEXT = pa.string()


def required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


X = pa.struct([required("x", TEXT)])
NULLS: list[tuple[pa.DataType, Any, str | None]] = [
    (X, {"x": None}, "c.x"),
    (X, None, None),
    (pa.struct([pa.field("y", X)]), {"y": {"x": None}}, "c.y.x"),
    (pa.struct([pa.field("y", X)]), {"y": None}, None),
    (pa.struct([required("y", pa.struct({"x": TEXT}))]), {"y": None}, "c.y"),
    (pa.list_(required("item", TEXT)), ["a", None], "c.item"),
    (pa.large_list(required("item", TEXT)), ["a", None], "c.item"),
    (pa.list_(required("item", TEXT)), None, None),
    (pa.list_(X), [{"x": "a"}, {"x": None}], "c.item.x"),
    (pa.list_(X), [{"x": "a"}, None], None),
    (pa.list_(required("item", pa.float32()), 2), [1, None], None),
    (pa.map_(TEXT, required("value", TEXT)), [("a", None)], "c.value"),
    (pa.map_(TEXT, required("value", TEXT)), None, None),
]


@pytest.mark.parametrize(("kind", "value", "path"), NULLS)
def test_null_inside_a_column_needs_a_nullable_field(
    tmp_path: Path, kind: pa.DataType, value: Any, path: str | None
) -> None:
    uri = str(tmp_path)
    lance.write_dataset(pa.table({"c": pa.array([], kind)}), uri)
    # The first rows are outside of the slice that is written.
    rows = pa.table({"c": pa.array([value, value, None, value], kind).slice(2)})
    if path is None:
        lance.write_dataset(rows, uri, mode="append")
        assert lance.dataset(uri).to_table()["c"].to_pylist() == [None, value]
        return
    with pytest.raises(SchemaMismatchError, match="not nullable, but 1 of") as caught:
        lance.write_dataset(rows, uri, mode="append")
    assert caught.value.context["column"] == path
    with pytest.raises(OSError, match="contained null values"):
        pylance.write_dataset(pa.table({"c": pa.array([None, value], kind)}), uri, mode="append")
    assert lance.dataset(uri).count_rows() == 0
