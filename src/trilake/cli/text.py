"""Escape strings from tables before they are printed as lines or JSON.

Names of columns and files, values and messages come from untrusted files; :func:`trilake.common.text.hides` decides
which characters are escaped.
"""

from __future__ import annotations

from trilake.common.text import hides, printable


def printable_lines(string: str) -> str:
    r"""Like :func:`trilake.common.text.printable`, but keep line ends.

    >>> printable_lines("a\nb\x07")
    'a\nb\\x07'
    """
    return "\n".join(printable(line) for line in string.split("\n"))


def printable_json(string: str) -> str:
    r"""Escape JSON for a terminal; its value stays the same.

    >>> printable_json('{"a": "x\u202e\x9b"}')
    '{"a": "x\\u202e\\u009b"}'
    """
    return "\n".join(
        line if line.isprintable() else "".join(_json_escape(c) if hides(c) else c for c in line)
        for line in string.split("\n")
    )


def _json_escape(character: str) -> str:
    if character in "\t\r":  # layout: inside strings, JSON escapes them
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
