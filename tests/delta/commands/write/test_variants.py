"""Variants in rows from other libraries."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import trilake


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
