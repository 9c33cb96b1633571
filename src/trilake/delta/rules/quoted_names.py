"""Conditions of CHECK constraints in the spelling of deltalake, which puts names in double quotes.

The protocol names no dialect of SQL.  In Spark's, ``"Price" >= 0`` compares a string, and the rule would refuse all
rows or none.  deltalake (seen of 1.6.6) writes every condition again before it stores it: a name stands in double
quotes exactly if it is not of lower-case letters, digits and ``_`` alone, and backquotes are never used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")+\"""")
_PLAIN = re.compile("[a-z_][a-z0-9_]*")


def in_backquotes(text: str, columns: Iterable[str]) -> str:
    """A stored condition with its names in backquotes, where it is spelled as deltalake does; else as it is.

    It is only where all that stands in double quotes is exactly the name of a column that has to, and no such column is
    named without quotes.

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
