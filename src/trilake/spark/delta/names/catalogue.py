"""Names of tables in Spark's catalogue, and the places they stand for.

A name is an entry with the provider ``delta`` and a location, as delta-spark makes them: either engine finds the
tables of the other.  A table without a place of its own is a managed one, whose files go when it is dropped; its name
is made before its files, and goes again where the files cannot be written.

Spark's own plans hand a Python source none of the options of a catalogue table, its path included, but the columns that
the catalogue keeps, with their metadata: for them the place stands there too, on every column, under :data:`LOCATION`.
Nothing else reads it.  The catalogue's columns are those of the last write by that name; ``forName`` always shows the
newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.delta.protocol.schema import StructType
from trilake.delta.scan.scan import read_schema
from trilake.errors import InvalidArgumentError, TableExistsError, TableNotFoundError, UnsupportedSparkError
from trilake.spark.delta.names.entries import Entry, change_columns, decoded, find_entry
from trilake.spark.session.passing import spark_alone
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.sources.api import HAS_DATA_SOURCES
from trilake.storage import open_store
from trilake.storage.uri import parse_location

LOCATION = "__trilake.location"
_PROVIDERS = ("delta", "trilake-delta")
_BY_PATH = re.compile(r"(?:delta|`delta`)\.`((?:[^`]|``)+)`", re.IGNORECASE)
_NAME = re.compile(r"(?:`(?:[^`]|``)+`|[^`.]+)(?:\.(?:`(?:[^`]|``)+`|[^`.]+))*")
_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def parts_of(name: str) -> list[str]:
    """A table's name as its parts.  Raises ``InvalidArgumentError`` for a text that is no name.

    >>> parts_of("sales.`odd.name`")
    ['sales', 'odd.name']
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(f"{name!r} is no name of a table", help="write table, or database.table")
    return [(a or b).replace("``", "`") for a, b in _PART.findall(name)]


def quoted(name: str) -> str:
    """A table's name as SQL."""
    return ".".join("`" + p.replace("`", "``") + "`" for p in parts_of(name))


def location_in(schema: T.StructType) -> str | None:
    """The place that a catalogue table's columns name; ``None`` where they name none, or more than one.

    A query over two tables has columns of both, and is neither.
    """
    found = {f.metadata.get(LOCATION) for f in schema.fields}
    place = found.pop() if len(found) == 1 else None
    return place if isinstance(place, str) else None


def location_of(spark: SparkSession, name: str) -> str | None:
    """Where the table of a name is, ``None`` where the catalogue has no such name.

    ``delta.`/path``` is a path.  Raises ``InvalidArgumentError`` for a view and for tables of other formats.
    """
    by_path = _BY_PATH.fullmatch(name.strip())
    if by_path is not None:
        return by_path[1].replace("``", "`")
    entry = find_entry(spark, parts_of(name))
    if entry is None:
        return None
    if entry.provider not in _PROVIDERS or entry.location is None:
        raise InvalidArgumentError(
            f"{name} is no Delta table of the catalogue",
            help="views and tables of other formats are read with spark.table",
        )
    return _elsewhere(entry) or entry.location


def _elsewhere(entry: Entry) -> str | None:
    """The place in an object store that an entry stands for.

    Spark may not know the store, so for its catalogue such a table is one of the warehouse, with nothing in it.
    """
    if entry.columns is None or LOCATION not in entry.columns:
        return None
    place = location_in(T.StructType.fromJson(orjson.loads(entry.columns)))
    return place if place is not None and parse_location(place).scheme != "file" else None


def default_location(spark: SparkSession, name: str) -> str:
    """Where Spark keeps a table of that name that says no place."""
    *database, table = parts_of(name)
    of = (
        quoted(".".join("`" + d.replace("`", "``") + "`" for d in database))
        if database
        else spark.catalog.currentDatabase()
    )
    rows = {r[0]: r[1] for r in spark.sql(f"DESCRIBE DATABASE {of}").collect()}
    return decoded(f"{rows['Location'].rstrip('/')}/{table.lower()}")


@contextmanager
def new_name(
    spark: SparkSession, name: str, schema: StructType, *, path: str | None = None, comment: str | None = None
) -> Iterator[str]:
    """Makes a name and gives the place of its table, to be written in the block; where that fails, drops the name.

    The name comes first, so that no version is left without its name.

    Parameters
    ----------
    spark: the session.
    name: a name that the catalogue does not have.
    schema: the table's columns, as far as they are known.
    path: the place, where the table is to have one of its own; otherwise the catalogue chooses.
    comment: what the table is for.

    Raises ``TableExistsError`` where files are at the place that the catalogue would choose.
    """
    if not HAS_DATA_SOURCES:
        raise UnsupportedSparkError(
            f"PySpark {spark.version} has no Python data sources, so {name} in its catalogue could not be read",
            help="save to a path, or use PySpark 4.0 or newer",
        )
    place = default_location(spark, name) if path is None else path
    try:
        with spark_alone():
            spark.catalog.createTable(
                quoted(name),
                path=_catalogue_path(path),
                source="delta",
                schema=_columns(schema, place),
                description=comment or "",
            )
    except PySparkException as e:
        if "[LOCATION_ALREADY_EXISTS]" not in str(e):
            raise
        raise TableExistsError(
            f"the catalogue has no table {name}, and files are where it would keep one",
            help="clear the folder, or name the files there by an external table: give the path with the name",
            file=place,
        ) from e
    try:
        yield known_location(spark, name) if path is None else path
    except BaseException:
        with spark_alone():
            spark.sql(f"DROP TABLE IF EXISTS {quoted(name)}")
        raise


def _catalogue_path(path: str | None) -> str | None:
    """The place that Spark's catalogue is told; ``None`` for a store that Spark may not know.

    Our own places are in the columns, so nothing is lost by that.
    """
    return path if path is None or parse_location(path).scheme == "file" else None


def add_name(spark: SparkSession, name: str, location: str, schema: StructType, *, comment: str | None = None) -> None:
    """Let a name of the catalogue stand for the table at ``location``, with its columns.

    A name that stands for that place already keeps what it is, managed or not; one that stands for another Delta table
    is given a new place.
    """
    columns = _columns(schema, location)
    known = find_entry(spark, parts_of(name))
    if known is not None:
        place = location_of(spark, name)  # refuses to take the place of anything else
        here = place is not None and open_store(place).uri == open_store(location).uri
        if here and (change_columns(spark, parts_of(name), columns) or known.managed):
            return
        if known.managed:
            raise TableExistsError(
                f"{name} is a managed table, whose files would go with its name", help="drop it first", file=place
            )
        with spark_alone():
            spark.sql(f"DROP TABLE {quoted(name)}")
    with spark_alone():
        spark.catalog.createTable(
            quoted(name), path=_catalogue_path(location), source="delta", schema=columns, description=comment or ""
        )


def _columns(schema: StructType, location: str) -> T.StructType:
    """A table's columns as the catalogue keeps them."""
    return T.StructType(
        [
            T.StructField(f.name, f.dataType, True, {**(f.metadata or {}), LOCATION: location})
            for f in to_spark(read_schema(schema)).fields
        ]
    )


def known_location(spark: SparkSession, name: str) -> str:
    """Like :func:`location_of`, but an unknown name is a ``TableNotFoundError``."""
    place = location_of(spark, name)
    if place is None:
        raise TableNotFoundError(
            f"the catalogue has no table {name}", help="make it with DeltaTable.create, or use DeltaTable.forPath"
        )
    return place
