"""Struct fields at any depth of Arrow types, for any memory layout."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from trilake.expr.nested import field_problem

PAIR = pa.struct({"a": pa.int64(), "b": pa.string()})
SWAPPED = pa.struct({"b": pa.string_view(), "a": pa.int8()})
WRAPS = pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda t: t, "c"),
        (lambda t: pa.struct({"i": t}), "c.i"),
        (pa.list_, "c.element"),
        (pa.large_list, "c.element"),
        (pa.list_view, "c.element"),
        (lambda t: pa.list_(t, 2), "c.element"),
        (lambda t: pa.map_(t, pa.int8()), "c.key"),
        (lambda t: pa.map_(pa.int8(), pa.list_(t)), "c.value.element"),
    ],
)
Wrap = Callable[[pa.DataType], pa.DataType]


@WRAPS
def test_same_fields_in_any_order_are_compatible(wrap: Wrap, path: str) -> None:
    assert field_problem(wrap(SWAPPED), wrap(PAIR), "c") is None
    assert field_problem(wrap(pa.int8()), wrap(PAIR), "c") is None  # not a struct: checked elsewhere
    upper = pa.struct({"A": pa.int64(), "B": pa.string()})
    assert field_problem(wrap(upper), wrap(PAIR), "c", ignore_case=True) is None
    assert field_problem(wrap(pa.struct({"b": pa.string()})), wrap(PAIR), "c", fill=True) is None


@WRAPS
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("abz", "has a field z, which the column lacks"),
        ("aB", "has a field B, which the column lacks"),
        ("aba", "has two fields with the same name: a, b, a"),
        ("b", "has no field a, which the column has"),
    ],
)
def test_other_fields_are_reported(wrap: Wrap, path: str, fields: str, problem: str) -> None:
    source = pa.struct([(name, pa.int64()) for name in fields])
    assert field_problem(wrap(source), wrap(PAIR), "c") == f"the struct for column {path} {problem}"
    if fields == "aB":
        assert field_problem(wrap(source), wrap(PAIR), "c", ignore_case=True) is None


def test_lists_of_different_layouts_are_compatible() -> None:
    problem = "the struct for column c.element has a field z, which the column lacks"
    wider = pa.struct([*PAIR, pa.field("z", pa.int8())])
    assert field_problem(pa.list_(wider, 2), pa.large_list(PAIR), "c") == problem
    assert field_problem(pa.list_view(wider), pa.list_(PAIR), "c") == problem
