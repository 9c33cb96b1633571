"""Format numbers, names and strings for people and for SQL."""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: Zero-width joiners, which scripts and emoji need.
_JOINERS = "\u200c\u200d"
_PART = "`(?:[^`]|``)+`|[^`.]+"
_NAME = re.compile(rf"(?:{_PART})(?:\.(?:{_PART}))*")
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def format_size(size: float | None) -> str:
    """Format bytes with a suitable unit; an unknown size is a question mark.

    >>> format_size(999), format_size(1_234_567), format_size(0), format_size(None)
    ('999 B', '1.23 MB', '0 B', '?')
    """
    if size is None:
        return "?"
    value, unit = float(size), 0
    while abs(value) >= 999.5 and unit + 1 < len(_UNITS):
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


def format_count(count: float) -> str:
    """Format a count with separators; a fraction below 10 keeps one decimal place.

    >>> format_count(1234567), format_count(1.25), format_count(12.5)
    ('1,234,567', '1.2', '12')
    """
    if abs(count) < 10 and count != int(count):
        return f"{count:.1f}"
    return f"{int(count):,}"


def short_count(count: int) -> str:
    """Format a count; a large one in millions or billions.

    >>> short_count(99_999_999), short_count(1_234_567_890)
    ('99,999,999', '1.23 billion')
    """
    if count < 10**8:
        return f"{count:,}"
    unit, word = next(u for u in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")) if count >= u[0])
    return f"{count / unit:.3g} {word}"


def format_share(share: float) -> str:
    """Format a fraction as a percentage; only exactly 0 and 1 become 0 % and 100 %.

    >>> format_share(0.5), format_share(0.0001), format_share(0.99999)
    ('50 %', '<1 %', '>99 %')
    """
    percent = round(100 * share)
    if percent == 0 and share > 0:
        return "<1 %"
    return ">99 %" if percent == 100 and share < 1 else f"{percent} %"


def format_time(ms: int | None) -> str:
    """Format ms since the epoch in UTC, to the second; as ms if it is outside the calendar.

    >>> format_time(0), format_time(None)
    ('1970-01-01 00:00:00', '')
    """
    if ms is None:
        return ""
    try:
        return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def plain(value: object, limit: int = 120) -> str:
    r"""Escape invisible and direction-changing characters, and cut the middle of a long string.

    >>> plain("a\u202eb\n")
    'a\\u202eb\\n'
    >>> plain("abcdefghij", 7)
    'abc…hij'
    """
    escaped = str(value)
    if len(escaped) > limit:
        head = (limit - 1) // 2
        escaped = f"{escaped[:head]}…{escaped[len(escaped) - (limit - 1 - head) :]}"
    return printable(escaped)


def printable(string: str) -> str:
    r"""Escape invisible characters, line ends and terminal control sequences.

    >>> printable("a\x1b[31mb\nc\u202e")
    'a\\x1b[31mb\\nc\\u202e'
    """
    if string.isprintable():
        return string
    return "".join(c.encode("unicode_escape").decode() if hides(c) else c for c in string)


def hides(c: str) -> bool:
    """Whether a character is invisible or changes the text direction: controls, direction marks, tags, surrogates."""
    return (unicodedata.category(c)[0] == "C" and c not in _JOINERS) or c in "\u2028\u2029"


def quote_name(name: str) -> str:
    """Quote a name, or a part of one, for Spark SQL.

    >>> print(quote_name("a`b"))
    `a``b`
    """
    return "`" + name.replace("`", "``") + "`"


def quote_parts(parts: Iterable[str]) -> str:
    """Quote the parts of a name for Spark SQL.

    >>> print(quote_parts(("db", "a`b")))
    `db`.`a``b`
    """
    return ".".join(map(quote_name, parts))


def split_parts(name: str) -> list[str] | None:
    """The parts of a name in Spark SQL: the reverse of :func:`quote_parts`; ``None`` for an invalid name.

    >>> split_parts("db.`odd.name`"), split_parts("db..t")
    (['db', 'odd.name'], None)
    """
    if not _NAME.fullmatch(name):
        return None
    return [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in re.findall(_PART, name)]


def double_quoted(name: str) -> str:
    """Quote a name for DuckDB.

    >>> print(double_quoted('a"b'))
    "a""b"
    """
    return '"' + name.replace('"', '""') + '"'


def single_quoted(string: str) -> str:
    """Quote a string for DuckDB.

    >>> print(single_quoted("it's"))
    'it''s'
    """
    return "'" + string.replace("'", "''") + "'"


def string_literal(string: str) -> str:
    r"""Quote a string for Spark SQL.

    >>> print(string_literal("it's"))
    'it\'s'
    """
    return "'" + string.replace("\\", "\\\\").replace("'", "\\'") + "'"


def columns_help(name: str, columns: Sequence[str]) -> str:
    """Help for an unknown column: the most similar name, and all names.

    >>> columns_help("nmae", ["id", "name"])
    "did you mean 'name'? The columns are id, name"
    """
    more = f" and {len(columns) - 50} more" if len(columns) > 50 else ""
    return f"{perhaps(name, columns)} columns are {', '.join(columns[:50])}{more}"


def perhaps(name: str, names: Sequence[str]) -> str:
    """The beginning of a sentence about ``names``: the most similar name, and ``the``.

    >>> perhaps("nmae", ["id", "name"]), perhaps("x", ["id", "name"])
    ("did you mean 'name'? The", 'the')
    """
    close = get_close_matches(name, names[:1000], n=1)
    return f"did you mean {close[0]!r}? The" if close else "the"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun.

    >>> plural(1, "file"), plural(2, "file"), plural(0, "index", "indices")
    ('1 file', '2 files', '0 indices')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))|''|[\"]{2}", re.DOTALL)


def string_value(literal: str) -> str:
    r"""The value of a string literal of Spark's SQL.

    >>> print(string_value(r"'it\'s'"), string_value("'it''s'"), string_value(r"r'a\n'"))
    it's it's a\n
    """
    if literal[0] in "rR":
        return literal[2:-1]
    if literal[0] == "$":
        tag = literal.index("$", 1) + 1
        return literal[tag:-tag]
    quote = literal[0]
    return _ESCAPED.sub(lambda match: _unescape(match, quote), literal[1:-1])


def _unescape(match: re.Match[str], quote: str) -> str:
    if match[0] in ("''", '""'):
        return quote if match[0][0] == quote else match[0]
    if code := match[1] or match[2]:
        return chr(int(code, 16))
    return chr(int(match[3], 8)) if match[3] else _ESCAPES.get(match[4], match[4])
