"""Names of tables in Spark's catalogue, and the places they stand for.

A name is an entry with a provider, the name of a format, and a location.  Those of Delta tables are as
delta-spark makes them: either engine finds the tables of the other.  A table without a place of its own is a managed
one, whose files go when it is dropped; its name is made before its files, and goes again where the files cannot be
written.

Nothing of our own is noted there: columns, properties and comment are those of the last write by that name, for
whoever looks, and readers take the table's own.  Spark's plans hand a Python source none of the options of a catalogue
table, its path included, so names in SQL need :func:`trilake.install`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trilake.common.text import quote_parts, string_literal
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import StructType
from trilake.delta.scan.scan import read_schema
from trilake.errors import (
    InvalidArgumentError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
    VersionNotFoundError,
)
from trilake.spark.delta.names.entries import (
    About,
    change_entry,
    create_text,
    database_location,
    decoded,
    drop_entry,
    find_entry,
    has_catalog,
    make_entry,
)
from trilake.spark.session.bypass import bypass
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.sources.api import HAS_DATA_SOURCES
from trilake.spark.session.storage import session_store
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table.registry import format_of_provider

_log = logging.getLogger("trilake.spark")
_BY_PATH = re.compile(r"(`?)([\w-]+)\1\.`((?:[^`]|``)+)`")
_NAME = re.compile(r"(?:`(?:[^`]|``)+`|[^`.]+)(?:\.(?:`(?:[^`]|``)+`|[^`.]+))*")
_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def parts_of(name: str) -> list[str]:
    """A table's name as its parts.  Raises ``InvalidArgumentError`` for a string that is not a name.

    >>> parts_of("sales.`odd.name`")
    ['sales', 'odd.name']
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(f"{name!r} is not a valid table name", help="write table, or database.table")
    return [(a or b).replace("``", "`") for a, b in _PART.findall(name)]


def quoted(name: str) -> str:
    """A table's name as SQL."""
    return quote_parts(parts_of(name))


@dataclass(frozen=True)
class NamedTable:
    """A trilake table that a name stands for: its format, its place, and whether the catalogue keeps its files."""

    format: str
    location: str
    managed: bool = field(default=False, compare=False, repr=False)


def table_at(name: str) -> NamedTable | None:
    """What ``delta.`/path```, or another format's name in its place, stands for; ``None`` for any other name.

    A name of another format without a slash is that of a table in a database which is called like the format.

    >>> table_at("`delta`.`/lake/t`"), table_at("db.`t`")
    (NamedTable(format='delta', location='/lake/t'), None)
    """
    match = _BY_PATH.fullmatch(name.strip())
    format = None if match is None else format_of_provider(match[2])
    if match is None or format is None:
        return None
    table = NamedTable(format, match[3].replace("``", "`"))
    return table if table.format == "delta" or "/" in table.location else None


def find_table(spark: SparkSession, name: str) -> NamedTable | None:
    """The table of trilake that a name stands for, ``None`` where the catalogue has no such name.

    ``delta.`/path``` is a path, whether a table is there or not.  Raises ``InvalidArgumentError`` for a view and for
    tables of other formats.
    """
    table = table_at(name)
    if table is not None:
        return table
    entry = find_entry(spark, parts_of(name))
    if entry is None:
        return None
    format = format_of_provider(entry.provider)
    if format is None or entry.location is None:
        raise InvalidArgumentError(
            f"{name} is not a table of the catalogue that trilake reads",
            help="views and tables of other formats are read with spark.table",
            condition="DELTA_MISSING_DELTA_TABLE",
        )
    return NamedTable(format, entry.location, entry.managed)


def location_of(spark: SparkSession, name: str) -> str | None:
    """Where the Delta table of a name is, ``None`` where the catalogue has no such name.

    ``delta.`/path``` is a path.  Raises ``InvalidArgumentError`` for a view and for tables of other formats.
    """
    table = find_table(spark, name)
    if table is not None and table.format != "delta":
        raise InvalidArgumentError(
            f"{name} is not a Delta table of the catalogue, but a {table.format} table",
            help="it is read with spark.table, and written with df.write.saveAsTable or insertInto",
            condition="DELTA_MISSING_DELTA_TABLE",
        )
    return None if table is None else table.location


def default_location(spark: SparkSession, name: str) -> str:
    """Where Spark keeps a table of that name that says no place."""
    *database, table = parts_of(name)
    where = database_location(spark, database or [str(spark.catalog.currentDatabase())])
    return f"{where.rstrip('/')}/{table.lower()}"


