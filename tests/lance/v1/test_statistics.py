"""Statistics of batches: written as Lance writes them, and used only as far as they are reliable."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.lance.file.schema import LanceSchema
from trilake.lance.v1.data_file import V1File
from trilake.lance.v1.data_file_writer import V1Writer
from trilake.lance.v1.statistics import Collector, trusted
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore


def bounds(array: pa.Array) -> tuple[int, Any, Any]:
    collector = Collector(LanceSchema.from_arrow(pa.schema([pa.field("x", array.type)])).fields[0])
    collector.add(array)
    nulls, least, greatest = (collector.arrays().field(i)[0].as_py() for i in range(3))
    return nulls, least, greatest


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([3, None, -1], pa.int8(), (1, -1, 3)),
        ([None], pa.uint16(), (1, 0, 65535)),
        ([None], pa.float64(), (1, -np.inf, np.inf)),
        ([np.nan, 2.0, 1.0], pa.float32(), (0, 1.0, 2.0)),
        ([0.0], pa.float64(), (0, -0.0, 0.0)),
        ([None], pa.bool_(), (1, False, True)),
        (["b", "a", None], pa.string(), (1, "a", "b")),
        ([b"\xff" * 70], pa.binary(), (0, b"\xff" * 64, None)),
        (["a" * 70, "b"], pa.string(), (0, "a" * 64, "c")),
        (["é" * 40], pa.string(), (0, "é" * 32, "é" * 31 + "ê")),
        (["\U0010ffff" * 20], pa.string(), (0, "\U0010ffff" * 16, None)),
        ([dt.date(2020, 1, 1)], pa.date32(), (0, dt.date(2020, 1, 1), dt.date(2020, 1, 1))),
        ([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(9, 2), (0, Decimal("-2.00"), Decimal("1.50"))),
    ],
)
def test_bounds_of_each_type(values: list[Any], kind: pa.DataType, expected: tuple[int, Any, Any]) -> None:
    found = bounds(pa.array(values, kind))
    assert repr(found) == repr(expected)


def test_batches_keep_their_order() -> None:
    """Batches with and without nulls and NaN, and empty ones, keep their order."""
    collector = Collector(LanceSchema.from_arrow(pa.schema([pa.field("x", pa.float32())])).fields[0])
    batches: list[list[float | None]] = [[1, 2], [np.nan, 5], [None, 3], [], [-0.0], [7, 6], [np.inf, np.nan]]
    for batch in batches:
        collector.add(pa.array(batch, pa.float32()))
    found = collector.arrays()
    assert found.field("null_count").to_pylist() == [0, 0, 1, 0, 0, 0, 0]
    assert found.field("min_value").to_pylist() == [1, 5, 3, -np.inf, 0, 6, np.inf]
    assert found.field("max_value").to_pylist() == [2, 5, 3, np.inf, 0, 7, np.inf]


@given(st.lists(st.text(max_size=80), min_size=1, max_size=5))
def test_string_bounds_enclose_values(values: list[str]) -> None:
    _, low, high = bounds(pa.array(values))
    encoded = [v.encode() for v in values]
    assert low.encode() <= min(encoded)
    assert high is None or max(encoded) <= high.encode()


def sample() -> pa.Table:
    structs = pa.struct([("x", pa.float64()), ("t", pa.string())])
    return pa.table(
        {
            "i": pa.array([1, 2, None, 4, 5, 6], pa.int32()),
            "t": ["a", "b", None, "c", "d", "e"],
            "s": pa.array([{"x": float(i), "t": "v" * 70 * (i % 2)} for i in range(6)], structs),
            "l": pa.array([[i] for i in range(6)], pa.list_(pa.int8())),
            "b": [True, True, True, False, False, True],
        }
    )


@pytest.mark.parametrize("name", ["prim_multibatch", "strings", "prim_nulls"])
def test_statistics_equal_those_of_lance(shared: Path, name: str) -> None:
    store = open_store(str(shared / "corpus" / "lance" / name / "ds.lance"))
    (key,) = (m.key for m in store.list("data"))
    file = V1File.open(store, key)
    theirs = file.statistics()
    with pa.ipc.open_file(shared / "corpus" / "lance" / name / "input.arrow") as source:
        rows = source.read_all().combine_chunks()
    copy = MemoryStore("memory://statistics")
    with V1Writer(copy, "x", file.schema) as writer:
        for start, end in pairwise(file.batch_offsets.tolist()):
            writer.write(rows.slice(start, end - start).cast(file.schema.to_arrow()).to_batches()[0])
    ours = V1File.open(copy, "x").statistics()
    assert ours is not None
    assert theirs is not None
    assert ours.schema.names == theirs.schema.names
    assert repr(ours.to_pylist()) == repr(theirs.to_pylist())


def test_statistics_account_for_lost_nulls() -> None:
    store = MemoryStore("memory://trusted")
    table = sample()
    schema = LanceSchema.from_arrow(table.schema)
    with V1Writer(store, "x", schema) as writer:
        for batch in table.to_batches(max_chunksize=3):
            writer.write(batch)
    file = V1File.open(store, "x", schema)
    found = trusted(file.statistics(), schema, [3, 3])
    number, text = found["i",], found["t",]
    assert number.min is not None
    assert number.null_count is not None
    assert text.null_count is not None
    # The first batch has a zero in place of the null.
    assert number.min.to_pylist() == [None, 4]
    assert number.null_count.to_pylist() == [0, 0]
    assert text.null_count.to_pylist() == [1, 0]
    assert ("s", "x") in found
    assert ("l",) not in found
    masked = trusted(file.statistics(), schema, [3, 3], {0: schema.field("b").id})["i",]
    assert masked.null_count is not None
    assert masked.null_count.to_pylist() == [3, None]
    assert trusted(None, schema, []) == {}


def test_empty_string_may_be_null() -> None:
    store = MemoryStore("memory://empty")
    schema = LanceSchema.from_arrow(pa.schema({"t": pa.string()}))
    with V1Writer(store, "x", schema) as writer:
        writer.write(pa.record_batch({"t": ["", "b"]}))
    found = trusted(V1File.open(store, "x", schema).statistics(), schema, [2])["t",]
    assert found.null_count is not None
    assert found.null_count.to_pylist() == [None]


@pytest.mark.parametrize(("kind", "least"), [(pa.date32(), -(2**31)), (pa.date64(), -86_400_000 * 2**31)])
def test_dates_beyond_the_python_range_have_bounds(kind: pa.DataType, least: int) -> None:
    integers = pa.int32() if kind == pa.date32() else pa.int64()
    collector = Collector(LanceSchema.from_arrow(pa.schema([("x", kind)])).fields[0])
    collector.add(pa.array([least, -least - 1, None], integers).cast(kind))
    nulls, low, high = (collector.arrays().field(i) for i in range(3))
    assert (nulls[0].as_py(), low[0].value, high[0].value) == (1, least, -least - 1)
