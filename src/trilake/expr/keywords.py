"""Allow columns named like SQL keywords without backticks, as Spark does: ``comment = 'x' AND values > 1``.

Spark reserves hardly any word, and decides by position; sqlglot reserves many.  So names are put into backticks before
parsing: words that name a column, in the position of an operand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Keywords that are always values.
_VALUES = frozenset(("null", "true", "false"))
#: Keywords before an operand, unless they are names.
_OPEN = frozenset(
    (
        *("and", "or", "not", "in", "like", "ilike", "rlike", "regexp", "between", "is", "when", "then"),
        *("else", "case", "div", "escape", "from", "for", "xor", "distinct", "all", "any", "some", "both"),
        *("leading", "trailing", "where"),
    )
)
#: Keywords that may follow an operand.
_AFTER = frozenset(
    (
        *("and", "or", "not", "in", "like", "ilike", "rlike", "regexp", "between", "is", "when", "then"),
        *("else", "end", "div", "escape", "from", "for", "as", "xor"),
    )
)
#: Tokens that may follow an operand, except for the parenthesis of a call.
_MARKS = frozenset(
    (
        *(")", "]", "[", ",", ".", "=", "==", "<=>", "<>", "!=", "<", "<="),
        *(">", ">=", "!<", "!>", "+", "-", "*", "/", "%", "||", "|", "&"),
        *("^", "::", ":"),
    )
)
#: Tokens that end an operand.
_ENDS = frozenset((")", "]"))
#: Tokens that start what NOT negates.
_UNARY = frozenset(("+", "-", "~", "["))


def column_names(schema: pa.Schema) -> frozenset[str]:
    """The names of the top-level columns, in lower case."""
    return frozenset(name.lower() for name in schema.names)


def with_quoted_names(sql: str, tokens: Sequence[Any], names: Iterable[str]) -> str:
    """Put backticks around keywords that are columns.

    ``names`` are the column names in lower case.

    >>> from trilake.expr.sql.dialect import SparkFilter
    >>> sql = "values IN (case, CASE WHEN end THEN 1 END)"
    >>> with_quoted_names(sql, SparkFilter().tokenize(sql), {"values", "case", "end"})
    '`values` IN (`case`, CASE WHEN `end` THEN 1 END)'
    """
    names = frozenset(names)
    quoted: list[Any] = []
    operand = True  # whether an operand is expected
    last = ""  # the previous keyword or symbol
    for i, token in enumerate(tokens):
        word = _word(token, sql)
        after = tokens[i + 1] if i + 1 < len(tokens) else None
        if word is None:
            operand = token.text not in _ENDS and token.token_type.name not in _VALUE_TOKENS
            last = token.text
        elif (last == "." and i > 1) or (operand and word in names and _is_name(word, last, after, sql)):
            quoted.append(token)
            operand, last = False, ""
        else:
            operand, last = word in _OPEN, word
    out, at = [], 0
    for token in quoted:
        out += [sql[at : token.start], "`", sql[token.start : token.end + 1], "`"]
        at = token.end + 1
    return "".join([*out, sql[at:]])


#: Token types of values and quoted names.
_VALUE_TOKENS = frozenset(("STRING", "NUMBER", "IDENTIFIER", "HEX_STRING", "RAW_STRING"))


def _word(token: Any, sql: str) -> str | None:
    """The keyword of a token, in lower case; ``None`` for symbols, values and quoted names."""
    if token.token_type.name in _VALUE_TOKENS:
        return None
    word = sql[token.start : token.end + 1]
    return word.lower() if _WORD.fullmatch(word) else None


def _is_name(word: str, last: str, after: Any, sql: str) -> bool:
    """Whether a word in operand position that names a column is the column."""
    if word in _VALUES or (word == "when" and last == "case"):
        return False
    if after is None:
        return True
    following = _word(after, sql)
    if word == "not" and (after.text in _UNARY or following == "not"):
        return False
    if word == "case" and following == "when" and last != "case":
        return False
    return after.text in _MARKS if following is None else following in _AFTER
