"""Filters keep the rows that Spark keeps: answers recorded from Spark 4, see ``record_spark.py``."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from tests.expr.semantics import FILTERS, ROWS
from trilake.errors import FilterError
from trilake.expr import parse_filter

ANSWERS: dict[str, list[int] | str] = json.loads((Path(__file__).parent / "spark_answers.json").read_text())
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

#: Spark fails on a row that DuckDB evaluates: it simplifies before it computes.
LENIENT = {
    "NULL": [],
    "i8 + 100Y > 0": [1, 2, 3, 4, 6, 7, 8, 9, 10, 11],
    "-i32 = 7": [11],
    "- -i8 = 5": [6],
    "i64 + 1 > 0": [1, 2, 4, 6, 7, 8, 9, 10],
    "i32 - 1 = 0": [2],
    # Spark 4.3 returns the null row as well: it folds the comparison to TRUE.
    "i64 < 9223372036854775808": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
}
#: Filters that Spark evaluates and trilake rejects, with the reason.
REJECTED = {
    "big + 1 > 1e27": "Overflow in addition",
    "bin LIKE 'a%'": "must be string",
    "timestamp_micros(i64) IS NULL": "out of range",
    "date_from_unix_date(i32) = '1970-01-02'": "out of range",
    "CAST(bin AS STRING) = 'abc'": "invalid UTF8",
    "date_add('2020-01-01', i32) = '2020-01-02'": "out of range",
    "make_date(2020, 13, 1) IS NULL": "out of range",
    "w RLIKE '[[:alpha:]]'": "character classes",
    "substring(bin, 1, 1) = X'61'": "must be string",
    "shiftleft(i32, 1) = 2": "function shiftleft",
}


def test_every_filter_has_an_answer_and_no_exception_is_stale() -> None:
    assert set(FILTERS) == set(ANSWERS)
    assert set(LENIENT) | set(REJECTED) <= set(FILTERS)
    for text, kept in LENIENT.items():
        assert ANSWERS[text] != kept


def _kept(text: str) -> list[int]:
    bound = parse_filter(text, ROWS.schema, now=NOW)
    assert bound is not None
    ids: list[int] = bound.apply(ROWS)["id"].to_pylist()
    return ids


@pytest.mark.parametrize("text", FILTERS)
def test_agrees_with_spark(text: str) -> None:
    answer = LENIENT.get(text, ANSWERS[text])
    if text in REJECTED:
        with pytest.raises(FilterError, match=REJECTED[text]):
            _kept(text)
    elif isinstance(answer, str):
        with pytest.raises(FilterError):
            _kept(text)
    else:
        assert _kept(text) == answer
