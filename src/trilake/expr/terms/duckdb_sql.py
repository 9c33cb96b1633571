"""Typed pieces of DuckDB SQL, and Spark's coercions to a common type.

All timestamps in DuckDB are naive UTC: columns are registered without their zone, so session settings have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa

from trilake.common.text import double_quoted, single_quoted
from trilake.errors import FilterError
from trilake.expr.terms.datatypes import NAMES, normal_type
from trilake.expr.terms.literals import Kind, Literal

#: Most characters of SQL for DuckDB, as some translations repeat their operands.
_MOST_CHARACTERS = 1_000_000

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")


@dataclass(frozen=True)
class Sql:
    """DuckDB SQL of an expression, which can be nested anywhere, and DuckDB's name of its type.

    ``digits`` is the width of an integer literal as a decimal; ``char`` is the length of a ``char(n)`` column, which
    Spark compares differently.
    """

    code: str
    type: str
    digits: int | None = None
    char: int | None = None

    def __post_init__(self) -> None:
        if len(self.code) > _MOST_CHARACTERS:
            raise FilterError("the filter is too complex", help="compute parts of it as columns first")

    @property
    def family(self) -> str:
        """The Spark type family: ``void``, ``boolean``, ``integer``, ``decimal``, ``float``, ``double``, ``string``,
        ``binary``, ``date``, ``timestamp``, ``interval``, ``array``, ``map``, ``struct`` or ``other``."""
        return "array" if self.type.endswith("]") else _FAMILIES.get(self.type.split("(", 1)[0], "other")

    @property
    def as_string(self) -> Sql:
        """The same expression, compared as a plain string."""
        return self if self.char is None else replace(self, char=None)

    @property
    def as_decimal(self) -> tuple[int, int]:
        """Precision and scale in Spark's decimal arithmetic."""
        return (self.digits, 0) if self.digits is not None else decimal_parameters(self.type)

    @property
    def is_number(self) -> bool:
        return self.family in ("integer", "decimal", "float", "double")

    @property
    def has_order(self) -> bool:
        return self.family not in ("map", "interval", "other")

    @property
    def spark_type(self) -> str:
        return _SPARK_NAMES.get(self.type, self.type.lower())


_SIMPLE = [names for t, names in NAMES.items() if not pa.types.is_null(t)]
_FAMILIES = {
    **{names.duckdb: names.family for names in _SIMPLE},
    **{name: name.lower() for name in ("DECIMAL", "INTERVAL", "MAP", "STRUCT")},
    **dict.fromkeys(('"NULL"', "NULL"), "void"),
    "HUGEINT": "integer",
}
_SPARK_NAMES = {**{names.duckdb: names.spark for names in _SIMPLE}, '"NULL"': "void"}


def type_name(t: pa.DataType) -> str:
    """DuckDB's name of a normal Arrow type.

    >>> type_name(pa.list_(pa.struct([("a", pa.int8())])))
    'STRUCT("a" TINYINT)[]'

    Raises :class:`FilterError` for unsupported types.
    """
    t = normal_type(t)
    if pa.types.is_decimal128(t):
        return f"DECIMAL({t.precision},{t.scale})"
    if pa.types.is_struct(t) and t.num_fields:
        fields = (f"{double_quoted(f.name)} {type_name(f.type)}" for f in t)
        return f"STRUCT({', '.join(fields)})"
    if pa.types.is_map(t):
        return f"MAP({type_name(t.key_type)}, {type_name(t.item_type)})"
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return f"{type_name(t.value_type)}[]"
    if pa.types.is_fixed_size_list(t):
        return f"{type_name(t.value_type)}[{t.list_size}]"
    if t not in NAMES:
        raise FilterError(f"a filter can only test columns of type {t} for null")
    return NAMES[t].duckdb


def literal(value: Literal) -> Sql:
    """A literal as a DuckDB expression of the corresponding type."""
    match value.kind, value.value:
        case Kind.NULL, _:
            return Sql("NULL", '"NULL"')
        case Kind.BOOLEAN, v:
            return Sql("TRUE" if v else "FALSE", "BOOLEAN")
        case Kind.INTEGER, int(v):
            digits = len(str(abs(v)))
            # With its type, as DuckDB would otherwise use the type of the other operand.
            if -(2**31) <= v < 2**31:
                return Sql(f"({v})::INTEGER", "INTEGER", digits)
            if -(2**63) <= v < 2**63:
                return Sql(f"({v})::BIGINT", "BIGINT", digits)
            return literal(Literal(Decimal(v), Kind.DECIMAL))
        case Kind.DECIMAL, Decimal() as v:
            _, figures, exponent = v.as_tuple()
            assert isinstance(exponent, int)
            scale = max(-exponent, 0)
            precision = max(len(figures) + max(exponent, 0), scale, 1)
            if precision > 38:
                raise FilterError(f"the number {value.sql} has more than 38 digits")
            return Sql(f"CAST('{v:f}' AS DECIMAL({precision},{scale}))", f"DECIMAL({precision},{scale})")
        case Kind.DOUBLE, v:
            return Sql(f"CAST('{v!r}' AS DOUBLE)", "DOUBLE")
        case Kind.STRING, v:
            return Sql(single_quoted(str(v)), "VARCHAR")
        case Kind.BINARY, bytes(v):
            return Sql(f"unhex('{v.hex()}')", "BLOB")
        case Kind.DATE, v:
            return Sql(f"(DATE '1970-01-01' + ({v!r})::INTEGER)", "DATE")
    return Sql(f"make_timestamp(({value.value!r})::BIGINT)", "TIMESTAMP")


