"""The keys of GROUP BY and ORDER BY."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from trilake.expr.sql.translate import plain
from trilake.expr.terms.duckdb_sql import Sql
from trilake.expr.terms.nested_order import order_key
from trilake.sql.duckdb.queries.scope import Output


def position(key: exp.Expression) -> int | None:
    """The place in the SELECT list that a key names; ``None`` for one that is no whole number."""
    digits = plain(key.this) if isinstance(key, exp.Neg) else key
    if not isinstance(digits, exp.Literal) or digits.is_string or not digits.name.isdigit():
        return None
    return int(digits.name) if digits is key else -int(digits.name)


def has_sets(group: exp.Expression | None) -> bool:
    """Whether a GROUP BY groups the rows in several ways, and not just all of them."""
    if group is None:
        return False
    sets = [e for e in group.expressions if isinstance(e, exp.Rollup | exp.Cube | exp.GroupingSets)]
    if len(group.expressions) == len(sets) == 1 and isinstance(sets[0], exp.GroupingSets):
        parts = sets[0].expressions
        if len(parts) == 1 and isinstance(parts[0], exp.Tuple) and not parts[0].expressions:
            return False
    return bool(sets) or any(group.args.get(name) for name in ("rollup", "cube", "grouping_sets"))


def order_of(column: Output) -> str:
    """A column of the SELECT list as a key of ORDER BY."""
    return order_key(replace(column.sql, text=column.ident))


def normal_zero(text: str, value: Sql) -> str:
    """A key of which -0.0 is 0.0, as Spark shows it."""
    return f"({text} + 0)" if value.family in ("float", "double") else text


def lose_signs_of_zero(texts: list[str], keys: Sequence[str], columns: Sequence[Output]) -> None:
    """Changes ``texts``, those of the SELECT list: numbers that are keys of GROUP BY lose the sign of zero."""
    texts[:] = [normal_zero(t, c.sql) if t in keys else t for c, t in zip(columns, texts, strict=True)]


def in_parentheses(part: exp.Expression, key: Callable[[exp.Expression], str]) -> str:
    """One of several sets of keys; ``key`` translates it."""
    text = key(part)
    return text if text.startswith("(") and isinstance(plain(part), exp.Tuple) else f"({text})" if text else "()"
