"""Expressions have the values and types recorded from Spark 4."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.expr.scalar_cases import ARROW, EXPRESSIONS, ROWS, STORED, as_strings
from trilake.errors import ExpressionError
from trilake.expr import parse_expression
from trilake.expr.terms.datatypes import spark_name

ANSWERS: dict[str, tuple[str, list[str]] | str] = json.loads((Path(__file__).parent / "spark_values.json").read_text())

#: Expressions that Spark evaluates and trilake rejects, with the reason.
FAILS = {"from_unixtime(n)": "Overflow"}
#: Expressions with a wider decimal type, which represents the same values.
OTHER_TYPE = {
    "dec + 1": "decimal(22,2)",
    "dec * 2": "decimal(38,2)",
    "dec * dec": "decimal(38,4)",
    "dec + dec": "decimal(20,2)",
    "dec - 0.005": "decimal(21,3)",
    "dec % 3": "decimal(21,2)",
    "floor(dec)": "decimal(10,0)",
    "ceil(dec)": "decimal(10,0)",
}


def test_every_case_has_an_answer_and_no_exception_is_stale() -> None:
    assert set(ANSWERS) == {*EXPRESSIONS, *(f"CAST({e} AS {t})" for e, t in STORED)}
    assert set(FAILS) | set(OTHER_TYPE) <= set(ANSWERS)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_values_and_types_match_spark(text: str) -> None:
    answer = ANSWERS[text]
    if isinstance(answer, str):
        with pytest.raises(ExpressionError):
            parse_expression(text, ROWS.schema).evaluate(ROWS)
    elif text in FAILS:
        with pytest.raises(ExpressionError, match=FAILS[text]):
            parse_expression(text, ROWS.schema).evaluate(ROWS)
    else:
        expression = parse_expression(text, ROWS.schema)
        kind, values = answer
        assert as_strings(expression.evaluate(ROWS).to_pylist()) == values
        assert spark_name(expression.type) == OTHER_TYPE.get(text, kind)


@pytest.mark.parametrize(("text", "target"), STORED)
def test_stored_values_match_spark(text: str, target: str) -> None:
    answer = ANSWERS[f"CAST({text} AS {target})"]
    stored = parse_expression(text, ROWS.schema).cast(ARROW[target])
    assert stored.type == ARROW[target]
    if isinstance(answer, str):
        with pytest.raises(ExpressionError, match="fails on a row"):
            stored.evaluate(ROWS)
        return
    assert as_strings(stored.evaluate(ROWS).to_pylist()) == answer[1]
