"""Seeking in sorted columns, compared with a linear search; correct where the reference is wrong."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trevni.crafted import Block, Col, craft, zigzag
from tests.trevni.test_arrow import written
from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.trevni import TrevniFile
from trilake.trevni.blocks.layout import ValueType
from trilake.trevni.blocks.order import key

KINDS: list[tuple[pa.DataType, ValueType, st.SearchStrategy[Any]]] = [
    (pa.int32(), ValueType.INT, st.integers(-50, 50)),
    (pa.int64(), ValueType.LONG, st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), ValueType.DOUBLE, st.floats()),
    (pa.string(), ValueType.STRING, st.sampled_from(["", "a", "b", "\uffff", "\U0001f600", "\U0001f601x", "é"])),
    (pa.binary(), ValueType.BYTES, st.sampled_from([b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"a"])),
    (pa.bool_(), ValueType.BOOLEAN, st.booleans()),
]


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(KINDS), st.data(), st.sampled_from([1, 3, 20]))
def test_seek_finds_the_first_row_not_below(kind: Any, data: st.DataObject, block_size: int) -> None:
    type_, stored, values = kind
    compare = key(stored)
    rows = sorted(data.draw(st.lists(values, max_size=20)), key=compare)
    file = written(pa.table({"v": pa.array(rows, type_)}), block_size=block_size, columns={"v": {"values": True}})
    wanted = data.draw(values)
    expected = next((i for i, row in enumerate(rows) if compare(row) >= compare(wanted)), len(rows))
    assert file.seek("v", wanted) == expected


def test_first_values_of_booleans() -> None:
    """The reference reads one byte for the first values of all blocks, and misreads the rest."""
    rows = [False] * 20 + [True] * 20
    file = written(pa.table({"b": rows}), block_size=1, columns={"b": {"values": True}})
    assert len(file.columns[0].blocks) > 3
    assert [b.first_value for b in file.columns[0].blocks] == [rows[b.row] for b in file.columns[0].blocks]
    assert (file.seek("b", False), file.seek("b", True)) == (0, 20)
    assert file.read()["b"].to_pylist() == rows


def test_logical_values() -> None:
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in range(100)]
    file = written(pa.table({"d": days}), block_size=16, columns={"d": {"values": True}})
    assert file.seek("d", dt.date(2020, 2, 1)) == 31


def test_columns_that_cannot_be_sought_raise() -> None:
    file = written(pa.table({"plain": [1, 2], "mixed": [2, 1]}), block_size=1, columns={"mixed": {"values": True}})
    with pytest.raises(InvalidArgumentError, match="first values"):
        file.seek("plain", 1)
    with pytest.raises(InvalidArgumentError, match="not sorted"):
        file.seek("mixed", 1)
    with pytest.raises(InvalidArgumentError, match="not a valid value"):
        file.seek("mixed", "x")


def test_wrong_first_value_raises() -> None:
    block = Block(2, zigzag(3) + zigzag(9), first=zigzag(2))
    with pytest.raises(CorruptFileError, match="first value"):
        TrevniFile(craft(2, [Col("v", "int", [block], {"trevni.values": ""})])).seek("v", 8)