@contextmanager
def new_name(
    spark: SparkSession,
    name: str,
    schema: StructType,
    *,
    path: str | None = None,
    comment: str | None = None,
    format: str = "delta",
    options: Mapping[str, str] | None = None,
    replaces: bool = False,
) -> Iterator[str]:
    """Makes a name and gives the place of its table, to be written in the block; where that fails, drops the name.

    The name comes first, so that no version is left without its name.  It stays where others have written to its place
    in the meantime, or the outcome of the write is unknown and the table is there.

    Parameters
    ----------
    spark: the session.
    name: a name that the catalogue does not have.
    schema: the table's columns, as far as they are known.
    path: the place, where the table is to have one of its own; otherwise the catalogue chooses.
    comment: what the table is for.
    format: what its files are.
    options: of the store, beside the session's.
    replaces: whether the block replaces a Delta table that was left at the catalogue's place.

    Raises ``TableExistsError`` where the name is taken now, and where files are at the place that the catalogue
    would choose, and ``UnsupportedSparkError`` over a Connect session of a Spark that lets only its own formats into
    its catalogue.
    """
    about = About(to_spark(read_schema(schema)), comment)
    there_before = path is not None and _is_table(session_store(spark, path, options), format)
    try:
        make_entry(spark, parts_of(name), about, path=absolute(path), provider=format)
    except PySparkException as e:
        if "[TABLE_OR_VIEW_ALREADY_EXISTS]" in str(e):
            raise TableExistsError(
                f"table {name} already exists: another session has just created it",
                file=path,
                condition="TABLE_OR_VIEW_ALREADY_EXISTS",
            ) from e
        if "[LOCATION_ALREADY_EXISTS]" not in str(e):
            raise
        location = default_location(spark, name)
        check_left_over(spark, parts_of(name), session_store(spark, location, options), format, replaces=replaces)
        there_before = True
        make_entry(spark, parts_of(name), about, path=absolute(location), provider=format, managed=True)
    place = path if path is not None else _place_of(spark, name)
    store = session_store(spark, place, options)
    try:
        yield place
    except BaseException:
        if path is None and not there_before:
            may_go = holds_nothing(store)  # who has written there has been told that the name stands for it
        else:
            may_go = there_before or _is_no_table(store, format)
        if may_go:
            take_back(spark, parts_of(name), store)
        else:
            _log.warning("the name %s stays: files of others may be at %s", name, place)
        raise


def check_left_over(spark: SparkSession, parts: Sequence[str], store: Store, format: str, *, replaces: bool) -> None:
    """Refuse to adopt what is at the place of a new managed table; a Delta table there may be replaced.

    Over Connect the catalogue takes no managed table where files are.  Raises ``TableExistsError``.
    """
    is_delta = DeltaLog(store, spark_engine()).exists()
    if replaces and is_delta and format_of_provider(format) == "delta" and has_catalog(spark, list(parts)):
        return
    name, place = quote_parts(parts), decoded(store.uri)
    to_name = f"CREATE TABLE {name} USING {format} LOCATION {string_literal(place)}"
    replace = ", or write CREATE OR REPLACE TABLE" if is_delta else ""
    raise TableExistsError(
        f"cannot create the managed table {name}: its folder {place} already holds"
        f" {'a Delta table' if is_delta else 'files'}, left by an earlier session or table",
        help=f"to start empty, remove the folder{replace}; to keep its rows, register the table with"
        f" {to_name}. A catalogue in memory forgets its tables when Spark stops, and their folders stay",
        condition="DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
    )


def take_back(spark: SparkSession, parts: list[str], store: Store) -> None:
    """Drops a name behind a write that failed, while it stands for the place of ``store``.

    An error is logged and not raised: why the write failed is the one to show.
    """
    try:
        entry = find_entry(spark, parts)
        if entry is not None and entry.location is not None and open_store(entry.location).uri == store.uri:
            drop_entry(spark, parts)
    except Exception as e:  # noqa: BLE001 - whatever the catalogue raises
        _log.warning("the name %s of a write that failed is left: %s", quote_parts(parts), e)


def holds_nothing(store: Store) -> bool:
    """Whether it is certain that no one has written to a place, or is about to."""
    try:
        return all(next(found, None) is None for found in (store.list(), store.unfinished()))
    except (TrilakeError, OSError):
        return False


def _is_no_table(store: Store, format: str) -> bool:
    """Whether it is certain that there is no table at a place."""
    try:
        return not _is_table(store, format)
    except (TrilakeError, OSError):
        return False


def _is_table(store: Store, format: str) -> bool:
    """Whether there is a table at a place; of another format than Delta, whether anything is."""
    if format_of_provider(format) == "delta":
        return DeltaLog(store, spark_engine()).exists()
    return next(store.list(), None) is not None


