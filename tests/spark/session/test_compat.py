"""Rows from Arrow for Java."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from trilake.spark.session import runner
from trilake.spark.session.compat import with_offsets

#: What follows an empty buffer of offsets.
_OTHER_BYTES = pa.py_buffer(struct.pack("<ii", 1 << 30, 1 << 30))


def _without_offsets(kind: pa.DataType) -> pa.Array:
    """No rows, as Arrow for Java before 19 sends them."""
    if not (pa.types.is_list(kind) or pa.types.is_map(kind)):
        return pa.nulls(0, kind)
    child = _without_offsets(kind.value_type if pa.types.is_list(kind) else kind.field(0).type)
    return pa.Array.from_buffers(kind, 0, [None, _OTHER_BYTES.slice(0, 0)], children=[child])


def _rows(kind: pa.DataType) -> pa.RecordBatch:
    """A row with an empty list or map, and a row with a struct with one."""
    offsets = pa.py_buffer(struct.pack("<iii", 0, 0, 0))
    child = _without_offsets(kind.value_type if pa.types.is_list(kind) else kind.field(0).type)
    column = pa.Array.from_buffers(kind, 2, [None, offsets], children=[child])
    nested = pa.StructArray.from_arrays([column], ["x"], mask=pa.array([False, True]))
    return pa.RecordBatch.from_arrays([column, nested, pa.array([1, 2])], ["x", "s", "n"])


_INTS = pa.list_(pa.int32())
_KINDS = [
    pa.list_(pa.list_(_INTS)),
    pa.list_(_INTS),
    pa.list_(pa.map_(pa.string(), pa.list_(_INTS))),
    pa.map_(pa.int32(), pa.list_(_INTS)),
]


@pytest.mark.parametrize("kind", _KINDS, ids=str)
def test_lists_without_rows_get_offsets(kind: pa.DataType) -> None:
    rows = with_offsets(_rows(kind))
    assert rows.nbytes < 100
    assert rows.to_pylist() == [{"x": [], "s": {"x": []}, "n": 1}, {"x": [], "s": None, "n": 2}]
    assert rows.schema == _rows(kind).schema
    rows.validate(full=True)


def test_complete_rows_stay_as_they_are() -> None:
    rows = pa.RecordBatch.from_pylist([{"x": [[1]], "s": {"a": [2]}, "m": 3}])
    assert with_offsets(rows) is rows


def test_tasks_get_rows_with_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Frame:
        sparkSession = None

        def mapInArrow(self, work: Any, schema: Any) -> list[pa.RecordBatch]:
            return list(work(iter([_rows(_KINDS[0])])))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            seen.append(batch.nbytes)
            yield batch

    monkeypatch.setattr(runner, "check_session", lambda spark: None)
    frame: Any = Frame()
    runner.map_in_arrow(frame, work, "x int")
    assert len(seen) == 1
    assert seen[0] < 100
