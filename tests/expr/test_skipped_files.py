"""The files that data skipping prunes, and its reasons."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.expr.skipping import NAN, SCHEMA, UTC
from trilake.errors import InvalidArgumentError
from trilake.expr import ColumnStats, FileStats, can_match, parse_filter


def _stats(**columns: ColumnStats) -> FileStats:
    """Three files of ten rows."""
    return FileStats.of(3, {(name,): c for name, c in columns.items()}, pa.array([10, 10, 10]))


def _numbers(t: pa.DataType, nulls: list[int] | None = None) -> ColumnStats:
    return ColumnStats(
        min=pa.array([1, 10, 100]).cast(t), max=pa.array([5, 50, 100]).cast(t), null_count=pa.array(nulls or [0, 3, 0])
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("n > 5", "011"),
        ("5 < n", "011"),
        ("n >= 5", "111"),
        ("n < 10", "100"),
        ("n <= 10", "110"),
        ("n = 10", "010"),
        ("n = 7", "000"),
        ("n != 100", "110"),
        ("NOT n = 100", "110"),
        ("NOT (n > 5)", "100"),
        ("n <=> 7", "000"),
        ("n <=> NULL", "010"),
        ("n IS NULL", "010"),
        ("n IS NOT NULL", "111"),
        ("n IN (7, 60)", "000"),
        ("n IN (7, 20, 100)", "011"),
        ("n NOT IN (100)", "110"),
        ("n NOT IN (7, NULL)", "000"),
        ("n BETWEEN 6 AND 9", "000"),
        ("n > 5 AND n < 60", "010"),
        ("n < 5 OR n > 60", "101"),
        ("n > 5.5", "011"),
        ("n = 1.5", "000"),
        ("n > '5'", "011"),
        ("n > 1e300", "000"),
        ("n = NULL", "000"),
        ("n > 5 AND unknown.field > 1", "error"),
        ("CAST(n AS BIGINT) > 5", "011"),
        ("5 < CAST(n AS BIGINT)", "011"),
        ("CAST(n AS DOUBLE) > 5", "111"),  # a bigint loses digits as a double
        ("n % 2 = 0", "111"),
        ("n % 2 = 0 AND n > 5", "011"),
        ("n % 2 = 0 OR n > 5", "111"),
        ("FALSE", "000"),
    ],
)
def test_integer_bounds_skip_files(text: str, kept: str) -> None:
    if kept == "error":
        with pytest.raises(InvalidArgumentError):
            parse_filter(text, SCHEMA)
        return
    found = can_match(parse_filter(text, SCHEMA), _stats(n=_numbers(pa.int64())))
    assert "".join("01"[int(k)] for k in found.keep) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("x > 200", "111"),  # NaN is greater, and not in the maximum
        ("x >= 200", "111"),
        ("x != 100", "111"),
        ("NOT (x < 200)", "111"),
        ("NOT (x <= 5)", "111"),
        ("x < 10", "100"),
        ("x <= 5", "100"),
        ("x = 7", "000"),
        ("x IN (7, 20)", "010"),
        ("x < -1", "000"),
        ("x = 'nan'", "111"),
        ("isnan(x)", "111"),
    ],
)
def test_floats_may_hold_nan(text: str, kept: str) -> None:
    found = can_match(parse_filter(text, SCHEMA), _stats(x=_numbers(pa.float64())))
    assert "".join("01"[int(k)] for k in found.keep) == kept


@pytest.mark.parametrize(
    ("text", "kept"), [("x > 200", "010"), ("x >= 60", "011"), ("NOT (x <= 50)", "011"), ("x != 100", "110")]
)
def test_float_maximum_that_includes_nan(text: str, kept: str) -> None:
    """The second file's writer does not state whether it includes NaN."""
    x = replace(_numbers(pa.float64()), max_counts_nan=pa.array([True, False, True]))
    found = can_match(parse_filter(text, SCHEMA), _stats(x=x))
    assert "".join("01"[int(k)] for k in found.keep) == kept


