"""Literals, and strings that Spark casts to values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.errors import FilterError
from trilake.expr.terms.literals import (
    MICROS_PER_DAY,
    Kind,
    Literal,
    civil_from_days,
    days_from_civil,
    format_timestamp,
    parse_boolean,
    parse_date,
    parse_double,
    parse_integer,
    parse_timestamp,
)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@given(st.dates())
def test_dates_agree_with_python(date: dt.date) -> None:
    days = (date - dt.date(1970, 1, 1)).days
    assert days_from_civil(date.year, date.month, date.day) == days
    assert civil_from_days(days) == (date.year, date.month, date.day)
    assert parse_date(date.isoformat()) == days
    assert Literal.of(date) == Literal(days, Kind.DATE)


@given(st.integers(-(10**8), 10**8))
def test_days_and_dates_are_inverse_beyond_python(days: int) -> None:
    assert days_from_civil(*civil_from_days(days)) == days


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_timestamps_agree_with_python(when: dt.datetime) -> None:
    micros = (when - EPOCH) // dt.timedelta(microseconds=1)
    assert parse_timestamp(when.isoformat(), with_zone=True) == micros
    assert parse_timestamp(format_timestamp(micros), with_zone=True) == micros
    assert Literal.of(when) == Literal(micros, Kind.TIMESTAMP)
    assert Literal.of(when.replace(tzinfo=None)) == Literal(micros, Kind.TIMESTAMP_NTZ)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970", 0),
        ("1970-1", 0),
        (" 1970-01-02 ", MICROS_PER_DAY),
        ("1970-01-01 1:2:3", 3_723_000_000),
        ("1970-01-01 00:00", 0),
        ("1970-01-01T00:00:00.1", 100_000),
        ("1970-01-01 00:00:00.1234567", 123_456),
        ("1970-01-01 00:00:00Z", 0),
        ("1970-01-01 00:00:00+1", -3_600_000_000),
        ("1970-01-01 00:00:00 -01:30", 5_400_000_000),
        ("1970-01-01 00:00:00 UTC+2", -7_200_000_000),
        ("1970-01-01 01:00:00 Europe/Paris", 0),
        ("+10000-01-01", 253_402_300_800_000_000),
        ("1970-01-01 24:00:00", None),
        ("1970-13-01", None),
        ("1970-02-30", None),
        ("1970-01-01 00:00:00 Nowhere/City", None),
        ("1970-01-01 00:00:00+19:00", None),
        ("70-01-01", None),
        ("", None),
        ("12:00", None),
    ],
)
def test_timestamp_strings(text: str, micros: int | None) -> None:
    assert parse_timestamp(text, with_zone=True) == micros


def test_timestamps_without_zone_ignore_a_zone() -> None:
    assert parse_timestamp("1970-01-01 00:00:00+05:00", with_zone=False) == 0


@pytest.mark.parametrize("text", ["1.5", "x", "", "1 2", "٣", "1" * 200])
def test_invalid_integer_strings(text: str) -> None:
    assert parse_integer(text) is None


@pytest.mark.parametrize("text", ["x", "", "1e", "0x1p3", "1_0", "infinit", "--1"])
def test_invalid_double_strings(text: str) -> None:
    assert parse_double(text) is None


@given(st.floats(allow_nan=False))
def test_doubles_parse_like_python(value: float) -> None:
    assert parse_double(repr(value)) == value


def test_strings_of_booleans() -> None:
    assert [parse_boolean(t) for t in ("T", " yes ", "1", "f", "No", "0", "maybe", "")] == [
        *(True, True, True, False, False, False),
        *(None, None),
    ]


def test_python_values() -> None:
    assert Literal.of(b"a") == Literal(b"a", Kind.BINARY)
    assert Literal.of(True).kind is Kind.BOOLEAN
    for value in (object(), [1], Decimal("NaN"), {}):
        with pytest.raises(FilterError):
            Literal.of(value)
