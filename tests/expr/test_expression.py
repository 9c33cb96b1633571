"""Scalar expressions: binding, types, rejected expressions, store assignment, several at once."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from unittest import mock

import pyarrow as pa
import pytest

from trilake.errors import ExpressionError, FilterError, UnsupportedExpressionError
from trilake.expr import evaluate_all, parse_expression, parse_filter
from trilake.expr.terms import engine
from trilake.expr.terms.literals import Literal

UTC = pa.timestamp("us", "UTC")
ROWS = pa.table(
    {
        "n": pa.array([1, 2, None], pa.int64()),
        "s": ["a", None, "c"],
        "ts": pa.array([0, 10**15, None], UTC),
        "wall": pa.array([0, 10**15, None], pa.timestamp("us")),
        "st": pa.array([{"a": 1, "T": None}, None, {"a": 3, "T": 5}], pa.struct([("a", pa.int32()), ("T", UTC)])),
    }
)
NOW = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("N", pa.int64(), [1, 2, None]),
        ("n + 1", pa.int64(), [2, 3, None]),
        ("year(ts)", pa.int32(), [1970, 2001, None]),
        ("concat(s, '-', n)", pa.string(), ["a-1", None, None]),
        ("CAST(ts AS DATE)", pa.date32(), [dt.date(1970, 1, 1), dt.date(2001, 9, 9), None]),
        ("st.A", pa.int32(), [1, None, 3]),
        ("5", pa.int32(), [5, 5, 5]),
        ("NULL", pa.null(), [None, None, None]),
        ("CASE WHEN n > 1 THEN 'x' ELSE s END", pa.string(), ["a", "x", "c"]),
        ("current_timestamp()", UTC, [NOW, NOW, NOW]),
    ],
)
def test_types_and_values(text: str, kind: pa.DataType, values: list[object]) -> None:
    expression = pickle.loads(pickle.dumps(parse_expression(text, ROWS.schema, now=NOW)))
    assert expression.type == kind
    found = expression.evaluate(ROWS)
    assert found.type == kind
    assert found.to_pylist() == values
    assert expression.evaluate(ROWS.to_batches()[0]).to_pylist() == values
    assert expression.evaluate(ROWS.slice(0, 0)).to_pylist() == []


def test_column_keeps_its_timestamp_type() -> None:
    schema = ROWS.schema
    assert parse_expression("wall", schema).type == pa.timestamp("us")
    assert parse_expression("coalesce(wall, wall)", schema).type == pa.timestamp("us")
    assert parse_expression("coalesce(ts, ts)", schema).type == UTC
    assert parse_expression("st", schema).type == schema.field("st").type
    assert parse_expression("st", schema).evaluate(ROWS).to_pylist()[1] is None


def test_referenced_columns() -> None:
    expression = parse_expression("upper(S) || st.t", ROWS.schema)
    assert set(expression.paths) == {("s",), ("st", "T")}
    assert expression.columns == {"s", "st"}
    assert parse_expression("1 + 1", ROWS.schema).constant == pa.scalar(2, pa.int32())


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("sum(n)", "aggregate"),
        ("n + rand()", "not deterministic"),
        ("nope + 1", "column 'nope' not found"),
        ("st.nope", "field 'nope' not found in column 'st'"),
        ("hash(nope)", "column 'nope' not found"),
        ("row_number() OVER (ORDER BY n)", "window|aggregate"),
        ("(SELECT 1)", "subquery"),
        ("", "empty"),
        ("1 / 0", "division by zero"),
    ],
)
def test_invalid_expressions(text: str, match: str) -> None:
    with pytest.raises(ExpressionError, match=match) as raised:
        parse_expression(text, ROWS.schema)
    assert raised.value.code == "INVALID_EXPRESSION"


@pytest.mark.parametrize(
    "text",
    [
        "hash(n)",
        "xxhash64(n)",
        "transform(array(n), x -> x + 1)",
        "n >",
        "named_struct('a', n)",
        "CAST(array(n) AS STRING)",
    ],
)
def test_spark_only_expressions_are_reported(text: str) -> None:
    with pytest.raises(UnsupportedExpressionError, match="only Spark can") as raised:
        parse_expression(text, ROWS.schema)
    assert raised.value.code == "UNSUPPORTED_EXPRESSION"
    assert "filter" not in str(raised.value)


@pytest.mark.parametrize("function", ["timestampdiff", "TIMESTAMPADD", "dateadd", "datediff", "date_add", "date_diff"])
def test_units_of_time_are_not_columns(function: str) -> None:
    with pytest.raises(UnsupportedExpressionError, match="only Spark can"):
        parse_expression(f"{function}(MONTH, n, ts)", ROWS.schema)
    for wrong in (f"{function}(MONTH, nope, ts)", f"{function}(nope, ts)", f"abs({function}(MONTH, n, nope))"):
        with pytest.raises(ExpressionError, match="column 'nope' not found"):
            parse_expression(wrong, ROWS.schema)


def test_failing_row_names_the_expression() -> None:
    rows = pa.table({"n": [1, 0]})
    good, bad = parse_expression("n + 1", rows.schema), parse_expression("10 / n", rows.schema)
    with pytest.raises(ExpressionError, match="10 / n fails on a row: division by zero"):
        evaluate_all([good, bad], rows)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "s.n",
            "s.n fails on a row: Type bigint with value 300 can't be cast because the value is out of range for the",
        ),
        ("s.n * s.n", "Type bigint with value 90000 can't be cast"),
        ("s.small + s.small", r"Overflow in addition of tinyint \(127 \+ 127\) \(column: s.small\)"),
    ],
)
def test_overflow_names_spark_types_and_the_whole_column(sql: str, says: str) -> None:
    kind = pa.struct([("n", pa.int64()), ("small", pa.int8())])
    rows = pa.table({"s": pa.array([{"n": 300, "small": 127}], kind)})
    with pytest.raises(ExpressionError, match=says) as caught:
        parse_expression(sql, rows.schema).cast(pa.int8()).evaluate(rows)
    assert "column c" not in str(caught.value)
    assert "(column: s." in str(caught.value)


def test_evaluate_all_equals_single_evaluation() -> None:
    texts = ["n + 1", "n", "upper(s)", "7", "date_format(ts, 'yyyy-MM')", "st.a * 2"]
    expressions = [parse_expression(t, ROWS.schema) for t in texts]
    for one, values in zip(expressions, evaluate_all(expressions, ROWS), strict=True):
        assert values.equals(one.evaluate(ROWS))


@pytest.mark.parametrize(
    ("text", "target", "value"),
    [
        ("1.9D", pa.int32(), 1),
        ("-1.9D", pa.int64(), -1),
        ("1.005", pa.decimal128(5, 2), Decimal("1.01")),
        ("-1.005", pa.decimal128(5, 2), Decimal("-1.01")),
        ("7", pa.int8(), 7),
        ("7", pa.string(), "7"),
        ("TRUE", pa.string(), "true"),
        ("NULL", pa.date32(), None),
        ("DATE '2020-02-29'", pa.timestamp("us"), dt.datetime(2020, 2, 29)),  # noqa: DTZ001
        ("TIMESTAMP '2020-02-29 12:00:00'", pa.date32(), dt.date(2020, 2, 29)),
    ],
)
def test_store_assignment(text: str, target: pa.DataType, value: object) -> None:
    stored = parse_expression(text, ROWS.schema).cast(target)
    assert stored.type == target
    assert stored.evaluate(ROWS).to_pylist() == [value] * 3


@pytest.mark.parametrize(("text", "target"), [("'1'", pa.int32()), ("n", UTC), ("ts", pa.int64()), ("st", pa.string())])
def test_unassignable_types_are_rejected(text: str, target: pa.DataType) -> None:
    with pytest.raises(ExpressionError, match="cannot be stored as"):
        parse_expression(text, ROWS.schema).cast(target)


def test_out_of_range_value_is_an_error() -> None:
    with pytest.raises(ExpressionError, match="fails on a row"):
        parse_expression("n * 1000", ROWS.schema).cast(pa.int8()).evaluate(ROWS)


def test_nested_values_keep_their_types() -> None:
    stored = parse_expression("coalesce(st, st)", ROWS.schema).cast(ROWS.schema.field("st").type)
    assert stored.evaluate(ROWS).equals(ROWS["st"])


@pytest.mark.parametrize("text", ['t."a" = 1', "`t`.'a' = 1", '"s".x + 1', 'upper("s"."x")', 'a > 1 AND s."x" = 2'])
def test_double_quoted_names_are_not_strings(text: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])
    for parse, error in ((parse_expression, ExpressionError), (parse_filter, FilterError)):
        with pytest.raises(error, match="is a string, not a name") as e:
            parse(text, schema)
        assert "backticks" in str(e.value)
    assert parse_expression("s['x'] + `s`.x", schema).type == pa.int64()


def test_type_of_a_repeated_expression_is_cached() -> None:
    """And looked up again if the column has another type."""
    first, second = (pa.schema([("n", t), ("m", pa.int64())]) for t in (pa.int64(), pa.float64()))
    text = "n * 3 + m - 20261127"
    with mock.patch.object(engine, "query", wraps=engine.query) as spy:
        assert parse_expression(text, first).type == parse_expression(text, first).type == pa.int64()
        assert spy.call_count == 1
        assert parse_expression(text, second).type == pa.float64()
        assert spy.call_count == 2


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 5, -(2**63), 2**63, 0.1, 1e300, float("inf"), "it's", b"\xff", Decimal("-1.50")),
        *(dt.date(2020, 2, 29), dt.datetime(2021, 1, 1, 12, 30, tzinfo=dt.UTC)),
    ],
)
def test_sql_of_a_literal_is_its_value(value: object) -> None:
    constant = parse_expression(Literal.of(value).sql, ROWS.schema).constant
    assert constant is not None
    assert constant.as_py() == value