def test_arrow_expressions_compare_nan_as_false() -> None:
    stats = _stats(x=_numbers(pa.float64()))
    assert can_match(parse_filter(pc.field("x") > 50, SCHEMA), stats).keep.tolist() == [False, False, True]
    assert can_match(parse_filter(~(pc.field("x") <= 50), SCHEMA), stats).keep.tolist() == [True, True, True]


def test_nan_bound_is_ignored() -> None:
    nan = ColumnStats(min=pa.array([NAN, 1.0, 1.0]), max=pa.array([NAN, NAN, 5.0]), null_count=pa.array([0, 0, 0]))
    assert can_match(parse_filter("x < 0", SCHEMA), _stats(x=nan)).keep.tolist() == [True, False, False]


def test_strings_compare_by_bytes_and_bounds_may_be_truncated() -> None:
    stats = _stats(s=ColumnStats(min=pa.array(["a", "\uffff", "k"]), max=pa.array(["b", "\U0001f600", "k"])))

    def kept(text: str) -> list[bool]:
        return can_match(parse_filter(text, SCHEMA), stats).keep.tolist()  # type: ignore[no-any-return]

    assert kept("s > '\uffff'") == [False, True, False]
    assert kept("s LIKE 'b%'") == [True, False, False]
    assert kept("s LIKE 'bb%'") == [False, False, False]
    assert kept("startswith(s, 'k')") == [False, False, True]
    assert kept("s <> 'k'") == [True, True, True]


def test_crossed_bounds_are_ignored() -> None:
    stats = _stats(n=ColumnStats(min=pa.array([9, 1, None]), max=pa.array([1, 9, None])))
    assert can_match(parse_filter("n > 100", SCHEMA), stats).keep.tolist() == [True, False, True]


def test_contradictory_counts_are_ignored() -> None:
    stats = _stats(n=ColumnStats(null_count=pa.array([11, 10, -1])))
    assert can_match(parse_filter("n > 1", SCHEMA), stats).keep.tolist() == [True, False, True]
    assert can_match(parse_filter("n IS NULL", SCHEMA), stats).keep.tolist() == [True, True, True]


def test_partition_values_decide_any_expression() -> None:
    stats = _stats(
        p=ColumnStats(value=pa.array(["x", "X", None])), q=ColumnStats(value=pa.array([2020, 1, None], pa.int32()))
    )

    def run(text: str) -> tuple[list[bool], list[bool]]:
        found = can_match(parse_filter(text, SCHEMA), stats)
        return found.keep.tolist(), found.every_row.tolist()

    assert run("upper(p) = 'X'") == ([True, True, False], [True, True, False])
    assert run("q % 2 = 0 AND p = 'x'") == ([True, False, False], [True, False, False])
    assert run("concat(p, '-', CAST(q AS STRING)) = 'X-1'") == ([False, True, False], [False, True, False])
    assert run("p IS NULL") == ([False, False, True], [False, False, True])
    assert run("p <=> NULL OR n > 1") == ([True, True, True], [False, False, True])
    assert run("1 / (q - 1) > 0") == ([True, True, True], [False, False, False])  # it would fail: the scan reports it
    expression = parse_filter(pc.utf8_upper(pc.field("p")) == "X", SCHEMA)
    assert can_match(expression, stats).keep.tolist() == [True, True, False]


def test_files_without_records_are_skipped() -> None:
    stats = FileStats.of(2, {}, pa.array([0, None]))
    found = can_match(parse_filter("n > 1", SCHEMA), stats)
    assert found.keep.tolist() == [False, True]
    assert found.reason_strings().to_pylist() == ["the file has no records", None]


def test_reasons_name_the_condition_and_the_cause() -> None:
    stats = FileStats.of(
        5,
        {
            ("n",): ColumnStats(
                min=pa.array([10, 1, None, 1, 1]),
                max=pa.array([20, 2, None, 9, 9]),
                null_count=pa.array([0, 0, 7, 0, 0]),
            ),
            ("p",): ColumnStats(value=pa.array(["x", "x", "x", "y", "x"])),
        },
        pa.array([7] * 5),
    )
    found = can_match(parse_filter("p = 'x' AND n = 5", SCHEMA), stats)
    assert found.reason_strings().to_pylist() == [
        "n = 5: min is above",
        "n = 5: max is below",
        "n = 5: all values are null",
        "p = 'x': partition value",
        None,
    ]