def _place_of(spark: SparkSession, name: str) -> str:
    return known_table(spark, name).location


def absolute(path: str | None) -> str | None:
    """A path that means the same to the catalogue, which takes others for places below its warehouse."""
    return path if path is None or re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:/", path) else os.path.abspath(path)


def refresh_name(spark: SparkSession, name: str, location: str, log: DeltaLog, *, managed: bool) -> None:
    """Let a name of the catalogue say what the table at ``location`` is by its newest version, behind a write to it.

    A name that stands for that place keeps what it is, managed or not.  One that is gone stays gone, and a table that
    went with it, or elsewhere, has the write all the same.  But where the catalogue kept its files, as ``managed``
    says, and there is a table, the write came behind the drop and made a new one, which gets the name.

    Raises ``TableExistsError`` where the name stands for another place, which it keeps, and ``InvalidArgumentError``
    where for no Delta table.
    """
    known = find_entry(spark, parts_of(name))
    about = newest(log)
    if known is None:
        if managed and about is not None:
            make_entry(spark, parts_of(name), about, path=absolute(location), managed=True)
        return
    if format_of_provider(known.provider) != "delta" or known.location is None:
        raise InvalidArgumentError(
            f"the table at {location} is written, and the name {name} no longer refers to a Delta table",
            help="drop that name, or choose another one",
            condition="DELTA_MISSING_DELTA_TABLE",
        )
    if not same_place(known.location, location):
        raise TableExistsError(
            f"the table at {location} is written, and the name {name} now refers to another table",
            help="drop that name, or choose another one",
            file=known.location,
        )
    if about is None or change_entry(spark, parts_of(name), about) or known.managed:
        return
    # What SQL cannot say must be known before the name goes.
    create_text(parts_of(name), about, path=absolute(location))
    if HAS_DATA_SOURCES:
        with name_aside(spark, name, log.engine.runtime.new_hex_id()):
            add_name(spark, name, location, about)
        return
    with bypass():  # which gives no name to a table whose source it does not know
        spark.sql(f"DROP TABLE {quoted(name)}")
    add_name(spark, name, location, about)


def same_place(a: str, b: str) -> bool:
    """Whether two locations are the same one."""
    return open_store(a).uri == open_store(b).uri


def newest(log: DeltaLog) -> About | None:
    """What the catalogue shall say of a table that was just written; ``None`` where it is gone now."""
    try:
        return About.of(log.head())
    except (TableNotFoundError, VersionNotFoundError):  # or its files went while they were read
        return None


def add_name(spark: SparkSession, name: str, location: str, about: About) -> None:
    """Make a name that the catalogue does not have for the table at ``location``."""
    make_entry(spark, parts_of(name), about, path=absolute(location))


@contextmanager
def name_aside(spark: SparkSession, name: str, id: str) -> Iterator[None]:
    """Gives the external table of a name another one, with ``id`` behind it, while a new entry takes its place.

    It comes back where that fails, and goes else; the files are not touched.
    """
    *database, table = parts_of(name)
    other = [*database, f"{table}_{id}"]
    aside = quote_parts(other)
    with bypass():
        spark.sql(f"ALTER TABLE {quoted(name)} RENAME TO {aside}")
    try:
        moved = find_entry(spark, other)
        if moved is None or moved.managed:
            raise TableExistsError(
                f"the name {name} now refers to another table", help="drop that name, or choose another one"
            )
        yield
    except BaseException:
        try:
            with bypass():
                spark.sql(f"ALTER TABLE {aside} RENAME TO {quoted(name)}")
        except Exception as e:  # noqa: BLE001 - why the new name could not be made is the error to show
            _log.warning("the table %s is called %s now: %s", name, aside, e)
        raise
    with bypass():
        spark.sql(f"DROP TABLE {aside}")


def known_table(spark: SparkSession, name: str) -> NamedTable:
    """The table of a name that was just there.  Raises ``TableNotFoundError`` where it has been dropped since."""
    table = find_table(spark, name)
    if table is None:
        raise TableNotFoundError(
            f"the catalogue has no table {name} any more: another one dropped it, or gave it another name",
            help="do it again",
            condition="TABLE_OR_VIEW_NOT_FOUND",
        )
    return table


def known_location(spark: SparkSession, name: str) -> str:
    """Like :func:`location_of`, but an unknown name is a ``TableNotFoundError``."""
    place = location_of(spark, name)
    if place is None:
        raise TableNotFoundError(
            f"the catalogue has no table {name}",
            help="create it with DeltaTable.create, or use DeltaTable.forPath",
            condition="DELTA_MISSING_DELTA_TABLE",
        )
    return place
