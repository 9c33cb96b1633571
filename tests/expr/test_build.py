"""Filters built from terms equal the filters parsed from their SQL."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.expr.semantics import ROWS
from tests.expr.skipping import SCHEMA, make_files, seeds, terms
from trilake.errors import FilterError
from trilake.expr import parse_filter
from trilake.expr.build import (
    Term,
    and_,
    compare,
    constant,
    in_,
    is_null,
    not_,
    or_,
    starts_with,
    to_filter,
)


@settings(max_examples=60, deadline=None)
@given(seeds, terms())
def test_sql_of_a_filter_round_trips(seed: int, term: Term) -> None:
    rows = pa.concat_tables(make_files(Random(seed)))
    built = to_filter(term, SCHEMA)
    parsed = parse_filter(built.sql, SCHEMA)
    assert parsed is not None
    assert parsed.evaluate(rows).to_pylist() == built.evaluate(rows).to_pylist()
    assert parsed.columns == built.columns


@pytest.mark.parametrize(
    ("term", "text", "kept"),
    [
        (compare("i32", ">", 5), "i32 > 5", [4, 7, 8]),
        (compare(("st", "a"), "=", 1), "st.a = 1", [2, 6]),
        (compare("I32", "<=>", None), "I32 <=> NULL", [0]),
        (compare("x.y", "=", 5), "`x.y` = 5", [6]),
        (in_("s", ["a", None]), "s IN ('a', NULL)", [2]),
        (not_(in_("i32", [1, None])), "NOT (i32 IN (1, NULL))", []),
        (in_("i32", []), "FALSE", []),
        (is_null("s"), "s IS NULL", [0]),
        (not_(is_null(("st", "in", "q"))), "NOT (st.`in`.q IS NULL)", [2, 3]),
        (starts_with("s", "a"), "startswith(s, 'a')", [2, 4, 5, 6]),
        (starts_with("bin", b"a"), "startswith(bin, X'61')", [3, 4, 9]),
        (and_(compare("i32", ">", 0), or_(compare("s", "=", "a"), compare("b", "=", True))), None, [2, 6, 8, 10]),
        (or_(and_(compare("i32", "=", 1), compare("s", "=", "a")), is_null("id")), None, [2]),
        (and_(), "TRUE", list(range(12))),
        (or_(), "FALSE", []),
        (constant(True), "TRUE", list(range(12))),
        (constant(None), "NULL", []),
        (compare("dec", "=", Decimal("1.50")), "dec = 1.50", [6]),
        (compare("d", "=", dt.date(2020, 1, 1)), "d = DATE '2020-01-01'", [2]),
        (compare("t", ">", dt.datetime(2021, 1, 1, tzinfo=dt.UTC)), "t > TIMESTAMP '2021-01-01 00:00:00Z'", [5, 11]),
        (compare("f64", "=", float("nan")), "f64 = double('NaN')", [4]),
        (compare("n", ">", 99), "n > 99", [7, 10]),
    ],
)
def test_terms(term: Term, text: str | None, kept: list[int]) -> None:
    bound = to_filter(term, ROWS.schema)
    assert bound.apply(ROWS)["id"].to_pylist() == kept
    if text is not None:
        assert bound.sql == text


def test_conjunctions_are_split() -> None:
    bound = to_filter(and_(compare("i32", ">", 0), and_(is_null("s"), not_(is_null("b")))), ROWS.schema)
    assert [c.sql for c in bound.conjuncts] == ["i32 > 0", "s IS NULL", "NOT (b IS NULL)"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: compare("i32", "~", 1),
        lambda: to_filter(compare("zz", "=", 1), ROWS.schema),
        lambda: to_filter(compare(("i32", "x"), "=", 1), ROWS.schema),
        lambda: to_filter(compare("b", "=", 1), ROWS.schema),
        lambda: to_filter(starts_with("i32", "a"), ROWS.schema),
        lambda: to_filter(compare("I32", "=", 1), ROWS.schema, case_sensitive=True),
        lambda: compare("i32", "=", object()),
        lambda: compare("s", "=", "\ud800"),
    ],
)
def test_invalid_terms_are_rejected(make: object) -> None:
    assert callable(make)
    with pytest.raises(FilterError):
        make()
