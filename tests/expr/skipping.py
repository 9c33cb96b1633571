"""Small files with statistics, and filters near their bounds."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.expr.conditions import and_, compare, in_, is_null, not_, or_, starts_with

NAN = float("nan")
UTC = dt.UTC
SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "tiny": pa.int8(),
        "x": pa.float64(),
        "f": pa.float32(),
        "s": pa.string(),
        "bin": pa.binary(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "dec": pa.decimal128(9, 2),
        "p": pa.string(),
        "q": pa.int32(),
    }
)

#: Few values, at the limits of each type, so that literals often equal bounds.
VALUES: dict[str, list[Any]] = {
    "n": [-(2**63), -3, 0, 1, 2, 5, 2**53, 2**53 + 1, 2**63 - 1],
    "tiny": [-128, -1, 0, 1, 127],
    "x": [NAN, -float("inf"), -1.5, -0.0, 0.0, 0.1, 2.5, 1e300, float("inf")],
    "f": [NAN, -1.5, -0.0, 0.0, 0.10000000149011612, 2.5, float("inf")],
    "s": ["", "a", "ab", "abc", "abd", "b", "é", "\ud7ff", "\uffff", "\U0001f600", "ab\U0010ffff"],
    "bin": [b"", b"\x00", b"a", b"ab", b"\x7f", b"\x80", b"\xff", b"\xff\xff"],
    "b": [True, False],
    "d": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2020, 2, 29), dt.date(9999, 12, 31)],
    "t": [
        dt.datetime(1, 1, 1, tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999500, tzinfo=UTC),
        dt.datetime(1970, 1, 1, tzinfo=UTC),
        dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        dt.datetime(2020, 1, 1, 12, 0, 0, 123456, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    "dec": [
        Decimal("-9999999.99"),
        Decimal("-0.01"),
        Decimal(0),
        Decimal("0.10"),
        Decimal("2.50"),
        Decimal("9999999.99"),
    ],
    "p": ["", "x", "X", "y%"],
    "q": [-1, 0, 1, 2020],
}

#: Literals of other types, which are cast to the column's.
ODD: dict[str, list[Any]] = {
    "n": [1.5, 0.1, 9007199254740992.0, 9007199254740993.0, 1e300, NAN, "1", 2**70, Decimal("1.5")],
    "tiny": [1000, -1000, 0.5, "1"],
    "x": [1, Decimal("0.1"), "0.1", "nan"],
    "f": [0.1, 1e300, -1e300, 1, "0.1"],
    "s": [],
    "bin": ["a"],
    "b": ["true"],
    "d": ["1970-01-01", dt.datetime(1970, 1, 1, 12, tzinfo=UTC), dt.datetime(1970, 1, 1)],  # noqa: DTZ001 - a ntz literal
    "t": ["1970-01-01", dt.date(1970, 1, 1), dt.datetime(2020, 1, 1)],  # noqa: DTZ001 - a ntz literal
    "dec": [1, 0.1, "0.1", Decimal("0.105"), Decimal(10) ** 30],
    "p": [],
    "q": [1.5, "1"],
}
PARTITIONS = ("p", "q")


def literals(column: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(VALUES[column] + ODD[column])


@st.composite
def terms(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(
        st.sampled_from(["compare", "compare", "in", "null", "prefix", *(["and", "or", "not"] if depth else [])])
    )
    if kind in ("and", "or"):
        parts = draw(st.lists(terms(depth - 1), min_size=1, max_size=3))
        return and_(*parts) if kind == "and" else or_(*parts)
    if kind == "not":
        return not_(draw(terms(depth - 1)))
    column = draw(st.sampled_from([*SCHEMA.names, "x", "f", "x"]))
    if kind == "null":
        return is_null(column)
    if kind == "in":
        values = st.one_of(st.none(), st.sampled_from(VALUES[column]))
        return in_(column, draw(st.lists(values, min_size=1, max_size=4)))
    if kind == "prefix":
        return starts_with(draw(st.sampled_from(["s", "p"])), draw(st.sampled_from(VALUES["s"])))
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"]))
    return compare(column, op, draw(st.one_of(literals(column), st.none())))


def make_files(random: Random, count: int | None = None) -> list[pa.Table]:
    """Small tables with few distinct values each, and one value per partition column."""
    found = []
    for _ in range(count or random.randint(1, 12)):
        rows = random.randint(0, 4)
        columns = []
        for field in SCHEMA:
            size = 1 if field.name in PARTITIONS else random.randint(1, 2)
            few = [random.choice([None, *VALUES[field.name]]) for _ in range(size)]
            if pa.types.is_floating(field.type) and random.random() < 0.3:
                few.append(NAN)
            columns.append(pa.array([random.choice(few) for _ in range(rows)], field.type))
        found.append(pa.Table.from_arrays(columns, schema=SCHEMA))
    return found


seeds = st.integers(0, 2**32)
