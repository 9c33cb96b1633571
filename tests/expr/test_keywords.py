"""Columns named like SQL keywords need no backticks where Spark needs none.

``spark_keywords.json`` has the keywords of Spark 4 (``sql_keywords()``), conditions, and those in which a keyword
is not a name, recorded from Spark's parser.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from trilake.errors import FilterError
from trilake.expr import parse_expression, parse_filter

SPARK = orjson.loads(Path(__file__).with_name("spark_keywords.json").read_bytes())
FORMS: list[str] = SPARK["forms"]


@pytest.mark.parametrize("form", range(len(FORMS)), ids=FORMS)
def test_keyword_column_names_match_spark(form: int) -> None:
    assert len(SPARK["keywords"]) > 400
    text = FORMS[form]
    numbers = pa.int64() if "LIKE" not in text else pa.string()
    wrong = []
    for word in SPARK["keywords"]:
        if form in SPARK["not_names"].get(word, ()):
            continue
        schema = pa.schema([("other", pa.int64()), (word, numbers), ("t", pa.struct({word: pa.int64()}))])
        try:
            plain = parse_filter(text.replace("{}", word), schema)
            quoted = parse_filter(text.replace("{}", f"`{word}`"), schema)
        except FilterError as e:
            wrong.append((word, e.message))
            continue
        assert plain is not None
        assert quoted is not None
        if plain.predicate != quoted.predicate:
            wrong.append((word, str(plain.predicate)))
    assert not wrong


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CASE WHEN case = 1 THEN end ELSE when END", 2),
        ("case + date - interval", 0),
        ("CAST(date AS BIGINT) + values", 3 + 5),
        ("IF(not, values, end)", 2),
        ("not OR not", False),
        ("NOT not", True),
        ("DATE '2020-01-01' IS NULL", False),
        ("date", 3),
        ("values NOT IN (1, 2) AND values BETWEEN date AND 10", True),
        ("EXTRACT(YEAR FROM DATE '2020-01-01') + year", 2026),
        ("year(DATE '2020-01-01') + year", 2026),
        ("-- values\n values /* date */ + 1", 6),
        ("concat('values', comment)", "valuesx"),
        ("`values` + Values", 10),
        ("null IS NULL", True),
        ("current_date + 1", 8),
    ],
)
def test_meaning_of_a_keyword_depends_on_position(text: str, value: object) -> None:
    row = {"case": 1, "end": 2, "when": 9, "date": 3, "interval": 4, "values": 5, "not": False, "year": 6}
    rows = pa.table({k: [v] for k, v in (row | {"comment": "x", "null": 1, "current_date": 7}).items()})
    assert parse_expression(text, rows.schema).evaluate(rows).to_pylist() == [value]
