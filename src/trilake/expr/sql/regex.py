"""Convert Java's regular expressions, which Spark uses, to RE2's, which DuckDB uses.

Most of the syntax is the same.  Differences are rewritten, and what RE2 lacks is refused.
"""

from __future__ import annotations

from trilake.errors import FilterError

#: Line terminators in Java, where RE2 knows only ``\n``.
_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_DOLLAR = rf"(?:(?:\r\n|[{_LINE_ENDS}])?\z)"
_DOT = f"[^{_LINE_ENDS}]"
#: Java's ``\s``, which includes the vertical tab.
_SPACE = r"\t\n\x0B\f\r "
_SAME_ESCAPES = frozenset("dDwWbBAztnrfae")
_GROUPS = ("(?:", "(?i)", "(?i:", "(?s)", "(?s:", "(?is)", "(?si)")


def to_re2(pattern: str) -> str:
    r"""The RE2 pattern that matches the same strings as the Java ``pattern``.

    >>> to_re2(r"^\w+\s$")
    '^\\w+[\\t\\n\\x0B\\f\\r ](?:(?:\\r\\n|[\\n\\r\\x{85}\\x{2028}\\x{2029}])?\\z)'

    Raises :class:`FilterError` for look-around, back references, possessive quantifiers and operations on character
    classes.
    """
    out: list[str] = []
    dot_all = False
    i = 0
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            text, i = _escape(pattern, i, in_class=False)
            out.append(text)
            continue
        if char == "[":
            text, i = _char_class(pattern, i)
            out.append(text)
            continue
        if char == "(" and pattern.startswith("(?", i):
            group = next((g for g in _GROUPS if pattern.startswith(g, i)), None)
            if group is None:
                raise _refused(pattern, i, "this kind of group")
            if "s" in group:
                if i:
                    raise _refused(pattern, i, "a dot-all flag that is not at the start")
                dot_all = True
            out.append(group)
            i += len(group)
            continue
        if char in "*+?}" and pattern.startswith("+", i + 1):
            raise _refused(pattern, i, "a possessive quantifier")
        out.append(_DOLLAR if char == "$" else char if char != "." or dot_all else _DOT)
        i += 1
    return "".join(out)


def _refused(pattern: str, position: int, what: str) -> FilterError:
    return FilterError(
        f"the regular expression {pattern!r} uses {what}, which filters cannot evaluate",
        help="use LIKE, startswith, endswith or contains, or a simpler pattern",
        position=position,
    )


def _escape(pattern: str, i: int, *, in_class: bool) -> tuple[str, int]:
    """The escape sequence at ``i``, rewritten, and the position after it."""
    if i + 1 >= len(pattern):
        raise _refused(pattern, i, "a backslash at its end")
    char = pattern[i + 1]
    if char == "s":
        return (_SPACE if in_class else f"[{_SPACE}]"), i + 2
    if char == "S" and not in_class:
        return f"[^{_SPACE}]", i + 2
    if char == "Z" and not in_class:
        return _DOLLAR, i + 2
    if (
        char == "u"
        and len(digits := pattern[i + 2 : i + 6]) == 4
        and all(c in "0123456789abcdefABCDEF" for c in digits)
    ):
        return f"\\x{{{digits}}}", i + 6
    if (char in _SAME_ESCAPES and not (in_class and char in "bBAz")) or not char.isalnum():
        return ("\\x{1B}" if char == "e" else f"\\{char}" if char.isascii() else char), i + 2
    raise _refused(pattern, i, f"the escape \\{char}")


def _char_class(pattern: str, i: int) -> tuple[str, int]:
    """The character class that starts at ``i``, and the position after it."""
    start, out = i, ["["]
    i += 1
    if pattern.startswith("^", i):
        out.append("^")
        i += 1
    first = True
    while i < len(pattern):
        char = pattern[i]
        if char == "]" and not first:
            return "".join(out) + "]", i + 1
        if char == "[" or pattern.startswith("&&", i) or (char == "]" and first):
            raise _refused(pattern, i, "an operation on character classes")
        first = False
        if char == "\\":
            text, i = _escape(pattern, i, in_class=True)
            out.append(text)
            continue
        out.append(char)
        i += 1
    raise _refused(pattern, start, "a character class without an end")
