"""The location of a new table, and its entry in the catalog."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from trilake.common.text import quote_parts
from trilake.delta.log.log import DeltaLog
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TableExistsError, TableNotFoundError, TrilakeError
from trilake.spark.catalog.entries import Entry, EntryContents
from trilake.spark.catalog.named_tables import check_left_over, default_location, drop_name, is_empty_location
from trilake.spark.scan.obstacles import decoded
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.internals import SPARK_ERRORS
from trilake.sql.parser.create import Create, check_create_at
from trilake.sql.spark.session import entries
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target, exists, find_entry, full_parts, path_target
from trilake.storage import open_store
from trilake.table.registry import format_of_provider

_log = logging.getLogger("trilake.sql")
#: How often to look for the entry that a concurrent statement adds.
_LOOKS = 20


#: Adds or refreshes the entry of a table, given its log and whether this statement created it.
Namer = Callable[[DeltaLog, bool], None]


@dataclass(frozen=True)
class TableLocation:
    """The location of a table to create.  ``parts`` are its name, ``None`` for a path; ``exists`` indicates whether the
    name, or the table at the path, exists, ``managed`` whether the catalog chose the location."""

    path: str
    format: str
    parts: tuple[str, ...] | None = None
    exists: bool = False
    managed: bool = False
    entry: Entry | None = None

    @property
    def needs_entry(self) -> bool:
        """Whether the statement adds an entry to the catalog."""
        return self.parts is not None and not self.exists


def choose_location(session: SqlSession, call: Create, format: str) -> TableLocation:
    """Find the location for a CREATE or REPLACE.  Raises ``TableExistsError``, ``TableNotFoundError`` for a REPLACE of
    a missing table, ``InvalidArgumentError`` for a REPLACE of a table of another format, and for a name in another
    catalog, and Spark's error for a missing schema."""
    target = path_target(session, call.parts)
    if target is not None:
        there = exists(target)
        check_create_at(call, target.format, target.path, exists=there)
        return TableLocation(target.path, target.format, exists=there)
    entry = find_entry(session, call.parts)
    table = quote_parts(call.parts)
    if entry is None:
        if not call.create:
            raise TableNotFoundError(
                f"[TABLE_OR_VIEW_NOT_FOUND] the table {table} cannot be found, so it cannot be replaced",
                help="write CREATE OR REPLACE TABLE",
            )
        # Raises for a name in another catalog or a missing schema, before there are files.
        path = default_location(session.spark, quote_parts(("spark_catalog", *full_parts(session, call.parts))))
        if call.location is not None:
            return TableLocation(_absolute(session, call.location), format, call.parts)
        return _managed_location(session, call, format, path)
    if call.if_not_exists:
        return TableLocation(entry.location or "", format, call.parts, True, entry.managed, entry)
    if not call.replace:
        raise TableExistsError(
            f"[TABLE_OR_VIEW_ALREADY_EXISTS] {table} already exists",
            help="choose another name, or write CREATE OR REPLACE TABLE, or IF NOT EXISTS",
        )
    if entry.is_view or format_of_provider(entry.provider) != format or entry.location is None:
        raise InvalidArgumentError(
            f"{table} is a {'view' if entry.is_view else f'{entry.provider} table'}, which a {format} table cannot"
            " replace",
            help="drop it first",
            condition="DELTA_NOT_A_DELTA_TABLE",
        )
    requested = call.location
    if requested is not None and open_store(_absolute(session, requested)).uri != open_store(entry.location).uri:
        raise InvalidArgumentError(
            f"replacing {table} cannot change its location from {entry.location} to {requested}",
            help="leave LOCATION out, or drop the table first",
            condition="DELTA_TABLE_LOCATION_MISMATCH",
        )
    return TableLocation(entry.location, format, call.parts, True, entry.managed, entry)


def _managed_location(session: SqlSession, call: Create, format: str, path: str) -> TableLocation:
    """The location of a new managed table.  Raises ``TableExistsError`` if files are left in it."""
    location = TableLocation(path, format, call.parts, managed=True)
    store = session.store(location.path)
    if next(store.list(), None) is None:
        return location
    if call.if_not_exists and gets_entry(session, location):
        return choose_location(session, call, format)
    check_left_over(session.spark, call.parts, store, format, replaces=call.replace)
    return location


