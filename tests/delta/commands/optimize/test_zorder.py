"""Z-order: bits, range ids, sorting with little memory, and file skipping."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from tests.delta.tables import new_uri, opened, rows
from trilake.delta.commands.optimize.curve_order import (
    Curve,
    Ranges,
    id_bits,
    in_curve_order,
    interleave_bits,
    is_orderable,
    sample_indexes,
)
from trilake.errors import InvalidArgumentError


def points(count: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "x": rng.integers(0, 1_000_000, count),
            "y": pa.array([f"name {n:07d}" for n in rng.integers(0, 1_000_000, count)]),
            "z": rng.normal(size=count),
            "n": range(count),
        }
    )


# --- bits ------------------------------------------------------------------------------------------------------------


@given(data=st.data(), dimensions=st.integers(1, 6), bits=st.integers(1, 10))
def test_bits_are_interleaved(data: st.DataObject, dimensions: int, bits: int) -> None:
    point = data.draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=dimensions, max_size=dimensions))
    (result,) = interleave_bits([np.array([v], np.uint64) for v in point], bits).tolist()
    strings = [format(v, f"0{bits}b") for v in point]
    assert format(result, f"0{bits * dimensions}b") == "".join(t[i] for i in range(bits) for t in strings)


def test_index_has_at_most_63_bits() -> None:
    with pytest.raises(ValueError, match="4 dimensions of 16 bits"):
        interleave_bits([np.zeros(1, np.uint64)] * 4, 16)
    for columns in range(1, 64):
        assert columns * id_bits(columns) <= 63


# --- range ids -------------------------------------------------------------------------------------------------------

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "int": (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "string": (pa.string(), st.text(max_size=5)),
    "binary": (pa.binary(), st.binary(max_size=5)),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "decimal": (
        pa.decimal128(20, 3),
        st.decimals(-(10**16), 10**16, places=3).map(lambda v: v.quantize(decimal.Decimal("0.001"))),
    ),
}


@settings(max_examples=60)
@given(data=st.data(), kind=st.sampled_from(sorted(VALUES)), bits=st.integers(2, 6))
def test_range_ids_preserve_value_order(data: st.DataObject, kind: str, bits: int) -> None:
    type_, values = VALUES[kind]
    result = data.draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=60))
    sample = data.draw(st.lists(st.sampled_from(result), min_size=1))
    array = pa.array(result, type_)
    ids = Ranges.of(pa.array(sample, type_), bits).ids(array).tolist()
    assert all(0 <= i < 1 << bits for i in ids)
    pairs = list(zip(result, ids, strict=True))
    assert {i for v, i in pairs if v is None} <= {0}

    def key(v: Any) -> Any:
        return v.encode() if isinstance(v, str) else v

    known = sorted(((key(v), i) for v, i in pairs if v is not None), key=lambda p: p[0])
    assert [i for _, i in known] == sorted(i for _, i in known)
    assert all(v is None or i > 0 for v, i in pairs if kind != "none" and v in sample)


def test_ranges_are_balanced() -> None:
    skewed = pa.array(np.random.default_rng(0).exponential(size=50_000))
    ids = Ranges.of(skewed, 5).ids(skewed)
    counts = np.unique(ids, return_counts=True)[1]
    assert len(counts) > 25
    assert counts.max() < 3 * 50_000 / 32


def test_column_with_few_values_spreads_its_ids() -> None:
    ids = Ranges.of(pa.array(["a", "b", "c", "d"]), 8).ids(pa.array(["a", "d", None]))
    assert ids[2] == 0
    assert ids[1] - ids[0] > 128


def test_nan_sorts_last() -> None:
    values = pa.array([1.0, float("nan"), 5.0, float("inf"), None])
    ids = Ranges.of(values, 4).ids(values).tolist()
    assert ids[1] == ids[3] == max(ids)


def test_range_ids_without_search_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """OPTIMIZE ... ZORDER BY failed with pyarrow 21, which has no ``search_sorted``."""
    numbers = np.random.default_rng(7).integers(-50, 50, 400)
    columns = [
        pa.array(numbers, mask=numbers % 9 == 0),
        pa.array([None if n % 7 == 0 else f"text {n}" for n in numbers.tolist()]),
        pa.array(np.where(numbers % 5 == 0, np.nan, numbers / 3)),
        pa.array(numbers).cast(pa.timestamp("us")),
        pa.array([decimal.Decimal(n) / 4 for n in numbers.tolist()]),
        pa.array([b"", None, b"x"]),
        pa.nulls(3, pa.string()),
        pa.array([], pa.int64()),
    ]
    for column in columns:
        ranges = Ranges.of(column[: len(column) // 2 + 1], 5)
        searched = ranges.ids(column).tolist()
        with monkeypatch.context() as without:
            without.delattr(pc, "search_sorted", raising=False)
            assert ranges.ids(column).tolist() == searched, column.type


def test_range_ids_of_null_and_empty_columns() -> None:
    assert Ranges.of(pa.nulls(3, pa.int64()), 4).ids(pa.array([None, 7], pa.int64())).tolist()[0] == 0
    assert Ranges.of(pa.array([], pa.string()), 4).ids(pa.array([], pa.string())).tolist() == []


@pytest.mark.parametrize("type_", [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.map_("string", "string")])
def test_nested_types_are_not_orderable(type_: pa.DataType) -> None:
    assert not is_orderable(type_)


@given(rows=st.integers(0, 5000), target=st.integers(1, 500))
def test_sample_is_spread_over_all_rows(rows: int, target: int) -> None:
    chosen = sample_indexes(rows, target)
    assert len(chosen) == min(rows, target)
    assert all(0 <= i < rows for i in chosen.tolist())
    assert (np.diff(chosen) >= 0).all()


# --- order -----------------------------------------------------------------------------------------------------------


def batches(table: pa.Table, size: int = 700) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=size)


@pytest.mark.parametrize("kind", ["zorder", "hilbert"])
@pytest.mark.parametrize("memory", [1 << 30, 200_000, 20_000])
def test_memory_limit_does_not_change_the_result(kind: Any, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trilake.delta.commands.optimize.curve_order._DIVIDED_BYTES", 50_000)
    table = points(20_000)
    curve = Curve(kind, (("x",), ("y",)))
    parts = list(in_curve_order(batches(table), curve, count=20_000, sample=lambda: table, memory=memory))
    assert len(parts) == 1 if memory == 1 << 30 else len(parts) > 5
    out = pa.concat_tables(parts)
    assert out.schema == table.schema
    assert out["n"].to_pylist() != table["n"].to_pylist()
    assert out.sort_by("n").equals(table)
    index = curve.index(out, curve.ranges(table))
    if memory > 20_000:  # ranges that do not fit into memory are sorted in pieces
        assert (np.diff(index.astype(np.int64)) >= 0).all()
    else:
        assert np.abs(np.argsort(np.argsort(index, kind="stable")) - np.arange(20_000)).mean() < 200


def test_equal_rows_beyond_the_memory_limit_are_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = pa.table({"x": [1] * 5000, "n": range(5000)})
    curve = Curve("zorder", (("x",),))
    out = pa.concat_tables(in_curve_order(batches(table), curve, count=None, sample=lambda: table, memory=10_000))
    assert out.sort_by("n").equals(table)
    assert list(tmp_path.iterdir()) == [], "temporary files are deleted"


def test_temporary_files_are_removed_on_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = points(5000)
    curve = Curve("zorder", (("x",),))
    ordered = in_curve_order(batches(table), curve, count=5000, sample=lambda: table, memory=10_000)
    next(iter(ordered))
    assert len(list(tmp_path.iterdir())) == 1
    ordered.close()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


# --- tables ----------------------------------------------------------------------------------------------------------


def matching_files(uri: str, *filters: str) -> list[int]:
    """The number of files that each filter keeps."""
    return [opened(uri).files(f).num_rows for f in filters]


@pytest.mark.parametrize("memory", [1 << 30, 300_000])
def test_every_zorder_column_skips_files(memory: int) -> None:
    uri = new_uri()
    for n in range(4):
        trilake.write(points(5000, seed=n), uri, mode="append")
    filters = ["x < 100000", "y between 'name 0300000' and 'name 0350000'", "z > 2.5"]
    assert matching_files(uri, *filters) == [4, 4, 4]
    before = rows(opened(uri).to_arrow())
    size = sum(opened(uri).files()["size"].to_pylist())
    done = opened(uri).optimize(zorder_by=["x", "y"], target_size=size // 16, memory=memory)
    assert 15 <= done.files_added <= 17
    assert max(opened(uri).files()["num_records"].to_pylist()) <= -(-20_000 // 16)
    x, y, z = matching_files(uri, *filters)
    assert x <= 5
    assert y <= 8, "a quarter of 16 files, which need not begin where the curve turns"
    assert z > 10, "a column that was not asked for gains nothing"
    assert rows(opened(uri).to_arrow()) == before


def test_zorder_metrics() -> None:
    uri = new_uri()
    for n in range(2):
        trilake.write(points(100, seed=n), uri, mode="append")
    m = opened(uri).optimize(zorder_by="x").metrics
    assert (m.num_files_removed, m.num_files_added) == (2, 1)
    assert m.z_order_stats is not None
    assert m.z_order_stats.strategy_name == "all"
    assert m.z_order_stats.num_output_cubes == 1
    assert m.z_order_stats.merged_files == m.z_order_stats.input_other_files
    (last,) = opened(uri).history(1).to_pylist()
    assert dict(last["operationParameters"])["zOrderBy"] == '["x"]'
    again = opened(uri).optimize(zorder_by="x")
    assert again.files_removed == 1, "a partition is written again as a whole, whatever it was before"


def test_partitions_are_ordered_separately() -> None:
    uri = new_uri()
    data = points(300).append_column("p", pa.array([i % 3 for i in range(300)]))
    for _ in range(2):
        trilake.write(data, uri, mode="append", partition_by=["p"])
    done = opened(uri).optimize("p < 2", zorder_by=["x", "z"])
    assert (done.files_removed, done.files_added, done.metrics.partitions_optimized) == (4, 2, 2)
    assert opened(uri).count() == 600


def test_zorder_by_nested_and_quoted_columns() -> None:
    uri = new_uri()
    rng = np.random.default_rng(3)
    inner = pa.StructArray.from_arrays([pa.array(rng.integers(0, 1000, 2000)), pa.array(["v"] * 2000)], ["a.b", "c"])
    trilake.write(
        pa.table({"S": inner, "other one": rng.random(2000)}),
        uri,
        properties={"delta.columnMapping.mode": "name"},
    )
    done = opened(uri).optimize(zorder_by=["s.`a.b`", "`other one`"], target_size=2000)
    assert done.files_added > 4
    values = [pc.struct_field(opened(uri).to_arrow()["S"], "a.b").to_pylist()]
    assert sorted(values[0]) == sorted(inner.field(0).to_pylist())


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (["p"], "p is a partition column. Z-Ordering can only be performed on data columns"),
        (["P"], "P is a partition column"),
        (["x", "nope"], "Z-Ordering column nope does not exist in data schema"),
        (["x.y"], "Z-Ordering column x.y does not exist in data schema"),
        (["list"], "Z-Ordering column list cannot be sorted"),
        (["x", "X"], "given twice"),
        (["x", "late"], r"Z-Ordering on \[late\] would be ineffective"),
    ],
)
def test_invalid_zorder_columns_are_rejected(columns: list[str], says: str) -> None:
    uri = new_uri()
    trilake.write(
        pa.table({"p": [1], "x": [1], "list": [[1]], "late": [2]}),
        uri,
        partition_by=["p"],
        properties={"delta.dataSkippingNumIndexedCols": "2"},
    )
    with pytest.raises(InvalidArgumentError, match=says):
        opened(uri).optimize(zorder_by=columns)
    if "late" in columns:
        assert opened(uri).optimize(zorder_by=columns, check_statistics=False).files_added == 1
