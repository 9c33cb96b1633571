"""Data skipping loses no row, proves what it claims, and skips what it should."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilake.errors import InvalidArgumentError
from trilake.expr import ColumnStats, FileStats, Filter, can_match, parse_filter
from trilake.expr.build import OPERATORS, Term, and_, compare, in_, is_null, not_, or_, starts_with, to_filter
from trilake.expr.pushdown import successor

NAN = float("nan")
UTC = dt.UTC

SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "tiny": pa.int8(),
        "x": pa.float64(),
        "f": pa.float32(),
        "s": pa.string(),
        "bin": pa.binary(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "dec": pa.decimal128(9, 2),
        "p": pa.string(),
        "q": pa.int32(),
    }
)
#: Few values, at the edges of each type, so that bounds and literals often meet.
VALUES: dict[str, list[Any]] = {
    "n": [-(2**63), -3, 0, 1, 2, 5, 2**53, 2**53 + 1, 2**63 - 1],
    "tiny": [-128, -1, 0, 1, 127],
    "x": [NAN, -float("inf"), -1.5, -0.0, 0.0, 0.1, 2.5, 1e300, float("inf")],
    "f": [NAN, -1.5, -0.0, 0.0, 0.10000000149011612, 2.5, float("inf")],
    "s": ["", "a", "ab", "abc", "abd", "b", "é", "\ud7ff", "\uffff", "\U0001f600", "ab\U0010ffff"],
    "bin": [b"", b"\x00", b"a", b"ab", b"\x7f", b"\x80", b"\xff", b"\xff\xff"],
    "b": [True, False],
    "d": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2020, 2, 29), dt.date(9999, 12, 31)],
    "t": [
        dt.datetime(1, 1, 1, tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999500, tzinfo=UTC),
        dt.datetime(1970, 1, 1, tzinfo=UTC),
        dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        dt.datetime(2020, 1, 1, 12, 0, 0, 123456, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    "dec": [
        Decimal("-9999999.99"),
        Decimal("-0.01"),
        Decimal(0),
        Decimal("0.10"),
        Decimal("2.50"),
        Decimal("9999999.99"),
    ],
    "p": ["", "x", "X", "y%"],
    "q": [-1, 0, 1, 2020],
}
#: Literals of other types, which are moved into the column's.
ODD: dict[str, list[Any]] = {
    "n": [1.5, 0.1, 9007199254740992.0, 9007199254740993.0, 1e300, NAN, "1", 2**70, Decimal("1.5")],
    "tiny": [1000, -1000, 0.5, "1"],
    "x": [1, Decimal("0.1"), "0.1", "nan"],
    "f": [0.1, 1e300, -1e300, 1, "0.1"],
    "s": [],
    "bin": ["a"],
    "b": ["true"],
    "d": ["1970-01-01", dt.datetime(1970, 1, 1, 12, tzinfo=UTC), dt.datetime(1970, 1, 1)],  # noqa: DTZ001 - a ntz literal
    "t": ["1970-01-01", dt.date(1970, 1, 1), dt.datetime(2020, 1, 1)],  # noqa: DTZ001 - a ntz literal
    "dec": [1, 0.1, "0.1", Decimal("0.105"), Decimal(10) ** 30],
    "p": [],
    "q": [1.5, "1"],
}
PARTITIONS = ("p", "q")


def literals(column: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(VALUES[column] + ODD[column])


@st.composite
def terms(draw: st.DrawFn, depth: int = 2) -> Term:
    kind = draw(
        st.sampled_from(["compare", "compare", "in", "null", "prefix", *(["and", "or", "not"] if depth else [])])
    )
    if kind in ("and", "or"):
        parts = draw(st.lists(terms(depth - 1), min_size=1, max_size=3))
        return and_(*parts) if kind == "and" else or_(*parts)
    if kind == "not":
        return not_(draw(terms(depth - 1)))
    column = draw(st.sampled_from([*SCHEMA.names, "x", "f", "x"]))
    if kind == "null":
        return is_null(column)
    if kind == "in":
        values = st.one_of(st.none(), st.sampled_from(VALUES[column]))
        return in_(column, draw(st.lists(values, min_size=1, max_size=4)))
    if kind == "prefix":
        return starts_with(draw(st.sampled_from(["s", "p"])), draw(st.sampled_from(VALUES["s"])))
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"]))
    return compare(column, op, draw(st.one_of(literals(column), st.none())))


def make_files(random: Random, count: int | None = None) -> list[pa.Table]:
    """Tables of few rows, with few different values in each, of which partition columns have one."""
    found = []
    for _ in range(count or random.randint(1, 12)):
        rows = random.randint(0, 4)
        columns = []
        for field in SCHEMA:
            size = 1 if field.name in PARTITIONS else random.randint(1, 2)
            few = [random.choice([None, *VALUES[field.name]]) for _ in range(size)]
            if pa.types.is_floating(field.type) and random.random() < 0.3:
                few.append(NAN)
            columns.append(pa.array([random.choice(few) for _ in range(rows)], field.type))
        found.append(pa.Table.from_arrays(columns, schema=SCHEMA))
    return found


def _bounds(values: pa.ChunkedArray, cut: int) -> tuple[Any, Any]:
    """Minimum and maximum as Delta writes them: NaN left out, texts cut off, timestamps in widened milliseconds."""
    present = [v for v in values.to_pylist() if v is not None and v == v]
    if not present:
        return None, None
    low, high = min(present), max(present)
    if isinstance(low, str) and cut:
        # Python compares code points, which is the order of UTF-8 bytes.
        prefix = high[:cut]
        return low[:cut], high if len(high) <= cut else successor(prefix)
    if isinstance(low, dt.datetime):
        low = low.replace(microsecond=low.microsecond // 1000 * 1000)
        high = high.replace(microsecond=high.microsecond // 1000 * 1000)
        ms = dt.timedelta(milliseconds=1)
        return low, dt.datetime.max.replace(tzinfo=UTC) if high.year == 9999 else high + ms
    return low, high


def make_statistics(random: Random, tables: list[pa.Table]) -> FileStats:
    """Statistics of files, with some missing and some wide, as after deletions."""
    columns: dict[tuple[str, ...], ColumnStats] = {}
    cut = random.choice([0, 1, 2])
    wide = [random.random() < 0.5 for _ in tables]
    counts = [t.num_rows if random.random() < 0.8 else None for t in tables]
    for field in tables[0].schema:
        name = field.name
        if name in PARTITIONS:
            values = [t[name][0].as_py() if t.num_rows else random.choice(VALUES[name]) for t in tables]
            columns[name,] = ColumnStats(value=pa.array(values, field.type))
            continue
        if random.random() < 0.2:
            continue
        low, high, nulls, counted = [], [], [], []
        for table, is_wide, count in zip(tables, wide, counts):
            a, b = _bounds(table[name], cut)
            counted.append(pa.types.is_floating(field.type) and random.random() < 0.5)
            if counted[-1] and pc.any(pc.is_nan(table[name])).as_py():
                b = None
            null = table[name].null_count
            if is_wide:
                within = pa.array([v for v in VALUES[name] if v == v]).cast(field.type, safe=False).to_pylist()
                a = None if a is None else min(a, random.choice(within))
                b = None if b is None else max(b, random.choice(within))
                if null not in (0, table.num_rows):
                    null = random.choice([n for n in (1, 2, 3) if n != count])
            keep = random.randrange(8)
            low.append(a if keep != 1 else None)
            high.append(b if keep != 2 else None)
            nulls.append(null if keep != 3 else None)
        columns[name,] = ColumnStats(
            min=pa.array(low, field.type),
            max=pa.array(high, field.type),
            null_count=pa.array(nulls, pa.int64()),
            max_counts_nan=pa.array(counted),
        )
    return FileStats.of(len(tables), columns, pa.array(counts, pa.int64()))


def _sound(bound: Filter, tables: list[pa.Table], stats: FileStats) -> None:
    result = can_match(bound, stats)
    rows = np.array([t.num_rows for t in tables])
    mask = bound.mask(pa.concat_tables(tables)).to_numpy()
    matching = np.bincount(np.repeat(np.arange(len(tables)), rows), weights=mask, minlength=len(tables))
    lost = ~result.keep & (matching > 0)
    assert not lost.any(), f"lost {matching[lost]} rows: {result.reason_texts().filter(pa.array(lost))}"
    assert (matching == rows)[result.every_row].all()
    assert (result.keep == (result.reason < 0)).all()


seeds = st.integers(0, 2**32)


@pytest.mark.parametrize("column", SCHEMA.names)
def test_every_leaf_is_sound(column: str) -> None:
    random = Random(column)
    tables = make_files(random, 60)
    stats = make_statistics(random, tables)
    leaves = [compare(column, op, v) for op in OPERATORS for v in VALUES[column] + ODD[column]]
    leaves += [in_(column, random.sample([None, *VALUES[column], *ODD[column]], 2)) for _ in range(9)]
    if column in ("s", "p", "bin"):
        leaves += [starts_with(column, v) for v in VALUES[column]]
    for leaf in [*random.sample(leaves, min(60, len(leaves))), is_null(column)]:
        _sound(to_filter(leaf, SCHEMA), tables, stats)
        _sound(to_filter(not_(leaf), SCHEMA), tables, stats)


@settings(max_examples=40, deadline=None)
@given(seeds, st.lists(terms(), min_size=1, max_size=8))
def test_no_matching_row_is_skipped_and_no_claim_is_false(seed: int, several: list[Term]) -> None:
    random = Random(seed)
    tables = make_files(random)
    for term in several:
        _sound(to_filter(term, SCHEMA), tables, make_statistics(random, tables))


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> pc.Expression:
    kind = draw(
        st.sampled_from(["compare", "compare", "in", "null", "prefix", *(["and", "or", "not"] if depth else [])])
    )
    if kind in ("and", "or"):
        a, b = draw(expressions(depth - 1)), draw(expressions(depth - 1))
        return a & b if kind == "and" else a | b
    if kind == "not":
        return ~draw(expressions(depth - 1))
    column = draw(st.sampled_from(SCHEMA.names))
    field, t = pc.field(column), SCHEMA.field(column).type
    if kind == "null":
        return draw(st.sampled_from([field.is_null(), field.is_valid(), field.is_null(nan_is_null=True)]))
    if kind == "in":
        values = draw(st.lists(st.one_of(st.none(), st.sampled_from(VALUES[column])), max_size=3))
        return field.isin(pa.array(values, t))
    if kind == "prefix":
        return pc.starts_with(pc.field("s"), draw(st.sampled_from(VALUES["s"])))
    value = pc.scalar(pa.scalar(draw(st.sampled_from(VALUES[column])), t))
    kernel = draw(st.sampled_from([pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal]))
    return kernel(field, value) if draw(st.booleans()) else kernel(value, field)


@settings(max_examples=30, deadline=None)
@given(seeds, st.lists(expressions(), min_size=1, max_size=6))
def test_pyarrow_expressions_skip_by_arrow_rules(seed: int, several: list[pc.Expression]) -> None:
    random = Random(seed)
    tables = make_files(random)
    for expression in several:
        bound = parse_filter(expression, SCHEMA)
        assert bound is not None
        _sound(bound, tables, make_statistics(random, tables))


SQL = [
    "upper(p) = 'X'",
    "q % 2 = 0",
    "q / 1 > 0.5 OR n > 1",
    "year(t) = 1970",
    "year(d) >= 2020",
    "CAST(t AS DATE) = '1970-01-01'",
    "CAST(t AS DATE) > '1969-12-31' AND q <> 1",
    "NOT (year(t) < 1970)",
    "s LIKE 'ab%' AND NOT s LIKE 'abc%'",
    "p = 'x' OR length(s) = 2",
    "coalesce(q, 1) = 1",
    "q + 0 = 1 OR n = 1",
    "CAST(q AS DOUBLE) > 0.5 AND CAST(tiny AS DOUBLE) >= 0",
    "CAST(d AS TIMESTAMP) > TIMESTAMP '1970-01-01 00:00:00'",
    "CAST(f AS DOUBLE) <= 0.1",
    "CAST(t AS DATE) IN ('1970-01-01', '2020-01-01') OR year(d) IN (1, 9999)",
    "isnan(x)",
    "NOT isnan(x) AND x > 1",
    "x > 1 IS NOT TRUE",
    "p IS NULL AND q IS NOT NULL",
    "n BETWEEN 1 AND 5 AND NOT b",
    "b IS NOT FALSE",
    "(n > 1) = (q > 0)",
]


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from(SQL))
def test_sql_skips_soundly(seed: int, text: str) -> None:
    random = Random(seed)
    tables = make_files(random)
    _sound(parsed(text), tables, make_statistics(random, tables))


@cache
def parsed(text: str) -> Filter:
    bound = parse_filter(text, SCHEMA)
    assert bound is not None
    return bound


# --- what must be skipped --------------------------------------------------------------------------------------------


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
def test_integers_are_skipped_by_bounds(text: str, kept: str) -> None:
    if kept == "error":
        with pytest.raises(InvalidArgumentError):
            parse_filter(text, SCHEMA)
        return
    found = can_match(parse_filter(text, SCHEMA), _stats(n=_numbers(pa.int64())))
    assert "".join("01"[int(k)] for k in found.keep) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("x > 200", "111"),  # NaN is greater, and no maximum tells of it
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
def test_floats_of_files_whose_maximum_counts_nan(text: str, kept: str) -> None:
    """The second file's writer does not say whether it does."""
    x = replace(_numbers(pa.float64()), max_counts_nan=pa.array([True, False, True]))
    found = can_match(parse_filter(text, SCHEMA), _stats(x=x))
    assert "".join("01"[int(k)] for k in found.keep) == kept


