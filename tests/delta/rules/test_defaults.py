"""Column defaults apply to omitted columns only."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from trilake.delta.protocol.schema import PrimitiveType, StructField
from trilake.delta.rules.defaults import default_expression, parse_default
from trilake.errors import ExpressionError

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)


def column(kind: str, text: str) -> StructField:
    return StructField("c", PrimitiveType(kind), metadata={"CURRENT_DEFAULT": text})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("long", "42", 42),
        ("byte", "42", 42),
        ("integer", "CAST('7' AS INT) + 1", 8),
        ("string", "'it''s'", "it's"),
        ("string", "42", "42"),
        ("date", "DATE '2020-02-29'", dt.date(2020, 2, 29)),
        ("date", "current_date()", NOW.date()),
        ("timestamp", "current_timestamp()", NOW),
        ("double", "1.5", 1.5),
        ("boolean", "true", True),
        ("long", "NULL", None),
    ],
)
def test_default_values_are_parsed(kind: str, text: str, value: Any) -> None:
    field = column(kind, text)
    assert default_expression(field) == text
    expression = parse_default(field, text, NOW)
    assert expression is not None
    assert expression.constant is not None
    assert expression.constant.type == field.type.arrow
    assert expression.constant.as_py() == value


def test_spark_only_default_is_not_parsed() -> None:
    assert parse_default(column("string", "current_user()"), "current_user()", NOW) is None


@pytest.mark.parametrize(
    ("kind", "text"), [("long", "other + 1"), ("long", "'x'"), ("byte", "1000"), ("long", "rand()")]
)
def test_invalid_defaults_are_rejected(kind: str, text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_default(column(kind, text), text, NOW)


def test_columns_without_default() -> None:
    assert default_expression(StructField("c", PrimitiveType("long"))) is None
