"""Variants in rows from other libraries."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import new_uri

#: A variant as other libraries show it.
_PARTS = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
_SEVEN = {"value": b"\x0c\x07", "metadata": b"\x01\0\0"}


@pytest.mark.parametrize(
    ("names", "kind"),
    [(["metadata", "value"], pa.binary_view()), (["value", "metadata"], pa.binary())],
)
def test_unmarked_variants_are_written_to_variant_columns(names: list[str], kind: pa.DataType, tmp_path: Path) -> None:
    trilake.create(tmp_path, {"n": "bigint", "v": "variant", "l": "array<variant>"})
    one, two = ({"metadata": b"\x01\0\0", "value": bytes([12, n])} for n in (1, 2))
    type_ = pa.struct([pa.field(name, kind, False) for name in names])
    given = pa.table({"n": [1, 2], "v": pa.array([one, None], type_), "l": pa.array([[two], None], pa.list_(type_))})
    for mode in ("append", "overwrite"):
        trilake.write(given, tmp_path, mode=mode)
    source = given.slice(1).set_column(1, "v", pa.array([two], type_))
    merge = trilake.open(tmp_path).merge(source, "target.n = source.n")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    rows = trilake.open(tmp_path).to_arrow().sort_by("n").to_pylist()
    assert rows == [{"n": 1, "v": one, "l": [two]}, {"n": 2, "v": two, "l": None}]
    kept = deltalake.DeltaTable(tmp_path)
    trilake.write(
        deltalake.QueryBuilder().register("t", kept).execute("SELECT * FROM t").read_all(), tmp_path, mode="append"
    )
    assert trilake.open(tmp_path).to_arrow().num_rows == 4
    trilake.write(given, tmp_path, mode="overwrite", schema_mode="overwrite")
    assert "variant" not in trilake.open(tmp_path).metadata.schema_string, "they take the type of the rows"


@pytest.mark.parametrize("kind", ["variant", "struct<v: variant, n: int>", "struct<s: struct<v: variant>>"])
@pytest.mark.parametrize("data_format", ["parquet", "lance"])
def test_missing_variants_are_null(kind: str, data_format: str) -> None:
    uri = new_uri()
    trilake.create(uri, {"id": "bigint", "c": kind}, data_format=data_format)
    trilake.write(pa.table({"id": [1]}), uri, mode="append")
    trilake.write(pa.table({"id": [2], "c": pa.nulls(1)}), uri, mode="append")
    table = trilake.open(uri)
    table.update({"c": "NULL"}, "id = 2")
    merge = table.merge(pa.table({"id": [2, 3, 4]}), "t.id = s.id", "s", "t").when_matched_update({"c": "NULL"})
    merge = merge.when_not_matched_insert({"id": "s.id"}, "s.id = 3")
    merge.when_not_matched_insert({"id": "s.id", "c": "NULL"}).execute()
    assert table.refresh().to_arrow().sort_by("id").to_pylist() == [{"id": n, "c": None} for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("properties", [{}, {"delta.enableDeletionVectors": "true"}])
def test_new_variant_columns_of_rewritten_files_are_null(properties: dict[str, str]) -> None:
    uri = new_uri()
    trilake.write(pa.table({"id": [1, 2, 3]}), uri, properties=properties)
    trilake.alter(uri).add_columns({"c": "variant", "s": "struct<v: variant>"})
    table = trilake.open(uri)
    table.update({"id": "id + 10"}, "id = 1")
    table.delete("id = 2")
    trilake.write(pa.table({"id": [4], "c": pa.array([_SEVEN], _PARTS)}), uri, mode="append")
    table.optimize()
    assert table.refresh().to_arrow().sort_by("id").to_pylist() == [
        {"id": 3, "c": None, "s": None},
        {"id": 4, "c": _SEVEN, "s": None},
        {"id": 11, "c": None, "s": None},
    ]
