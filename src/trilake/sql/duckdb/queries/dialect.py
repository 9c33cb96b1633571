"""The text of a query as a tree in which functions are left as they are written."""

from __future__ import annotations

import re
from collections import Counter

from sqlglot import exp
from sqlglot.errors import SqlglotError

from trilake.errors import InvalidArgumentError
from trilake.expr.sql.dialect import positive, statements
from trilake.sql.parser.problems import SqlTextError
from trilake.sql.parser.tokens import tokenize

#: Functions whose lambdas are arguments like others.
_PLAIN = frozenset(("ANY", "TRANSFORM"))
#: Statements are read by people; a longer text is a mistake or an attack.
_MAX_TEXT = 1_000_000
#: Joins without a condition, of which each doubles the time that the parser looks for one.
_MOST_BARE_JOINS = 10
_JOIN = re.compile(r"\bJOIN\b", re.IGNORECASE)
#: The first word, behind blanks and comments.
_HEAD = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*(\w+|\()", re.DOTALL)


def parse_query(text: str) -> exp.Query:
    """The one query that ``text`` is.

    Raises ``SqlTextError`` for what does not parse, ``InvalidArgumentError`` for a statement that is no query.
    """
    if len(text) > _MAX_TEXT:
        raise InvalidArgumentError(f"the query is {len(text):,} characters long, and the limit is {_MAX_TEXT:,}")
    found = _HEAD.match(text)
    head = "" if found is None else found[1].upper()
    if found is None or head not in ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "("):
        raise InvalidArgumentError(
            f"this statement does not run without Spark: {text.strip()[:200]}",
            help="queries, changes of rows, CREATE TABLE and Delta's maintenance do",
        )
    if len(_JOIN.findall(text)) > _MOST_BARE_JOINS:
        _check_joins(text)
    # What Spark takes as queries of their own, and sqlglot as relations.
    if head == "TABLE":
        text = f"SELECT * FROM {text[found.end(1) :]}"
    elif head == "VALUES":
        text = f"SELECT * FROM {text}"
    try:
        trees = statements(text, _PLAIN)
    except SqlglotError as e:
        raise SqlTextError.of(text, e) from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise InvalidArgumentError(
            f"this statement does not run without Spark: {text.strip()[:200]}",
            help="write one query",
        )
    tree: exp.Query = positive(trees[0])
    return tree


def _check_joins(text: str) -> None:
    words = Counter(t.upper for t in tokenize(text))
    if words["JOIN"] - sum(words[w] for w in ("ON", "USING", "CROSS", "NATURAL")) > _MOST_BARE_JOINS:
        raise InvalidArgumentError(
            f"the query has more than {_MOST_BARE_JOINS} joins without a condition", help="write CROSS JOIN for them"
        )


def stated(node: exp.Expression) -> set[str]:
    """The parts that a clause has: a translation that knows not all of them must refuse it."""
    return {key for key, value in node.args.items() if value not in (None, False, [], "")}
