"""Small pieces of DuckDB SQL that mean what Spark means.

All timestamps are naive UTC in DuckDB: columns are registered without their zone, so that no session setting matters.
"""

from __future__ import annotations

from decimal import Decimal

from trilake.errors import FilterError
from trilake.expr.literals import Kind, Literal

_INTEGER_TEXT = r"\s*[+-]?[0-9]+\s*"


def quote(text: str) -> str:
    """A DuckDB string literal."""
    return "'" + text.replace("'", "''") + "'"


def literal_sql(literal: Literal) -> str:
    """A literal as a DuckDB expression of the corresponding type."""
    value = literal.value
    match literal.kind:
        case Kind.NULL:
            return "NULL"
        case Kind.BOOLEAN:
            return "TRUE" if value else "FALSE"
        case Kind.INTEGER:
            return f"({value!r})"
        case Kind.DECIMAL:
            assert isinstance(value, Decimal)
            _, digits, exponent = value.as_tuple()
            assert isinstance(exponent, int)
            scale = max(-exponent, 0)
            precision = max(len(digits) + max(exponent, 0), scale, 1)
            if precision > 38:
                raise FilterError(f"the decimal {value} has more than 38 digits", literal=literal.sql)
            return f"CAST('{value:f}' AS DECIMAL({precision},{scale}))"
        case Kind.DOUBLE:
            return f"CAST('{value!r}' AS DOUBLE)"
        case Kind.STRING:
            return quote(str(value))
        case Kind.BINARY:
            assert isinstance(value, bytes)
            return f"unhex('{value.hex()}')"
        case Kind.DATE:
            return f"(DATE '1970-01-01' + ({value!r})::INTEGER)"
        case _:
            return f"make_timestamp(({value!r})::BIGINT)"


def cast_text(sql: str, target: str) -> str:
    """A cast of a string expression to a DuckDB type, by Spark's ANSI rules: other texts are errors."""
    if target in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"):
        # DuckDB would round '1.5'; the branch that fails is the one that says so.
        message = quote(f"a text cannot be cast to {target.lower()}: ")
        return (
            f"(CASE WHEN regexp_full_match({sql}, '{_INTEGER_TEXT}') THEN CAST(trim({sql}) AS {target}) "
            f"WHEN {sql} IS NOT NULL THEN error({message} || {sql}) END)"
        )
    if target == "BLOB":
        return f"encode({sql})"
    return f"CAST(trim({sql}) AS {target})"
