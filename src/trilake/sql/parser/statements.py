"""The kind of a statement, and the metrics that statements return, by Delta's names."""

from __future__ import annotations

from collections.abc import Sequence

from trilake.sql.parser.ctes import behind_ctes
from trilake.sql.parser.tokens import Token, depths

_CHANGES = ("INSERT", "MERGE", "UPDATE", "DELETE")
#: The kinds of queries, which do nothing until their rows are used.
QUERIES = frozenset(("SELECT", "WITH", "FROM", "TABLE", "VALUES", "("))


def kind(tokens: Sequence[Token]) -> str:
    """The word that says what a statement does; for ``WITH`` and ``FROM``, the INSERT, UPDATE and so on that follows.

    >>> from trilake.sql.parser.tokens import tokenize
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
RESTORE = (
    *("table_size_after_restore", "num_of_files_after_restore", "num_removed_files", "num_restored_files"),
    *("removed_files_size", "restored_files_size"),
)


def numbers(result: object, names: Sequence[str]) -> dict[str, int | None]:
    """The metrics of a command's result that ``names`` lists."""
    return {name: getattr(result, name) for name in names}
