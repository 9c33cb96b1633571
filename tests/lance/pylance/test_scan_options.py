"""Scan options added to pylance after 0.8.19: order, fixed-size batches, deleted rows, row ids in filters."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import lance as pylance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from trilake import lance
from trilake.errors import ConflictError, FilterError, InvalidArgumentError, TrilakeError
from trilake.expr import Filter
from trilake.lance import LanceDataset
from trilake.lance.dataset import ColumnOrdering

ROWS = pa.table(
    {
        "id": range(10),
        "kind": ["b", "a", "c", "a", "b", "c", "a", "b", "c", "a"],
        "score": [0.5, math.nan, -1.0, 2.0, math.inf, 0.0, -math.inf, 3.0, 1.0, 7.0],
        "part": [{"x": i % 3, "y": -i} for i in range(10)],
    }
)


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    ds = lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=4, max_rows_per_group=2)
    ds.delete("id in (1, 8)")
    return ds


@pytest.fixture
def first(tmp_path: Path) -> LanceDataset:
    """The same in the legacy format, where fragments are numbered from 0 again by an overwrite."""
    options: dict[str, Any] = {"max_rows_per_file": 4, "max_rows_per_group": 2, "data_storage_version": "legacy"}
    ds = lance.write_dataset(ROWS, tmp_path / "first", **options)
    ds.delete("id in (1, 8)")
    return ds


def place(id: int) -> int:
    return (id // 4 << 32) + id % 4


def test_filters_on_row_ids(dataset: LanceDataset) -> None:
    def found(filter: Any, **more: Any) -> list[int]:
        ids: list[int] = dataset.to_table(["id"], filter=filter, **more)["id"].to_pylist()
        return ids

    assert found(f"_rowid = {place(5)}") == [5]
    assert found(f"_rowaddr IN ({place(9)}, {place(2)}, {place(8)}, 99, {7 << 32})") == [2, 9]
    assert found(f"_rowid >= {place(5)} AND kind = 'b'") == [7]
    assert found(f"_rowid = {place(4)} OR kind = 'c'") == [2, 4, 5]
    assert found(f"_rowid < {place(4)}", limit=2, offset=1) == [2, 3]
    assert found("_rowid = -1") == found("_rowid IN (-1, 0.5)") == []
    assert found("_rowid = 0.0") == found("cast(_rowid as string) = '0'") == [0]
    assert found(f"NOT _rowid <> {place(6)}") == [6]
    assert found(pc.field("_rowid") == place(3)) == [3]
    assert found(pc.field("_rowaddr").isin([place(3), place(9)])) == [3, 9]
    assert dataset.to_table(["kind"], filter=f"_rowid = {place(3)}", with_row_id=True).to_pylist() == [
        {"kind": "a", "_rowid": place(3)}
    ]
    assert dataset.count_rows(f"_rowid > {place(3)}") == 5
    assert [f.fragment_id for f in dataset.get_fragments() if f.count_rows(f"_rowid = {place(5)}")] == [1]
    assert "query=_rowid = " in dataset.scanner(filter="_rowid = 3").explain_plan()
    with pytest.raises(FilterError, match="_rowx"):
        found("_rowx = 1")
    own = lance.write_dataset(pa.table({"_rowid": [7, 8]}), "memory://own-row-ids", mode="overwrite")
    assert own.to_table(filter="_rowid = 8").to_pydict() == {"_rowid": [8]}


def test_row_id_filter_reads_only_its_row(dataset: LanceDataset) -> None:
    plan = dataset.scanner(["id"], filter=f"_rowid = {place(5)}").explain_plan(verbose=True)
    assert "rows to read: 1 of 10" in plan


def test_row_id_condition_is_not_evaluated_on_rows(dataset: LanceDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took longer than reading the rows, as every fragment checked all ids."""

    def fail(self: Filter, rows: pa.Table) -> Any:
        raise AssertionError(f"{self.sql} is evaluated on {rows.num_rows} rows")

    monkeypatch.setattr(Filter, "mask", fail)
    two = f"{place(2)}, {place(9)}"
    for condition in (
        f"_rowid IN ({two}, {place(1)})",
        pc.field("_rowaddr").isin([place(2), place(9), place(8), 77]),
        f"(_rowid = {place(9)} OR _rowid = {place(2)}) AND _rowaddr IN ({two}, {place(3)})",
    ):
        assert dataset.to_table(["id"], filter=condition)["id"].to_pylist() == [2, 9]
        assert dataset.count_rows(condition) == 2
    with pytest.raises(AssertionError, match="is evaluated"):
        dataset.to_table(filter=f"_rowid = {place(2)} AND kind = 'c'")