def test_arrow_expressions_compare_nan_as_false() -> None:
    stats = _stats(x=_numbers(pa.float64()))
    assert can_match(parse_filter(pc.field("x") > 50, SCHEMA), stats).keep.tolist() == [False, False, True]
    assert can_match(parse_filter(~(pc.field("x") <= 50), SCHEMA), stats).keep.tolist() == [True, True, True]


def test_a_bound_that_is_nan_says_nothing() -> None:
    nan = ColumnStats(min=pa.array([NAN, 1.0, 1.0]), max=pa.array([NAN, NAN, 5.0]), null_count=pa.array([0, 0, 0]))
    assert can_match(parse_filter("x < 0", SCHEMA), _stats(x=nan)).keep.tolist() == [True, False, False]


def test_texts_are_compared_by_bytes_and_bounds_are_no_values() -> None:
    stats = _stats(s=ColumnStats(min=pa.array(["a", "\uffff", "k"]), max=pa.array(["b", "\U0001f600", "k"])))

    def kept(text: str) -> list[bool]:
        return can_match(parse_filter(text, SCHEMA), stats).keep.tolist()  # type: ignore[no-any-return]

    assert kept("s > '\uffff'") == [False, True, False]
    assert kept("s LIKE 'b%'") == [True, False, False]
    assert kept("s LIKE 'bb%'") == [False, False, False]
    assert kept("startswith(s, 'k')") == [False, False, True]
    assert kept("s <> 'k'") == [True, True, True]
    exact = FileStats.of(1, {("s",): ColumnStats(min=pa.array(["k"]), max=pa.array(["k"]), exact=True)})
    assert can_match(parse_filter("s <> 'k'", SCHEMA), exact).keep.tolist() == [False]


