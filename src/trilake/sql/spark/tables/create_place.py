"""The location of a new table, and its name in the catalogue."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, Protocol

from trilake.common.text import quote_parts
from trilake.delta.log.log import DeltaLog
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TableExistsError, TableNotFoundError
from trilake.spark.delta.names.catalogue import check_left_over, holds_nothing, take_back
from trilake.spark.delta.names.entries import About, decoded
from trilake.spark.session.engine import spark_engine
from trilake.sql.parser.create import Create
from trilake.sql.parser.descriptions import check_place
from trilake.sql.spark.session import catalogue, jvm
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target, find_entry, path_target
from trilake.storage import open_store
from trilake.table.registry import format_of_provider

_log = logging.getLogger("trilake.sql")
#: How often the name that another statement gives to its files is looked for.
_LOOKS = 20


class Namer(Protocol):
    """Names a table."""

    def __call__(self, log: DeltaLog, made: bool) -> None:
        """Name the table of a log; ``made`` says that the statement itself has made it."""


@dataclass(frozen=True)
class Place:
    """The place of a table that a statement makes: ``parts`` are its name, ``None`` for a path.

    ``exists`` says that there is such a name, or at a path such a table, already; ``managed`` that the place is the
    catalogue's choice.
    """

    path: str
    parts: tuple[str, ...] | None
    exists: bool
    managed: bool
    format: str
    entry: jvm.Entry | None = None


def place_of_new(session: SqlSession, call: Create, format: str) -> Place:
    """Where the table of a CREATE or REPLACE is to be.

    Raises ``TableExistsError`` for a name that is taken, ``TableNotFoundError`` for a REPLACE of a table that is not
    there, ``InvalidArgumentError`` for a name of another format's table that is to be replaced.
    """
    target = path_target(session, call.parts)
    if target is not None:
        return _by_path(call, target)
    entry = find_entry(session, call.parts)
    table = quote_parts(call.parts)
    if entry is None:
        if not call.create:
            raise TableNotFoundError(
                f"[TABLE_OR_VIEW_NOT_FOUND] the table {table} cannot be found, so it cannot be replaced",
                help="write CREATE OR REPLACE TABLE",
            )
        if call.location is not None:
            return Place(_absolute(session, call.location), call.parts, False, False, format)
        return _managed_place(session, call, format)
    if call.if_not_exists:
        return Place(entry.location or "", call.parts, True, entry.managed, format, entry)
    if not call.replace:
        raise TableExistsError(
            f"[TABLE_OR_VIEW_ALREADY_EXISTS] {table} already exists",
            help="choose another name, or write CREATE OR REPLACE TABLE, or IF NOT EXISTS",
        )
    if entry.is_view or format_of_provider(entry.provider) != format or entry.location is None:
        raise InvalidArgumentError(
            f"{table} is {'a view' if entry.is_view else f'a table of {entry.provider} files'}, which cannot become a"
            f" {format} table",
            help="drop it first",
            condition="DELTA_NOT_A_DELTA_TABLE",
        )
    requested = call.location
    if requested is not None and open_store(_absolute(session, requested)).uri != open_store(entry.location).uri:
        raise InvalidArgumentError(
            f"{table} is at {entry.location}, and a replacement cannot be elsewhere ({requested})",
            help="leave LOCATION out, or drop the table first",
            condition="DELTA_TABLE_LOCATION_MISMATCH",
        )
    return Place(entry.location, call.parts, True, entry.managed, format, entry)


def _managed_place(session: SqlSession, call: Create, format: str) -> Place:
    """The place of a managed table whose name is not there.  Raises ``TableExistsError`` for what is left in it."""
    place = Place(catalogue.default_place(session, call.parts), call.parts, False, True, format)
    store = session.store(place.path)
    if next(store.list(), None) is None:
        return place
    if call.if_not_exists and gets_its_name(session, place):
        return place_of_new(session, call, format)
    check_left_over(session.spark, call.parts, store, format, replaces=call.replace)
    return place


def _by_path(call: Create, target: Target) -> Place:
    exists = target.log.exists() if target.format == "delta" else any(True for _ in target.store.list())
    check_place(call, target.format, target.path, exists=exists)
    return Place(target.path, None, exists, False, target.format)


def _absolute(session: SqlSession, path: str) -> str:
    """A place as it is said: a path without a scheme is on the file system that Spark's warehouse is on."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    if path.startswith("/") or "://" in path:
        return path
    warehouse = decoded(session.setting("spark.sql.warehouse.dir", "spark-warehouse"))
    return f"{warehouse.rstrip('/')}/{path}"