def test_delete_and_update_by_row_ids(dataset: LanceDataset) -> None:
    dataset.update({"kind": "'z'"}, where=f"_rowid = {place(0)}")
    assert dataset.to_table(["id"], filter="kind = 'z'")["id"].to_pylist() == [0]
    dataset.delete(f"_rowaddr IN ({place(3)}, {place(4)})")
    assert sorted(dataset.to_table(["id"])["id"].to_pylist()) == [0, 2, 5, 6, 7, 9]
    source = pa.table({"id": [2, 5], "kind": ["n", "n"], "score": [0.0, 0.0], "part": ROWS["part"][:2]})
    done = (
        dataset.merge_insert("id").when_not_matched_by_source_delete(f"_rowaddr = {place(6)} OR _rowid = {place(7)}")
    ).execute(source)
    assert done["num_deleted_rows"] == 2
    assert sorted(dataset.to_table(["id"])["id"].to_pylist()) == [0, 2, 5, 9]


def test_search_is_filtered_by_row_ids() -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(20, dtype=np.float32)), 2)
    ds = lance.write_dataset(pa.table({"id": range(10), "v": vectors}), "memory://near-by-id", mode="overwrite")
    near = {"column": "v", "q": [0.0, 0.0], "k": 4}
    for prefilter, expected in ((False, [2, 3]), (True, [2, 3, 4, 5])):
        found = ds.to_table(["id"], filter="_rowid >= 2", nearest=near, prefilter=prefilter, use_scalar_index=False)
        assert found["id"].to_pylist() == expected
    assert ds.to_table(["id"], nearest=near, order_by=[ColumnOrdering("id", ascending=False)], limit=2)[
        "id"
    ].to_pylist() == [3, 2]
    back = ds.to_table(["id", "_distance"], nearest=near, order_by=[ColumnOrdering("_distance", False)], offset=1)
    assert back["id"].to_pylist() == [2, 1, 0]
    assert ds.to_table(["v"], nearest=near, order_by=["id"]).schema.names == ["v", "_distance"]
    with pytest.raises(InvalidArgumentError, match="a single fragment"):
        next(ds.scanner(nearest=near).scan_batches())


def test_order_by_columns(dataset: LanceDataset) -> None:
    def ids(*order: str | ColumnOrdering, **more: Any) -> list[int]:
        found: list[int] = dataset.to_table(["id"], order_by=list(order), **more)["id"].to_pylist()
        return found

    assert ids("kind") == [3, 6, 9, 0, 4, 7, 2, 5]
    assert ids("kind", ColumnOrdering("id", ascending=False)) == [9, 6, 3, 7, 4, 0, 5, 2]
    assert ids(ColumnOrdering("score", ascending=False)) == [4, 9, 7, 3, 0, 5, 2, 6]
    assert ids("part.x", "part.y") == [9, 6, 3, 0, 7, 4, 5, 2]
    assert ids("kind", limit=3, offset=2) == [9, 0, 4]
    assert ids("kind", limit=1) == [3]
    assert ids("score", filter="kind = 'b'", limit=2) == [0, 7]
    assert ids("_rowid", limit=2) == [0, 2]
    assert ids("score", limit=0) == []
    scanner = dataset.scanner({"twice": "id * 2"}, order_by=["score"], limit=2, with_row_id=True)
    assert scanner.to_table().to_pylist() == [{"twice": 12, "_rowid": place(6)}, {"twice": 4, "_rowid": place(2)}]
    assert scanner.head(1).num_rows == 1
    assert scanner.count_rows() == 2
    assert scanner.take([1])["twice"].to_pylist() == [4]
    assert "SortExec: expr=[score ASC NULLS LAST]" in scanner.explain_plan()
    with pytest.raises(InvalidArgumentError, match="a single fragment"):
        next(scanner.scan_batches())
    for order, message in (
        (["nothing"], "nothing"),
        (["part"], "one of its fields"),
        ("id", "list"),
        ([5], "ColumnOrdering"),
    ):
        with pytest.raises((InvalidArgumentError, TypeError), match=message):
            dataset.to_table(order_by=order)


