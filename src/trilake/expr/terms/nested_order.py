"""DuckDB's nested types, and Spark's order of their values."""

from __future__ import annotations

from functools import lru_cache

from trilake.common.text import single_quoted
from trilake.errors import FilterError
from trilake.expr.terms.duckdb_sql import Sql
from trilake.expr.terms.engine import children_of


@lru_cache(4096)
def fields_of(struct: str) -> tuple[tuple[str, str], ...]:
    """The names and types of a DuckDB struct type's fields.

    >>> fields_of('STRUCT("a b" INTEGER, c VARCHAR[])')
    (('a b', 'INTEGER'), ('c', 'VARCHAR[]'))
    """
    return children_of(struct)


@lru_cache(4096)
def parts_of(container: str) -> tuple[str, ...]:
    """The types of a DuckDB array's elements, or of a map's keys and values."""
    return tuple(kind for _, kind in children_of(container))


def order_key(value: Sql) -> str:
    """A key that DuckDB orders as Spark orders ``value``: the value itself, unless it is an array or a struct.

    In Spark a null inside an array or struct sorts first, in DuckDB 2.0 last.  The key has a marker before each
    part for whether it is null.  Raises ``FilterError`` for values without an order.

    >>> order_key(Sql("a", "INTEGER"))
    'a'
    >>> order_key(Sql("a", "INTEGER[]"))
    'list_transform(a, lambda "k#0": struct_pack(there := "k#0" IS NOT NULL, part := "k#0"))'
    """
    if not value.has_order:
        raise FilterError(f"values of type {value.spark_type} have no order")
    if value.family not in ("array", "struct"):
        return value.text
    if value.family == "array" or value.text.startswith('"'):
        return _key(value.text, value.type, 0)
    bound = '"k#0"'  # the operand appears once, however many fields there are
    return f"list_transform([{value.text}], lambda {bound}: {_key(bound, value.type, 1)})[1]"


def sides(operator: str, left: Sql, right: Sql) -> tuple[str, str]:
    """What DuckDB compares by ``operator`` as Spark compares two values of one type."""
    equal = operator in ("=", "<>", "!=")
    return (left.text, right.text) if equal else (order_key(left), order_key(right))


def _key(text: str, kind: str, depth: int) -> str:
    family = Sql("", kind).family
    if family == "map":
        raise FilterError("values with maps in them have no order")
    if family == "array":
        element = f'"k#{depth}"'
        return f"list_transform({text}, lambda {element}: {_marked(element, parts_of(kind)[0], depth + 1)})"
    if family == "struct":
        fields = (
            f"f{number} := {_marked(f'struct_extract({text}, {single_quoted(name)})', inner, depth)}"
            for number, (name, inner) in enumerate(fields_of(kind))
        )
        return f"(CASE WHEN {text} IS NOT NULL THEN struct_pack({', '.join(fields)}) END)"
    return text


def _marked(text: str, kind: str, depth: int) -> str:
    return f"struct_pack(there := {text} IS NOT NULL, part := {_key(text, kind, depth)})"
