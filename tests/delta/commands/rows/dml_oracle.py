"""An oracle for DELETE and UPDATE: rows as dictionaries, conditions and values as SQL with an equivalent function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

Row = dict[str, Any]
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("p", pa.string()),
        ("n", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ]
)

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.one_of(st.none(), st.integers(0, 8)),
            "x": st.sampled_from([None, math.nan, -1.5, 0.0, 2.5, math.inf]),
            "s": st.sampled_from([None, "", "a", "ab", "b"]),
            "p": st.sampled_from([None, "u", "v w"]),
            "n": st.one_of(
                st.none(),
                st.fixed_dictionaries({"a": st.sampled_from([None, 1, 2]), "b": st.sampled_from([None, "q"])}),
            ),
        }
    ),
    max_size=6,
)


@dataclass(frozen=True)
class Said:
    """A condition or value: its SQL and its result for a row; a condition is true, false or ``None``."""

    sql: str
    of: Callable[[Row], Any]


def _compare(sql: str, column: str, test: Callable[[Any], bool]) -> Said:
    return Said(sql, lambda r: None if r[column] is None else test(r[column]))


def _above(x: float, limit: float) -> bool:
    return math.isnan(x) or x > limit


def _field(r: Row) -> Any:
    return None if r["n"] is None else r["n"]["a"]


LEAVES = [
    *(_compare(f"k > {i}", "k", lambda v, i=i: v > i) for i in (-1, 2, 5, 8)),
    *(_compare(f"k = {i}", "k", lambda v, i=i: v == i) for i in (1, 4)),
    _compare("k in (0, 3, 7)", "k", lambda v: v in (0, 3, 7)),
    _compare("k % 2 = 1", "k", lambda v: v % 2 == 1),
    _compare("x > 0.0", "x", lambda v: _above(v, 0)),
    _compare("x <= 2.5", "x", lambda v: not _above(v, 2.5)),
    _compare("x = double('NaN')", "x", math.isnan),
    _compare("s like 'a%'", "s", lambda v: v.startswith("a")),
    _compare("upper(s) = 'B'", "s", lambda v: v == "b"),
    _compare("p = 'u'", "p", lambda v: v == "u"),
    _compare("p <> 'u'", "p", lambda v: v != "u"),
    Said("k is null", lambda r: r["k"] is None),
    Said("p is null", lambda r: r["p"] is None),
    Said("n.a = 1", lambda r: None if _field(r) is None else _field(r) == 1),
    Said("true", lambda r: True),
]


def _and(a: Said, b: Said) -> Said:
    def value(r: Row) -> Any:
        result = (a.of(r), b.of(r))
        return False if False in result else None if None in result else True

    return Said(f"({a.sql} AND {b.sql})", value)


def _or(a: Said, b: Said) -> Said:
    def value(r: Row) -> Any:
        result = (a.of(r), b.of(r))
        return True if True in result else None if None in result else False

    return Said(f"({a.sql} OR {b.sql})", value)


def _not(a: Said) -> Said:
    return Said(f"(NOT {a.sql})", lambda r: None if a.of(r) is None else not a.of(r))


CONDITIONS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(st.builds(_and, inner, inner), st.builds(_or, inner, inner), st.builds(_not, inner)),
    max_leaves=3,
)

#: Never empty: a partition value cannot be.
_MORE = Said("concat(s, 'z')", lambda r: None if r["s"] is None else r["s"] + "z")
_PART = {"a": None, "b": None}
#: Assignments by target column or field.
SETS: list[Mapping[str, Said]] = [
    {"k": Said("k + 1", lambda r: None if r["k"] is None else r["k"] + 1)},
    {"k": Said("NULL", lambda r: None), "s": Said("'new'", lambda r: "new")},
    {"p": _MORE},
    {"p": Said("'moved'", lambda r: "moved"), "x": Said("k", lambda r: None if r["k"] is None else float(r["k"]))},
    {"n.a": Said("k", lambda r: r["k"])},
    {"n": Said("NULL", lambda r: None)},
    {"s": Said("p", lambda r: r["p"]), "p": _MORE},
]


def assigned(row: Row, values: Mapping[str, Said]) -> Row:
    """A row with new values, all computed from the row as it was."""
    out = dict(row)
    for name, expression in values.items():
        column, _, field = name.partition(".")
        out[column] = {**_PART, **(row[column] or {}), field: expression.of(row)} if field else expression.of(row)
    return out


def matching(rows: Sequence[Row], condition: Said) -> tuple[list[Row], list[Row]]:
    """The rows for which a condition is true, and the others."""
    hit = [r for r in rows if condition.of(r) is True]
    return hit, [r for r in rows if condition.of(r) is not True]


def as_set(rows: Sequence[Row], *columns: str) -> list[str]:
    """Rows as strings, ignoring the order of rows and struct fields."""

    def plain(value: Any) -> Any:
        return sorted(value.items()) if isinstance(value, dict) else value

    return sorted(repr([plain(r[c]) for c in (columns or SCHEMA.names)]) for r in rows)
