"""``INSERT OVERWRITE DIRECTORY``: rows of our tables as plain files, which Spark writes."""

from __future__ import annotations

from pyspark.sql import DataFrame

from trilake.sql.session.relations import query
from trilake.sql.session.session import SqlSession
from trilake.sql.text.cursor import Cursor
from trilake.sql.text.literals import Args


def is_directory(text: str) -> bool:
    """Whether the statement writes a directory."""
    cursor = Cursor(text)
    return any(Cursor(text, cursor.tokens, i).is_word("DIRECTORY") for i in range(1, min(5, len(cursor.tokens))))


def insert_directory(session: SqlSession, text: str, args: Args) -> DataFrame:
    """Run it: tables of ours are replaced in its query alone."""
    return query(session, text, args)