def test_bounds_that_cross_are_not_believed() -> None:
    stats = _stats(n=ColumnStats(min=pa.array([9, 1, None]), max=pa.array([1, 9, None])))
    assert can_match(parse_filter("n > 100", SCHEMA), stats).keep.tolist() == [True, False, True]


def test_counts_that_contradict_each_other_are_not_believed() -> None:
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
    assert run("1 / (q - 1) > 0") == ([True, True, True], [False, False, False])  # it would fail: the scan says so
    expression = parse_filter(pc.utf8_upper(pc.field("p")) == "X", SCHEMA)
    assert can_match(expression, stats).keep.tolist() == [True, True, False]


def test_files_without_records_are_skipped() -> None:
    stats = FileStats.of(2, {}, pa.array([0, None]))
    found = can_match(parse_filter("n > 1", SCHEMA), stats)
    assert found.keep.tolist() == [False, True]
    assert found.reason_texts().to_pylist() == ["the file has no records", None]


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
    assert found.reason_texts().to_pylist() == [
        "n = 5: min is above",
        "n = 5: max is below",
        "n = 5: all values are null",
        "p = 'x': partition value",
        None,
    ]


def test_only_the_columns_of_the_filter_are_asked_for_and_each_once() -> None:
    asked: list[tuple[str, ...]] = []

    def column(path: tuple[str, ...]) -> ColumnStats | None:
        asked.append(path)
        return None

    can_match(parse_filter("n > 1 AND (n < 5 OR s = 'a')", SCHEMA), FileStats(3, column))
    assert sorted(asked) == [("n",), ("s",)]
    asked.clear()
    assert can_match(None, FileStats(3, column)).keep.all()
    assert not asked


