"""Filters through BTREE indices match scans after any changes, and both kinds of index catch up."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance as pylance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilake import lance
from trilake.errors import TrilakeError
from trilake.lance import LanceDataset
from trilake.lance.index import btree
from trilake.lance.scan import scalar_search
from trilake.lance.vector import vec_to_table
from trilake.storage import open_store

RNG = np.random.default_rng(11)
FILTERS = (
    "i = 17",
    "i > 190",
    "i >= 5 AND i < 9",
    "i IN (3, 3, 500, 77, -2)",
    "i = 3 OR s = 't7' OR f <= -0.9",
    "f < -0.95",
    "f >= 0.9",
    "f = 0.5",
    "f IN (0.5, 0.0)",
    "f > 0.1 AND f < 0.1000001",
    "s = 't11'",
    "s LIKE 't1%'",
    "s >= 't9' AND other % 3 = 0",
    "i = 5 AND other > 100",
    "b AND i < 20",
    "b = false AND i < 20",
    "s IS NULL AND i < 50",
    "NOT (i > 3)",
    "i != 3 AND i < 6",
    "i > 10 OR other = 3",
    "small = 300 OR small = 7",
    "i BETWEEN 40 AND 44",
    "i > 2.5 AND i < 4.5",
    "i > 40 AND i < 60 AND i >= 44 AND i <= 47",
    "i < 7 AND s > 't1' AND i >= 3 AND s <= 't5'",
    "f > 0.2 AND f <= 0.3 OR i > 195",
)


def rows(count: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    floats = rng.uniform(-1, 1, count).astype(np.float32)
    floats[:5] = [0.1, np.nan, 0.5, 0.0, -0.0]
    return pa.table(
        {
            "i": pa.array(rng.integers(-5, 200, count)),
            "f": pa.array(floats),
            "s": [None if i % 13 == 0 else f"t{i % 40}" for i in rng.permutation(count)],
            "b": pa.array(rng.integers(0, 2, count).astype(bool)),
            "small": pa.array(rng.integers(0, 100, count), pa.int8()),
            "other": pa.array(range(count)),
        }
    )


@pytest.fixture
def ds() -> LanceDataset:
    uri = f"memory://scalar-filters-{RNG.integers(1 << 60)}"
    dataset = lance.write_dataset(rows(2000, 1), uri, max_rows_per_file=500, max_rows_per_group=50)
    for name in ("i", "f", "s", "b", "small"):
        dataset.create_scalar_index(name, "BTREE")
    return dataset


def plain(ds: LanceDataset, text: str) -> list[Any]:
    """Rows that a scan without an index finds."""
    table = ds.to_table(with_row_id=True)
    condition = ds.snapshot.filter(text)
    assert condition is not None
    return sorted(table.filter(condition.mask(table))["_rowid"].to_pylist())


def by_index(ds: LanceDataset, text: str) -> list[Any]:
    found = ds.to_table(filter=text, with_row_id=True, columns=["other", "i"])
    assert ds.count_rows(text) == found.num_rows
    return sorted(found["_rowid"].to_pylist())


def same(ds: LanceDataset) -> None:
    for text in FILTERS:
        assert by_index(ds, text) == plain(ds, text), text


def test_indexed_filter_matches_a_scan(ds: LanceDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    same(ds)
    # With many matching pages, the index is not used.
    monkeypatch.setattr(scalar_search, "_FEW", 0)
    same(ds)
    assert "ScalarIndexQuery" in ds.scanner(filter="i = 17").explain_plan()
    assert "ScalarIndexQuery" not in ds.scanner(filter="i != 17").explain_plan()


@pytest.mark.parametrize(("nulls", "nullable"), [("mask", True), ("error", False), ("error", True)])
def test_pages_of_empty_strings_and_nulls(nulls: Any, nullable: bool) -> None:
    """More than one index page of each."""
    values: list[str | None] = ["" if i % 3 == 0 else f"t{i}" for i in range(15_000)]
    if nullable:
        values[1::3] = [None] * 5000
    schema = pa.schema([pa.field("s", pa.string(), nullable), pa.field("i", pa.int64()), pa.field("other", pa.int64())])
    numbers = pa.array(range(len(values)))
    table = pa.Table.from_arrays([pa.array(values, pa.string()), numbers, numbers], schema=schema)
    dataset = lance.write_dataset(
        table,
        "memory://empty-texts",
        mode="overwrite",
        max_rows_per_file=6000,
        nulls=nulls,
        data_storage_version="legacy",
    )
    texts = ("s = ''", "s <= ''", "s < 'a'", "s IN ('', 't2')", "s >= ''", "s = 't5'", "s > 't14'", "s IS NULL")
    scanned = {text: dataset.count_rows(text) for text in texts}
    assert scanned["s = ''"] == (0 if (nulls, nullable) == ("error", True) else 5000)
    dataset.create_scalar_index("s", "BTREE")
    for text in texts:
        assert dataset.count_rows(text) == scanned[text], text
        assert by_index(dataset, text) == plain(dataset, text), text
    dataset.optimize.compact_files()
    assert {text: dataset.count_rows(text) for text in texts} == scanned


@pytest.mark.long
def test_index_after_changes(ds: LanceDataset) -> None:
    ds.delete("i = 17 OR other % 7 = 0")
    same(ds)
    ds.update({"i": "i + 1"}, where="i IN (3, 5, 77)")
    same(ds)
    ds = lance.write_dataset(rows(300, 2), ds.uri, mode="append", max_rows_per_group=50)
    same(ds)
    ds.optimize.optimize_indices()
    assert ds.stats.index_stats("i_idx")["num_unindexed_rows"] == 0
    same(ds)
    ds.optimize.compact_files()
    same(ds)
    ds.delete("i > 100")
    assert ds.count_rows("i > 100") == 0
    same(ds)
    assert ds.to_table(filter="i < 50", limit=7, offset=3, columns=["i"]).num_rows == 7


def test_only_candidate_rows_are_read(ds: LanceDataset) -> None:
    plan = ds.scanner(filter="i = 17 AND other >= 0").explain_plan(verbose=True)
    assert f"rows to read: {ds.count_rows('i = 17')} of 2000" in plan
    rest = lance.write_dataset(rows(300, 2), ds.uri, mode="append", max_rows_per_group=50)
    plan = rest.scanner(filter="s = 't3'", use_stats=False).explain_plan(verbose=True)
    indexed = ds.count_rows("s = 't3'")
    assert f"rows to read: {indexed + 300} of 2300" in plan


def test_prefilters_use_an_index(ds: LanceDataset) -> None:
    vectors = vec_to_table(np.random.default_rng(0).normal(size=(600, 8))).append_column("k", pa.array(range(600)))
    dataset = lance.write_dataset(vectors, "memory://scalar-prefilter", mode="overwrite", max_rows_per_file=200)
    dataset.create_scalar_index("k", "BTREE")
    dataset.create_index("vector", "IVF_PQ", num_partitions=2, num_sub_vectors=4)
    near: dict[str, Any] = {"column": "vector", "q": vectors["vector"][3], "k": 5, "nprobes": 2}
    found = dataset.to_table(columns=["k"], nearest=near, filter="k IN (3, 250, 411) AND k != 3", prefilter=True)
    assert sorted(found["k"].to_pylist()) == [250, 411]
    assert "ScalarIndexQuery" in dataset.scanner(nearest=near, filter="k = 3", prefilter=True).explain_plan()


@given(st.lists(st.sampled_from(FILTERS), min_size=2, max_size=4), st.booleans())
@settings(max_examples=25)
def test_combined_conditions_match_a_scan(texts: list[str], any_of: bool) -> None:
    uri = "memory://scalar-combinations"
    if not hasattr(test_combined_conditions_match_a_scan, "dataset"):
        dataset = lance.write_dataset(rows(800, 3), uri, mode="overwrite", max_rows_per_file=300, max_rows_per_group=50)
        for name in ("i", "s", "f"):
            dataset.create_scalar_index(name, "BTREE")
        test_combined_conditions_match_a_scan.dataset = dataset  # type: ignore[attr-defined]
    found: LanceDataset = test_combined_conditions_match_a_scan.dataset  # type: ignore[attr-defined]
    text = (" OR " if any_of else " AND ").join(f"({t})" for t in texts)
    assert by_index(found, text) == plain(found, text)


def test_damaged_scalar_indices(tmp_path: Path) -> None:
    """Either a typed error, or only rows that match."""
    dataset = lance.write_dataset(rows(500, 4), tmp_path / "t", max_rows_per_file=200)
    dataset.create_scalar_index("i", "BTREE")
    right = set(plain(dataset, "i = 17"))
    uuid = dataset.list_indices()[0]["uuid"]
    store, rnd = open_store(tmp_path / "t"), random.Random(1)
    for name in ("page_data.lance", "page_lookup.lance"):
        key = f"_indices/{uuid}/{name}"
        data = bytes(store.read(key))
        for i in range(60):
            bad = bytearray(data[: rnd.randrange(len(data))] if i % 4 == 0 else data)
            for _ in range(0 if i % 4 == 0 else 2):
                bad[rnd.randrange(len(bad))] = rnd.randrange(256)
            store.put(key, bytes(bad))
            try:
                found = lance.dataset(tmp_path / "t").to_table(filter="i = 17", with_row_id=True)
                assert set(found["_rowid"].to_pylist()) <= right
            except TrilakeError:
                pass
        store.put(key, data)
    assert set(by_index(lance.dataset(tmp_path / "t"), "i = 17")) == right


def test_new_rows_are_added_to_a_vector_index(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    dataset = lance.write_dataset(vec_to_table(rng.uniform(0, 1, (400, 8))), tmp_path, max_rows_per_file=200)
    dataset.create_index("vector", "IVF_PQ", num_partitions=4, num_sub_vectors=4)
    before = dataset.list_indices()[0]
    new = rng.uniform(0, 1, (150, 8))
    dataset = lance.write_dataset(vec_to_table(new), tmp_path, mode="append")
    dataset.optimize.optimize_indices()
    entry = dataset.list_indices()[0]
    assert entry["uuid"] != before["uuid"]
    assert entry["fragment_ids"] == {0, 1, 2}
    stats = dataset.stats.index_stats("vector_idx")
    assert (sum(p.get("length", p.get("size")) for p in stats["partitions"]), stats["num_unindexed_rows"]) == (550, 0)
    version = dataset.version
    dataset.optimize.optimize_indices()
    assert dataset.version == version
    hits = 0
    for q in new[:30].astype(np.float32):
        near = {"column": "vector", "q": q, "k": 5, "nprobes": 4}
        table = dataset.to_table(nearest=near)
        hits += any(np.allclose(v, q) for v in table["vector"].to_pylist())
    assert hits >= 27


TIMES = (
    "1970-01-01 00:00:00",
    "1970-01-01 00:00:00.000001",
    "1969-12-31 23:59:59.999999",
    "1970-01-01 00:00:00.0015",
    "1970-01-01 00:00:01",
    "2300-01-01 00:00:00",
)


@pytest.mark.parametrize(
    ("unit", "zone"),
    [
        *[("s", None), ("ms", "Asia/Tokyo"), ("us", None), ("ns", "Asia/Tokyo")],
        *(pytest.param(unit, None, marks=pytest.mark.soak) for unit in ("ms", "ns")),
        *(pytest.param(unit, "Asia/Tokyo", marks=pytest.mark.soak) for unit in ("s", "us")),
    ],
)
def test_timestamps_of_other_units_than_the_literal(unit: str, zone: str | None) -> None:
    """A literal has microseconds: it may fall between two seconds, and covers a thousand nanoseconds."""
    second = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit]
    near = [0, 1, -1, 999, 1000, 1001, -999, -1000, -1001, second, second + 1, -second]
    rows = pa.table({"t": pa.array(near, pa.timestamp(unit, zone)), "i": range(12), "other": range(12)})
    dataset = lance.write_dataset(rows, f"memory://scalar-times-{unit}-{zone}", max_rows_per_group=3)
    texts = [f"t {op} timestamp '{each}'" for each in TIMES for op in ("=", "<", "<=", ">", ">=")]
    texts += [f"t IN (timestamp '{a}', timestamp '{b}')" for a in TIMES for b in TIMES]
    many = ", ".join(f"timestamp '1970-01-01 00:00:00.{i:06}'" for i in range(100))
    texts += [f"t IN ({many})"]
    expected = [plain(dataset, text) for text in texts]
    dataset.create_scalar_index("t", "BTREE")
    assert [by_index(dataset, text) for text in texts] == expected
    assert "ScalarIndexQuery" in dataset.scanner(filter=texts[0]).explain_plan()


@pytest.mark.parametrize("kind", [pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
def test_polars_strings_and_binary_can_be_indexed(kind: pa.DataType) -> None:
    values = pa.array([f"t{i % 50}" for i in range(300)]).cast(kind)
    dataset = lance.write_dataset(
        pa.table({"s": values, "i": range(300), "other": range(300)}), f"memory://scalar-{kind}"
    )
    dataset.create_scalar_index("s", "BTREE")
    text = "s = 't7'" if pa.types.is_large_string(kind) else "s = X'7437'"
    assert by_index(dataset, text) == [7, 57, 107, 157, 207, 257]
    assert "ScalarIndexQuery" in dataset.scanner(filter=text).explain_plan()


def test_half_floats_are_not_indexed() -> None:
    dataset = lance.write_dataset(pa.table({"h": np.array([1.5, 2], np.float16)}), "memory://scalar-halves")
    with pytest.raises(TypeError, match="halffloat"):
        dataset.create_scalar_index("h", "BTREE")


DECIMAL_FILTERS = (
    "v = 1.1",
    "v = 1.105",
    "v > 9.985",
    "v <= -0.49",
    "v IN (2, 3.00, 3.005)",
    "v IN (1.1e0, 1.104e0)",
    "v = 1.1e0",
    "v > 99999999999",
    "v BETWEEN -0.1 AND 0",
)
BYTES_FILTERS = ("v = X'0102'", "v > X'03'", "v < X'01'", "v = X'01'", "v IN (X'0102', X'01')", "v >= X'010203'")


@pytest.mark.parametrize("nulls", ["error", "mask"])
@pytest.mark.parametrize(
    ("kind", "filters"),
    [(pa.decimal128(10, 2), DECIMAL_FILTERS), (pa.binary(2), BYTES_FILTERS)],
    ids=("decimals", "bytes"),
)
def test_decimals_and_fixed_size_binary_can_be_indexed(
    kind: pa.DataType, filters: tuple[str, ...], nulls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = range(-50, 1000)
    decimal = pa.types.is_decimal(kind)
    values: list[Any] = [Decimal(n) / 100 if decimal else (n % 1000).to_bytes(2, "big") for n in numbers]
    if nulls == "mask":
        values[::7] = [None] * len(values[::7])
    row_numbers = pa.array(range(len(values)))
    table = pa.table({"v": pa.array(values, kind), "i": row_numbers, "other": row_numbers})
    dataset = lance.write_dataset(
        table,
        "memory://scalar-widths",
        mode="overwrite",
        max_rows_per_file=400,
        nulls=nulls,
        data_storage_version="legacy",
    )
    monkeypatch.setattr(btree, "PAGE_ROWS", 100)
    dataset.create_scalar_index("v", "BTREE")
    assert "ScalarIndexQuery" in dataset.scanner(filter=filters[0]).explain_plan()
    for change in (lambda: None, lambda: dataset.delete("i % 5 = 0"), dataset.optimize.optimize_indices):
        change()
        for text in filters:
            assert by_index(dataset, text) == plain(dataset, text), text
    assert dataset.count_rows(filters[2])


@pytest.mark.parametrize("index", ["BTREE", "BITMAP", "ZONEMAP"])
def test_decimals_of_76_digits_are_compared_and_indexed(index: str, tmp_path: Path) -> None:
    def large(i: int) -> str:
        return f"{i}{'0' * 60}.25"

    values = pa.array([Decimal(large(i)) if i % 7 else None for i in range(50)], pa.decimal256(76, 2))
    dataset = lance.write_dataset(pa.table({"i": range(50), "v": values}), tmp_path / "t")
    filters = [f"v = {large(3)}", f"v > {large(40)}", "v < 1", f"v IN ({large(1)}, {large(2)})", "v IS NULL"]
    filters += [f"v >= {large(4)} AND v < {large(6)}", f"NOT v < {large(48)}"]
    expected = [dataset.to_table(filter=text) for text in filters]
    assert [found.num_rows for found in expected] == [1, 7, 0, 2, 8, 2, 1]
    dataset.create_scalar_index("v", index)
    assert [dataset.to_table(filter=text) for text in filters] == expected
    assert "ScalarIndexQuery" in dataset.scanner(filter=filters[0]).explain_plan()
    theirs = pylance.dataset(tmp_path / "t").scanner(filter="v < 1")
    assert "ScalarIndexQuery" in theirs.explain_plan()
    assert theirs.to_table().num_rows == 0
