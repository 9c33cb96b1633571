"""SQL tokens like those of Spark's lexer, including strings, comments and quoted names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from trilake.common.text import quote_name, string_value
from trilake.sql.parser.paths import as_path

Kind = Literal["word", "quoted", "string", "number", "marker", "symbol"]

#: The end of a bracketed comment is searched for separately, as comments nest.
_TOKEN = re.compile(
    r"""
    \s*(?:
      (?P<space>\s|--(?:\\\n|[^\n])*)
    | (?P<comment>/\*)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<hex>[xX](?:'[^']*'|"[^"]*"))
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<number>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[DFL])?(?!\w)
                |\d+[eE][+-]?\d+(?:BD|[DFL])?(?!\w)|\d+(?:BD|[LSYDF])?(?!\w))
    | (?P<word>\w+)
    | (?P<marker>[:$][A-Za-z_]\w*|\$\d+|\?)
    | (?P<symbol>\|>|=>|->|::|<=>|<=|>=|<>|!=|==|\|\||.)
    )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")


class Token(NamedTuple):
    """One token and its position; ``upper`` is a word in upper case, empty for other tokens."""

    kind: Kind
    text: str
    start: int
    end: int
    upper: str = ""

    @property
    def is_name(self) -> bool:
        return self.kind in ("word", "quoted")

    @property
    def symbol(self) -> str:
        """The symbol; empty for other tokens."""
        return self.text if self.kind == "symbol" else ""

    @property
    def name(self) -> str:
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


def tokenize(sql: str) -> list[Token]:
    """Split SQL into tokens; an unclosed string or comment becomes symbols, which Spark's parser rejects.

    >>> [t.text for t in tokenize("SELECT 'a -- b' /* c */ FROM `x``y`.z -- end")]
    ['SELECT', "'a -- b'", 'FROM', '`x``y`', '.', 'z']
    """
    out: list[Token] = []
    at, size = 0, len(sql)
    next_token, add = _TOKEN.match, out.append
    while at < size:
        match = next_token(sql, at)
        assert match is not None  # the last alternative takes any character
        kind = match.lastgroup
        if kind == "tag":
            kind = "string"
        assert kind is not None
        start, at = match.span(kind)
        if kind == "word":
            word = match[kind]
            add(Token("word", word, start, at, word.upper()))
        elif kind == "comment":
            at = _comment_end(sql, start)
        elif kind in ("raw", "hex"):
            add(Token("string", match[kind], start, at))
        elif kind == "marker" and sql[start] == ":" and out and _takes_colon(out[-1], start):
            at = start + 1
            add(Token("symbol", ":", start, at))
        elif kind != "space":
            add(Token(kind, match[kind], start, at))  # type: ignore[arg-type]  # the groups' names are the kinds
    return out


def _takes_colon(before: Token, start: int) -> bool:
    """Whether a colon belongs to the token before it, not to a parameter: ``a:b``, ``{'a':b}``, ``list[1:n]``."""
    return before.end == start and (before.kind in ("word", "quoted", "string", "number") or before.text in "[])")


def _comment_end(sql: str, start: int) -> int:
    """Where a bracketed comment ends, with the comments in it; the end of the SQL if it is not closed."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(sql, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(sql)


def spaced(sql: str) -> str:
    r"""SQL with a blank between its tokens, as delta-spark stores CHECK constraints, and without comments.

    >>> spaced("length(s)>0 AND -- not empty\n x IN ('a b', DATE'2020-01-01')")
    "length ( s ) > 0 AND x IN ( 'a b' , DATE '2020-01-01' )"
    """
    out, before = "", None
    for token in tokenize(sql):
        # Not inside ``>>`` and ``!<``.
        joined = before is not None and before.end == token.start and {before.symbol, token.symbol} <= set("<>!")
        out += f"{'' if before is None or joined else ' '}{token.text}"
        before = token
    return out


#: Words before a table's name.
_BEFORE_TABLE = frozenset(
    (
        *("INTO", "OVERWRITE", "TABLE", "FROM", "UPDATE", "USING", "LIKE", "CLONE", "EXISTS", "OPTIMIZE", "VACUUM"),
        *("RESTORE", "DETAIL", "HISTORY", "DESCRIBE", "DESC"),
    )
)


def path_tokens(sql: str) -> list[Token]:
    """The tokens of a statement in which a string literal may be a table's path, as in DuckDB's SQL.

    >>> [t.name for t in path_tokens("DELETE FROM '/lake/t'")][-1]
    '/lake/t'
    """
    tokens = tokenize(sql)
    for at in range(1, len(tokens)):
        token, before = tokens[at], tokens[at - 1]
        if token.kind == "string" and (before.upper in _BEFORE_TABLE or before.text == "."):
            tokens[at] = token._replace(kind="quoted", text=quote_name(as_path(string_value(token.text))))
    return tokens


def depths(tokens: Sequence[Token]) -> list[int]:
    """How many brackets are open around each token.

    >>> depths(tokenize("f(a, (b))"))
    [0, 0, 1, 1, 1, 2, 1, 0]
    """
    out, depth = [], 0
    for t in tokens:
        depth = max(0, depth - (t.symbol in (")", "]")))
        out.append(depth)
        depth += t.symbol in ("(", "[")
    return out


#: Words that may follow a relation and are not its alias.
AFTER_RELATION = frozenset(
    (
        *("WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "UNION", "EXCEPT"),
        *("INTERSECT", "MINUS", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI", "ON"),
        *("USING", "WINDOW", "LATERAL", "PIVOT", "UNPIVOT", "WHEN", "SELECT", "INSERT", "MAP", "REDUCE", "QUALIFY"),
    )
)
