"""Names of trilake tables in Spark's catalog, and their locations.

An entry has a provider, which is the name of a format, and a location.  Entries of Delta tables equal those of
delta-spark, so each engine finds the other's tables.  A table without a given location is managed: DROP deletes its
files.  The name of a managed table is created before its files, and dropped again if the write fails.

The columns, properties and comment of an entry are those of the last write by name; readers use the table's metadata
instead.  Spark does not pass options of a catalog table to a Python source, not even the path, so names in SQL need
:func:`trilake.install`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trilake.common.text import quote_parts, split_parts, string_literal
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
from trilake.spark.catalog.entries import (
    EntryContents,
    change_entry,
    create_sql,
    database_location,
    drop_entry,
    find_entry,
    has_catalog,
    make_entry,
)
from trilake.spark.scan.obstacles import decoded
from trilake.spark.session.bypass import bypass
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.format import spark_format_named
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.settings import session_store
from trilake.spark.session.sources.api import HAS_DATA_SOURCES
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table.registry import format_of_provider, has_log

_log = logging.getLogger("trilake.spark")
_BY_PATH = re.compile(r"(`?)([\w-]+)\1\.`((?:[^`]|``)+)`")


def parts_of(name: str) -> list[str]:
    """The parts of a table name.  Raises ``InvalidArgumentError`` for an invalid name.

    >>> parts_of("sales.`odd.name`")
    ['sales', 'odd.name']
    """
    parts = split_parts(name)
    if parts is None:
        raise InvalidArgumentError(f"{name!r} is not a valid table name", help="write table, or database.table")
    return parts


def quoted(name: str) -> str:
    """A table's name as SQL."""
    return quote_parts(parts_of(name))


@dataclass(frozen=True)
class NamedTable:
    """A trilake table: its format and location; ``name`` is its full name in the catalog, whose entry says whether
    it is ``managed``."""

    format: str
    location: str
    managed: bool = field(default=False, compare=False, repr=False)
    name: str | None = field(default=None, compare=False, repr=False)


