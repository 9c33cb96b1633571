"""Long and deep filters: evaluated in linear time, or rejected with the limit named."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sqlglot.errors import SqlglotError

from trilake.errors import ExpressionError, FilterError
from trilake.expr import parse_expression, parse_filter
from trilake.expr.sql.dialect import parse
from trilake.expr.terms.predicate import In

ROWS = pa.table({"n": pa.array([1, 2, None, 70_000]), "s": ["1", "b", None, ""], "x": [1.0, -0.0, None, float("nan")]})


def test_many_ors_become_one_membership_test() -> None:
    text = " OR ".join(f"n = {i}" for i in range(3_000)) + " OR s = 'b'"
    found = parse_filter(text, ROWS.schema)
    assert found is not None
    assert len(found.conjuncts) == 1
    assert isinstance(found.predicate.children()[0], In)
    assert len(found.predicate.children()) == 2
    assert found.evaluate(ROWS).to_pylist() == [True, True, None, False]


def test_ors_over_floats_keep_spark_equality() -> None:
    text = " OR ".join(f"x = {i}D" for i in range(40)) + " OR x = double('NaN')"
    assert parse_filter(text, ROWS.schema).evaluate(ROWS).to_pylist() == [True, True, None, True]


@pytest.mark.parametrize("value", ["0.0", "-0.0", "0", "0D", "-0D"])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_zero_equals_negative_zero(kind: pa.DataType, value: str) -> None:
    rows = pa.table({"x": pa.array([0.0, -0.0, 1.0], kind)})
    for condition in (
        f"x = {value}",
        f"x IN ({value}, 7)",
        f"x <=> {value}",
        f"NOT (x <> {value})",
        f"x + 0 = {value}",
    ):
        assert parse_filter(condition, rows.schema).mask(rows).to_pylist() == [True, True, False], condition


@pytest.mark.parametrize("operator", ["+", "-", "&"])
def test_type_of_a_sum_is_computed_once(operator: str) -> None:
    """Computing the type of each partial sum would take quadratic time."""
    from trilake.expr.terms import engine

    calls: list[int] = []
    real = engine.result_types

    def counting(sql: str) -> list[str]:
        calls.append(len(sql))
        return real(sql)

    engine.result_types = counting  # type: ignore[assignment]
    try:
        parse_filter("n = " + f" {operator} ".join(["n"] * 200), ROWS.schema)
    finally:
        engine.result_types = real
    assert len(calls) <= 5
    assert sum(calls) < 20_000


@pytest.mark.parametrize(
    "text",
    [
        "n = " + " + ".join(["1"] * 20_000),
        "n = " + " + ".join(["n"] * 20_000),
        "(" * 5_000 + "n = 1" + ")" * 5_000,
        "NOT " * 5_000 + "n = 1",
        "NOT (" * 5_000 + "n = 1" + ")" * 5_000,
        "n = " + "- " * 5_000 + "1",
        "n = " + "abs(" * 5_000 + "n" + ")" * 5_000,
        "CASE WHEN n = 1 THEN " * 2_000 + "true" + " END" * 2_000,
    ],
    ids=["constants", "columns", "parentheses", "NOT", "NOT()", "minus", "calls", "CASE"],
)
def test_too_deep_filter_is_rejected_with_the_limit(text: str) -> None:
    with pytest.raises(FilterError, match=r"nested too deeply: .*\d+ levels") as rejected:
        parse_filter(text, ROWS.schema)
    assert len(str(rejected.value)) < 1_000


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (f"n IN ({','.join(map(str, range(200_000)))})", "limit is 1,000,000"),
        (" OR ".join(f"n + 1 = {i}" for i in range(2_100)), "more than 2,000 conditions"),
    ],
)
def test_too_long_filter_is_rejected_with_the_limit(text: str, limit: str) -> None:
    with pytest.raises(FilterError, match=limit):
        parse_filter(text, ROWS.schema)


@pytest.mark.parametrize("form", ["substring({}, -1, 2)", "({}) IN ('x', 'true', null)", "nullif({}, 'x')"])
def test_nested_rewrites_do_not_grow_exponentially(form: str) -> None:
    """Each level contains the one below several times: fifty levels took more than 20 GB."""
    text = "s"
    for _ in range(50):
        text = form.format(text)
    with pytest.raises(ExpressionError, match=r"is too long after translation| nests IN"):
        parse_expression(text, ROWS.schema)
    assert parse_filter("((s IN ('b', 'c')) IN (true, null)) IN (true, false)", ROWS.schema).mask(ROWS).to_pylist()[1]
    assert parse_filter("substring(substring(s, 1, 2), 1, 1) = 'b'", ROWS.schema).mask(ROWS).to_pylist()[1]


@pytest.mark.parametrize("levels", [1, 30, 100])
def test_realistic_filters_are_not_too_deep(levels: int) -> None:
    assert parse_filter("(" * levels + "n = 1" + ")" * levels, ROWS.schema).mask(ROWS).to_pylist()[0]
    assert parse_filter("NOT NOT " * levels + "n = 1", ROWS.schema).mask(ROWS).to_pylist()[0]
    assert parse_filter("n = " + " + ".join(["1"] * levels) + f" - {levels - 1}", ROWS.schema).mask(ROWS).to_pylist()[0]


def test_deeply_nested_structs_are_rejected_before_parsing() -> None:
    with pytest.raises(FilterError, match="12 nested calls of struct"):
        parse("named_struct(" + "struct(" * 50 + "'x', a)")
    with pytest.raises(SqlglotError):
        parse("struct(" * 8 + "a")
    assert parse(" AND ".join(["s = 'struct(struct(struct(struct(struct('"] * 4))
    assert parse(" OR ".join([f"struct(a, {i}) = s" for i in range(40)]))
