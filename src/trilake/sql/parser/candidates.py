"""Find the names in SQL that could be relations: possibly too many, never too few.

Spark's parser is called only for statements in which one of these names is a trilake table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trilake.sql.parser.tokens import Token, tokenize

#: Words before a table's name.
_BEFORE = frozenset(
    (
        *("FROM", "JOIN", "INTO", "TABLE", "UPDATE", "USING", "OVERWRITE", "VIEW", "DESCRIBE", "DESC", "EXTENDED"),
        *("FORMATTED", "LIKE", "IN", "EXISTS", "LAZY", "CLONE", "TBLPROPERTIES", "PARTITIONS", "COLUMNS", "TO"),
        *("HISTORY", "DETAIL", "OPTIMIZE", "VACUUM", "DELTA", "LATERAL", "STREAM", "ANALYZE", "TABLES", "DELETE"),
        *("MERGE", "FORMAT", "REFRESH", "REPAIR", "CACHE", "UNCACHE", "TRUNCATE", "COLUMN", "ON"),
    )
)
#: Words that begin a list of relations, and words that end it.
_OPEN = frozenset(("FROM", "JOIN", "USING", "INTO", "TABLE", "UPDATE"))
_CLOSE = frozenset(
    (
        *("SELECT", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "SET"),
        *("WINDOW", "QUALIFY", "VALUES", "WHEN", "UNION", "EXCEPT", "INTERSECT", "MINUS"),
    )
)
#: Words that begin a query where a relation could be.
_NEVER = frozenset(("SELECT", "WITH", "VALUES"))


def candidates(sql: str, tokens: Sequence[Token] | None = None) -> set[tuple[str, ...]]:
    """The names that could be tables, views or table functions.

    >>> sorted(candidates("SELECT a, b.c FROM t JOIN d.u USING (k) WHERE x IN (SELECT 1 FROM v)"))
    [('d', 'u'), ('k',), ('t',), ('v',)]
    >>> sorted(candidates("COMMENT ON COLUMN d.t.a IS 'x'"))
    [('COLUMN',), ('d',), ('d', 't'), ('d', 't', 'a')]
    """
    if tokens is None:
        tokens = tokenize(sql)
    out: set[tuple[str, ...]] = set()
    levels = [_Level()]
    joined = False
    at, size = 0, len(tokens)
    while at < size:
        token = tokens[at]
        if token.symbol == "(":
            levels.append(_Level(levels[-1].listed, _defined(tokens, at, levels[-1])))
        elif token.symbol == ")" and len(levels) > 1:
            if (closed := levels.pop().defines) is not None:
                levels[-1].common.add(closed)
                levels[-1].next_at = at + 1
        elif token.symbol == ";":
            levels = [_Level()]  # the next statement of a script
        if not token.is_name:
            at += 1
            continue
        before = tokens[at - 1] if at else None
        end = at + 1  # of the name that begins here
        while end + 1 < size and tokens[end].symbol == "." and tokens[end + 1].is_name:
            end += 2
        if before is not None and _in_place(before, levels[-1].listed) and token.upper not in _NEVER:
            condition = joined and before.upper == "ON"  # the condition of a join or merge is not a relation
            if not condition and not (end == at + 1 and _is_common(tokens, at, levels)):
                names = tuple(t.name for t in tokens[at:end:2])
                out.add(names)
                if before.upper == "COLUMN" and at > 1 and tokens[at - 2].upper == "ON":
                    out.update(names[:i] for i in range(1, len(names)))  # COMMENT ON COLUMN table.column
        if end == at + 1:
            levels[-1].listed = (levels[-1].listed or token.upper in _OPEN) and token.upper not in _CLOSE
            joined = joined or token.upper in ("JOIN", "USING")
        at = end
    return out


@dataclass
class _Level:
    """State inside one bracket: whether relations are listed here, and the common tables defined so far."""

    listed: bool = False
    #: The common table whose query this bracket is.
    defines: str | None = None
    common: set[str] = field(default_factory=set)
    #: After the last definition of a common table: where a comma leads to the next one.
    next_at: int | None = None


def _defined(tokens: Sequence[Token], at: int, level: _Level) -> str | None:
    """The common table whose query this bracket opens: ``WITH name AS (`` or ``), name AS (``."""
    if at < 3 or tokens[at - 1].upper != "AS" or not tokens[at - 2].is_name:
        return None
    before = tokens[at - 3]
    listed = before.symbol == "," and level.next_at == at - 3
    return tokens[at - 2].name if listed or before.upper == "WITH" else None


def _is_common(tokens: Sequence[Token], at: int, levels: Sequence[_Level]) -> bool:
    """Whether a name is a common table defined before; the table that a statement changes never is."""
    before = tokens[at - 1]
    if before.upper == "FROM":
        if at > 1 and tokens[at - 2].upper == "DELETE":
            return False
    elif before.upper != "JOIN" and before.symbol not in (",", "("):
        return False
    name = tokens[at].name  # as it is spelled: a session may tell names apart by case
    return any(name in level.common for level in levels)


def _in_place(before: Token, listed: bool) -> bool:
    return listed and before.text in (",", "(") if before.symbol else before.upper in _BEFORE
