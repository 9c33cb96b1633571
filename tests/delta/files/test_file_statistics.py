# ruff: noqa: DTZ001 - times without a zone are a distinct type here
"""Statistics of new files: valid, and in the form that other readers expect."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trilake
from trilake.common.arrow_types import leaf_paths
from trilake.delta.files.file_statistics import _string_bound, stored_bounds
from trilake.storage.memory import MemoryStore


def _stats(table: pa.Table, **properties: str) -> dict[str, Any]:
    uri = MemoryStore().uri
    trilake.write(table, uri, properties={k.replace("__", "."): v for k, v in properties.items()})
    result: dict[str, Any] = json.loads(trilake.open(uri).files()["stats"][0].as_py())
    return result


def test_statistics_of_every_type() -> None:
    utc = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, dt.UTC)
    result = _stats(
        pa.table(
            {
                "long": [5, -(2**63), None],
                "double": [0.5, None, -1.0],
                "string": ["b", "a", None],
                "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
                "utc": pa.array([utc, None, None], pa.timestamp("us", "UTC")),
                "plain": pa.array([utc.replace(tzinfo=None), None, None], pa.timestamp("us")),
                "decimal": pa.array([decimal.Decimal("123456789012345678.90"), None, None], pa.decimal128(30, 2)),
                "boolean": [True, None, False],
                "binary": [b"x", None, None],
                "list": [[1], None, []],
                "struct": [{"x": 1, "l": [1]}, {"x": None, "l": None}, None],
            }
        )
    )
    assert result["numRecords"] == 3
    assert result["minValues"] == {
        "long": -(2**63),
        "double": -1.0,
        "string": "a",
        "date": "0001-01-01",
        "utc": "2024-05-06T07:08:09.123Z",
        "plain": "2024-05-06T07:08:09.123",
        "decimal": pytest.approx(123456789012345678.9),
        "struct": {"x": 1},
    }
    assert result["maxValues"]["utc"] == "2024-05-06T07:08:09.124Z"
    assert result["maxValues"]["date"] == "9999-12-31"
    assert result["nullCount"]["struct"] == {"x": 2}
    assert result["nullCount"]["binary"] == 2
    assert result["nullCount"]["boolean"] == 1
    assert "list" not in result["minValues"]


def test_decimals_keep_all_digits() -> None:
    uri = MemoryStore().uri
    value = decimal.Decimal("12345678901234567890.123456789012345678")
    trilake.write(pa.table({"a": pa.array([value], pa.decimal128(38, 18))}), uri)
    assert '"a":12345678901234567890.123456789012345678' in trilake.open(uri).files()["stats"][0].as_py()


@pytest.mark.parametrize("nested", [False, True])
def test_nan_removes_the_bounds(nested: bool) -> None:
    values = [1.0, float("nan"), None]
    result = _stats(pa.table({"a": [{"x": v} for v in values] if nested else values}))
    assert (result["minValues"], result["maxValues"]) == ({}, {})
    assert result["nullCount"] in ({}, {"a": {"x": 1} if nested else 1})


def test_infinities_are_omitted_and_zeros_compare_equal() -> None:
    result = _stats(pa.table({"a": [float("inf"), -float("inf")], "z": [0.0, -0.0]}))
    assert "a" not in result["minValues"]
    assert "a" not in result["maxValues"]
    assert result["minValues"]["z"] == result["maxValues"]["z"] == 0


def test_last_microsecond_of_year_9999_has_no_upper_bound() -> None:
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    result = _stats(pa.table({"a": pa.array([last], pa.timestamp("us"))}))
    assert result["maxValues"].get("a") is None
    uri = MemoryStore().uri
    trilake.write(pa.table({"a": pa.array([last], pa.timestamp("us"))}), uri)
    assert trilake.open(uri).count("a > timestamp_ntz'9999-12-31 23:59:59.999'") == 1


def test_only_the_first_columns_are_indexed() -> None:
    table = pa.table({f"c{i}": [i] for i in range(40)})
    assert list(_stats(table)["minValues"]) == [f"c{i}" for i in range(32)]
    assert list(_stats(table, delta__dataSkippingNumIndexedCols="2")["minValues"]) == ["c0", "c1"]
    assert _stats(table, delta__dataSkippingNumIndexedCols="0")["minValues"] == {}
    assert len(_stats(table, delta__dataSkippingNumIndexedCols="-1")["minValues"]) == 40


def test_column_of_nulls_has_no_bounds() -> None:
    result = _stats(pa.table({"a": pa.array([None, None], pa.int64()), "b": [1, 2]}))
    assert result["minValues"] == {"b": 1}
    assert result["nullCount"] == {"a": 2, "b": 0}


@given(st.text(st.characters(codec="utf-8"), max_size=40) | st.text("a\U0010ffff", min_size=30, max_size=40))
def test_string_bounds_are_valid(value: str) -> None:
    low, high = _string_bound(value, False), _string_bound(value, True)
    assert low.encode() <= value.encode() <= high.encode()
    assert len(low) <= 32


def test_very_long_strings_have_valid_bounds() -> None:
    values = ["b" * 100_000, "a" * 100_000]
    uri = MemoryStore().uri
    trilake.write(pa.table({"a": values, "n": [1, 2]}), uri)
    table = trilake.open(uri)
    for v in values:
        assert table.count(f"a = '{v}'") == 1
    assert len(table.files()["stats"][0].as_py()) < 1000


def test_leaves_of_lists_and_maps_have_no_path() -> None:
    nested = pa.struct([("x", pa.int64()), ("l", pa.list_(pa.struct([("y", pa.int64()), ("z", pa.int64())])))])
    schema = pa.schema([("a", pa.int64()), ("s", nested), ("m", pa.map_(pa.string(), pa.int64())), ("b", pa.int64())])
    assert leaf_paths(schema) == [("a",), ("s", "x"), None, None, None, None, ("b",)]


def test_indexed_columns_by_name_or_count() -> None:
    rows = pa.table(
        {
            "a": [1],
            "l": [[{"x": 1, "y": 2}]],
            "s": pa.array([{"t": 1, "u": {"v": 2}}]),
            "odd.name": [3],
            "z": [4],
        }
    )
    assert list(_stats(rows, delta__dataSkippingNumIndexedCols="3")["minValues"]) == ["a", "s"]
    assert _stats(rows, delta__dataSkippingNumIndexedCols="3")["minValues"]["s"] == {"t": 1}  # a list counts as one
    assert _stats(rows, delta__dataSkippingNumIndexedCols="0")["minValues"] == {}
    assert list(_stats(rows, delta__dataSkippingNumIndexedCols="-1")["minValues"]) == ["a", "s", "odd.name", "z"]
    named = _stats(rows, delta__dataSkippingStatsColumns="z, s.u, `odd.name`")
    assert named["minValues"] == {"s": {"u": {"v": 2}}, "odd.name": 3, "z": 4}
    assert named["nullCount"] == {"s": {"u": {"v": 0}}, "odd.name": 0, "z": 0}


def test_mapped_columns_use_physical_names() -> None:
    result = _stats(
        pa.table({"a": [1], "b": [2]}), delta__columnMapping__mode="name", delta__dataSkippingStatsColumns="B"
    )
    (name,) = result["minValues"]
    assert name.startswith("col-")
    assert result["minValues"][name] == 2


class _OldStatistics:
    """The statistics of integer decimals in pyarrow 21 and 22."""

    min_raw, max_raw = -250, 110

    @property
    def min(self) -> object:
        raise pa.ArrowNotImplementedError("Cannot extract statistics for type")

    max = min


def test_integer_decimals_have_bounds_with_old_pyarrow() -> None:
    low, high = stored_bounds(_OldStatistics(), pa.decimal128(5, 2))
    assert (str(low), str(high)) == ("-2.50", "1.10")
