"""Identity columns: start and step, uniqueness across tasks, high watermarks, overflow, and conflicts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.rules.identity import (
    Allocator,
    IdentityColumn,
    identity_columns,
    identity_metadata,
    shift_identity,
    shifts,
    updated_schema,
)
from trilake.errors import CorruptLogError, IdentityOverflowError, InvalidArgumentError

LEAST, GREATEST = -(2**63), 2**63 - 1
STEPS = st.integers(-1000, 1000).filter(bool)
MARKS = st.none() | st.integers(-5000, 5000)


def schema(mark: int | None = None, metadata: Mapping[str, object] = MappingProxyType({})) -> StructType:
    fields = {**identity_metadata(1, 1), **({} if mark is None else {"delta.identity.highWaterMark": mark}), **metadata}
    return StructType(
        (StructField("id", PrimitiveType("long"), metadata=fields), StructField("x", PrimitiveType("long")))
    )


def beyond(column: IdentityColumn, value: int) -> bool:
    if column.mark is None:
        return True
    return value > column.mark if column.step > 0 else value < column.mark


@given(st.integers(-2000, 2000), STEPS, MARKS, st.integers(0, 300))
def test_single_task_takes_consecutive_values(start: int, step: int, mark: int | None, count: int) -> None:
    column = IdentityColumn("id", start, step, mark)
    allocator = Allocator(column, tasks=1)
    values = allocator.take(count).to_pylist() + allocator.take(3).to_pylist()
    k = 0
    while not beyond(column, start + k * step):
        k += 1
    assert values == [start + (k + i) * step for i in range(count + 3)]
    assert allocator.mark == values[-1]


@given(
    STEPS,
    MARKS,
    st.lists(st.lists(st.integers(0, 200_000), max_size=4), min_size=1, max_size=5),
    st.booleans(),
)
def test_independent_tasks_never_collide(step: int, mark: int | None, takes: list[list[int]], known: bool) -> None:
    column = IdentityColumn("id", 7, step, mark)
    ends: list[tuple[int, int]] = []
    total: set[int] = set()
    for task, counts in enumerate(takes):
        allocator = Allocator(column, task, len(takes) if known else None)
        for count in counts:
            values = allocator.take(count).to_numpy()
            total |= set(values.tolist())
            ends.append((len(values), len(set(values.tolist()))))
        if allocator.mark is not None:
            assert beyond(column, allocator.mark)
    assert len(total) == sum(n for n, _ in ends)
    assert all((v - 7) % step == 0 and (v - 7) // step >= 0 and beyond(column, v) for v in list(total)[:1000])


def test_first_task_leaves_no_gap_in_its_first_block() -> None:
    assert Allocator(IdentityColumn("id", 1, 1), 0).take(1000).to_pylist() == list(range(1, 1001))


@pytest.mark.parametrize(("start", "step", "last"), [(GREATEST - 2, 1, GREATEST), (LEAST + 4, -2, LEAST)])
def test_overflow_is_rejected_after_the_last_value(start: int, step: int, last: int) -> None:
    allocator = Allocator(IdentityColumn("id", start, step), tasks=1)
    assert allocator.take(3).to_pylist()[-1] == last
    with pytest.raises(IdentityOverflowError, match="no values left"):
        allocator.take(1)
    with pytest.raises(IdentityOverflowError):
        Allocator(IdentityColumn("id", start, step, mark=last), 0).take(1)


def test_whole_range_can_be_allocated() -> None:
    column = IdentityColumn("id", LEAST, 2**62)
    assert Allocator(column, tasks=1).take(4).to_pylist() == [LEAST, -(2**62), 0, 2**62]


def test_blocks_shrink_near_the_limit() -> None:
    column = IdentityColumn("id", 0, 2**40)
    tasks = [Allocator(column, t).take(5).to_pylist() for t in range(20)]
    assert len({v for values in tasks for v in values}) == 100


@given(st.integers(-100, 100), STEPS, MARKS, st.integers(-9000, 9000), st.integers(1, 50))
def test_shift_matches_allocation_after_the_winner(
    start: int, step: int, mark: int | None, winner: int, count: int
) -> None:
    mine = IdentityColumn("id", start, step, mark)
    values = Allocator(mine, tasks=1).take(count).to_pylist()
    again = IdentityColumn("id", start, step, mine.further(mark, winner))
    assert [v + mine.shift(winner) for v in values] == Allocator(again, tasks=1).take(count).to_pylist()


def test_shift_identity_of_rows() -> None:
    rows = pa.table({"x": [1, 2], "id": [6, 7]})
    by = shifts(schema(5), schema(105), ["id"])
    assert by == {"id": 100}
    assert shift_identity(rows, by).to_pydict() == {"x": [1, 2], "id": [106, 107]}
    assert shifts(schema(5), schema(5), ["id"]) == {}
    with pytest.raises(IdentityOverflowError):
        shift_identity(rows, {"id": GREATEST})


def test_high_water_mark_only_moves_forward() -> None:
    before = schema(10)
    assert updated_schema(before, [{"id": 5}, {}]) is before
    after = updated_schema(before, [{"id": 12}, {"id": 40}, {}])
    assert after.fields[0].metadata["delta.identity.highWaterMark"] == 40
    assert after.fields[1] == before.fields[1]
    down = schema(None, {"delta.identity.step": -1})
    assert identity_columns(updated_schema(down, [{"id": -3}, {"id": 0}]))[0].mark == -3


def test_explicit_values_move_the_mark_only_beyond_it() -> None:
    column = IdentityColumn("id", 10, 5, mark=100, explicit=True)
    assert column.reach(pa.array([1, None, 500])) == 500
    assert column.reach(pa.array([1, 100, None])) is None
    assert column.reach(pa.array([None], pa.int64())) is None
    assert IdentityColumn("id", 10, 5).reach(pa.array([9])) is None
    assert IdentityColumn("id", 10, -5).reach(pa.array([11, 3])) == 3


@pytest.mark.parametrize(
    "metadata",
    [
        {"delta.identity.step": 0},
        {"delta.identity.step": "x"},
        {"delta.identity.start": 2**63},
        {"delta.identity.start": None},
        {"delta.identity.highWaterMark": "?"},
    ],
)
def test_damaged_identity_metadata_is_an_error(metadata: dict[str, object]) -> None:
    with pytest.raises(CorruptLogError, match="'id'"):
        identity_columns(schema(None, metadata))


def test_identity_column_must_be_long() -> None:
    with pytest.raises(CorruptLogError, match="not long"):
        identity_columns(StructType((StructField("id", PrimitiveType("integer"), metadata=identity_metadata()),)))
    assert identity_columns(StructType((StructField("id", PrimitiveType("integer")),))) == ()


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(InvalidArgumentError):
        identity_metadata(step=0)
    with pytest.raises(InvalidArgumentError):
        identity_metadata(start=2**63)
    with pytest.raises(InvalidArgumentError):
        Allocator(IdentityColumn("id", 1, 1), 3, 3)
