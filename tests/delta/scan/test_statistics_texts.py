"""Parsing few statistics strings one by one gives the result of the query for many."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.mutations import mutated
from trilake.delta.scan import statistics
from trilake.delta.scan.statistics import Statistic, parsed
from trilake.expr.terms.engine import query

PLAIN: dict[str, list[Any]] = {
    "TINYINT": [0, -1, 127, -128, None],
    "INTEGER": [0, 5, 2**31 - 1, -(2**31), None],
    "BIGINT": [0, -1, 5, 2**63 - 1, -(2**63), None],
    "DOUBLE": [0, -0.0, 1.5, 1e300, 5e-324, 2**53, -7, None],
    "DATE": ["2020-02-29", "0001-01-01", "9999-12-31", "1969-12-31", None],
    "TIMESTAMP": ["2020-02-29T23:59:59.999", "1969-12-31T00:00:00", "0001-01-01T00:00:00.000001", None],
    "TIMESTAMPTZ": ["2020-02-29T23:59:59.999Z", "1969-12-31T00:00:00Z", "9999-12-31T23:59:59.999999Z", None],
    "VARCHAR": ["", "x", "é日𝔘", "a'b\"c\\", "\u007f\u0080\n", None],
}
OTHER: list[Any] = [
    2**63, 2**31, -129,
    1.0, 1.5, -1e400, 2**53 + 1, True, "", " 1 ", "1e3", "NaN", "x", "2020-02-30", "2020-02-29 ", "10000-01-01",
    "-0001-01-01", "20200229", "2020-02-29T24:00:00", "2020-02-29T10:00:00+02:00", "2020-02-29T10:00:00.12345Z",
    "2020-02-29 10:00:00", "2020-02-29T10:00:60Z", "٢٠٢٠-٠٢-٢٩", "a\u0000b", [], [1], {}, {"x": 1},
]  # fmt: skip
WANTED = [Statistic("n", ("numRecords",), "BIGINT")] + [
    Statistic(f"c{i}", ("minValues", *(("deep", k) if i % 2 else (k,))), k) for i, k in enumerate(PLAIN)
]


def _text(random: Random, odd: float) -> str | None:
    if random.random() < 0.1:
        return random.choice([None, "{}", '{"minValues":null}', '{"numRecords":null,"minValues":{"deep":null}}'])
    values: dict[str, Any] = {"deep": {}}
    for column in WANTED[1:]:
        value = random.choice(OTHER if random.random() < odd else PLAIN[column.type])
        (values["deep"] if "deep" in column.path else values)[column.path[-1]] = value
    return json.dumps({"numRecords": random.randrange(9), "minValues": values}, ensure_ascii=random.random() < 0.5)


def _column(strings: list[str | None]) -> pa.ChunkedArray:
    return pa.chunked_array([strings], pa.string())


def test_plain_values_match_the_query() -> None:
    random = Random(1)
    stats = _column([_text(random, 0) for _ in range(2000)])
    few, many = statistics._few(stats, WANTED), statistics._many(stats, WANTED, query)
    assert few is not None
    few.validate(full=True)
    assert few.schema == many.schema
    assert few.to_pylist() == many.to_pylist()


def test_other_values_match_or_are_left_to_the_query() -> None:
    random, strings = Random(2), []
    for _ in range(10_000):
        text = _text(random, 0.1) or ""
        damaged = mutated(text.encode(), random).decode("utf-8", "replace")
        strings.append(random.choice((text, damaged)))
    many = statistics._many(_column(strings), WANTED, query)
    answered = 0
    for at, text in enumerate(strings):
        few = statistics._few(_column([text]), WANTED)
        if few is not None:
            answered += 1
            assert few.equals(many.slice(at, 1)), text
    assert 2_000 < answered < 9_000


@pytest.mark.parametrize("text", ["5", "[]", "x", "", "{}{}", '{"numRecords":"1"}', '{"numRecords":true}'])
def test_invalid_json_is_left_to_the_query(text: str) -> None:
    stats = _column(["{}", text])
    assert statistics._few(stats, WANTED) is None
    assert parsed(stats, WANTED, query).equals(statistics._many(stats, WANTED, query))


def test_many_strings_are_parsed_in_one_query(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = _column(['{"numRecords":1}'] * (statistics._FEW + 1))
    expected = parsed(stats, WANTED, query)
    monkeypatch.setattr(statistics, "_few", lambda *_: pytest.fail("one by one"))
    assert parsed(stats, WANTED, query).equals(expected)
    assert expected["n"].to_pylist() == [1] * len(stats)