def test_nested_fields_have_statistics_of_their_own() -> None:
    schema = pa.schema({"a": pa.struct([("b.c", pa.int64())])})
    stats = FileStats.of(2, {("a", "b.c"): ColumnStats(min=pa.array([1, 10]), max=pa.array([5, 20]))})
    assert can_match(parse_filter("a.`b.c` > 5", schema), stats).keep.tolist() == [False, True]


def test_statistics_of_the_wrong_length_are_an_error() -> None:
    stats = FileStats.of(2, {("n",): ColumnStats(min=pa.array([1]))})
    with pytest.raises(InvalidArgumentError, match="2 files have 1"):
        can_match(parse_filter("n > 1", SCHEMA), stats)


def test_statistics_of_another_type_are_used_only_where_it_is_safe() -> None:
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
def test_functions_that_keep_the_order_use_bounds(text: str, kept: str) -> None:
    def times(*texts: str) -> pa.Array:
        return pa.array([dt.datetime.fromisoformat(t).replace(tzinfo=UTC) for t in texts])

    bounds = ColumnStats(
        min=times("2019-01-01", "2020-01-01", "2021-01-01"),
        max=times("2019-12-31 23:59:59", "2020-01-01", "2021-12-31"),
    )
    found = can_match(parse_filter(text, SCHEMA), _stats(t=bounds))
    assert "".join("01"[int(k)] for k in found.keep) == kept


def test_many_files_cost_no_loop() -> None:
    n = 200_000
    low = np.arange(n)
    stats = FileStats.of(n, {("n",): ColumnStats(min=pa.array(low), max=pa.array(low + 1))}, pa.array(np.full(n, 5)))
    wanted = ", ".join(map(str, range(0, n, 1000)))
    assert can_match(parse_filter(f"n IN ({wanted})", SCHEMA), stats).keep.sum() == 2 * 200 - 1


@pytest.mark.parametrize("stored", [0.0, -0.0])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_zero_has_no_sign_in_bounds_and_partition_values(kind: pa.DataType, stored: float) -> None:
    value = pa.array([stored], kind)
    for stats in (ColumnStats(min=value, max=value, null_count=pa.array([0])), ColumnStats(value=value)):
        for condition in ("x = 0.0", "x = -0.0D", "x IN (-0.0, 5)", "x <=> 0", "x <= -0.0", "x >= 0.0", "NOT (x < 0)"):
            found = can_match(parse_filter(condition, pa.schema({"x": kind})), FileStats.of(1, {("x",): stats}))
            assert found.keep.tolist() == [True], condition
