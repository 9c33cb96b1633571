"""Java's regular expressions in RE2."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from trilake.errors import FilterError
from trilake.expr.sql.strings import to_re2


def _matches(pattern: str, text: str) -> bool:
    found: bool = pc.match_substring_regex(pa.array([text]), to_re2(pattern))[0].as_py()
    return found


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("b$", "ab", True),
        ("b$", "ab\n", True),
        ("b$", "ab\r\n", True),
        ("b$", "ab\u2028", True),
        ("b$", "ab\n\n", False),
        ("b$|c", "xcx", True),
        ("(a$)", "a\n", True),
        (r"b\Z", "ab\n", True),
        (r"b\z", "ab\n", False),
        ("a.b", "a\nb", False),
        ("a.b", "a\rb", False),
        ("a.b", "a\u0085b", False),
        ("(?s)a.b", "a\nb", True),
        ("(?i)ABC", "abc", True),
        (r"\s", "\x0b", True),
        (r"\S", "\x0b", False),
        (r"[\s]", "\x0b", True),
        (r"[^\s]", "\x0b", False),
        (r"\d+\.\d+", "1.5", True),
        (r"\u0041", "A", True),
        (r"[$.]", "$", True),
        (r"\$", "$", True),
        (r"[\]a]", "]", True),
        ("^$", "", True),
    ],
)
def test_matches_like_java(pattern: str, text: str, matches: bool) -> None:
    assert _matches(pattern, text) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "(?>a)",
        "a*+",
        "a++",
        r"(a)\1",
        "[a&&b]",
        "[a[b]]",
        r"\p{Alpha}",
        "[a",
        "a\\",
        r"\h",
    ],
)
def test_unsupported_regex_is_rejected(pattern: str) -> None:
    with pytest.raises(FilterError, match="regular expression"):
        to_re2(pattern)
