"""The SQL of a Spark Connect column, built from the message that the client would send to the server.

Nothing is analysed: names and functions stay as written.  UDFs, window functions, subqueries and columns of a DataFrame
have no SQL; the result is then ``None``.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, SparkSession

from trilake.common.text import quote_parts, split_parts, string_literal

_FUNCTION = re.compile(r"[A-Za-z_]\w*")
_BINARY = {
    **{sign: sign for sign in ("<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%", "&", "|", "^")},
    "==": "=",
    "and": "AND",
    "or": "OR",
    "like": "LIKE",
    "ilike": "ILIKE",
    "rlike": "RLIKE",
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


class _NoSqlError(Exception):
    """The column has no SQL that certainly means the same."""


def connect_sql(spark: SparkSession, column: Column) -> str | None:
    """The SQL of a column of a Connect session; ``None`` if it has none."""
    session: Any = spark
    unsent: Any = column
    try:
        return _to_sql(unsent.to_plan(session.client))
    except (_NoSqlError, AttributeError, OverflowError, ValueError):  # the messages differ between releases
        return None


def _to_sql(message: Any) -> str:
    kind = message.WhichOneof("expr_type")
    write = _KINDS.get(kind)
    if write is None:
        raise _NoSqlError(kind)
    return write(getattr(message, kind))


def _attribute(message: Any) -> str:
    parts = split_parts(message.unparsed_identifier)
    if message.HasField("plan_id") or message.is_metadata_column or parts is None:
        raise _NoSqlError(message.unparsed_identifier)
    return quote_parts(parts)


def _function(message: Any) -> str:
    name, arguments = message.function_name, [_to_sql(a) for a in message.arguments]
    if message.is_distinct or message.is_user_defined_function or getattr(message, "is_internal", False):
        raise _NoSqlError(name)
    if name in _BINARY and len(arguments) == 2:
        return f"({arguments[0]} {_BINARY[name]} {arguments[1]})"
    if name == "not" and len(arguments) == 1:
        return f"(NOT {arguments[0]})"
    if name == "negative" and len(arguments) == 1:
        return f"(- {arguments[0]})"
    if name == "in" and len(arguments) > 1:
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    if name == "when":
        cases = [f"WHEN {if_} THEN {then}" for if_, then in zip(arguments[::2], arguments[1::2], strict=False)]
        other = f" ELSE {arguments[-1]}" if len(arguments) % 2 else ""
        return f"(CASE {' '.join(cases)}{other} END)"
    if name in ("in", "like", "ilike", "rlike") or not _FUNCTION.fullmatch(name):
        raise _NoSqlError(name)
    return f"{name}({', '.join(arguments)})"


def _cast(message: Any) -> str:
    if message.WhichOneof("cast_to_type") != "type_str":
        raise _NoSqlError("a type that is not a string")
    mode = getattr(message, "eval_mode", 0)
    if mode not in (0, 3):
        raise _NoSqlError("another way to cast")
    return f"{'TRY_CAST' if mode == 3 else 'CAST'}({_to_sql(message.expr)} AS {message.type_str})"


def _literal(message: Any) -> str:
    kind = message.WhichOneof("literal_type")
    write = _LITERALS.get(kind)
    if write is None:
        raise _NoSqlError(kind)
    return write(getattr(message, kind))


def _double(value: float) -> str:
    return f"{value!r}D" if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"


def _decimal(message: Any) -> str:
    _, digits, exponent = decimal.Decimal(message.value).as_tuple()
    if not isinstance(exponent, int):
        raise _NoSqlError(message.value)
    scale = max(-exponent, 0)
    return f"CAST('{message.value}' AS DECIMAL({max(len(digits) + max(exponent, 0), scale)}, {scale}))"


def _moment(microseconds: int) -> str:
    return (_EPOCH + microseconds * _MICROSECOND).replace(tzinfo=None).isoformat(sep=" ")


_LITERALS: Mapping[str | None, Callable[[Any], str]] = {
    "null": lambda _: "NULL",
    "boolean": lambda value: "TRUE" if value else "FALSE",
    "byte": lambda value: f"CAST({value} AS TINYINT)",
    "short": lambda value: f"CAST({value} AS SMALLINT)",
    "integer": str,
    "long": lambda value: f"{value}L",
    "double": _double,
    "decimal": _decimal,
    "string": string_literal,
    "binary": lambda value: f"X'{value.hex()}'",
    "date": lambda days: f"DATE'{(_EPOCH + dt.timedelta(days)).date().isoformat()}'",
    "timestamp": lambda value: f"TIMESTAMP'{_moment(value)}Z'",
    "timestamp_ntz": lambda value: f"TIMESTAMP_NTZ'{_moment(value)}'",
}
_KINDS: Mapping[str | None, Callable[[Any], str]] = {
    "literal": _literal,
    "unresolved_attribute": _attribute,
    "unresolved_function": _function,
    "expression_string": lambda message: f"({message.expression}\n)",  # a comment may be at its end
    "alias": lambda message: _to_sql(message.expr),
    "cast": _cast,
}
