"""Reads and changes of files with string, binary and list views, as polars writes them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import opened
from tests.expr.test_views import ARRAYS


@pytest.mark.parametrize(
    ("written", "vectors"),
    [
        ("by us", "true"),
        ("by another", "false"),
        pytest.param("by us", "false", marks=pytest.mark.soak),
        pytest.param("by another", "true", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("array", [a for a in ARRAYS if not pa.types.is_dictionary(a.type)], ids=lambda a: str(a.type))
def test_table_with_views_is_read_and_changed(tmp_path: Path, array: pa.Array, vectors: str, written: str) -> None:
    data = pa.table({"id": [1, 2, 3, 4], "v": array})
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}
    if written == "by us":
        trilake.write(data, str(tmp_path), properties=properties)
    else:
        pq.write_table(data, tmp_path / "f.parquet")
        trilake.convert_to_delta(str(tmp_path))
        trilake.alter(str(tmp_path)).set_properties(properties)
    values = dict(zip([1, 2, 3, 4], array.to_pylist()))

    def rows() -> dict[int, object]:
        result = opened(tmp_path).to_arrow()
        assert "view" not in str(result.schema)
        return dict(zip(result["id"].to_pylist(), result["v"].to_pylist()))

    assert rows() == values
    opened(tmp_path).delete("id = 2")
    del values[2]
    assert rows() == values
    assert opened(tmp_path).to_arrow(filter="id > 1 AND v IS NOT NULL")["id"].to_pylist() == [
        k for k, v in values.items() if k > 1 and v is not None
    ]
    opened(tmp_path).update({"id": "id + 10"}, "id = 3")
    values[13] = values.pop(3)
    assert rows() == values
    source = pa.table({"id": [4, 9], "v": array.slice(0, 2)})
    if not pa.types.is_map(array.type):  # maps cannot be compared, and nothing else differs
        opened(tmp_path).merge(
            source, "target.id = source.id"
        ).when_matched_update_all().when_not_matched_insert_all().execute()
        values[4], values[9] = array.to_pylist()[:2]
        assert rows() == values
    opened(tmp_path).optimize()
    opened(tmp_path).purge()
    assert rows() == values
    changes = opened(tmp_path).changes(1)
    assert set(changes["_change_type"].to_pylist()) >= {"delete", "update_preimage", "update_postimage"}


def test_string_views_work_in_expressions(tmp_path: Path) -> None:
    text = pa.string_view()
    data = pa.table({"s": pa.array(["a", "b", None], text), "l": pa.array([["x"], ["y", "z"], None], pa.list_(text))})
    pq.write_table(data, tmp_path / "f.parquet")
    trilake.convert_to_delta(str(tmp_path))
    for condition in (
        "s = 'b'",
        "s LIKE 'b%'",
        "upper(s) = 'B'",
        "size(l) = 2",
        "s = 'b' AND l[1] = 'z'",
        "s IN ('b', 'q')",
    ):
        assert opened(tmp_path).to_arrow(filter=condition)["s"].to_pylist() == ["b"], condition


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: str(a.type))
def test_trevni_keeps_view_values(tmp_path: Path, array: pa.Array) -> None:
    if pa.types.is_dictionary(array.type):
        array = array.cast(pa.dictionary(array.type.index_type, pa.string()))
    trilake.write(pa.table({"v": array}), str(tmp_path / "t"), format="trevni")
    result = trilake.open(str(tmp_path / "t")).to_arrow()["v"]
    assert result.to_pylist() == array.to_pylist()
    assert result.type == array.type
