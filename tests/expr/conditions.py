"""Conditions as SQL, from Python values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from trilake.expr import Filter, parse_filter
from trilake.expr.terms.bind import format_path
from trilake.expr.terms.literals import Literal

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "<=>")


def compare(column: str, op: str, value: Any) -> str:
    return f"{format_path((column,))} {op} {Literal.of(value).sql}"


def in_(column: str, values: Iterable[Any]) -> str:
    return f"{format_path((column,))} IN ({', '.join(Literal.of(v).sql for v in values)})"


def is_null(column: str) -> str:
    return f"{format_path((column,))} IS NULL"


def starts_with(column: str, prefix: str) -> str:
    return f"startswith({format_path((column,))}, {Literal.of(prefix).sql})"


def and_(*conditions: str) -> str:
    return f"({' AND '.join(conditions)})"


def or_(*conditions: str) -> str:
    return f"({' OR '.join(conditions)})"


def not_(condition: str) -> str:
    return f"NOT ({condition})"


def to_filter(condition: str, schema: pa.Schema) -> Filter:
    bound = parse_filter(condition, schema)
    assert bound is not None
    return bound
