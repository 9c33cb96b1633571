"""The checksum of rows: what changes it and what does not."""

# ruff: noqa: DTZ001, E501 - local times are tested too, and tables are easier to read in one line

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilake.table import checksum as kernels
from trilake.table.checksum import Checksum, checksum, row_hashes

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i8": (pa.int8(), st.integers(-128, 127)),
    "u64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "i64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f32": (pa.float32(), st.floats(width=32, allow_nan=False).map(lambda x: x + 0.0)),
    "f64": (pa.float64(), st.floats(allow_nan=False).map(lambda x: x + 0.0)),
    "b": (pa.bool_(), st.booleans()),
    "s": (pa.string(), st.text(max_size=20)),
    "v": (pa.binary(), st.binary(max_size=20)),
    "d": (pa.date32(), st.dates()),
    "t": (pa.timestamp("us"), st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))),
    "n": (pa.decimal128(20, 3), st.integers(-(10**19), 10**19).map(lambda i: Decimal(i).scaleb(-3))),
    "l": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(-9, 9), max_size=4)),
    "r": (
        pa.struct([("x", pa.int16()), ("y", pa.list_(pa.string()))]),
        st.fixed_dictionaries(
            {"x": st.none() | st.integers(0, 9), "y": st.none() | st.lists(st.text(max_size=3), max_size=3)}
        ),
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True))
    count = draw(st.integers(0, 12))
    columns = {}
    for name in names:
        kind, values = VALUES[name]
        columns[name] = pa.array(draw(st.lists(st.none() | values, min_size=count, max_size=count)), kind)
    return pa.table(columns)


@given(tables(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_order_batches_and_columns_do_not_matter(table: pa.Table, random: Any) -> None:
    whole = checksum(table)
    assert whole.rows == table.num_rows
    places = list(range(table.num_rows))
    random.shuffle(places)
    assert checksum(table.take(pa.array(places, pa.int64()))) == whole
    assert checksum(table.select(table.column_names[::-1])) == whole
    cut = random.randint(0, table.num_rows)
    assert checksum(table.slice(0, cut)) + checksum(table.slice(cut)) == whole
    assert checksum(table.to_batches(max_chunksize=3)) == whole


@given(tables(), st.data())
@settings(max_examples=60, deadline=None)
def test_any_change_changes_the_checksum(table: pa.Table, data: st.DataObject) -> None:
    if not table.num_rows:
        return
    name = data.draw(st.sampled_from(table.column_names))
    row = data.draw(st.integers(0, table.num_rows - 1))
    kind, values = VALUES[name]
    cells = table[name].to_pylist()
    new = data.draw(
        (st.none() | values).filter(lambda v: v != cells[row] and pa.array([v], kind)[0].as_py() != cells[row])
    )
    cells[row] = new
    changed = table.set_column(table.column_names.index(name), name, pa.array(cells, kind))
    assert checksum(changed) != checksum(table)
    assert checksum(table.rename_columns([f"{n}_" for n in table.column_names])) != checksum(table)
    assert checksum(pa.concat_tables([table, table.slice(row, 1)])) != checksum(table)


@pytest.mark.skipif(os.environ.get("TRILAKE_NUMBA") == "0", reason="numba is turned off")
@given(tables())
@settings(max_examples=40, deadline=None)
def test_numpy_and_compiled_loops_agree(table: pa.Table) -> None:
    assert kernels.COMPILED
    hashes = [row_hashes(b) for b in table.to_batches()]
    kernels.COMPILED = False
    try:
        for batch, mine in zip(table.to_batches(), hashes, strict=True):
            assert np.array_equal(row_hashes(batch), mine)
    finally:
        kernels.COMPILED = True


SAME = [
    ([1, -2, None], [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.decimal128(5, 0), pa.decimal256(40, 0)]),
    ([1, 2**63, 2**64 - 1], [pa.uint64(), pa.decimal128(20, 0), pa.decimal256(50, 0)]),
    ([Decimal("1.50"), Decimal("-7.25"), None], [pa.decimal128(5, 2), pa.decimal128(38, 2), pa.decimal256(60, 2)]),
    ([0.5, None, -1.0], [pa.float16(), pa.float32(), pa.float64()]),
    (["", "abc", None, "x" * 30], [pa.string(), pa.large_string(), pa.string_view()]),
    ([b"", b"abc", None], [pa.binary(), pa.large_binary(), pa.binary_view()]),
    ([b"abc", b"xyz", None], [pa.binary(3), pa.binary()]),
    ([dt.date(1, 1, 1), dt.date(2024, 2, 29), None], [pa.date32(), pa.date64()]),
    ([dt.datetime(1960, 1, 1, 1, 2, 3), None], [pa.timestamp(u) for u in ("s", "ms", "us", "ns")]),
    ([dt.datetime(1960, 1, 1, tzinfo=dt.UTC), None], [pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Berlin")]),
    ([[1, 2], [3, 4], None], [pa.list_(pa.int64()), pa.list_(pa.int8(), 2), pa.large_list(pa.int32()), pa.list_view(pa.int16())]),
    ([{"a": 1, "b": "x"}, None], [pa.struct([("a", pa.int8()), ("b", pa.string())]), pa.struct([("b", pa.large_string()), ("a", pa.int64())])]),
    ([None, None], [pa.null(), pa.int8(), pa.string(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())])]),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(SAME)))
def test_equal_values_of_different_types_are_equal(case: int) -> None:
    values, kinds = SAME[case]
    found = {checksum(pa.table({"c": pa.array(values, kind)})) for kind in kinds}
    assert len(found) == 1
    sliced = {checksum(pa.table({"c": pa.array([values[0], *values], kind).slice(1)})) for kind in kinds}
    assert sliced == found


def test_encodings_do_not_matter() -> None:
    values = pa.array(["a", "b", None, "a"])
    plain = checksum(pa.table({"c": values}))
    assert checksum(pa.table({"c": values.dictionary_encode()})) == plain
    assert checksum(pa.table({"c": pa.DictionaryArray.from_arrays([0, 1, 2, 0], pa.array(["a", "b", None]))})) == plain
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None]))
    assert checksum(pa.table({"c": ends})) == checksum(pa.table({"c": ["a", "a", None]}))
    floats = pa.array([0.0, float("nan")])
    other = pa.array(np.array([-0.0, np.uint64(0xFFF8000000000123).view(np.float64)]))
    assert checksum(pa.table({"c": floats})) == checksum(pa.table({"c": other}))


