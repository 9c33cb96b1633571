"""Texts of tables made harmless: nothing that a terminal would obey, or that would turn a line around, is printed.

Names of columns and files, values and messages come from files that anybody may have written.  Control characters, the
marks that change the direction of a line, line separators and halves of surrogate pairs are shown as escapes.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters, the escape that begins a terminal's sequences among them
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of text
    "\u2028\u2029\ufeff\ufff9-\ufffb"  # separators of lines and paragraphs, byte order, annotations
    "\ud800-\udfff"  # bytes of file names that are no UTF-8
    "\U000e0000-\U000e007f]"  # tags
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    r"""A text that can be printed on one line of a terminal.

    >>> printable("a\x1b[31mb\nc\u202e")
    'a\\x1b[31mb\\nc\\u202e'
    """
    return _UNSAFE.sub(lambda m: _SHORT.get(m[0]) or _escape(m[0]), text)


def _escape(character: str) -> str:
    point = ord(character)
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def printable_lines(text: str) -> str:
    r"""As :func:`printable`, but lines stay lines.

    >>> printable_lines("a\nb\x07")
    'a\nb\\x07'
    """
    return "\n".join(printable(line) for line in text.split("\n"))


def printable_json(text: str) -> str:
    r"""JSON text of which a terminal obeys nothing; it means the same.

    >>> printable_json('{"a": "x\u202e\x9b"}')
    '{"a": "x\\u202e\\u009b"}'
    """
    return _UNSAFE.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in "\n\t\r":  # layout: inside of strings JSON has escaped them already
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def size_text(size: int | None) -> str:
    """Bytes as people read them.

    >>> size_text(999), size_text(1_234_567), size_text(None)
    ('999 B', '1.2 MB', '?')
    """
    if size is None:
        return "?"
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
