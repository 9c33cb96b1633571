"""``IDENTIFIER('name')``: a constant text that stands for a name."""

from __future__ import annotations

from trilake.sql.session.session import SqlSession
from trilake.sql.text.cursor import Cursor
from trilake.sql.text.literals import Args
from trilake.sql.text.places import Edit, Edited
from trilake.text import quote_name


def with_identifiers(session: SqlSession, text: str, args: Args) -> str:
    """The text with the names that its IDENTIFIER clauses stand for."""
    cursor = Cursor(text)
    edits = []
    while cursor.token is not None:
        if not (cursor.is_word("IDENTIFIER") and cursor.is_symbol("(", ahead=1)):
            cursor.at += 1
            continue
        start = cursor.take().start
        inside = cursor.brackets()
        end = cursor.tokens[cursor.at - 1].end
        value = session.value(text[slice(*inside)], args)
        if not isinstance(value, str):
            return text  # Spark says what is wrong
        edits.append(Edit(start, end, ".".join(quote_name(p) for p in Cursor(value).name())))
    return Edited.of(text, edits).text