def test_filter_columns_are_read_once() -> None:
    paths: list[tuple[str, ...]] = []

    def column(path: tuple[str, ...]) -> ColumnStats | None:
        paths.append(path)
        return None

    can_match(parse_filter("n > 1 AND (n < 5 OR s = 'a')", SCHEMA), FileStats(3, column))
    assert sorted(paths) == [("n",), ("s",)]
    paths.clear()
    assert can_match(None, FileStats(3, column)).keep.all()
    assert not paths


def test_nested_fields_have_statistics() -> None:
    schema = pa.schema({"a": pa.struct([("b.c", pa.int64())])})
    stats = FileStats.of(2, {("a", "b.c"): ColumnStats(min=pa.array([1, 10]), max=pa.array([5, 20]))})
    assert can_match(parse_filter("a.`b.c` > 5", schema), stats).keep.tolist() == [False, True]


def test_statistics_of_the_wrong_length_are_an_error() -> None:
    stats = FileStats.of(2, {("n",): ColumnStats(min=pa.array([1]))})
    with pytest.raises(InvalidArgumentError, match="2 files have 1"):
        can_match(parse_filter("n > 1", SCHEMA), stats)


def test_statistics_of_another_type_are_used_only_if_safe() -> None:
    found = can_match(parse_filter("n > 5", SCHEMA), _stats(n=_numbers(pa.int16())))
    assert found.keep.tolist() == [False, True, True]
    texts = ColumnStats(min=pa.array(["1", "10", "9"]), max=pa.array(["5", "9", "9"]))
    assert can_match(parse_filter("n > 50", SCHEMA), _stats(n=texts)).keep.all()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("CAST(t AS DATE) = '2020-01-01'", "010"),
        ("CAST(t AS DATE) IN ('2020-01-01', '2021-06-01')", "011"),
        ("year(t) IN (2021)", "001"),
        ("year(t) BETWEEN 2019 AND 2020", "110"),
        ("'2020-01-02' <= date(t)", "001"),
        ("CAST(t AS TIMESTAMP) < DATE '2020-01-01'", "100"),
        ("t < '2020-01-01'", "100"),
        ("year(t) = 300000", "111"),
        ("hour(t) = 1", "111"),
    ],
)
def test_monotonic_functions_use_bounds(text: str, kept: str) -> None:
    def times(*texts: str) -> pa.Array:
        return pa.array([dt.datetime.fromisoformat(t).replace(tzinfo=UTC) for t in texts])

    bounds = ColumnStats(
        min=times("2019-01-01", "2020-01-01", "2021-01-01"),
        max=times("2019-12-31 23:59:59", "2020-01-01", "2021-12-31"),
    )
    found = can_match(parse_filter(text, SCHEMA), _stats(t=bounds))
    assert "".join("01"[int(k)] for k in found.keep) == kept


def test_many_files_are_evaluated_without_a_loop() -> None:
    n = 200_000
    low = np.arange(n)
    stats = FileStats.of(n, {("n",): ColumnStats(min=pa.array(low), max=pa.array(low + 1))}, pa.array(np.full(n, 5)))
    expected = ", ".join(map(str, range(0, n, 1000)))
    assert can_match(parse_filter(f"n IN ({expected})", SCHEMA), stats).keep.sum() == 2 * 200 - 1


@pytest.mark.parametrize("stored", [0.0, -0.0])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_zero_equals_negative_zero_in_bounds(kind: pa.DataType, stored: float) -> None:
    value = pa.array([stored], kind)
    for stats in (ColumnStats(min=value, max=value, null_count=pa.array([0])), ColumnStats(value=value)):
        for condition in ("x = 0.0", "x = -0.0D", "x IN (-0.0, 5)", "x <=> 0", "x <= -0.0", "x >= 0.0", "NOT (x < 0)"):
            found = can_match(parse_filter(condition, pa.schema({"x": kind})), FileStats.of(1, {("x",): stats}))
            assert found.keep.tolist() == [True], condition
