"""Spark's string functions that differ from DuckDB's."""

from __future__ import annotations

import re

from trilake.common.text import single_quoted
from trilake.errors import FilterError
from trilake.expr.sql.regex import to_re2
from trilake.expr.terms.casts import cast
from trilake.expr.terms.duckdb_sql import Sql

#: An integer literal.
_CONSTANT = re.compile(r"\((-?\d+)\)::INTEGER")
_UPPER_SPECIAL = [(c, c.upper()) for c in map(chr, range(0x80, 0x10000)) if len(c.upper()) > 1]


def upper(x: str) -> str:
    """Upper case by the full Unicode mapping (``ß`` becomes ``SS``); DuckDB maps single characters only."""
    special = x
    for char, mapped in _UPPER_SPECIAL:
        special = f"replace({special},{single_quoted(char)},{single_quoted(mapped)})"
    return f"(CASE WHEN strlen({x}) = length({x}) THEN upper({x}) ELSE upper({special}) END)"


def lower(x: str) -> str:
    """Lower case by the full Unicode mapping: a dotted ``İ`` keeps its dot, a final sigma is ``ς``."""
    special = f"regexp_replace(replace({x}, 'İ', 'i̇'), '(\\p{{L}})Σ($|\\P{{L}})', '\\1ς\\2', 'g')"
    return f"(CASE WHEN strlen({x}) = length({x}) THEN lower({x}) ELSE lower({special}) END)"


def substring(x: str, position: str, length: str | None) -> str:
    """Spark's substring: position 0 is 1, a negative one counts from the end and may lie before the start."""
    fixed = [_CONSTANT.fullmatch(n) for n in (position, length or "(0)::INTEGER")]
    if all(fixed) and int(fixed[0][1]) > 0 <= int(fixed[1][1]):  # type: ignore[index]
        return f"substring({x}, {position}{'' if length is None else f', {length}'})"
    start = (
        f"(CASE WHEN {position} > 0 THEN {position} - 1 WHEN {position} < 0 THEN length({x}) + {position} ELSE 0 END)"
    )
    begin = f"greatest({start}, 0)"
    if length is None:
        return f"(CASE WHEN {position} IS NULL THEN NULL ELSE substring({x}, {begin} + 1) END)"
    width = f"greatest({start} + CAST({length} AS BIGINT) - {begin}, 0)"
    return f"(CASE WHEN {position} IS NULL OR {length} IS NULL THEN NULL ELSE substring({x}, {begin} + 1, {width}) END)"


def like(text: str, pattern: str, escape: str) -> str:
    """``text LIKE pattern``.  Raises :class:`FilterError` for a pattern that Spark refuses."""
    out: list[str] = []
    i = 0
    while i < len(pattern):
        char = pattern[i]
        if char == escape:
            if i + 1 >= len(pattern) or pattern[i + 1] not in ("_", "%", escape):
                raise FilterError(
                    f"the LIKE pattern {pattern!r} has an escape character before nothing that can be escaped",
                    help=f"write {escape + escape} for the character itself",
                )
            char, i = pattern[i + 1], i + 1
            out.append(char if char not in ("_", "%", "\\") else "\\" + char)
        else:
            out.append("\\\\" if char == "\\" else char)
        i += 1
    escaped = " ESCAPE '\\'" if any("\\" in part for part in out) else ""  # DuckDB is faster without it
    return f"({text} LIKE {single_quoted(''.join(out))}{escaped})"


def rlike(x: str, pattern: str) -> str:
    """``x RLIKE pattern``."""
    return f"regexp_matches({x}, {single_quoted(to_re2(pattern))})"


def concat(parts: list[Sql]) -> Sql:
    """``||`` and ``concat``: null if any part is, other types than strings as strings."""
    if any(p.family == "binary" for p in parts) and all(p.family in ("binary", "void") for p in parts):
        return Sql(f"({' || '.join(p.text for p in parts)})", "BLOB")
    if any(p.family in ("array", "map", "struct") for p in parts):
        raise FilterError("filters can concatenate only strings and binaries")
    return Sql(f"({' || '.join(cast(p, 'VARCHAR').text for p in parts) or single_quoted('')})", "VARCHAR")
