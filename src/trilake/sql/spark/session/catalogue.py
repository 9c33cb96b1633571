"""Names of trilake tables in the session's catalogue, which every engine understands.

An entry has provider, location, columns and properties, like those of delta-spark, and nothing else.
"""

from __future__ import annotations

from trilake.common.text import quote_parts
from trilake.delta.log.log import DeltaLog
from trilake.errors import TableExistsError
from trilake.spark.delta.names.catalogue import newest, same_place
from trilake.spark.delta.names.entries import (
    About,
    change_entry,
    database_location,
    find_entry,
    make_entry,
    move_entry,
    rename_entry,
)
from trilake.spark.session.engine import spark_engine
from trilake.sql.spark.session import jvm
from trilake.sql.spark.session.cache import uncache
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target, full_parts

_CATALOG = "spark_catalog"


def default_place(session: SqlSession, parts: tuple[str, ...]) -> str:
    """Where the catalogue keeps a table of that name that says no place."""
    database, table = full_parts(session, parts)
    return f"{database_location(session.spark, [_CATALOG, database]).rstrip('/')}/{table.lower()}"


def add(
    session: SqlSession, parts: tuple[str, ...], path: str | None, about: About, *, format: str = "delta", managed: bool
) -> None:
    """Make a name for a table; the files are not touched.  Without a path the catalogue chooses an empty place.

    Raises Spark's ``TABLE_OR_VIEW_ALREADY_EXISTS`` where the name is taken.
    """
    name = [_CATALOG, *full_parts(session, parts)]
    make_entry(session.spark, name, about, path=path, provider=format, managed=managed)


def add_delta(session: SqlSession, parts: tuple[str, ...], path: str, *, managed: bool) -> None:
    """Make a name for the Delta table at a path."""
    head = DeltaLog(session.store(path), spark_engine()).head()
    add(session, parts, path, About.of(head), managed=managed)


def refresh(session: SqlSession, target: Target) -> None:
    """Let the name of a Delta table show what the table is now; nothing for a path.

    A name that stands for another place now keeps that, and one that is gone stays gone.  But where the catalogue
    kept the files, and a table is there, a write came behind the drop and made a new one, which gets the name.
    """
    entry = target.entry
    if entry is None or target.format != "delta" or not session.classic:
        return
    name = [_CATALOG, entry.database, entry.table]
    existing = find_entry(session.spark, name)
    if existing is not None and (existing.location is None or not same_place(existing.location, target.path)):
        return
    about = newest(target.log)
    if about is None:
        return
    if existing is not None:
        change_entry(session.spark, name, about)
    elif entry.managed:
        make_entry(session.spark, name, about, path=target.path, managed=True)


def move(session: SqlSession, target: Target, place: str) -> None:
    """Let the name of a Delta table stand for the one at another place, in a classic session."""
    entry = target.entry
    assert entry is not None
    head = DeltaLog(session.store(place), spark_engine()).head()
    move_entry(session.spark, [_CATALOG, entry.database, entry.table], place, About.of(head))


def rename(session: SqlSession, target: Target, parts: tuple[str, ...]) -> None:
    """Give a table another name, in a classic session.  Without a database the name is of the table's own.

    Raises ``TableExistsError`` where the name is taken.
    """
    entry = target.entry
    assert entry is not None
    database, table = (entry.database, parts[0]) if len(parts) == 1 else full_parts(session, parts)
    if jvm.find_entry(session.catalogues, database, table) is not None:
        raise TableExistsError(
            f"[TABLE_OR_VIEW_ALREADY_EXISTS] {quote_parts((database, table))} already exists",
            help="choose another name, or drop that table first",
        )
    uncache(session, target)
    rename_entry(session.spark, [_CATALOG, entry.database, entry.table], [_CATALOG, database, table])


def remove(session: SqlSession, target: Target) -> None:
    """Take the name of an external table away, by SQL; the files stay."""
    entry = target.entry
    assert entry is not None
    session.run(f"DROP TABLE {quote_parts((entry.database, entry.table))}")
