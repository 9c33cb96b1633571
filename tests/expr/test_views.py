"""String, binary and list views converted to plain layouts, which every kernel supports."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trilake.expr.views import (
    numbered_without_views,
    plain_array,
    without_views,
    without_views_schema,
    without_views_type,
)

TEXT, BYTES = pa.string_view(), pa.binary_view()
ARRAYS = [
    pa.array(["a", "b" * 20, None, ""], TEXT),
    pa.array([b"a", b"b" * 20, None, b""], BYTES),
    pa.array([["a", None], None, [], ["x" * 20]], pa.list_(TEXT)),
    pa.array([["a", None], None, [], ["x" * 20]], pa.large_list(TEXT)),
    pa.array([["a", None], None, [], ["x" * 20]], pa.list_view(TEXT)),
    pa.array([["a", None], None, [], ["x" * 20]], pa.large_list_view(TEXT)),
    pa.array([[1, 2], None, [], [3]], pa.list_view(pa.int64())),
    pa.array([[1, 2], None, [], [3]], pa.large_list_view(pa.int64())),
    pa.ListViewArray.from_arrays([2, 0, 0, 1], [2, 3, 0, 1], pa.array(["p", "q", "r", "s"], TEXT)),
    pa.array([["a", "b"], None, ["c", None], ["d", "e"]], pa.list_(TEXT, 2)),
    pa.array([{"x": "a", "y": 1}, None, {"x": None, "y": 2}, {"x": "b", "y": None}], pa.struct({"x": TEXT, "y": "i4"})),
    pa.array([[("a", "b")], None, [], [("c", None)]], pa.map_(TEXT, TEXT)),
    pa.array([[("a", ["b"])], None, [], [("c", None)]], pa.map_(TEXT, pa.list_view(BYTES))),
    pa.array([[{"x": [["a"]]}], None, [], [{"x": None}]], pa.list_(pa.struct({"x": pa.list_view(pa.list_(TEXT))}))),
    pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0]), pa.array(["a", "b"], TEXT)),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: str(a.type))
def test_values_are_unchanged(array: pa.Array) -> None:
    for part in (array, array.slice(1), array.slice(1, 2), array.slice(0, 0)):
        plain = plain_array(part)
        plain.validate(full=True)
        assert plain.type == without_views_type(array.type)
        assert "view" not in str(plain.type)
        assert plain.to_pylist() == part.to_pylist()
        assert plain.take(pa.array(range(len(part)), pa.int64())).to_pylist() == part.to_pylist()


def test_rows_without_views_are_unchanged() -> None:
    rows = pa.record_batch(
        {"a": [1], "s": ["x"], "l": [[{"a": 1}]], "m": pa.array([[("k", 1)]], pa.map_("string", "i4"))}
    )
    assert without_views(rows) is rows
    assert without_views_schema(rows.schema) is rows.schema


def test_metadata_and_nullability_are_kept() -> None:
    field = pa.field("s", pa.list_(TEXT), metadata={"k": "v"})
    schema = pa.schema([field, pa.field("n", pa.int64(), nullable=False)], {"a": "b"})
    rows = pa.record_batch([pa.array([["x"]], pa.list_(TEXT)), pa.array([1])], schema=schema)
    found = without_views(rows).schema
    assert found.metadata == schema.metadata
    assert found.field("s").metadata == field.metadata
    assert not found.field("n").nullable


def test_batches_with_different_layouts() -> None:
    views = pa.record_batch({"s": pa.array(["a", None], TEXT)})
    plain = pa.record_batch({"s": ["b"]})
    out = list(numbered_without_views([(0, views), (2, plain), (3, views), (5, plain)]))
    assert [start for start, _ in out] == [0, 2, 3, 5]
    assert all(batch.schema == plain.schema for _, batch in out)
    assert [batch["s"].to_pylist() for _, batch in out] == [["a", None], ["b"], ["a", None], ["b"]]
    assert out[1][1] is plain


def test_field_metadata_is_not_mixed_up_by_the_cache() -> None:
    """Type equality ignores field metadata, so the cached result of one type was returned for another."""
    bare, noted = (pa.struct([pa.field("x", TEXT, metadata=m)]) for m in (None, {"comment": "c"}))
    assert without_views_type(bare).field(0).metadata is None
    assert without_views_type(noted).field(0).metadata == {b"comment": b"c"}