def test_values_under_nulls_do_not_matter() -> None:
    mask = np.array([False, True])
    for a, b in (([1, 2], [1, 3]), ([True, True], [True, False]), (["x", "y"], ["x", "zz"])):
        one, two = (pa.table({"c": pa.array(np.array(v), mask=mask)}) for v in (a, b))
        assert checksum(one) == checksum(two)
    structs = [pa.StructArray.from_arrays([pa.array([1, n])], ["x"], mask=pa.array(mask)) for n in (2, 3)]
    assert checksum(pa.table({"c": structs[0]})) == checksum(pa.table({"c": structs[1]}))


def test_order_in_lists_and_maps_matters() -> None:
    def of(values: list[Any], kind: pa.DataType) -> Checksum:
        return checksum(pa.table({"c": pa.array(values, kind)}))

    assert of([[1, 2]], pa.list_(pa.int8())) != of([[2, 1]], pa.list_(pa.int8()))
    assert of([[[1], [2]]], pa.list_(pa.list_(pa.int8()))) != of([[[1, 2], []]], pa.list_(pa.list_(pa.int8())))
    assert of([[]], pa.list_(pa.int8())) != of([None], pa.list_(pa.int8()))
    assert of([[None]], pa.list_(pa.int8())) != of([[]], pa.list_(pa.int8()))
    maps = pa.map_(pa.string(), pa.int8())
    assert of([[("a", 1), ("b", 2)]], maps) == of([[("b", 2), ("a", 1)]], maps)
    assert of([[("a", 2), ("b", 1)]], maps) != of([[("b", 2), ("a", 1)]], maps)
    assert of(["x"], pa.string()) != of([b"x"], pa.binary())
    assert of([1], pa.int8()) != of([True], pa.bool_())
    assert of([dt.datetime(2020, 1, 1)], pa.timestamp("us")) != of([dt.datetime(2020, 1, 1)], pa.timestamp("us", "UTC"))


def test_unions_and_unknown_types() -> None:
    dense = pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["x"])], ["n", "s"]
    )
    sparse = pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, None, 2]), pa.array([None, "x", None])], ["n", "s"]
    )
    assert checksum(pa.table({"c": dense})) == checksum(pa.table({"c": sparse}))
    assert checksum(pa.table({"c": dense.slice(1)})) == checksum(pa.table({"c": sparse.slice(1)}))
    assert str(checksum(pa.table({"c": [1]}))).startswith("1:")


def test_checksum_is_stable_between_releases() -> None:
    table = pa.table({"n": [1, None], "s": ["a", "bcdefghij"], "l": [[1.5], []]})
    assert str(checksum(table)) == "2:c7ec676c7dac77e20ff76473425f570d"
    code = "import pyarrow as pa; from trilake.table.checksum import checksum; print(checksum(pa.table({'s': ['abcdefghijk']})))"
    env = {**os.environ, "TRILAKE_NUMBA": "0"}
    there = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert there.strip() == str(checksum(pa.table({"s": ["abcdefghijk"]})))
