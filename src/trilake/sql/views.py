"""Views over our tables: made, and read with the rows of the moment.

Spark keeps a view as text, which it reads again each time, or, of a temporary view, the plan of the moment when it was
made.  Neither leads to the newest rows of our tables, so the text of such a view is run here, as a query.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from trilake.sql import jvm
from trilake.sql.session import SqlSession
from trilake.sql.targets import View
from trilake.sql.tokens import quote_name


def view_frame(session: SqlSession, view: View) -> DataFrame:
    """The rows of a view."""
    from trilake.sql.select import query  # late: a query may name views, and a view is a query

    with at_home(session, view):
        frame = query(session, view.text)
    if view.entry is not None:
        return _as_declared(frame, view.entry)
    return frame if view.columns is None else frame.toDF(*view.columns)


@contextmanager
def at_home(session: SqlSession, view: View) -> Iterator[None]:
    """The database in which a view was made is the current one, for the time of the block."""
    spark = session.spark
    before = str(spark.catalog.currentDatabase())
    if view.database.lower() == before.lower():
        yield
        return
    spark.catalog.setCurrentDatabase(view.database)
    try:
        yield
    finally:
        spark.catalog.setCurrentDatabase(before)


def _as_declared(frame: DataFrame, entry: jvm.Entry) -> DataFrame:
    """The columns under the names and types that the view shows."""
    given, shown = jvm.view_columns(entry)
    if not given:
        given = list(frame.columns)
    columns = [
        f"CAST({quote_name(have)} AS {kind}) AS {quote_name(name)}"
        for have, (name, kind) in zip(given, shown, strict=False)
    ]
    return frame.selectExpr(*columns)