@contextmanager
def named(session: SqlSession, place: Place, about: About, *, call: Create) -> Iterator[Namer]:
    """Gives a function that makes or refreshes the name, once the table is there, and is told who made that.

    Where the name cannot be made, a table that the statement made stays: others may have found it now, and a table
    whose log goes is lost to all of them.  The statement done again finds it.  Where someone else gives the table that
    name in the meantime, that is the name, unless the statement of ``call`` refuses one that is there; where another
    table got it, IF NOT EXISTS leaves it to that.  A Connect session can only make a managed name before its files:
    ``about`` is what is known of the table by then.
    """
    new = place.parts is not None and not place.exists
    if new and place.managed and not session.classic:
        with name_first(session, place, about):
            yield lambda log, made: None
        return

    def name(log: DeltaLog, made: bool) -> None:
        if place.parts is None:
            return
        if new:
            try:
                catalogue.add_delta(session, place.parts, place.path, managed=place.managed)
                if not log.exists():  # another one named it, and dropped it with its files
                    take_back(session.spark, list(place.parts), log.store)
            except Exception:
                if is_name_of(session, place):
                    if made or call.if_not_exists or call.replace:
                        return
                    raise
                if made:
                    _log.warning(
                        "the table at %s is there, and has no name: CREATE TABLE %s USING delta LOCATION '%s' names it",
                        place.path,
                        quote_parts(place.parts),
                        place.path,
                    )
                if call.if_not_exists and find_entry(session, place.parts) is not None:
                    return
                raise
        elif place.entry is not None:
            catalogue.refresh(
                session, Target(place.parts, place.format, place.path, place.entry, options=session.options(place.path))
            )

    yield name


@contextmanager
def name_first(session: SqlSession, place: Place, about: About) -> Iterator[None]:
    """Makes the name of a managed table, whose files are written in the block; where that fails, it goes again."""
    assert place.parts is not None
    catalogue.add(session, place.parts, None, about, format=place.format, managed=True)
    try:
        yield
    except BaseException:
        store = session.store(place.path)
        if holds_nothing(store):  # with the name, the files go, whoever wrote them
            take_back(session.spark, list(place.parts), store)
        raise


def no_columns(place: Place) -> NoReturn:
    """Raises ``SchemaMismatchError``: no columns are named for a new table."""
    raise SchemaMismatchError(
        "a table needs at least one column, and there is no table at its location",
        help="name the columns, or a LOCATION where a table is",
        file=place.path,
        condition="DELTA_INVALID_MANAGED_TABLE_SYNTAX_NO_SCHEMA"
        if place.managed
        else "DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_SCHEMA",
    )


def gets_its_name(session: SqlSession, place: Place) -> bool:
    """Whether the files at a place are those of another statement, which gives them the name now."""
    if holds_nothing(session.store(place.path)):
        return False
    for attempts_left in reversed(range(_LOOKS)):
        if is_name_of(session, place):
            return True
        if attempts_left:
            spark_engine().runtime.sleep(0.1)
    return False


def is_name_of(session: SqlSession, place: Place) -> bool:
    """Whether it is certain that the name of a place stands for the table there."""
    assert place.parts is not None
    try:
        entry = find_entry(session, place.parts)
    except Exception as e:  # noqa: BLE001 - why the name could not be made is the error to show
        _log.warning("the name %s cannot be looked up: %s", quote_parts(place.parts), e)
        return False
    if entry is None or entry.location is None or format_of_provider(entry.provider) != place.format:
        return False
    return open_store(entry.location).uri == open_store(place.path).uri
