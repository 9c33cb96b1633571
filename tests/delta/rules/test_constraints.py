"""NOT NULL, CHECK constraints and invariants, each against the rule in plain Python."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.delta.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from trilake.delta.rules.constraints import (
    parse_check,
    table_checks,
    verify_checks,
    verify_not_null,
)
from trilake.delta.scan.row_text import describe_row
from trilake.errors import ConstraintViolatedError, CorruptLogError, ExpressionError, SchemaMismatchError

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LONG, STRING = PrimitiveType("long"), PrimitiveType("string")


def table(*fields: StructField) -> StructType:
    return StructType(fields)


AB = table(StructField("a", LONG), StructField("b", LONG), StructField("s", STRING))

#: Conditions and their meaning; Arrow's kernels evaluate some, the embedded engine the others.
CONDITIONS: dict[str, Callable[[Any, Any], bool | None]] = {
    "a > 0": lambda a, b: None if a is None else a > 0,
    "a > b": lambda a, b: None if a is None or b is None else a > b,
    "a IS NULL OR a < 3": lambda a, b: a is None or a < 3,
    "a + b <> 4": lambda a, b: None if a is None or b is None else a + b != 4,
    "coalesce(a, 1) > 0 AND b IS NOT NULL": lambda a, b: (1 if a is None else a) > 0 and b is not None,
    "NULL": lambda a, b: None,
    "TRUE": lambda a, b: True,
}
SMALL = st.none() | st.integers(-3, 5)


@given(st.sampled_from(sorted(CONDITIONS)), st.lists(st.tuples(SMALL, SMALL), max_size=8))
def test_first_violating_row_is_shown(text: str, rows: list[tuple[Any, Any]]) -> None:
    check = parse_check("CHECK constraint", "c", text, AB, NOW)
    batch = pa.record_batch(
        {
            "a": pa.array([a for a, _ in rows], pa.int64()),
            "b": pa.array([b for _, b in rows], pa.int64()),
            "s": pa.array([str(i) for i in range(len(rows))], pa.string()),
        }
    )
    bad = next((i for i, row in enumerate(rows) if CONDITIONS[text](*row) is not True), None)
    if bad is None:
        verify_checks([check], batch)
        return
    with pytest.raises(ConstraintViolatedError) as raised:
        verify_checks([check], batch)
    assert raised.value.context["constraint"] == "c"
    assert f"({text})" in raised.value.message
    assert check.condition is not None
    values = {"a": rows[bad][0], "b": rows[bad][1]}
    for name in check.condition.columns:
        rendered = "null" if values[name] is None else str(values[name])
        assert f"{name} = {rendered}" in raised.value.message


def test_only_complex_conditions_need_the_engine() -> None:
    assert parse_check("CHECK constraint", "c", "a > 0 AND b IN (1, 2)", AB, NOW).filter is not None
    assert parse_check("CHECK constraint", "c", "a > b", AB, NOW).filter is None


def test_spark_only_condition_is_not_parsed() -> None:
    assert parse_check("CHECK constraint", "c", "xxhash64(a) > 0", AB, NOW).condition is None


@pytest.mark.parametrize(
    ("text", "match"), [("nope > 1", "column 'nope' not found"), ("a + 1", "is of type"), ("sum(a) > 1", "aggregate")]
)
def test_invalid_conditions_are_rejected(text: str, match: str) -> None:
    with pytest.raises(ExpressionError, match=match):
        parse_check("CHECK constraint", "c", text, AB, NOW)


def test_condition_that_fails_on_a_row() -> None:
    check = parse_check("CHECK constraint", "c", "10 / a > 1", AB, NOW)
    with pytest.raises(ExpressionError, match="10 / a > 1 fails on a row: division by zero"):
        verify_checks([check], pa.record_batch({"a": [0], "b": [1], "s": ["x"]}))


def invariant(text: Any) -> dict[str, Any]:
    return {"delta.invariants": json.dumps({"expression": {"expression": text}})}


def test_constraints_and_invariants_are_found_at_any_depth() -> None:
    nested = StructType((StructField("d", LONG, metadata=invariant("n.d < 5")),))
    schema = table(StructField("x", LONG, metadata=invariant("x > 3")), StructField("n", nested))
    result = table_checks({"delta.constraints.q": "x < 10", "delta.appendOnly": "true"}, schema, NOW)
    assert [(c.kind, c.name, c.sql) for c in result] == [
        ("CHECK constraint", "q", "x < 10"),
        ("the invariant of column", "x", "x > 3"),
        ("the invariant of column", "n.d", "n.d < 5"),
    ]
    verify_checks(result, pa.record_batch({"x": [4], "n": [{"d": 4}]}))
    for x, d, name in ((11, 4, "q"), (3, 4, "x"), (4, 5, r"n\.d"), (4, None, r"n\.d")):
        with pytest.raises(ConstraintViolatedError, match=f"{name} "):
            verify_checks(result, pa.record_batch({"x": [x], "n": pa.array([{"d": d}], nested.arrow)}))


@pytest.mark.parametrize("raw", ["", "x > 3", "{}", '{"expression": "x > 3"}', '{"expression": {"expression": 3}}', 7])
def test_damaged_invariants_are_an_error(raw: Any) -> None:
    with pytest.raises(CorruptLogError, match="invariant of column x"):
        table_checks({}, table(StructField("x", LONG, metadata={"delta.invariants": raw})), NOW)


# --- NOT NULL --------------------------------------------------------------------------------------------------------


def types(depth: int = 2) -> st.SearchStrategy[DataType]:
    leaf: st.SearchStrategy[DataType] = st.just(LONG)
    if depth == 0:
        return leaf
    inner = types(depth - 1)
    field = st.builds(StructField, st.sampled_from("xy"), inner, st.booleans())
    return st.one_of(
        leaf,
        st.builds(lambda f: StructType((f,)), field),
        st.builds(ArrayType, inner, st.booleans()),
        st.builds(lambda v, n: MapType(STRING, v, n), inner, st.booleans()),
    )


def values(type_: DataType) -> st.SearchStrategy[Any]:
    some: st.SearchStrategy[Any]
    match type_:
        case StructType(fields):
            some = st.fixed_dictionaries({f.name: values(f.type) for f in fields})
        case ArrayType(element, _):
            some = st.lists(values(element), max_size=2)
        case MapType(_, value, _):
            some = st.lists(st.tuples(st.sampled_from("kl"), values(value)), max_size=2)
        case _:
            some = st.just(1)
    return some | st.none()


def breaks(value: Any, type_: DataType, nullable: bool) -> bool:
    """Return whether a value has a null at a NOT NULL position."""
    if value is None:
        return not nullable
    match type_:
        case StructType(fields):
            return any(breaks(value[f.name], f.type, f.nullable) for f in fields)
        case ArrayType(element, contains):
            return any(breaks(v, element, contains) for v in value)
        case MapType(_, inner, contains):
            return any(breaks(v, inner, contains) for _, v in value)
    return False


def loose(type_: DataType) -> pa.DataType:
    """Return the Arrow type without nullability, which Arrow would enforce on the test's rows."""
    match type_:
        case StructType(fields):
            return pa.struct([(f.name, loose(f.type)) for f in fields])
        case ArrayType(element, _):
            return pa.list_(loose(element))
        case MapType(_, value, _):
            return pa.map_(pa.string(), loose(value))
    return type_.arrow