def test_order_by_places_nulls_and_nan() -> None:
    rows = pa.table({"id": range(5), "n": pa.array([1.0, None, math.nan, -1.0, 5.0])})
    ds = lance.write_dataset(rows, "memory://order-nulls", mode="overwrite")
    expected = {
        ColumnOrdering("n"): [3, 0, 4, 2, 1],
        ColumnOrdering("n", nulls_first=True): [1, 3, 0, 4, 2],
        ColumnOrdering("n", ascending=False): [2, 4, 0, 3, 1],
        ColumnOrdering("n", ascending=False, nulls_first=True): [1, 2, 4, 0, 3],
    }
    for order, ids in expected.items():
        assert ds.to_table(["id"], order_by=[order])["id"].to_pylist() == ids


def test_strict_batch_size(dataset: LanceDataset) -> None:
    def sizes(**options: Any) -> list[int]:
        batches = list(dataset.to_batches(**options))
        assert pa.Table.from_batches(batches).equals(dataset.to_table(**{**options, "strict_batch_size": False}))
        return [b.num_rows for b in batches]

    assert sizes(batch_size=3, strict_batch_size=True) == [3, 3, 2]
    assert sizes(batch_size=8, strict_batch_size=True) == [8]
    assert sizes(batch_size=100, strict_batch_size=True) == sizes(strict_batch_size=True) == [8]
    assert sizes(batch_size=2, strict_batch_size=True, filter="id > 2", order_by=["kind"]) == [2, 2, 2]
    assert sizes(batch_size=1, strict_batch_size=True, limit=2) == [1, 1]


