"""SQL tokens: string literals, comments and backquoted names are distinguished as in Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.common.text import quote_name, string_literal, string_value
from trilake.sql.parser.cursor import Cursor, SyntaxProblem
from trilake.sql.parser.edits import Edit, Edited, line_and_position
from trilake.sql.parser.tokens import tokenize


def token_strings(text: str) -> list[str]:
    return [t.text for t in tokenize(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1--2\n+3", ["SELECT", "1", "+", "3"]),
        ("a /* b /* c */ d */ e", ["a", "e"]),
        ("'it''s' \"say \\\"x\\\"\" r'\\'", ["'it''s'", '"say \\"x\\""', "r'\\'"]),
        ("`a``b`.c", ["`a``b`", ".", "c"]),
        ("x'0aF' X\"00\"", ["x'0aF'", 'X"00"']),
        ("1.5e3BD 2L 3a .5", ["1.5e3BD", "2L", "3a", ".5"]),
        (":name a:b ? x::int", [":name", "a", ":", "b", "?", "x", "::", "int"]),
        ("'a' 'b''' \"c\"\"d\" ''", ["'a'", "'b'''", '"c""d"', "''"]),
        ("'never closed", ["'", "never", "closed"]),
        ("ü☃ 😀", ["ü", "☃", "😀"]),
    ],
)
def test_tokens_match_spark(text: str, expected: list[str]) -> None:
    assert token_strings(text) == expected


@given(st.text(max_size=200))
def test_random_input_has_tokens_that_do_not_overlap(text: str) -> None:
    at = 0
    for token in tokenize(text):
        assert token.start >= at
        assert token.end > token.start
        assert text[token.start : token.end] == token.text
        at = token.end


@given(st.text())
def test_string_literal_round_trips(text: str) -> None:
    [token] = tokenize(string_literal(text))
    assert string_value(token.text) == text


@given(st.text(min_size=1))
def test_quoted_name_round_trips(name: str) -> None:
    assert Cursor(quote_name(name)).name() == (name,)


@given(st.text(max_size=60), st.data())
def test_positions_in_edited_sql_map_to_the_original(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    edited = Edited.of(text, [Edit(start, end, "abcdef")])
    assert edited.sql == text[:start] + "abcdef" + text[end:]
    for i in range(start):
        assert edited.source_index(i) == i
    for i in range(end, len(text)):
        assert edited.source_index(i - (end - start) + 6) == i


def test_syntax_error_states_its_position() -> None:
    cursor = Cursor("VACUUM t\n  RETAIN x")
    cursor.accept("VACUUM")
    cursor.name()
    cursor.accept("RETAIN")
    with pytest.raises(SyntaxProblem) as e:
        cursor.number()
    assert (e.value.line, e.value.position) == (2, 9)
    assert line_and_position("a\nb", 2) == (2, 0)
