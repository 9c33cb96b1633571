"""CHECK constraints as written by deltalake, which puts names in double quotes.

The protocol does not name a SQL dialect.  In Spark's, ``"Price" >= 0`` compares a string, so the rule would refuse all
rows or none.  deltalake (as of 1.6.6) normalises every condition before storing it: it quotes exactly the names with
characters other than lower-case letters, digits and ``_``, and never uses backquotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")+\"""")
_PLAIN = re.compile("[a-z_][a-z0-9_]*")


def in_backquotes(text: str, columns: Iterable[str]) -> str:
    """Put names in backquotes in a condition stored by deltalake; return any other condition unchanged.

    It counts as deltalake's if everything in double quotes is the name of a column that needs quotes, and no such
    column appears unquoted.

    >>> in_backquotes('"Unit price" >= 0 AND size > 1', ["Unit price", "size"])
    '`Unit price` >= 0 AND size > 1'
    >>> in_backquotes('Kind <> "Name"', ["Kind", "Name"])
    'Kind <> "Name"'
    """
    if '"' not in text or "`" in text or "\\" in text:
        return text
    special = {c for c in columns if not _PLAIN.fullmatch(c)}
    quoted = {_name(t) for t in _QUOTED.findall(text) if t.startswith('"')}
    bare = set(re.findall(r"\w+", _QUOTED.sub(" ", text).casefold()))
    if not quoted or not quoted <= special or bare & {c.casefold() for c in special}:
        return text
    return _QUOTED.sub(lambda m: f"`{_name(m[0])}`" if m[0].startswith('"') else m[0], text)


def _name(token: str) -> str:
    return token[1:-1].replace('""', '"')
