"""Queries: our tables in them become private names, and Spark does the rest."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from trilake.sql.problems import in_place
from trilake.sql.relations import Local, local_views, localized
from trilake.sql.session import Args, SqlSession


def query(session: SqlSession, text: str, args: Args = None) -> DataFrame:
    """The rows of a query that may name our tables.

    Raises what Spark raises, with places in the text as it was given.
    """
    return run_local(session, localized(session, text, args), args)


def run_local(session: SqlSession, local: Local, args: Args = None, *, before: str = "", after: str = "") -> DataFrame:
    """Run a text whose tables are private names, with more text around it."""
    with local_views(session, local):
        try:
            return session.run(before + local.text + after, args)
        except PySparkException as e:
            raise in_place(e, local, shift=len(before)) from None
