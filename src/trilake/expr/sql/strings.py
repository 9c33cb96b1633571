"""Spark's string functions, LIKE patterns and regular expressions that differ from DuckDB's."""

from __future__ import annotations

import re

from trilake.common.text import single_quoted
from trilake.errors import FilterError
from trilake.expr.terms.casts import cast
from trilake.expr.terms.duckdb_sql import Sql

#: An integer literal.
_CONSTANT = re.compile(r"\((-?\d+)\)::INTEGER")
_UPPER_SPECIAL = [(c, c.upper()) for c in map(chr, range(0x80, 0x10000)) if len(c.upper()) > 1]


def upper(x: str) -> str:
    """Convert to upper case by the full Unicode mapping (``ß`` becomes ``SS``); DuckDB maps single characters only."""
    special = x
    for char, mapped in _UPPER_SPECIAL:
        special = f"replace({special},{single_quoted(char)},{single_quoted(mapped)})"
    return f"(CASE WHEN strlen({x}) = length({x}) THEN upper({x}) ELSE upper({special}) END)"


def lower(x: str) -> str:
    """Convert to lower case by the full Unicode mapping: ``İ`` keeps its dot, a final sigma becomes ``ς``."""
    special = f"regexp_replace(replace({x}, 'İ', 'i̇'), '(\\p{{L}})Σ($|\\P{{L}})', '\\1ς\\2', 'g')"
    return f"(CASE WHEN strlen({x}) = length({x}) THEN lower({x}) ELSE lower({special}) END)"


def substring(x: str, position: str, length: str | None = None) -> str:
    """Spark's substring: position 0 is 1, and negative positions count from the end and may be before the start."""
    first, count = _CONSTANT.fullmatch(position), _CONSTANT.fullmatch(length or "(0)::INTEGER")
    if first and count and int(first[1]) > 0 <= int(count[1]):
        return f"substring({x}, {position}{'' if length is None else f', {length}'})"
    start = (
        f"(CASE WHEN {position} > 0 THEN {position} - 1 WHEN {position} < 0 THEN length({x}) + {position} ELSE 0 END)"
    )
    begin = f"greatest({start}, 0)"
    if length is None:
        return f"(CASE WHEN {position} IS NULL THEN NULL ELSE substring({x}, {begin} + 1) END)"
    width = f"greatest({start} + CAST({length} AS BIGINT) - {begin}, 0)"
    return f"(CASE WHEN {position} IS NULL OR {length} IS NULL THEN NULL ELSE substring({x}, {begin} + 1, {width}) END)"


def like_parts(pattern: str, escape: str) -> list[tuple[str, bool]]:
    """The characters of a LIKE pattern, and whether each is a wildcard.

    Raises :class:`FilterError` for a pattern that Spark rejects.
    """
    out: list[tuple[str, bool]] = []
    characters = iter(pattern)
    for char in characters:
        if char != escape:
            out.append((char, char in "_%"))
            continue
        escaped = next(characters, None)
        if escaped not in ("_", "%", escape):
            raise FilterError(
                f"the LIKE pattern {pattern!r} escapes a character that cannot be escaped",
                help=f"write {escape + escape} for the character itself",
            )
        out.append((escaped, False))
    return out


def like(sql: str, pattern: str, escape: str) -> str:
    """``x LIKE pattern``.  Raises :class:`FilterError` for a pattern that Spark rejects."""
    parts = like_parts(pattern, escape)
    out = [char if wildcard or char not in "_%\\" else f"\\{char}" for char, wildcard in parts]
    escaped = " ESCAPE '\\'" if any("\\" in part for part in out) else ""  # DuckDB is faster without it
    return f"({sql} LIKE {single_quoted(''.join(out))}{escaped})"


def rlike(x: str, pattern: str) -> str:
    """``x RLIKE pattern``."""
    return f"regexp_matches({x}, {single_quoted(to_re2(pattern))})"


def concat(parts: list[Sql]) -> Sql:
    """``||`` and ``concat``: null if any part is null; other types become strings."""
    if any(p.family == "binary" for p in parts) and all(p.family in ("binary", "void") for p in parts):
        return Sql(f"({' || '.join(p.code for p in parts)})", "BLOB")
    if (nested := next((p for p in parts if p.family in ("array", "map", "struct")), None)) is not None:
        raise FilterError(f"a filter can concatenate only strings and binaries, got {nested.spark_type}")
    return Sql(f"({' || '.join(cast(p, 'VARCHAR').code for p in parts) or single_quoted('')})", "VARCHAR")