@given(st.data(), types(), st.booleans(), st.integers(0, 2))
def test_nulls_in_not_null_fields_are_found(data: Any, type_: DataType, nullable: bool, skip: int) -> None:
    rows = data.draw(st.lists(values(type_), max_size=5))
    batch = pa.record_batch({"c": pa.array(rows, loose(type_)), "n": pa.array(range(len(rows)), pa.int64())})
    batch, rows = batch.slice(min(skip, len(rows))), rows[skip:]
    schema = table(StructField("c", type_, nullable), StructField("n", LONG))
    bad = [i + skip for i, v in enumerate(rows) if breaks(v, type_, nullable)]
    if not bad:
        verify_not_null(batch, schema)
        return
    with pytest.raises(ConstraintViolatedError, match=r"NOT NULL constraint violated for column: c") as raised:
        verify_not_null(batch, schema)
    assert any(raised.value.message.endswith(f"n = {i}") for i in bad)


def test_violation_is_a_schema_mismatch_with_its_own_code() -> None:
    with pytest.raises(SchemaMismatchError) as raised:
        verify_not_null(pa.record_batch({"a": pa.array([None], pa.int64())}), table(StructField("a", LONG, False)))
    assert raised.value.code == "CONSTRAINT_VIOLATED"


def test_rows_in_messages_are_short() -> None:
    assert describe_row({"d": dt.date(2020, 1, 2), "t": NOW, "s": "it's", "n": None}) == (
        'd = 2020-01-02, t = 2026-01-01 00:00:00Z, s = "it\'s", n = null'
    )
    assert describe_row({f"c{i}": i for i in range(30)}).endswith("c19 = 19 and 10 more columns")
    assert len(describe_row({"s": "x" * 10_000})) < 120


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("\"Price\" >= 0 AND s != 'x'", {"Price": 1, "s": "a"}, {"Price": -1, "s": "a"}),
        ('"Price" IS NOT NULL', {"Price": 1}, {"Price": None}),
        ("\"a b\" = 'it''s \"so\"' OR \"a b\" = '1'", {"a b": 'it\'s "so"'}, {"a b": "2"}),
        ('"q""q" = 1', {'q"q': 1}, {'q"q': 2}),
        # Not deltalake's format: not a column, a name that needs no quotes, a name without quotes.
        ("s = \"Kind\" OR s = 'k'", {"s": "Kind"}, {"s": "a"}),
        ('s = "a"', {"s": "a", "a": 5}, {"s": "b", "a": 5}),
        ('Price > 1 AND s = "Price"', {"Price": 2, "s": "Price"}, {"Price": 2, "s": "2"}),
        ('`Price` > 1 AND s = "Price"', {"Price": 2, "s": "Price"}, {"Price": 2, "s": "2"}),
    ],
)
def test_double_quoted_names_of_deltalake(text: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    text_columns, all_columns = ("s", "a b"), ("s", "a", "Price", "a b", 'q"q')
    schema = table(*(StructField(c, STRING if c in text_columns else LONG) for c in all_columns))
    (check,) = table_checks({"delta.constraints.c": text}, schema, NOW)
    verify_checks([check], pa.RecordBatch.from_pylist([good], schema.to_arrow_schema()))
    with pytest.raises(ConstraintViolatedError):
        verify_checks([check], pa.RecordBatch.from_pylist([bad], schema.to_arrow_schema()))