def counted(sql: str) -> Sql:
    """A count, which is bigint in DuckDB and int in Spark."""
    return Sql(f"CAST({sql} AS INTEGER)", "INTEGER")


def at_least(number: str, least: int) -> str:
    """A number, but at least ``least``; unlike in DuckDB's ``greatest``, null stays null."""
    return f"(CASE WHEN {number} < {least} THEN {least} ELSE {number} END)"


def fail(message: str, value: str | None = None) -> str:
    """An expression that raises an error; ``value`` is a string expression for the end of the message."""
    return f"error({single_quoted(message)})" if value is None else f"error({single_quoted(message + ' ')} || {value})"


def common_type(parts: Sequence[Sql], what: str) -> str:
    """The type to which Spark coerces operands of a comparison, or the branches of a CASE.

    Raises :class:`FilterError` without one.
    """
    families = {p.family for p in parts} - {"void"}
    types = list(dict.fromkeys(p.type for p in parts if p.family != "void"))
    if not types:
        return '"NULL"'
    if len(types) == 1:
        return types[0]
    if "string" in families and len(families - {"string"}) >= 1:
        others = [p for p in parts if p.family not in ("string", "void")]
        rest = common_type(others, what)
        # With an integer, a string becomes bigint; with other numbers, double.
        family = Sql("", rest).family
        if family in ("integer", "decimal", "float", "double"):
            return "BIGINT" if family == "integer" else "DOUBLE"
        if family in ("boolean", "date", "timestamp", "binary"):
            return rest
    elif families <= {"integer", "decimal"} and "decimal" in families:
        precision, scale = common_decimal([decimal_parameters(t) for t in types])
        return f"DECIMAL({precision},{scale})"
    elif families <= {"integer"}:
        return max(types, key=(*INTEGERS, "HUGEINT").index)
    elif families <= {"integer", "decimal", "float", "double"}:
        return "DOUBLE"
    elif families <= {"date", "timestamp"}:
        return "TIMESTAMP"
    elif len(families) == 1 and families & {"array", "struct"}:
        return types[0]
    names = " and ".join(dict.fromkeys(p.spark_type for p in parts if p.family != "void"))
    raise FilterError(f"{what} have no common type: {names}", help="cast one of them")


def common_decimal(parameters: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Precision and scale of the smallest decimal for all of these.

    >>> common_decimal([(10, 2), (5, 5)])
    (13, 5)
    """
    scale = max(s for _, s in parameters)
    return min(max(p - s for p, s in parameters) + scale, 38), scale


def decimal_parameters(t: str) -> tuple[int, int]:
    """Precision and scale of a decimal type, or of an integer type as a decimal.

    >>> decimal_parameters("DECIMAL(10,2)"), decimal_parameters("INTEGER")
    ((10, 2), (10, 0))
    """
    if t.startswith("DECIMAL"):
        p, s = t[len("DECIMAL(") : -1].split(",")
        return int(p), int(s)
    return {"TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 20}.get(t, 38), 0


# --- DuckDB's nested types, and Spark's order of their values ---------------------------------------------------------


@lru_cache(4096)
def fields_of(nested: str) -> tuple[tuple[str, str], ...]:
    """The names and types of the parts of a nested DuckDB type: a struct, an array or a map.

    >>> fields_of('STRUCT("a b" INTEGER, c VARCHAR[])')
    (('a b', 'INTEGER'), ('c', 'VARCHAR[]'))
    """
    import duckdb  # late: takes a fifth of a second

    return tuple((name, str(kind)) for name, kind in duckdb.sqltype(nested).children)


def order_key(value: Sql) -> str:
    """A key that DuckDB orders as Spark orders ``value``; the value itself, unless it is an array or a struct.

    A null inside an array or struct sorts first in Spark and last in DuckDB 2.0, so the key has a null marker before
    each part.  Raises ``FilterError`` for values without an order.

    >>> order_key(Sql("a", "INTEGER"))
    'a'
    >>> order_key(Sql("a", "INTEGER[]"))
    'list_transform(a, lambda "k#0": struct_pack(there := "k#0" IS NOT NULL, part := "k#0"))'
    """
    if not value.has_order:
        raise FilterError(f"values of type {value.spark_type} cannot be ordered")
    if value.family not in ("array", "struct"):
        return value.code
    if value.family == "array" or value.code.startswith('"'):
        return _key(value.code, value.type, 0)
    bound = '"k#0"'  # use the operand only once
    return f"list_transform([{value.code}], lambda {bound}: {_key(bound, value.type, 1)})[1]"


def sides(operator: str, left: Sql, right: Sql) -> tuple[str, str]:
    """Operands with which DuckDB's ``operator`` compares two values of one type as Spark does."""
    equal = operator in ("=", "<>", "!=")
    return (left.code, right.code) if equal else (order_key(left), order_key(right))


def _key(sql: str, kind: str, depth: int) -> str:
    family = Sql("", kind).family
    if family == "map":
        raise FilterError("values that contain maps cannot be ordered")
    if family == "array":
        element = f'"k#{depth}"'
        return f"list_transform({sql}, lambda {element}: {_marked(element, fields_of(kind)[0][1], depth + 1)})"
    if family == "struct":
        fields = (
            f"f{number} := {_marked(f'struct_extract({sql}, {single_quoted(name)})', inner, depth)}"
            for number, (name, inner) in enumerate(fields_of(kind))
        )
        return f"(CASE WHEN {sql} IS NOT NULL THEN struct_pack({', '.join(fields)}) END)"
    return sql


def _marked(sql: str, kind: str, depth: int) -> str:
    return f"struct_pack(there := {sql} IS NOT NULL, part := {_key(sql, kind, depth)})"