# --- Convert Java's regular expressions, which Spark uses, to RE2's, which DuckDB uses --------------------------------
# Most of the syntax is the same.  Differences are rewritten, and unsupported syntax is rejected.

#: Java's line terminators; RE2 has only ``\n``.
_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_DOLLAR = rf"(?:(?:\r\n|[{_LINE_ENDS}])?\z)"
_DOT = f"[^{_LINE_ENDS}]"
#: Java's ``\s``, which includes the vertical tab.
_SPACE = r"\t\n\x0B\f\r "
_SAME_ESCAPES = frozenset("dDwWbBAztnrfae")
_GROUPS = ("(?:", "(?i)", "(?i:", "(?s)", "(?s:", "(?is)", "(?si)")


def to_re2(pattern: str) -> str:
    r"""Convert a Java pattern to an RE2 pattern that matches the same strings.

    >>> to_re2(r"^\w+\s$")
    '^\\w+[\\t\\n\\x0B\\f\\r ](?:(?:\\r\\n|[\\n\\r\\x{85}\\x{2028}\\x{2029}])?\\z)'

    Raises :class:`FilterError` for look-around, back references, possessive quantifiers and operations on character
    classes.
    """
    out: list[str] = []
    dot_all = False
    i = 0
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            sql, i = _escape(pattern, i, in_class=False)
            out.append(sql)
            continue
        if char == "[":
            sql, i = _char_class(pattern, i)
            out.append(sql)
            continue
        if char == "(" and pattern.startswith("(?", i):
            group = next((g for g in _GROUPS if pattern.startswith(g, i)), None)
            if group is None:
                raise _rejected(pattern, i, "this kind of group")
            if "s" in group:
                if i:
                    raise _rejected(pattern, i, "a dot-all flag after the start")
                dot_all = True
            out.append(group)
            i += len(group)
            continue
        if char in "*+?}" and pattern.startswith("+", i + 1):
            raise _rejected(pattern, i, "a possessive quantifier")
        out.append(_DOLLAR if char == "$" else char if char != "." or dot_all else _DOT)
        i += 1
    return "".join(out)


def _rejected(pattern: str, position: int, what: str) -> FilterError:
    return FilterError(
        f"the regular expression {pattern!r} uses {what}, which filters cannot evaluate",
        help="use LIKE, startswith, endswith or contains, or a simpler pattern",
        position=position,
    )


def _escape(pattern: str, i: int, *, in_class: bool) -> tuple[str, int]:
    """The escape sequence at ``i``, rewritten, and the position after it."""
    if i + 1 >= len(pattern):
        raise _rejected(pattern, i, "a backslash at the end")
    char = pattern[i + 1]
    if char == "s":
        return (_SPACE if in_class else f"[{_SPACE}]"), i + 2
    if char == "S" and not in_class:
        return f"[^{_SPACE}]", i + 2
    if char == "Z" and not in_class:
        return _DOLLAR, i + 2
    if (
        char == "u"
        and len(digits := pattern[i + 2 : i + 6]) == 4
        and all(c in "0123456789abcdefABCDEF" for c in digits)
    ):
        return f"\\x{{{digits}}}", i + 6
    if (char in _SAME_ESCAPES and not (in_class and char in "bBAz")) or not char.isalnum():
        return ("\\x{1B}" if char == "e" else f"\\{char}" if char.isascii() else char), i + 2
    raise _rejected(pattern, i, f"the escape \\{char}")


def _char_class(pattern: str, i: int) -> tuple[str, int]:
    """The character class that starts at ``i``, and the position after it."""
    start, out = i, ["["]
    i += 1
    if pattern.startswith("^", i):
        out.append("^")
        i += 1
    first = True
    while i < len(pattern):
        char = pattern[i]
        if char == "]" and not first:
            return "".join(out) + "]", i + 1
        if char == "[" or pattern.startswith("&&", i) or (char == "]" and first):
            raise _rejected(pattern, i, "an operation on character classes")
        first = False
        if char == "\\":
            sql, i = _escape(pattern, i, in_class=True)
            out.append(sql)
            continue
        out.append(char)
        i += 1
    raise _rejected(pattern, start, "an unclosed character class")
