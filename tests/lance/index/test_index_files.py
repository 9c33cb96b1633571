"""Scalar indices in files of version 2.x: built, searched, followed through changes; damaged ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trilake
from trilake import lance
from trilake.errors import CorruptFileError, InvalidArgumentError, TrilakeError
from trilake.lance.file.errors import UnsupportedIndexError
from trilake.lance.file.storage_version import STABLE
from trilake.lance.index import bitmap, btree
from trilake.lance.index.files import write_file
from trilake.lance.index.scalar import Bound
from trilake.lance.index.zonemap import ZoneMapIndex
from trilake.lance.pylance.lance_dataset import LanceDataset
from trilake.lance.pylance.operation import Index
from trilake.storage.memory import MemoryStore

VALUES: dict[str, pa.Array] = {
    "int": pa.array([None if i % 10 == 0 else i * 7 % 1000 for i in range(9000)], pa.int32()),
    "double": pa.array([None if i % 9 == 0 else float("nan") if i % 31 == 0 else i % 500 - 250.5 for i in range(9000)]),
    "string": pa.array([None if i % 8 == 0 else "" if i % 13 == 0 else f"s{i % 300:03}" for i in range(9000)]),
    "bool": pa.array([None if i % 7 == 0 else i % 2 == 0 for i in range(9000)]),
}
BUILT = {"btree": (btree.train, btree.BTreeIndex), "bitmap": (bitmap.train, bitmap.BitmapIndex)}


def build(kind: str, values: pa.Array) -> Any:
    store, (train, opened) = MemoryStore("memory://index-files"), BUILT[kind]
    rows = pa.table({"values": values, "row_ids": pa.array(np.arange(len(values)), pa.uint64())})
    files = dict(train(store, "i", rows, STABLE))
    assert all(store.read(f"i/{name}").size == size for name, size in files.items())
    return opened.open(store, "i")


@pytest.mark.parametrize("kind", BUILT)
@pytest.mark.parametrize("name", VALUES)
def test_searches_match_a_full_comparison(kind: str, name: str) -> None:
    column, index = VALUES[name], build(kind, VALUES[name])

    def rows(mask: pa.Array) -> list[int]:
        return np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).tolist()

    assert index.is_null().tolist() == rows(pc.is_null(column))
    for value in (column[1], column[13], column[8995]):
        assert index.equal(value).tolist() == rows(pc.equal(column, value))
        nan = pc.is_nan(column) if name == "double" else pa.array([False] * len(column))
        assert index.range(Bound(value, False), None).tolist() == rows(pc.or_(pc.greater(column, value), nan))
        assert index.range(None, Bound(value)).tolist() == rows(pc.less_equal(column, value))
    chosen = pa.array([column[i].as_py() for i in (2, 13, 77)], column.type)
    assert index.is_in(chosen).tolist() == rows(pc.is_in(column, chosen.drop_null()))
    read = index.read()
    assert sorted(read["row_ids"].to_pylist()) == list(range(len(column)))
    assert read["values"].null_count == column.null_count


@pytest.mark.parametrize("kind", BUILT)
@pytest.mark.parametrize("values", [pa.array([], pa.int64()), pa.array([None] * 5000, pa.string())])
def test_indices_over_only_nulls(kind: str, values: pa.Array) -> None:
    index = build(kind, values)
    assert index.range(None, None).tolist() == []
    assert len(index.is_null()) == len(values)
    assert index.is_in([1] if pa.types.is_integer(values.type) else ["x"]).tolist() == []


def dataset(uri: str, **more: Any) -> LanceDataset:
    table = pa.table({"id": range(600), **{name: values.slice(0, 600) for name, values in VALUES.items()}})
    ds = lance.write_dataset(table, uri, max_rows_per_file=200, data_storage_version="2.2", **more)
    for name in ("int", "double"):
        ds.create_scalar_index(name, "BTREE")
    for name in ("string", "bool"):
        ds.create_scalar_index(name, "bitmap")
    return ds


@pytest.mark.parametrize("stable", [False, True])
def test_indices_follow_changes(stable: bool) -> None:
    ds = dataset(f"memory://index-files-{stable}", enable_stable_row_ids=stable)
    filters = ["int = 14", "int IS NULL", "double > 200", "string = ''", "bool = false AND int < 100", "string IS NULL"]

    def check(indexed: int) -> None:
        for filter in filters:
            found, scanned = (ds.to_table(["id"], filter=filter, use_scalar_index=use) for use in (True, False))
            assert found == scanned, filter
            assert "query=" in ds.scanner(["id"], filter=filter).explain_plan()
        assert [d.num_rows_indexed for d in ds.describe_indices()] == [indexed] * 4
        assert findings(ds) == []

    check(600)
    ds.delete("id % 3 = 1 OR id < 12")
    check(392)
    lance.write_dataset(ds.to_table().slice(0, 50), ds, mode="append")
    ds.update({"int": "int + 7"}, where="id = 300")
    check(391)
    ds.optimize.compact_files()
    check(391)
    ds.optimize.optimize_indices()
    check(442)
    assert [(d.index_type, d.type_url[:13]) for d in ds.describe_indices()] == [
        *[("BTree", "/lance.table.")] * 2,
        *[("Bitmap", "/lance.table.")] * 2,
    ]


def findings(ds: LanceDataset) -> list[str]:
    return [f.code for f in trilake.verify(ds.uri).findings]


def test_unsupported_index_types_are_rejected() -> None:
    ds = dataset("memory://index-files-kinds")
    with pytest.raises(UnsupportedIndexError, match="contains"):
        ds.create_scalar_index("int", "NGRAM")
    with pytest.raises(UnsupportedIndexError, match="LABEL_LIST and ZONEMAP"):
        ds.create_scalar_index("int", "RTREE")
    first = lance.write_dataset(pa.table({"a": [1]}), "memory://index-files-first", data_storage_version="legacy")
    with pytest.raises(UnsupportedIndexError, match="BTREE"):
        first.create_scalar_index("a", "BITMAP")


def zones(**more: pa.Array) -> ZoneMapIndex:
    store = MemoryStore("memory://zones")
    columns = {
        "min": pa.array([1, 10, None, 5], pa.int64()),
        "max": pa.array([9, 20, None, 6], pa.int64()),
        "null_count": pa.array([0, 1, 4, 0], pa.uint32()),
        "nan_count": pa.array([0, 0, 0, 0], pa.uint32()),
        "fragment_id": pa.array([0, 0, 1, 1], pa.uint64()),
        "zone_start": pa.array([0, 4, 0, 4], pa.uint64()),
        "zone_length": pa.array([4, 4, 4, 2], pa.uint64()),
        **more,
    }
    write_file(store, "i/zonemap.lance", pa.RecordBatch.from_pydict(columns), STABLE, {b"rows_per_zone": b"4"})
    return ZoneMapIndex.open(store, "i")


def test_zone_map() -> None:
    index, second = zones(), 1 << 32
    assert index.equal(5).tolist() == [0, 1, 2, 3, second + 4, second + 5]
    assert index.range(Bound(20), None).tolist() == [4, 5, 6, 7]
    assert index.range(Bound(20, False), Bound(30)).tolist() == [4, 5, 6, 7]
    assert index.is_in([0, 7]).tolist() == [0, 1, 2, 3]
    assert index.is_null().tolist() == [4, 5, 6, 7, *range(second, second + 4)]
    assert index.statistics() == {"index_type": "ZoneMap", "num_zones": 4, "rows_per_zone": 4}
    with pytest.raises(CorruptFileError, match="out of range"):
        zones(zone_length=pa.array([4, 4, 1 << 63, 2], pa.uint64()))
    assert zones(zone_length=pa.array([4, 4, 4, 1 << 31], pa.uint64())).equal(5) is None


@pytest.mark.parametrize("kind", BUILT)
def test_damaged_files_are_rejected(kind: str) -> None:
    store, (train, opened) = MemoryStore("memory://index-damage"), BUILT[kind]
    rows = pa.table({"values": VALUES["int"].slice(0, 200), "row_ids": pa.array(range(200), pa.uint64())})
    names = [name for name, _ in train(store, "i", rows, STABLE)]
    rng = np.random.default_rng(0)
    for name in names:
        whole = store.read(f"i/{name}").to_pybytes()
        for _ in range(150):
            data = bytearray(whole)
            for at in rng.integers(0, len(data), 3).tolist():
                data[at] = int(rng.integers(0, 256))
            store.put(f"i/{name}", bytes(data))
            try:
                index = opened.open(store, "i")
                index.equal(14), index.is_null(), index.read()
            except TrilakeError:
                pass
        store.put(f"i/{name}", whole)


def test_bitmaps_of_whole_fragments_are_left_to_scans() -> None:
    store = MemoryStore("memory://whole")
    whole = b"\1\0\0\0\5\0\0\0\0\0\0\0"
    batch = pa.RecordBatch.from_pydict({"keys": pa.array([1, 2]), "bitmaps": pa.array([whole, b"\2\0\0\0"])})
    write_file(store, "i/bitmap_page_lookup.lance", batch, STABLE)
    index = bitmap.BitmapIndex.open(store, "i")
    assert index.equal(1) is None
    with pytest.raises(CorruptFileError, match="is corrupt"):
        index.equal(2)
    with pytest.raises(InvalidArgumentError):
        index.equal("x")


def test_indices_written_by_pylance_are_used(shared: Path) -> None:
    for case, filter in (("idx_btree_x_v21_900", "x = 5"), ("idx_bitmap_cat_v22_700", "cat = 'a'")):
        ds = lance.dataset(str(shared / "corpus" / "lance2" / "cases" / case / "ds.lance"))
        assert "query=" in ds.scanner(filter=filter).explain_plan()
        assert ds.to_table(filter=filter) == ds.to_table(filter=filter, use_scalar_index=False)


def labels(values: pa.Array, items: pa.Array) -> LanceDataset:
    """A dataset of lists with a LABEL_LIST index over some of their items, written by pylance."""
    ds = lance.write_dataset(pa.table({"l": values}), f"memory://labels-{items.type}", data_storage_version="2.2")
    rows = pa.table({"values": items, "row_ids": pa.array(range(len(items)), pa.uint64())})
    uuid = "00000000-0000-0000-0000-000000000007"
    bitmap.train(ds.snapshot.store, f"_indices/{uuid}", rows, STABLE)
    details = ("/lance.table.LabelListIndexDetails", b"")
    operation = lance.LanceOperation.CreateIndex([Index(uuid, "l_idx", [0], 1, {0}, 1, details)], [])
    return lance.LanceDataset.commit(ds.uri, operation, read_version=ds.version)


def test_label_list_finds_lists_by_item() -> None:
    ds = labels(pa.array([["a"], ["it's", "b"], [], None]), pa.array(["a", "it's"]))
    for filter, rows in (("array_has(l, 'a')", 1), ("array_has(l, 'it''s')", 1), ("array_has_any(l, ['a', 'x'])", 1)):
        assert ds.count_rows(filter) == rows
        assert "query=" in ds.scanner(filter=filter).explain_plan()
    assert ds.count_rows("array_has(l, 'b')") == 0  # not in the index
    assert ds.count_rows("NOT array_has(l, 'b')") == 2
    numbers = labels(pa.array([[1], [2, 3]], pa.list_(pa.int64())), pa.array([1, 3]))
    assert numbers.to_table(filter="array_has(l, 3)")["l"].to_pylist() == [[2, 3]]
    assert "query=" in numbers.scanner(filter="array_has(l, 3)").explain_plan()
