"""Struct fields are matched by name by every command that adds rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.lance.small_datasets import begun, rows_of
from trilake import lance
from trilake.errors import SchemaMismatchError
from trilake.lance import LanceDataset

PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])


def nested(struct: pa.DataType, value: dict[str, Any]) -> pa.Table:
    columns = {"s": pa.array([value], struct), "l": pa.array([[value]], pa.list_(struct))}
    return pa.table({"id": pa.array([1], pa.int64()), **columns})


def append(ds: LanceDataset, rows: pa.Table) -> None:
    lance.write_dataset(rows.drop_columns(["id"]).add_column(0, "id", pa.array([2])), ds.uri, mode="append")


def append_batches(ds: LanceDataset, rows: pa.Table) -> None:
    ids = rows.drop_columns(["id"]).add_column(0, "id", pa.array([2]))
    lance.write_dataset(ids.to_batches(), ds.uri, mode="append", schema=ds.schema)


def merge(ds: LanceDataset, rows: pa.Table) -> None:
    ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def set_column(ds: LanceDataset, rows: pa.Table) -> None:
    other = begun(rows.rename_columns({"s": "s2", "l": "l2"}).append_column("s", ds.to_table()["s"]))
    other = lance.write_dataset(
        other.to_table().append_column("l", ds.to_table()["l"]), f"{ds.uri}-wide", mode="overwrite"
    )
    other.update({"s": "s2", "l": "l2"})
    merge(ds, other.to_table().select(["id", "s", "l"]))


CHANGES = pytest.mark.parametrize("change", [append, append_batches, merge, set_column])


@CHANGES
def test_struct_fields_are_matched_by_name(change: Any) -> None:
    ds = begun(nested(PAIR, {"a": 1, "b": "x"}))
    change(ds, nested(pa.struct([("b", pa.string()), ("a", pa.int64())]), {"a": 5, "b": "q"}))
    found = rows_of(lance.dataset(ds.uri))[-1]
    assert (found["s"], found["l"]) == ({"a": 5, "b": "q"}, [{"a": 5, "b": "q"}])


@CHANGES
@pytest.mark.parametrize("column", ["s", "l"])
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": 5, "b": "q", "z": 9}, "has a field z, which the column lacks"),
        ({"a": 5, "B": "q"}, "has a field B, which the column lacks"),
        ({"a": 5}, "has no field b, which the column has"),
    ],
)
def test_structs_with_other_fields_are_rejected_or_filled(
    change: Any, column: str, value: dict[str, Any], problem: str
) -> None:
    old = nested(PAIR, {"a": 1, "b": "x"})
    ds = begun(old, nulls="zero")
    struct = pa.struct([(n, pa.string() if n in "bB" else pa.int64()) for n in value])
    rows = old.set_column(old.schema.get_field_index(column), column, nested(struct, value)[column])
    if value == {"a": 5} and (change is append or (change is merge and column == "s")):
        change(ds, rows)
        filled: Any = {"a": 5, "b": None if change is append else "x"}
        assert rows_of(lance.dataset(ds.uri))[-1][column] == (filled if column == "s" else [filled])
        return
    with pytest.raises(SchemaMismatchError, match=rf"the struct for column {column}.* {problem}"):
        change(ds, rows)
    assert rows_of(lance.dataset(ds.uri)) == old.to_pylist()


def test_appended_structs_must_have_required_fields() -> None:
    required = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string(), nullable=False)])
    ds = begun(nested(required, {"a": 1, "b": "x"}))
    with pytest.raises(SchemaMismatchError, match="non-nullable"):
        append(ds, nested(pa.struct([("a", pa.int64())]), {"a": 5}))
    legacy = begun(nested(PAIR, {"a": 1, "b": "x"}), data_storage_version="legacy", nulls="zero")
    with pytest.raises(SchemaMismatchError, match="has no field b"):
        append(legacy, nested(pa.struct([("a", pa.int64())]), {"a": 5}))
