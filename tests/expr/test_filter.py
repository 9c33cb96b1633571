"""Filters over rows: what is kept, and what is refused."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from trilake.errors import FilterError
from trilake.expr import parse_filter

NAN = float("nan")
ROWS = pa.table(
    {
        "n": pa.array([1, 2, None, 4], pa.int64()),
        "s": ["a", "b", "c", "d"],
        "x": pa.array([1.0, NAN, None, -1.0]),
        "d": [dt.date(2020, 1, 1), None, dt.date(2021, 1, 1), dt.date(2022, 5, 5)],
        "st": [{"a": 1, "B c": "x"}, None, {"a": None, "B c": "y"}, {"a": 4, "B c": "z"}],
        "b": [True, False, None, True],
    }
)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("n > 1", "bd"),
        ("N > 1 AND S <> 'd'", "b"),
        ("x > 5", "b"),
        ("x = CAST('NaN' AS DOUBLE)", "b"),
        ("d > '2020-06-01'", "cd"),
        ("st.a > 1", "d"),
        ("st.`b C` = 'y'", "c"),
        ("b", "ad"),
        ("NOT b", "b"),
        ("n IN (1, 2, NULL)", "ab"),
        ("n NOT IN (1, NULL)", ""),
        ("n <=> NULL", "c"),
        ("n <> 1 AND 1 / (n - 1) > 0.5", "b"),
        ("upper(s) = 'A' OR n = 4", "ad"),
        ("n > 1.5", "bd"),
        ("n = '2'", "b"),
    ],
)
def test_rows_for_which_the_filter_is_true_are_kept_in_order(text: str, kept: str) -> None:
    bound = parse_filter(text, ROWS.schema)
    assert bound is not None
    assert "".join(bound.apply(ROWS)["s"].to_pylist()) == kept


@pytest.mark.parametrize(
    "text", ["q > 1", "sum(n) > 1", "n", "n >", "", "n = 'abc'", "n > (SELECT 1)", "foo(n)", "n > 1; SELECT 1"]
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(FilterError):
        parse_filter(text, ROWS.schema)
