"""Which names of a text could be relations: more than those that are, never fewer.

This keeps statements without our tables from costing anything: only where one of these names is ours is Spark's parser
asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from trilake.sql.text.tokens import Token, tokenize

#: Words in front of a name of a table, or that begin a list of such names.
_BEFORE = frozenset(
    (
        *("FROM", "JOIN", "INTO", "TABLE", "UPDATE", "USING", "OVERWRITE", "VIEW", "DESCRIBE", "DESC", "EXTENDED"),
        *("FORMATTED", "LIKE", "IN", "EXISTS", "LAZY", "CLONE", "TBLPROPERTIES", "PARTITIONS", "COLUMNS", "TO"),
        *("HISTORY", "DETAIL", "OPTIMIZE", "VACUUM", "DELTA", "LATERAL", "STREAM", "ANALYZE", "TABLES", "DELETE"),
        *("MERGE", "FORMAT", "REFRESH", "REPAIR", "CACHE", "UNCACHE", "TRUNCATE", "COLUMN", "ON"),
    )
)
#: Words that begin a list of relations, and words that end one.
_OPEN = frozenset(("FROM", "JOIN", "USING", "INTO", "TABLE", "UPDATE"))
_CLOSE = frozenset(
    (
        *("SELECT", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "SET"),
        *("WINDOW", "QUALIFY", "VALUES", "WHEN", "UNION", "EXCEPT", "INTERSECT", "MINUS"),
    )
)
#: Words that begin a query where a relation could be.
_NEVER = frozenset(("SELECT", "WITH", "VALUES"))


def candidates(text: str, tokens: Sequence[Token] | None = None) -> set[tuple[str, ...]]:
    """Names of a text that could be names of tables, views or functions that stand for tables.

    >>> sorted(candidates("SELECT a, b.c FROM t JOIN d.u USING (k) WHERE x IN (SELECT 1 FROM v)"))
    [('d', 'u'), ('k',), ('t',), ('v',)]
    """
    given = tokenize(text) if tokens is None else tokens
    out: set[tuple[str, ...]] = set()
    open_ = [False]
    at, size = 0, len(given)
    while at < size:
        token = given[at]
        if token.kind == "symbol":
            if token.text == "(":
                open_.append(open_[-1])
            elif token.text == ")" and len(open_) > 1:
                open_.pop()
            at += 1
            continue
        if not token.is_name:
            at += 1
            continue
        before = given[at - 1] if at else None
        end = _chain_end(given, at)
        if before is not None and _in_place(before, open_[-1]) and token.upper not in _NEVER:
            out.add(tuple(t.name for t in given[at:end:2]))
        if end == at + 1:
            open_[-1] = (open_[-1] or token.upper in _OPEN) and token.upper not in _CLOSE
        at = end
    return out


def _chain_end(given: Sequence[Token], at: int) -> int:
    """Behind the last part of the name that begins here."""
    end = at + 1
    while end + 1 < len(given) and given[end].text == "." and given[end].kind == "symbol" and given[end + 1].is_name:
        end += 2
    return end


def _in_place(before: Token, listed: bool) -> bool:
    if before.kind == "symbol":
        return listed and before.text in (",", "(")
    return before.upper in _BEFORE