def _absolute(session: SqlSession, path: str) -> str:
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    if path.startswith("/") or "://" in path:
        return path
    warehouse = decoded(session.setting("spark.sql.warehouse.dir", "spark-warehouse"))
    return f"{warehouse.rstrip('/')}/{path}"


@contextmanager
def named(session: SqlSession, location: TableLocation, contents: EntryContents, *, call: Create) -> Iterator[Namer]:
    """Yield a function that adds or refreshes the table's entry, once the table exists.  If that fails, the new table
    stays, as other writers may use it; repeating the statement adds the entry.  If a concurrent statement has added the
    same entry, that is an error only if ``call`` rejects an existing table.  A Connect session must add a managed
    table's entry, with the columns of ``contents``, before its files."""
    if location.needs_entry and location.managed and not session.classic:
        with name_first(session, location, contents):
            yield lambda log, created: None
        return

    def name(log: DeltaLog, created: bool) -> None:
        if location.parts is None:
            return
        if location.needs_entry:
            try:
                entries.add_delta(session, location.parts, location.path, managed=location.managed)
                if not log.exists():  # a concurrent statement dropped it with its files
                    drop_name(session.spark, list(location.parts), log.store)
            except (TrilakeError, *SPARK_ERRORS):
                if has_entry_at(session, location):
                    if created or call.if_not_exists or call.replace:
                        return
                    raise
                if created:
                    _log.warning(
                        "the table at %s has no entry yet: CREATE TABLE %s USING %s LOCATION '%s' adds it",
                        location.path,
                        quote_parts(location.parts),
                        location.format,
                        location.path,
                    )
                if call.if_not_exists and find_entry(session, location.parts) is not None:
                    return
                raise
        elif location.entry is not None:
            path = location.path
            target = Target(location.parts, location.format, path, location.entry, options=session.options(path))
            entries.refresh(session, target)

    yield name


@contextmanager
def name_first(session: SqlSession, location: TableLocation, contents: EntryContents) -> Iterator[None]:
    """Add a managed table's entry before the block that writes its files; remove it if that fails."""
    assert location.parts is not None
    entries.add(session, location.parts, None, contents, format=location.format, managed=True)
    try:
        yield
    except BaseException:
        store = session.store(location.path)
        if is_empty_location(store):  # dropping the entry deletes the files, also a concurrent writer's
            drop_name(session.spark, list(location.parts), store)
        raise


def no_columns(location: TableLocation, *, exists: bool = False) -> NoReturn:
    """Raise ``SchemaMismatchError`` for a table without columns that is new, or replaces one that ``exists``."""
    new = "INVALID_MANAGED_TABLE_SYNTAX_NO_SCHEMA" if location.managed else "CREATE_EXTERNAL_TABLE_WITHOUT_SCHEMA"
    raise SchemaMismatchError(
        "a new table needs at least one column",
        help="list the columns" if exists else "list the columns, or write LOCATION with the path of an existing table",
        file=location.path,
        condition=f"DELTA_{'SCHEMA_NOT_PROVIDED' if exists else new}",
    )


def gets_entry(session: SqlSession, location: TableLocation) -> bool:
    """Whether the files at a location are those of a concurrent statement, which adds the entry."""
    if is_empty_location(session.store(location.path)):
        return False
    for attempts_left in reversed(range(_LOOKS)):
        if has_entry_at(session, location):
            return True
        if attempts_left:
            spark_engine().runtime.sleep(0.1)
    return False


def has_entry_at(session: SqlSession, location: TableLocation) -> bool:
    """Whether the entry exists, and has this location."""
    assert location.parts is not None
    try:
        entry = find_entry(session, location.parts)
    except (TrilakeError, *SPARK_ERRORS) as e:
        _log.warning("cannot look up %s in the catalog: %s", quote_parts(location.parts), e)
        return False
    if entry is None or entry.location is None or format_of_provider(entry.provider) != location.format:
        return False
    return open_store(entry.location).uri == open_store(location.path).uri
