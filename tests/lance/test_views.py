"""String, binary and list views are written to Lance as plain values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from trilake import lance

TEXT, BYTES = pa.string_view(), pa.binary_view()
ARRAYS = [
    pa.array(["a", "b" * 20, "c"], TEXT),
    pa.array([b"a", b"b" * 20, b"c"], BYTES),
    pa.array([["a"], ["b", "c"], ["d" * 20]], pa.list_(TEXT)),
    pa.array([["a"], ["b", "c"], ["d" * 20]], pa.list_view(TEXT)),
    pa.array([{"x": "a"}, {"x": "b"}, {"x": "c" * 20}], pa.struct({"x": TEXT})),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: str(a.type))
def test_views_are_written_as_plain_values(tmp_path: Path, array: pa.Array) -> None:
    """From a table, and from batches whose given schema has views."""
    data = pa.table({"v": array})
    uri = str(tmp_path / "d")
    trilake.write(data, uri, format="lance")
    lance.write_dataset(data, uri, mode="append")
    lance.write_dataset(iter(data.to_batches()), uri, schema=data.schema, mode="append")
    found = lance.dataset(uri).to_table()["v"]
    assert "view" not in str(found.type)
    assert found.to_pylist() == array.to_pylist() * 3
