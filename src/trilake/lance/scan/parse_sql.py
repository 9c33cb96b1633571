"""SQL of Lance datasets: Spark's SQL, and pylance's syntax and functions.

Syntax that Spark does not have is translated, except inside quotes.  ``arrow_cast`` names Arrow types, such as
``FixedSizeList(4, Float32)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from trilake.expr import Expression, Filter, parse_expression, parse_filter
from trilake.lance.scan.sql_functions import in_sparks_words, whole_call
from trilake.table.table import FilterLike

if TYPE_CHECKING:
    from trilake.expr.sql.functions import Function

_T = TypeVar("_T")

#: Quoted strings and names, which stay the same, then the syntax to replace.
_FORMS = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
    |\b(?P<stamp>timestamp|datetime)\s*\(\s*\d+\s*\)(?=\s*(?:'|\)))
    |\b(?P<datetime>datetime)\b(?=\s*(?:'|\)))
    |\bdecimal\s*(?P<digits>\(\s*\d+\s*,\s*\d+\s*\))\s*(?P<decimal>'[^']*')""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

#: Quoted strings, in which Spark would read a backslash as an escape, and names.
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|(?P<name>`[^`]*`)""")


class PylanceSql(str):
    """SQL with DataFusion's rules, as pylance's names take it; other SQL has Spark's.

    They differ in ``5 / 2``, ``tags[1]``, backslashes in strings, ``date_part('dow', …)``, logarithms of numbers that
    are not positive, and nulls among the arguments of ``concat``, ``array_contains`` and ``isnan``.
    """

    __slots__ = ()

    @classmethod
    def of(cls, sql: _T) -> _T | PylanceSql:
        """Mark a string; other conditions stay as they are."""
        return cls(sql) if isinstance(sql, str) else sql


def _functions_of(sql: str) -> Mapping[str, Function]:
    # These modules import sqlglot, which takes a third of a second.
    if isinstance(sql, PylanceSql):
        from trilake.lance.scan.datafusion import DATAFUSION_FUNCTIONS

        return DATAFUSION_FUNCTIONS
    from trilake.lance.scan.functions import LANCE_FUNCTIONS

    return LANCE_FUNCTIONS


def _escaped(sql: str) -> str:
    """Escape the backslashes in strings as Spark reads them."""
    if not isinstance(sql, PylanceSql) or "\\" not in sql:
        return sql
    return _QUOTED.sub(lambda quoted: quoted["name"] or quoted[0].replace("\\", "\\\\"), sql)


def filter_of(condition: FilterLike, schema: pa.Schema) -> Filter | None:
    """Bind a condition to ``schema``.  Raises ``FilterError``."""
    if not isinstance(condition, str):
        return parse_filter(condition, schema)
    return parse_filter(as_spark(_escaped(condition)), schema, functions=_functions_of(condition))


def expression_of(sql: str, schema: pa.Schema) -> Expression:
    """Bind an expression to ``schema``; ``arrow_cast`` of the whole determines its type.

    Raises ``ExpressionError`` and ``UnsupportedExpressionError``.
    """
    functions, sql = _functions_of(sql), _escaped(sql)
    kind, words = None, as_spark(sql)
    cast = whole_call(sql, "arrow_cast")
    if cast is not None and len(cast) == 2 and (kind := parse_type(cast[1].strip("'"))) is not None:
        # Spark's SQL has only some of Arrow's types: then only the value is Spark's.
        words = words if whole_call(words, "arrow_cast") is None else as_spark(cast[0])
    expression = parse_expression(words, schema, functions=functions)
    return expression if kind is None else expression.of_type(kind)


def as_spark(sql: str) -> str:
    """Translate a condition to Spark's functions and types.

    >>> as_spark("regexp_match(s, 'datetime(6)') AND d = DECIMAL(5,3) '1.000' AND t < TIMESTAMP(6) '2021-01-01'")
    "regexp_like(s, 'datetime(6)') AND d = CAST('1.000' AS DECIMAL(5,3)) AND t < TIMESTAMP '2021-01-01'"
    """
    return in_sparks_words(_FORMS.sub(_replaced, sql))


def _replaced(match: re.Match[str]) -> str:
    if match["quoted"] is not None:
        return match[0]
    if match["decimal"] is not None:
        return f"CAST({match['decimal']} AS DECIMAL{match['digits']})"
    return "TIMESTAMP"


# --- names of Arrow types ---------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'\s*(?:([A-Za-z]\w*)|(-?\d+)|"([^"]*)"|(\S))')
_UNITS = {"Second": "s", "Millisecond": "ms", "Microsecond": "us", "Nanosecond": "ns"}
_PLAIN: dict[str, pa.DataType] = {
    "Null": pa.null(),
    "Boolean": pa.bool_(),
    "Float16": pa.float16(),
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "Utf8": pa.string(),
    "Utf8View": pa.string(),
    "LargeUtf8": pa.large_string(),
    "Binary": pa.binary(),
    "BinaryView": pa.binary(),
    "LargeBinary": pa.large_binary(),
    "Date32": pa.date32(),
    "Date64": pa.date64(),
    **{f"{sign}Int{bits}": getattr(pa, f"{sign.lower()}int{bits}")() for sign in ("", "U") for bits in (8, 16, 32, 64)},
}
_WITH_PARAMETERS: dict[str, Callable[..., pa.DataType]] = {
    "FixedSizeBinary": pa.binary,
    "Decimal128": pa.decimal128,
    "Decimal256": pa.decimal256,
    "Timestamp": pa.timestamp,
    "Time32": pa.time32,
    "Time64": pa.time64,
    "Duration": pa.duration,
    "List": pa.list_,
    "LargeList": pa.large_list,
    "FixedSizeList": lambda size, item: pa.list_(item, size),
    "Dictionary": pa.dictionary,
    "Some": lambda value: value,
}


def parse_type(name: str) -> pa.DataType | None:
    """Parse the name of a type; ``None`` if it is invalid.

    >>> parse_type("FixedSizeList(4, Float32)"), parse_type('Timestamp(Nanosecond, Some("UTC"))'), parse_type("Float8")
    (FixedSizeListType(fixed_size_list<item: float>[4]), TimestampType(timestamp[ns, tz=UTC]), None)
    """
    tokens = list(_TOKEN.finditer(name))
    try:
        value = _value(tokens)
    except (KeyError, IndexError, TypeError, ValueError, RecursionError, pa.ArrowException):
        return None
    return value if isinstance(value, pa.DataType) and not tokens else None


def _value(tokens: list[re.Match[str]]) -> Any:
    """Parse and remove the first type, unit, number, string or ``None``."""
    token = tokens.pop(0)
    word, number, string, _ = token.groups()
    if number is not None:
        return int(number)
    if string is not None:
        return string
    if word in _WITH_PARAMETERS:
        arguments = [_after(tokens, "(")]
        while tokens[0][4] == ",":
            arguments.append(_after(tokens, ","))
        if tokens.pop(0)[4] != ")":
            raise ValueError(word)
        return _WITH_PARAMETERS[word](*arguments)
    return None if word == "None" else _UNITS[word] if word in _UNITS else _PLAIN[word]


def _after(tokens: list[re.Match[str]], mark: str) -> Any:
    if tokens.pop(0)[4] != mark:
        raise ValueError(mark)
    return _value(tokens)
