"""Data files never have void columns or fields."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import parquet, rows, table_of
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import SchemaMismatchError
from trilake.parquet.untyped import has_untyped
from trilake.storage import open_store

VOID = pa.null()
PART = pa.struct([("a", pa.int64()), ("v", VOID)])
COLUMNS = {
    "v": pa.nulls(2),
    "s": pa.array([{"a": 1, "v": None}, None], PART),
    "l": pa.array([[{"a": 1, "v": None}, None], []], pa.list_(PART)),
    "m": pa.array([[("k", {"a": 1, "v": None})], None], pa.map_(pa.string(), PART)),
    "deep": pa.array([{"s": {"a": 1, "v": None}}, {"s": None}], pa.struct([("s", PART)])),
}
#: Types whose values cannot be stored.
UNTYPED = {
    "array": (pa.list_(VOID), []),
    "map": (pa.map_(pa.string(), VOID), [("k", None)]),
    "struct": (pa.struct([("b", VOID)]), {"b": None}),
}


def stored_schemas(uri: str) -> list[pa.Schema]:
    """The schemas of the files of the newest version and of the change feed."""
    table = trilake.open(uri)
    assert isinstance(table, ArrowDeltaTable)
    store = open_store(uri)
    changes = [o.key for o in store.list("_change_data/")]
    keys = [*table.snapshot.adds["path"].to_pylist(), *changes]
    return [pq.read_schema(io.BytesIO(bytes(store.read(k)))) for k in keys]


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_no_void_is_written_at_any_depth(mode: str, request: pytest.FixtureRequest) -> None:
    uri = f"memory://{request.node.name}"
    data = pa.table({"i": [1, 2], **COLUMNS})
    properties = {"delta.enableChangeDataFeed": "true"}
    trilake.write(data, uri, properties=properties if mode == "none" else {"delta.columnMapping.mode": mode})
    assert trilake.open(uri).to_arrow().cast(data.schema) == data
    trilake.write(data.slice(0, 1), uri, mode="append")
    table = trilake.open(uri)
    assert isinstance(table, ArrowDeltaTable)
    table.update({"i": "i + 10"}, where="i = 2")
    table.merge(pa.table({"i": [1], "v": pa.nulls(1)}), "target.i = source.i").when_matched_update(
        {"v": "source.v", "i": "target.i + 20"}
    ).execute()
    table.optimize()
    schemas = stored_schemas(uri)
    assert schemas
    assert not any(map(has_untyped, schemas))
    assert sorted(trilake.open(uri).to_arrow()["i"].to_pylist()) == [12, 21, 21]
    assert trilake.open(uri).to_arrow(filter="v IS NULL AND s.v IS NULL").num_rows == 3


@pytest.mark.parametrize("kind", UNTYPED)
def test_new_column_of_untyped_values_is_rejected(kind: str, request: pytest.FixtureRequest) -> None:
    uri = f"memory://{request.node.name}"
    type_, value = UNTYPED[kind]
    data = pa.table({"i": [1], "x": pa.array([value], type_)})
    with pytest.raises(SchemaMismatchError, match="column x has type ") as rejected:
        trilake.write(data, uri)
    assert rejected.value.context["column"] == "x"
    nested = pa.table({"i": [1], "s": pa.array([{"a": 1, "x": value}], pa.struct([("a", pa.int64()), ("x", type_)]))})
    with pytest.raises(SchemaMismatchError, match=r"column s\.x has type "):
        trilake.write(nested, uri)
    trilake.write({"i": [1]}, uri)
    with pytest.raises(SchemaMismatchError, match="column x has type "):
        trilake.write(data, uri, mode="append", schema_mode="merge")


@pytest.mark.parametrize("kind", UNTYPED)
def test_untyped_values_never_become_nulls(kind: str) -> None:
    """A table of another writer may have such a column; rows are written only if it is null."""
    type_, value = UNTYPED[kind]
    outer = pa.struct([("a", pa.int64()), ("x", type_)])
    first = pa.table({"i": [1], "x": pa.array([value], type_), "s": pa.array([{"a": 1, "x": value}], outer)})
    table = table_of(first)
    assert rows(table.to_arrow()) == first.to_pylist()
    uri = table.uri
    trilake.write(pa.table({"i": [2], "x": pa.nulls(1, type_), "s": pa.nulls(1, outer)}), uri, mode="append")
    with pytest.raises(SchemaMismatchError, match="column x has type "):
        trilake.write(first, uri, mode="append")
    with pytest.raises(SchemaMismatchError, match=r"column s\.x has type "):
        trilake.write(first.drop_columns("x"), uri, mode="append")
    assert trilake.open(uri).to_arrow().num_rows == 2


def test_table_with_only_void_columns_is_rejected() -> None:
    with pytest.raises(SchemaMismatchError, match="would have type void, which files cannot store: "):
        trilake.write({"p": [1], "v": pa.nulls(1)}, "memory://void-alone", partition_by="p")


def _old_file(columns: pa.Table) -> bytes:
    return parquet(columns, store_schema=False)


TYPED: dict[str, Any] = {
    "string": "x",
    "boolean": True,
    "array": [1],
    "struct": {"a": 1},
}


@pytest.mark.parametrize("kind", TYPED)
def test_files_with_void_columns_are_changed_once_typed(kind: str) -> None:
    old = pa.table({"i": [1, 2], "v": pa.nulls(2), "s": pa.array([{"a": 1, "v": None}, None], PART)})
    table = table_of(_old_file(old), schema=old.schema)
    new = pa.table({"i": [3], "v": pa.array([TYPED[kind]]), "s": pa.array([{"a": 3, "v": TYPED[kind]}])})
    trilake.write(new, table.uri, mode="append", schema_mode="merge")
    table = trilake.open(table.uri)
    assert isinstance(table, ArrowDeltaTable)
    expected = old.to_pylist() + new.to_pylist()
    assert rows(table.to_arrow()) == sorted(expected, key=repr)
    assert table.to_arrow(filter="v IS NOT NULL").num_rows == 1
    table.delete("i = 2")
    table.update({"i": "i + 10"}, where="i = 1")
    table = trilake.open(table.uri)
    assert sorted(table.to_arrow()["i"].to_pylist()) == [3, 11]
    store = open_store(table.uri)
    live = table.snapshot.adds["path"].to_pylist()  # type: ignore[attr-defined]
    assert not any(has_untyped(pq.read_schema(io.BytesIO(bytes(store.read(k))))) for k in live)


def test_null_file_before_typed_file_converts(tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": [1], "s": pa.nulls(1), "l": pa.nulls(1)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"i": [2], "s": ["x"], "l": [[1, 2]]}), tmp_path / "b.parquet")
    trilake.convert_to_delta(str(tmp_path))
    expected = [{"i": 1, "s": None, "l": None}, {"i": 2, "s": "x", "l": [1, 2]}]
    assert rows(trilake.open(tmp_path).to_arrow()) == expected
    assert rows(trilake.sql(f"SELECT * FROM delta.`{tmp_path}`")) == expected
