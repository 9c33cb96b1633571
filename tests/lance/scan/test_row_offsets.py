"""``_rowoffset`` counts the rows of the dataset, as pylance counts them."""

from __future__ import annotations

from pathlib import Path

import lance as pylance
import pyarrow as pa
import pytest

from trilake import lance
from trilake.lance import LanceDataset

COLUMNS = ["_rowoffset", "a"]


@pytest.fixture
def three_fragments(tmp_path: Path) -> LanceDataset:
    dataset = lance.write_dataset(pa.table({"a": range(20)}), tmp_path / "t", max_rows_per_file=8)
    dataset.take([0], COLUMNS)  # opens readers, which the next version shares
    dataset.delete("a IN (1, 2, 9)")
    return dataset


def test_rows_are_taken_with_an_id_column_several_times(tmp_path: Path) -> None:
    rows = pa.table({"a": range(4)})
    dataset, peer = lance.write_dataset(rows, tmp_path), pylance.dataset(tmp_path)
    for columns in (["_rowid", "_rowid"], ["_rowid", "a", "_rowid"], ["a", "_rowaddr", "a"], ["_rowaddr", "_rowaddr"]):
        assert dataset.take([2, 1], columns).equals(peer.take([2, 1], columns))
        assert dataset._take_rows([2], columns).equals(peer._take_rows([2], columns))


def test_row_offsets_match_pylance(three_fragments: LanceDataset) -> None:
    theirs = pylance.dataset(three_fragments.uri)
    for options in ({}, {"filter": "a > 5"}, {"limit": 3, "offset": 4}):
        assert three_fragments.to_table(COLUMNS, **options).equals(theirs.to_table(COLUMNS, **options)), options
    # pylance declares them non-nullable only here.
    assert three_fragments.take([3, 0, 10], COLUMNS).to_pydict() == theirs.take([3, 0, 10], COLUMNS).to_pydict()
    fragment = three_fragments.get_fragments()[1]
    assert fragment.to_table(COLUMNS).equals(theirs.get_fragments()[1].to_table(columns=COLUMNS))


def test_filter_on_row_offsets(three_fragments: LanceDataset) -> None:
    assert three_fragments.to_table(["a"], filter="_rowoffset IN (3, 7)")["a"].to_pylist() == [5, 10]
    assert three_fragments.count_rows("_rowoffset < 4") == 4
    assert three_fragments.to_table(["a"], order_by=["_rowoffset"], limit=2)["a"].to_pylist() == [0, 3]
    old = three_fragments.checkout_version(1)
    assert old.to_table(["_rowoffset"], filter="a = 10")["_rowoffset"].to_pylist() == [10]
