"""Conditions over rows: as SQL for each engine, and evaluated row by row like in Spark.

This is the oracle of the differential tests, which shares no code with the library: null is unknown, NaN
is equal to itself and above all numbers, -0.0 is 0.0, strings are ordered by their bytes in UTF-8.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any, Literal

Dialect = Literal["spark", "duckdb", "datafusion"]
Row = dict[str, Any]


def literal(value: Any, kind: str, dialect: Dialect) -> str:
    """Return a value of a column type as SQL; dialects other than Spark's support shared types only."""
    if value is None:
        return "null"
    if kind.startswith("int"):
        names = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint"}
        return f"cast('{value}' as {names[kind]})" if dialect == "spark" or value < -(2**62) else str(value)
    if kind in ("float", "double"):
        text = "NaN" if math.isnan(value) else repr(value).replace("inf", "Infinity")
        return f"cast('{text}' as {kind})"
    if kind.startswith("decimal"):
        return f"cast('{value}' as {kind})"
    if kind == "string":
        assert isinstance(value, str)
        if dialect == "spark":
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return "'" + value.replace("'", "''") + "'"
    if kind == "binary":
        return f"X'{value.hex()}'"
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "date":
        return f"cast('{value.isoformat()}' as date)"
    text = value.replace(tzinfo=None).isoformat(sep=" ")
    if kind == "timestamp_ntz":
        return f"cast('{text}' as {'timestamp_ntz' if dialect == 'spark' else 'timestamp'})"
    return f"cast('{text}Z' as {'timestamptz' if dialect == 'duckdb' else 'timestamp'})"


def order(value: Any) -> Any:
    """Return the sort key of a value."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


@dataclass(frozen=True)
class Condition:
    """One node: ``op`` with its column and values, or with nested conditions."""

    op: str
    column: str = ""
    kind: str = ""
    values: tuple[Any, ...] = ()
    parts: tuple[Condition, ...] = ()
    cast: str = ""

    def columns(self) -> set[str]:
        return {self.column.split(".")[0]} - {""} | {c for p in self.parts for c in p.columns()}

    def leaves(self) -> Iterator[Condition]:
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def smaller(self) -> Iterator[Condition]:
        """Yield conditions with one node removed."""
        yield from self.parts
        for i, part in enumerate(self.parts):
            for less in part.smaller():
                yield replace(self, parts=(*self.parts[:i], less, *self.parts[i + 1 :]))
        if self.op == "in" and len(self.values) > 1:
            for i in range(len(self.values)):
                yield replace(self, values=self.values[:i] + self.values[i + 1 :])

    # --- SQL ---

    def sql(self, dialect: Dialect = "spark") -> str:
        if self.op in ("and", "or"):
            return f"({self.parts[0].sql(dialect)} {self.op} {self.parts[1].sql(dialect)})"
        if self.op == "not":
            return f"(not {self.parts[0].sql(dialect)})"
        column = f"cast({self.column} as {self.cast})" if self.cast else self.column
        if self.op in ("is null", "is not null"):
            return f"{column} {self.op}"
        strings = [literal(v, self.cast or self.kind, dialect) for v in self.values]
        if self.op == "in":
            return f"{column} in ({', '.join(strings)})"
        if self.op == "between":
            return f"{column} between {strings[0]} and {strings[1]}"
        if self.op == "<=>" and dialect != "spark":
            return f"({column} is not distinct from {strings[0]})"
        return f"{column} {self.op} {strings[0]}"

    # --- truth ---

    def of(self, row: Row) -> bool | None:
        """Evaluate for a row; ``None`` is unknown."""
        if self.op in ("and", "or"):
            a, b = (p.of(row) for p in self.parts)
            wins = self.op == "or"
            return wins if wins in (a, b) else None if None in (a, b) else not wins
        if self.op == "not":
            truth = self.parts[0].of(row)
            return None if truth is None else not truth
        value: Any = row
        for name in self.column.split("."):
            value = None if value is None else value[name]
        value = _cast(value, self.cast)
        if self.op in ("is null", "is not null"):
            return (value is None) == (self.op == "is null")
        if self.op == "<=>":
            (other,) = self.values
            return value is other if None in (value, other) else order(value) == order(other)
        if value is None or (len(self.values) == 1 and self.values[0] is None):
            return None
        if self.op == "in":
            if any(v is not None and order(v) == order(value) for v in self.values):
                return True
            return None if None in self.values else False
        if self.op == "like":
            return re.fullmatch(_pattern(self.values[0]), value, re.DOTALL) is not None
        if self.op == "between":
            low, high = self.values
            return bool(order(low) <= order(value) <= order(high))
        a, b = order(value), order(self.values[0])
        truths: dict[str, bool] = {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
        return truths[self.op]


def _pattern(like: str) -> str:
    return "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in like)


def _cast(value: Any, to: str) -> Any:
    if value is None or not to:
        return value
    if to == "double":
        return float(value)
    if to == "date":
        return value.date() if isinstance(value, dt.datetime) else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.date):
        return value.isoformat()
    assert isinstance(value, int | Decimal)
    return str(value)


# --- random conditions -----------------------------------------------------------------------------------------------

#: Casts whose result does not depend on settings of a Spark session, by source type.
CASTS = {
    "int8": ("double", "string"),
    "int16": ("double", "string"),
    "int32": ("double", "string"),
    "int64": ("double", "string"),
    "float": ("double",),
    "boolean": ("string",),
    "date": ("string",),
    "timestamp_ntz": ("date",),
}
_COMPARE = ("=", "<>", "<", "<=", ">", ">=", "<=>")


def random_condition(random: Random, kinds: dict[str, str], values: dict[str, list[Any]], depth: int = 2) -> Condition:
    """Return a random condition on columns of ``kinds``, mostly with some of ``values``."""
    if depth and random.random() < 0.5:
        op = random.choice(("and", "or", "not"))
        count = 1 if op == "not" else 2
        parts = tuple(random_condition(random, kinds, values, depth - 1) for _ in range(count))
        return Condition(op, parts=parts)
    column = random.choice(list(kinds))
    kind = kinds[column]
    known = [v for v in values[column] if v is not None]
    cast = random.choice(CASTS[kind]) if kind in CASTS and random.random() < 0.2 else ""
    if not known or random.random() < 0.12 or kind == "nested":
        return Condition(random.choice(("is null", "is not null")), column, kind, cast=cast)

    def value() -> Any:
        return _cast(random.choice(known), cast)

    if kind == "string" and random.random() < 0.3:
        text = value()
        at = random.randrange(len(text) + 1)
        return Condition("like", column, kind, (random.choice(
            (text[:at] + "%", "%" + text[at:], text[:at] + "_" + text[at + 1 :], "%" + text[at : at + 1] + "%", "")
        ).replace("\\", "_"),))  # fmt: skip
    choice = random.random()
    if choice < 0.2:
        some = [value() for _ in range(random.choice((1, 2, 3, 30)))]
        return Condition("in", column, kind, tuple([*some, None] if random.random() < 0.2 else some), cast=cast)
    if choice < 0.35:
        return Condition("between", column, kind, tuple(sorted((value(), value()), key=order)), cast=cast)
    return Condition(random.choice(_COMPARE), column, kind, (value(),), cast=cast)
