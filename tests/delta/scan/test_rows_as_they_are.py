"""Rows of files with the table's layout pass through unchanged; all others are converted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake

_AS_IT_IS = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.string())]))])
_LIKE_IT = {
    "as it is": _AS_IT_IS,
    "with metadata": _AS_IT_IS.with_metadata({"pandas": "{}"}),
    "with metadata of a column": pa.schema([_AS_IT_IS.field(0).with_metadata({"k": "v"}), _AS_IT_IS.field(1)]),
    "required": pa.schema([_AS_IT_IS.field(0).with_nullable(False), _AS_IT_IS.field(1)]),
    "required below": pa.schema([_AS_IT_IS.field(0), ("s", pa.struct([pa.field("x", pa.string(), False)]))]),
    "narrower": pa.schema([("a", pa.int32()), _AS_IT_IS.field(1)]),
    "other order": pa.schema([_AS_IT_IS.field(1), _AS_IT_IS.field(0)]),
    "other case": pa.schema([("A", pa.int64()), _AS_IT_IS.field(1)]),
    "views": pa.schema([_AS_IT_IS.field(0), ("s", pa.struct([("x", pa.string_view())]))]),
    "more columns": pa.schema([*_AS_IT_IS, ("more", pa.int8())]),
}


@pytest.mark.parametrize("schema", _LIKE_IT.values(), ids=_LIKE_IT.keys())
def test_rows_have_the_table_schema(tmp_path: Path, schema: pa.Schema) -> None:
    rows = [{"a": n, "A": n, "s": {"x": str(n)}, "more": n} for n in (1, 2)]
    trilake.write(pa.Table.from_pylist(rows, _AS_IT_IS), tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema), file)
    table = trilake.open(tmp_path)
    for columns, expected in ((None, _AS_IT_IS), (["s", "a"], pa.schema([_AS_IT_IS.field(1), _AS_IT_IS.field(0)]))):
        read = pa.Table.from_batches(table.to_batches(columns))
        assert read.schema.equals(expected, check_metadata=True)
        assert read.to_pylist() == [{n: row[n] for n in expected.names} for row in rows]
