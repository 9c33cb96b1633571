"""The kind of a statement, its common table expressions, and the metrics that statements return, by Delta's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trilake.sql.parser.edits import Edit, Edited
from trilake.sql.parser.tokens import Token, depths, tokenize

_CHANGES = ("INSERT", "MERGE", "UPDATE", "DELETE")
#: The kinds of queries, which do nothing until their rows are used.
QUERIES = frozenset(("SELECT", "WITH", "FROM", "TABLE", "VALUES", "("))
#: The kinds of statements that may be trilake's without naming an existing table.
WITHOUT_TABLE = frozenset(("CREATE", "REPLACE", "EXECUTE", "BEGIN"))


def kind(tokens: Sequence[Token]) -> str:
    """The keyword of a statement; for ``WITH`` and ``FROM``, the ``INSERT``, ``UPDATE`` and so on that follows.

    >>> kind(tokenize("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a")), kind(tokenize("(SELECT 1)"))
    ('INSERT', '(')
    """
    if not tokens:
        return ""
    word = tokens[0].upper or tokens[0].text
    behind = behind_ctes(tokens)
    first = tokens[behind].upper if behind < len(tokens) else ""
    if first in _CHANGES:
        return first
    if first == "FROM":
        for i, (t, depth) in enumerate(zip(tokens, depths(tokens), strict=True)):
            follows = tokens[i + 1].upper if i + 1 < len(tokens) else ""
            if i > behind and depth == 0 and t.upper in _CHANGES and follows in ("INTO", "OVERWRITE", "FROM", "WITH"):
                return t.upper
    return word


MERGE = ("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows")
CLONE = (
    *("source_table_size", "source_num_of_files", "num_removed_files", "num_copied_files"),
    *("removed_files_size", "copied_files_size"),
)


def numbers(result: object, names: Sequence[str]) -> dict[str, int | None]:
    """The metrics of a command's result that ``names`` lists."""
    return {name: getattr(result, name) for name in names}


# --- common table expressions before a statement: WITH a AS (...) DELETE FROM t WHERE id IN (SELECT id FROM a) --------

#: Words that a query in brackets may begin with, apart from WITH.
_QUERIES = ("SELECT", "FROM", "VALUES", "TABLE")


@dataclass(frozen=True)
class Ctes:
    """A WITH clause, and the names that it defines in lower case."""

    clause: str = ""
    names: frozenset[str] = frozenset()

    def before(self, query: str) -> str:
        return f"{self.clause} {query}"

    def before_others(self, *, recursive: bool) -> str:
        """The clause with a comma at its end, to put before the common tables of a nested query."""
        first, *rest = tokenize(self.clause)
        is_recursive = rest[0].upper == "RECURSIVE"
        listed = self.clause[rest[1 if is_recursive else 0].start :]
        return f"{first.text}{' RECURSIVE' if is_recursive or recursive else ''} {listed},"


def behind_ctes(tokens: Sequence[Token]) -> int:
    """The index of the first token after a WITH clause; 0 without one.

    >>> tokens = tokenize("WITH a (x) AS (SELECT 1), b AS (SELECT 2) MERGE INTO t")
    >>> tokens[behind_ctes(tokens)].text
    'MERGE'
    """
    if not tokens or tokens[0].upper != "WITH":
        return 0
    levels = depths(tokens)
    at = 1
    while at < len(tokens):
        # One common table ends at a bracket that is followed by neither AS nor another bracket.
        while at < len(tokens) and not (levels[at] == 0 and tokens[at].text == ")" and not _goes_on(tokens, at + 1)):
            at += 1
        at += 1
        if at >= len(tokens) or tokens[at].text != ",":
            return min(at, len(tokens))
        at += 1
    return len(tokens)


def _goes_on(tokens: Sequence[Token], at: int) -> bool:
    return at < len(tokens) and (tokens[at].upper in ("AS", "MAX") or tokens[at].text == "(")


def without_ctes(sql: str) -> tuple[str, Ctes]:
    """Move a statement's WITH clause into the nested queries.

    >>> without_ctes("WITH a AS (SELECT 1 x) DELETE FROM t WHERE x IN (SELECT x FROM a)")[0]
    'DELETE FROM t WHERE x IN (WITH a AS (SELECT 1 x) SELECT x FROM a)'
    """
    tokens = tokenize(sql)
    behind = behind_ctes(tokens)
    if not 0 < behind < len(tokens):
        return sql, Ctes()
    begin = tokens[behind].start
    levels = depths(tokens)
    names = frozenset(
        t.name.lower()
        for i, t in enumerate(tokens[1:behind], 1)
        if levels[i] == 0 and t.is_name and (tokens[i - 1].upper in ("WITH", "RECURSIVE") or tokens[i - 1].text == ",")
    )
    ctes = Ctes(sql[:begin].rstrip(), names)
    edits, inside = [], -1
    for i in range(behind, len(tokens) - 1):
        if 0 <= inside < levels[i]:
            continue
        inside = -1
        first = tokens[i + 1]
        if tokens[i].text != "(" or first.upper not in (*_QUERIES, "WITH"):
            continue
        inside, start = levels[i], first.start - begin
        if first.upper != "WITH":
            edits.append(Edit(start, start, ctes.before("")))
            continue
        last = tokens[i + 2] if tokens[i + 2 : i + 3] and tokens[i + 2].upper == "RECURSIVE" else first
        edits.append(Edit(start, last.end - begin, ctes.before_others(recursive=last is not first)))
    return Edited.of(sql[begin:], edits).sql, ctes