def table_at(name: str) -> NamedTable | None:
    """The table at a path like ``delta.`/path```, or with another format; ``None`` for any other name.

    A name like ``lance.x`` without a slash is a table in a database of that name.

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
    """The trilake table with a name, or at ``delta.`/path```; ``None`` for an unknown name.  Raises
    ``InvalidArgumentError`` for a view and for tables of other formats."""
    table = table_at(name)
    if table is not None:
        return table
    entry = find_entry(spark, parts_of(name))
    if entry is None:
        return None
    format = format_of_provider(entry.provider)
    if format is None or entry.location is None:
        raise InvalidArgumentError(
            f"{name} is a view, or not a Delta, Lance or Trevni table",
            help="read it with spark.table",
            condition="DELTA_MISSING_DELTA_TABLE",
        )
    return NamedTable(format, entry.location, entry.managed, entry.full_name)


def find_delta_table(spark: SparkSession, name: str) -> NamedTable | None:
    """Like :func:`find_table`; also raises ``InvalidArgumentError`` for Lance and Trevni tables."""
    table = find_table(spark, name)
    if table is not None and not has_log(table.format):
        raise InvalidArgumentError(
            f"expected a Delta table, but {name} is a {table.format} table",
            help="read it with spark.table, and write to it with df.write.saveAsTable or insertInto",
            condition="DELTA_MISSING_DELTA_TABLE",
        )
    return table


def default_location(spark: SparkSession, name: str) -> str:
    """The default location of a managed table with this name."""
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
    """Create a name and yield the location of its table, which the block writes; drop the name if that fails.  The name
    is created first, so that no version exists without its name.  It stays if another writer has written to the
    location, or if the outcome of the write is unknown and the table exists.  ``path`` is the location of an external
    table; ``replaces`` allows a Delta table at the default location.  Raises ``TableExistsError``, and
    ``UnsupportedSparkError`` on Spark Connect before PySpark 4.0."""
    contents = EntryContents(to_spark(read_schema(schema)), comment)
    there_before = path is not None and has_table(session_store(spark, path, options), format)
    try:
        make_entry(spark, parts_of(name), contents, path=path, provider=format)
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
        make_entry(spark, parts_of(name), contents, path=location, provider=format, managed=True)
    location = path if path is not None else existing_table(spark, name).location
    store = session_store(spark, location, options)
    try:
        yield location
    except BaseException:
        if path is None and not there_before:
            may_go = is_empty_location(store)  # if not, another writer relies on the name
        else:
            may_go = there_before or _has_no_table(store, format)
        if may_go:
            drop_name(spark, parts_of(name), store)
        else:
            _log.warning("the name %s is kept: other writers may have files at %s", name, location)
        raise


def check_left_over(spark: SparkSession, parts: Sequence[str], store: Store, format: str, *, replaces: bool) -> None:
    """Raise ``TableExistsError`` for files at the location of a new managed table; a Delta table may be replaced."""
    is_delta = DeltaLog(store, spark_engine()).exists()
    if replaces and is_delta and has_log(format) and has_catalog(spark, list(parts)):
        return
    name, location = quote_parts(parts), decoded(store.uri)
    to_name = f"CREATE TABLE {name} USING {format} LOCATION {string_literal(location)}"
    replace = ", or write CREATE OR REPLACE TABLE" if is_delta else ""
    raise TableExistsError(
        f"cannot create the managed table {name}: its folder {location} already contains"
        f" {'a Delta table' if is_delta else 'files'}, left by an earlier session or table",
        help=f"to start empty, remove the folder{replace}; to keep its rows, register the table with"
        f" {to_name}. An in-memory catalog forgets its tables when Spark stops, but their folders stay",
        condition="DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
    )


def drop_name(spark: SparkSession, parts: list[str], store: Store) -> None:
    """Drop the name of a failed write, if it still refers to ``store``; logs errors, so that the write's error is
    raised."""
    try:
        entry = find_entry(spark, parts)
        if entry is not None and entry.location is not None and open_store(entry.location).uri == store.uri:
            drop_entry(spark, parts)
    except Exception as e:  # noqa: BLE001 - whatever the catalog raises
        _log.warning("cannot drop the name %s of a failed write: %s", quote_parts(parts), e)


def is_empty_location(store: Store) -> bool:
    """Whether a location is certainly empty, even of unfinished files."""
    try:
        return all(next(entries, None) is None for entries in (store.list(), store.unfinished()))
    except (TrilakeError, OSError):
        return False


def _has_no_table(store: Store, format: str) -> bool:
    try:
        return not has_table(store, format)
    except (TrilakeError, OSError):
        return False


def has_table(store: Store, format: str) -> bool:
    """Whether a location has a table; for formats other than Delta, whether it has any files."""
    if has_log(format):
        return DeltaLog(store, spark_engine()).exists()
    return next(store.list(), None) is not None


def refresh_name(spark: SparkSession, name: str, location: str, log: DeltaLog, *, managed: bool) -> None:
    """Update the entry of a table after a write to its ``location``.  An entry that was dropped concurrently stays
    dropped, unless the table was ``managed`` and exists: then the write created it again.  Raises ``TableExistsError``
    if the name refers to another location, ``InvalidArgumentError`` if to no Delta table."""
    entry = find_entry(spark, parts_of(name))
    contents = newest(log)
    if entry is None:
        if managed and contents is not None:
            make_entry(spark, parts_of(name), contents, path=location, managed=True)
        return
    if not has_log(entry.provider) or entry.location is None:
        raise InvalidArgumentError(
            f"the table at {location} was written, but the name {name} no longer refers to a Delta table",
            help="drop that name, or choose another",
            condition="DELTA_MISSING_DELTA_TABLE",
        )
    if not same_location(entry.location, location):
        raise TableExistsError(
            f"the table at {location} was written, but the name {name} now refers to another table",
            help="drop that name, or choose another",
            file=entry.location,
        )
    if contents is None or change_entry(spark, parts_of(name), contents) or entry.managed:
        return
    # Check that SQL can create the entry before dropping the name.
    create_sql(parts_of(name), contents, path=location)
    if HAS_DATA_SOURCES:
        with name_aside(spark, name, log.engine.runtime.new_hex_id()):
            make_entry(spark, parts_of(name), contents, path=location)
        return
    with bypass():  # Spark does not rename tables of an unknown provider
        spark.sql(f"DROP TABLE {quoted(name)}")
    make_entry(spark, parts_of(name), contents, path=location)


def refresh_entry(
    spark: SparkSession,
    name: str,
    location: str,
    store: Store,
    format: str,
    contents: EntryContents,
    *,
    managed: bool,
    replaced: bool,
) -> None:
    """Like :func:`refresh_name`, for formats other than Delta; ``replaced`` means that the write replaced the table."""
    parts = parts_of(name)
    if find_entry(spark, parts) is not None:
        if replaced:
            change_entry(spark, parts, contents)
    elif managed and spark_format_named(format).is_whole(store):
        make_entry(spark, parts, contents, path=location, provider=format, managed=True)


def same_location(a: str, b: str) -> bool:
    """Whether two locations are the same."""
    return open_store(a).uri == open_store(b).uri


def newest(log: DeltaLog) -> EntryContents | None:
    """The facts of a table after a write; ``None`` if the table is gone."""
    try:
        return EntryContents.of(log.head())
    except (TableNotFoundError, VersionNotFoundError):  # or its files are being deleted
        return None


@contextmanager
def name_aside(spark: SparkSession, name: str, id: str) -> Iterator[None]:
    """Rename an external table, appending ``id``, while a new entry takes its place; restore the name if that fails."""
    *database, table = parts_of(name)
    other = [*database, f"{table}_{id}"]
    aside = quote_parts(other)
    with bypass():
        spark.sql(f"ALTER TABLE {quoted(name)} RENAME TO {aside}")
    try:
        moved = find_entry(spark, other)
        if moved is None or moved.managed:
            raise TableExistsError(
                f"the name {name} now refers to another table", help="drop that name, or choose another"
            )
        yield
    except BaseException:
        try:
            with bypass():
                spark.sql(f"ALTER TABLE {aside} RENAME TO {quoted(name)}")
        except Exception as e:  # noqa: BLE001 - why the new name could not be made is the error to show
            _log.warning("table %s is now named %s, because it could not be renamed back: %s", name, aside, e)
        raise
    with bypass():
        spark.sql(f"DROP TABLE {aside}")


def existing_table(spark: SparkSession, name: str) -> NamedTable:
    """The table with a name that existed a moment ago.  Raises ``TableNotFoundError`` if it was dropped."""
    table = find_table(spark, name)
    if table is None:
        raise TableNotFoundError(
            f"another session has dropped or renamed table {name}",
            help="repeat the statement",
            condition="TABLE_OR_VIEW_NOT_FOUND",
        )
    return table


def existing_delta_table(spark: SparkSession, name: str) -> NamedTable:
    """The Delta table with a name or at ``delta.`/path```.  Raises the errors of :func:`find_delta_table`, and
    ``TableNotFoundError`` for an unknown name."""
    table = find_delta_table(spark, name)
    if table is None:
        raise TableNotFoundError(
            f"table {name} cannot be found in the catalog",
            help="create it with DeltaTable.create, or use DeltaTable.forPath",
            condition="DELTA_MISSING_DELTA_TABLE",
        )
    return table