def test_batch_size_from_the_environment(dataset: LanceDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_DEFAULT_BATCH_SIZE", "1")
    assert [b.num_rows for b in dataset.to_batches()] == [1] * 8
    assert max(b.num_rows for b in dataset.to_batches(batch_size=2)) == 2
    monkeypatch.setenv("LANCE_DEFAULT_BATCH_SIZE", "many")
    with pytest.raises(InvalidArgumentError, match="LANCE_DEFAULT_BATCH_SIZE must be a number of rows above 0"):
        dataset.to_table()


def test_batch_size_bytes_is_a_maximum(dataset: LanceDataset) -> None:
    def sizes(**options: Any) -> list[int]:
        batches = list(dataset.to_batches(["id"], **options))
        assert pa.Table.from_batches(batches)["id"].to_pylist() == dataset.to_table(["id"])["id"].to_pylist()
        return [b.num_rows for b in batches]

    assert sizes(batch_size_bytes=8) == sizes(batch_size_bytes=1) == [1] * 8
    assert sizes(batch_size_bytes=1 << 20) == sizes()
    assert sizes(batch_size_bytes=16, order_by=["id"]) == [2] * 4
    assert dataset.get_fragments()[0].to_table(batch_size_bytes=9).num_rows == 3
    with pytest.raises(InvalidArgumentError, match="cannot be used together"):
        sizes(batch_size_bytes=8, strict_batch_size=True)
    with pytest.raises(InvalidArgumentError, match="batch_size_bytes"):
        sizes(batch_size_bytes=0)


def test_deleted_rows_have_null_row_ids(dataset: LanceDataset) -> None:
    found = dataset.to_table(["id"], include_deleted_rows=True, with_row_id=True)
    assert found["id"].to_pylist() == list(range(10))
    assert found["_rowid"].to_pylist() == [None if i in (1, 8) else place(i) for i in range(10)]
    some = dataset.to_table(["id"], filter="kind = 'c'", include_deleted_rows=True, with_row_id=True)
    assert some.to_pylist() == [{"id": i, "_rowid": None if i == 8 else place(i)} for i in (2, 5, 8)]
    cut = dataset.to_table(["id"], include_deleted_rows=True, with_row_id=True, limit=5, offset=1)
    assert cut["id"].to_pylist() == [1, 2, 3, 4, 5]
    scanner = dataset.scanner(["id"], include_deleted_rows=True, with_row_id=True)
    assert (scanner.count_rows(), scanner.take([1])["id"].to_pylist()) == (10, [1])
    with pytest.raises(InvalidArgumentError, match="with_row_id"):
        dataset.to_table(include_deleted_rows=True)
    with pytest.raises(InvalidArgumentError, match="order_by"):
        dataset.to_table(include_deleted_rows=True, with_row_id=True, order_by=["id"])


def test_scans_without_indices(dataset: LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE")
    assert "id = 3" in dataset.scanner(filter="id = 3").explain_plan().splitlines()[0]
    without = dataset.scanner(filter="id = 3", use_scalar_index=False)
    assert without.explain_plan().startswith("LanceRead")
    assert without.to_table()["id"].to_pylist() == [3]


def test_default_scan_options(dataset: LanceDataset, tmp_path: Path) -> None:
    defaults = {"columns": ["id"], "with_row_id": True, "batch_size": 2, "order_by": ["kind"], "limit": 3}
    ds = lance.dataset(dataset.uri, default_scan_options=defaults)
    expected = {"id": [3, 6, 9], "_rowid": [place(i) for i in (3, 6, 9)]}
    assert ds.to_table().to_pydict() == expected
    assert [b.num_rows for b in ds.to_batches()] == [2, 1]
    assert ds.to_table(["kind"], limit=1, with_row_id=False).to_pydict() == {"kind": ["a"]}
    assert ds.to_table(filter="id < 7").to_pydict() == {"id": [3, 6, 0], "_rowid": [place(i) for i in (3, 6, 0)]}
    assert pickle.loads(pickle.dumps(ds)).to_table().to_pydict() == expected
    assert ds.checkout_version(1).to_table(limit=1)["id"].to_pylist() == [1]
    assert (ds.count_rows(), ds.count_rows("id < 7")) == (8, 6)
    assert ds.schema.names == ["id", "_rowid"]
    assert ds.get_fragments()[0].schema == dataset.schema
    with pytest.raises(TypeError, match="full_text"):
        lance.dataset(dataset.uri, default_scan_options={"full_text": 1})
    with pytest.raises(InvalidArgumentError, match="batch_size"):
        lance.dataset(dataset.uri, default_scan_options={"batch_size": -1})


def test_analyze_plan_runs_the_scan(dataset: LanceDataset) -> None:
    lines = dataset.scanner(["id"], filter="id > 4").analyze_plan().splitlines()
    assert lines[0].startswith("AnalyzeExec: rows=4, batches=2, elapsed=")
    assert lines[1].strip().startswith("LanceRead")
    assert lines[1].endswith("metrics=[output_rows=4, output_batches=2, rows_scanned=10]")


def test_batches_carry_their_fragment_id(dataset: LanceDataset) -> None:
    def found(**options: Any) -> list[tuple[int, list[int]]]:
        tagged = dataset.scanner(["id"], **options).scan_batches()
        return [(t.fragment.fragment_id, t.record_batch["id"].to_pylist()) for t in tagged]

    assert found(limit=4, offset=2) == [(0, [3]), (1, [4, 5, 6])]
    assert found(filter="kind = 'c'", limit=2, offset=1) == [(1, [5])]
    assert found(limit=0) == []


def test_hints_change_nothing(dataset: LanceDataset) -> None:
    hints = {"io_buffer_size": 1 << 20, "late_materialization": True, "blob_handling": "all_binary"}
    assert dataset.to_table(["id"], **hints, fast_search=False, full_text_query=None).num_rows == 8
    ds = lance.dataset(dataset.uri, default_scan_options=hints)
    assert ds.to_pandas(["id"], filter="id > 7", io_buffer_size=5)["id"].tolist() == [9]
    with pytest.raises(TypeError, match="full_text_query"):
        dataset.to_table(full_text_query="b")


def test_constant_columns_have_all_rows(dataset: LanceDataset) -> None:
    """Arrow loses the row count of a table without columns in ``take``."""
    one = {"one": "cast(1 as bigint)"}
    assert dataset.to_table(one, order_by=["kind"]).to_pydict() == {"one": [1] * 8}
    assert dataset.to_table(one, order_by=["kind"], limit=2, offset=1).to_pydict() == {"one": [1] * 2}
    assert [b.num_rows for b in dataset.to_batches(one, order_by=["kind"], batch_size=3)] == [3, 3, 2]
    assert dataset.take([0, 5, 7], one).to_pydict() == dataset._take_rows([0, place(9), place(4)], one).to_pydict()
    assert dataset.take([0, 5, 7], one).to_pydict() == {"one": [1] * 3}
    assert dataset.get_fragments()[1].take([0, 3], one).to_pydict() == {"one": [1] * 2}
    dataset.create_scalar_index("id", "BTREE")
    assert dataset.to_table(one, filter="id = 3").to_pydict() == {"one": [1]}


def test_row_ids_belong_to_the_opened_version(first: LanceDataset) -> None:
    """After an overwrite, or another change that moves rows, they would name other rows."""
    dataset = first

    def stale() -> LanceDataset:
        return lance.dataset(dataset.uri)

    def changes(ds: LanceDataset) -> list[Any]:
        source = pa.table({"id": [0], "kind": ["b"], "score": [0.5], "part": ROWS["part"][:1]})
        merge = ds.merge_insert("id").when_not_matched_by_source_delete(f"_rowid = {place(2)}")
        rows = ds.to_table(["id"], with_row_id=True).rename_columns(["copy", "_rowid"])
        return [
            lambda: ds.delete(f"_rowid = {place(2)}"),
            lambda: ds.update({"kind": "'z'"}, where=f"_rowaddr = {place(2)}"),
            lambda: merge.execute(source),
            lambda: ds.merge(rows, "_rowid"),
        ]

    for count in range(4):
        change = changes(stale())[count]
        dataset.optimize.compact_files(target_rows_per_fragment=2)
        lance.write_dataset(ROWS, dataset.uri, mode="overwrite", max_rows_per_file=4, max_rows_per_group=2)
        with pytest.raises(ConflictError):
            change()
        dataset.checkout_latest()
        assert dataset.to_table(["id", "kind"]).equals(ROWS.select(["id", "kind"]))
    before = stale()
    dataset.delete(f"_rowid = {place(3)}")
    assert before.delete(f"_rowid IN ({place(2)}, {place(3)})") == {"num_deleted_rows": 1}
    before = stale()
    dataset.checkout_latest()
    dataset.optimize.compact_files()
    with pytest.raises(ConflictError):
        before.delete(f"_rowid = {place(5)}")


def test_merge_columns_by_row_ids(first: LanceDataset) -> None:
    dataset = first
    for number, name in enumerate(("_rowid", "_rowaddr")):
        rows = dataset.to_table(["id"], with_row_id=True).rename_columns([f"of_{name}", name]).slice(1)
        with pytest.raises(TrilakeError, match="null"):
            dataset.merge(rows, name)
        whole = dataset.to_table(["id"], with_row_id=True).rename_columns([f"of{name}", "key"])
        dataset.merge(whole, name, "key")
        assert dataset.to_table([f"of{name}"]).column(0).equals(dataset.to_table(["id"]).column(0))
        parts = [f.merge(whole.rename_columns([f"copy{number}", name]), name) for f in dataset.get_fragments()]
        operation = lance.LanceOperation.Merge([p[0] for p in parts], parts[0][1])
        joined = LanceDataset.commit(dataset.uri, operation, dataset.version)
        assert joined.to_table([f"copy{number}"]).column(0).equals(joined.to_table(["id"]).column(0))
        dataset.checkout_latest()
    with pytest.raises(InvalidArgumentError, match="join column"):
        dataset.merge(rows, "nothing")


@pytest.mark.parametrize("index", ["BTREE", None])
def test_fast_search_skips_unindexed_rows(uri: Path, index: str | None) -> None:
    dataset = lance.write_dataset(pa.table({"n": range(100)}), uri)
    if index is not None:
        dataset.create_scalar_index("n", index)
    dataset.insert(pa.table({"n": range(100, 110)}))
    assert dataset.count_rows("n >= 95") == 15
    theirs = pylance.dataset(uri).to_table(filter="n >= 95", fast_search=True)
    assert dataset.to_table(filter="n >= 95", fast_search=True).equals(theirs)
    assert theirs.num_rows == (15 if index is None else 5)


def test_fast_search_without_index_finds_no_vector(uri: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(20), pa.float32()), 2)
    dataset = lance.write_dataset(pa.table({"id": range(10), "v": vectors}), uri)
    search = {"column": "v", "q": [[0.0, 1.0], [4.0, 5.0]], "k": 2}
    assert dataset.to_table(["id"], nearest=search).num_rows == 4
    found = dataset.to_table(["id"], nearest=search, fast_search=True)
    assert (found.num_rows, found.schema.names) == (0, ["query_index", "id", "_distance"])
