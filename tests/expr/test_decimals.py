"""Decimals of up to 38 digits and both signs keep every digit in literals, bounds and constants."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.expr.conditions import compare, in_, to_filter
from trilake.expr import ColumnStats, FileStats, can_match, parse_expression, parse_filter
from trilake.expr.terms import bind
from trilake.expr.terms.evaluate import Rows, evaluate
from trilake.expr.terms.literals import Literal

LONG = Decimal("-1234567890123456789012345678.1234567891")


@st.composite
def numbers(draw: st.DrawFn) -> tuple[Decimal, pa.DataType]:
    """A decimal and a type of up to 38 digits that can represent it."""
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    digits = draw(st.integers(0, 10**precision - 1))
    value = Decimal((draw(st.integers(0, 1)) if digits else 0, tuple(map(int, str(digits))), -scale))
    return value, pa.decimal128(precision, scale)


def string_value(value: Decimal) -> str:
    """The number as SQL; an integer is an integer literal, which the parser handles separately."""
    return format(value, "f")


def neighbours(value: Decimal, type_: pa.DataType) -> pa.Table:
    """The value, its neighbours by one unit of the last digit within the type, its negation, and null."""
    with decimal.localcontext(prec=60):
        unit = Decimal((0, (1,), -type_.scale))
        limit = Decimal(10) ** (type_.precision - type_.scale)
        near = [v for v in (value - unit, value + unit, -value) if abs(v) < limit]
    return pa.table({"m": pa.array([value, *near, None], type_)})


WAYS: list[Callable[[str], str]] = [
    lambda x: f"m = {x}",
    lambda x: f"{x} = m",
    lambda x: f"m <=> {x}",
    lambda x: f"m IN ({x}, NULL)",
    lambda x: f"m BETWEEN {x} AND {x}",
    lambda x: f"NOT (m < {x} OR m > {x})",
    lambda x: f"m = -(-({x}))",
    lambda x: f"m = + {x}",
    lambda x: f"m = CASE WHEN true THEN {x} END",
    lambda x: f"coalesce(m, {x}) = {x} AND m IS NOT NULL",
    lambda x: f"m = {x}BD" if "." in x else f"m = {x}",
]


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=10, deadline=None)
@given(numbers())
@example((LONG, pa.decimal128(38, 10)))
@example((LONG.copy_negate(), pa.decimal128(38, 10)))
@example((Decimal(-(10**38) + 1), pa.decimal128(38, 0)))
def test_filter_matches_exactly_its_number(way: Callable[[str], str], number: tuple[Decimal, pa.DataType]) -> None:
    """Literals are never rounded, for any sign and form of condition."""
    value, type_ = number
    rows = neighbours(value, type_)
    expected = [v is not None and v == value for v in rows["m"].to_pylist()]
    assert parse_filter(way(string_value(value)), rows.schema).mask(rows).to_pylist() == expected


@settings(max_examples=40, deadline=None)
@given(numbers())
@example((LONG, pa.decimal128(38, 10)))
def test_literals_from_python_and_arrow_are_exact(number: tuple[Decimal, pa.DataType]) -> None:
    value, type_ = number
    rows = neighbours(value, type_)
    expected = [v is not None and v == value for v in rows["m"].to_pylist()]
    for built in (to_filter(compare("m", "=", value), rows.schema), to_filter(in_("m", [value]), rows.schema)):
        assert built.mask(rows).to_pylist() == expected
    arrow = parse_filter(pc.field("m") == pa.scalar(value, type_), rows.schema)
    assert arrow is not None
    assert arrow.mask(rows).to_pylist() == expected


@settings(max_examples=40, deadline=None)
@given(numbers())
@example((LONG, pa.decimal128(38, 10)))
def test_constants_keep_every_digit(number: tuple[Decimal, pa.DataType]) -> None:
    """Used for defaults, generated columns and SET."""
    value, type_ = number
    for text in (
        string_value(value),
        f"-({string_value(value.copy_negate())})",
        f"CAST('{string_value(value)}' AS {type_str(type_)})",
    ):
        found = parse_expression(text, pa.schema([])).cast(type_).constant
        assert found is not None
        assert found.as_py() == value


def type_str(type_: pa.DataType) -> str:
    return f"DECIMAL({type_.precision},{type_.scale})"


@settings(max_examples=40, deadline=None)
@given(numbers(), numbers())
@example((LONG, pa.decimal128(38, 10)), (LONG, pa.decimal128(38, 10)))
def test_file_with_the_number_is_never_skipped(
    number: tuple[Decimal, pa.DataType], other: tuple[Decimal, pa.DataType]
) -> None:
    """A file whose only value is the number is read for every condition that it satisfies, and for no stricter one."""
    value, type_ = number
    column = pa.array([value], type_)
    rescaled = other[0]
    for stats in (ColumnStats(min=column, max=column, null_count=pa.array([0])), ColumnStats(value=column)):
        for literal in (value, rescaled):
            for op, holds in (
                ("=", value == literal),
                ("<", value < literal),
                ("<=", value <= literal),
                (">", value > literal),
                (">=", value >= literal),
                ("!=", value != literal),
            ):
                found = can_match(
                    parse_filter(f"m {op} {string_value(literal)}", pa.schema({"m": type_})),
                    FileStats.of(1, {("m",): stats}),
                )
                assert found.keep.tolist() == [holds], (op, literal)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=20), st.sampled_from([0, 3, 20, 38]))
def test_decimal_casts_to_the_nearest_double(digits: list[int], scale: int) -> None:
    type_ = pa.decimal128(38, scale)
    values = [Decimal((int(d < 0), tuple(map(int, str(abs(d)))), -scale)) for d in digits]
    found = parse_expression("CAST(m AS DOUBLE) + 0D", pa.schema({"m": type_})).evaluate(
        pa.table({"m": pa.array(values, type_)})
    )
    assert np.array_equal(found.to_numpy(), np.array([float(v) for v in values]))


@settings(max_examples=50, deadline=None)
@given(numbers(), st.sampled_from(["e", "E"]), st.integers(-45, 45))
@example((Decimal(1), pa.decimal128(1, 1)), "e", -1)
@example((Decimal(10), pa.decimal128(1, 0)), "e", -1)
@example((Decimal("0.000001"), pa.decimal128(3, 2)), "E", 4)
def test_strings_with_an_exponent_cast_like_the_number(
    number: tuple[Decimal, pa.DataType], e: str, exponent: int
) -> None:
    value, type_ = number
    expression = parse_expression(f"try_cast(s AS {type_str(type_)})", pa.schema({"s": pa.string()}))
    rows = pa.table({"s": [f" {value:f}{e}{exponent:+}", f"{value:f}{e}99999999999"]})
    with decimal.localcontext(prec=150, rounding=decimal.ROUND_HALF_UP):
        true = value.scaleb(exponent).quantize(Decimal(1).scaleb(-type_.scale))
        fits = abs(true) < Decimal(10) ** (type_.precision - type_.scale)
    assert expression.evaluate(rows).to_pylist() == [true if fits else None, None]


def test_small_floats_cast_and_round_like_their_doubles() -> None:
    rows = pa.table({"d": [1e-5, 9.5e-7, 0.1], "f": pa.array([1e-5, 2.675, 0.1], pa.float32())})
    for sql, expected in (
        ("CAST(d AS DECIMAL(7,7))", ["0.0000100", "0.0000010", "0.1000000"]),
        ("CAST(f AS DECIMAL(20,12))", ["0.000010000000", "2.674999952316", "0.100000001490"]),
        ("round(f, 2)", [0.0, pa.scalar(2.67, pa.float32()).as_py(), pa.scalar(0.1, pa.float32()).as_py()]),
    ):
        found = parse_expression(sql, rows.schema).evaluate(rows).to_pylist()
        assert found == [Decimal(x) if isinstance(x, str) else x for x in expected], sql


def test_decimal_context_does_not_change_literals() -> None:
    """A caller's decimal context with low precision, or with a rounding trap, gives the same rows."""
    rows = pa.table({"m": pa.array([LONG, Decimal("-1.23")], pa.decimal128(38, 10))})
    with decimal.localcontext(prec=2, traps=[decimal.Inexact, decimal.Rounded]):
        assert parse_filter(f"m = {LONG}", rows.schema).mask(rows).to_pylist() == [True, False]
        assert to_filter(compare("m", "<=", LONG), rows.schema).mask(rows).to_pylist() == [True, False]
        assert Literal.of(LONG).negated == Literal.of(LONG.copy_negate())


@pytest.mark.parametrize("type_", [pa.int32(), pa.decimal128(38, 10), pa.float32(), pa.float64()])
def test_number_of_a_million_digits_is_cheap(type_: pa.DataType) -> None:
    """It is out of range for every column: its digits are never expanded."""
    rows = pa.table({"m": pa.array([1, None]).cast(type_)})
    for value, greater in ((Decimal("1E+999999999"), False), (Decimal("-1E+999999999"), True)):
        found = bind.compare(bind.resolve(("m",), rows.schema)[0], ">", Literal.of(value))
        assert evaluate(found, Rows.of(rows)).to_pylist() == [greater, None]
