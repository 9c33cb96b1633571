"""Generated columns: computed values, checks by ``<=>``, and invalid expressions."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.scan.generated import generated_columns, null_safe_equal
from trilake.errors import ExpressionError
from trilake.expr.terms.engine import query

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def schema(**columns: str) -> StructType:
    """Build columns from types, or from type and expression joined by ``=``."""
    fields = []
    for name, text in columns.items():
        kind, _, expression = text.partition("=")
        metadata = {"delta.generationExpression": expression} if expression else {}
        fields.append(StructField(name, PrimitiveType(kind), metadata=metadata))
    return StructType(tuple(fields))


def test_generated_values_have_the_column_type() -> None:
    (column,) = generated_columns(schema(n="long", g="byte=n % 100"), NOW)
    assert column.expression is not None
    result = column.expression.evaluate(pa.table({"n": [205, None]}))
    assert result.type == pa.int8()
    assert result.to_pylist() == [5, None]


def test_spark_only_expression_is_not_parsed() -> None:
    (column,) = generated_columns(schema(n="long", g="integer=hash(n)"), NOW)
    assert column.expression is None


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"g": "integer=nope + 1"}, "generated column g .* column 'nope' not found"),
        ({"n": "long", "g": "integer=upper('a')"}, "cannot be stored as int"),
        ({"n": "long", "f": "long=n + 1", "g": "long=f + 1"}, "g refers to generated column f"),
        ({"g": "long=g + 1"}, "g refers to generated column g"),
        ({"g": "double=rand()"}, "not deterministic"),
    ],
)
def test_invalid_generation_expressions_are_rejected(columns: dict[str, str], match: str) -> None:
    with pytest.raises(ExpressionError, match=match):
        generated_columns(schema(**columns), NOW)


FLOATS = st.none() | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5])
NESTED = st.none() | st.fixed_dictionaries({"f": FLOATS, "l": st.none() | st.lists(FLOATS, max_size=2)})


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a is None and b is None


@given(st.lists(st.tuples(FLOATS, FLOATS), max_size=6))
def test_null_safe_equality_of_numbers(pairs: list[tuple[Any, Any]]) -> None:
    a, b = (pa.array([p[i] for p in pairs], pa.float64()) for i in (0, 1))
    assert null_safe_equal(a, b, query).to_pylist() == [same(x, y) for x, y in pairs]


@given(st.lists(st.tuples(NESTED, NESTED), min_size=1, max_size=6))
def test_null_safe_equality_of_nested_values(pairs: list[tuple[Any, Any]]) -> None:
    kind = pa.struct([("f", pa.float64()), ("l", pa.list_(pa.float64()))])
    a, b = (pa.array([p[i] for p in pairs], kind) for i in (0, 1))
    assert null_safe_equal(a, b, query).to_pylist() == [same(x, y) for x, y in pairs]
