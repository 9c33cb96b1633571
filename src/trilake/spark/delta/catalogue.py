"""Names of tables in Spark's catalogue, and the places they stand for.

Spark hands a Python source none of the options of a catalogue table, its path included.  What it does hand over is the
schema that the catalogue keeps, with the metadata of the columns: so the place of a table is kept there, on every
column, under :data:`LOCATION`.  ``spark.table(name)`` and SQL can then read the table.  Writing by name cannot work
that way: a query keeps the metadata of the columns it reads, so Spark's ``CREATE TABLE b AS SELECT * FROM a`` would
look like a write into ``a``.  :meth:`DeltaTable.forName` leads to everything else.

The catalogue's columns are those of the moment when the name was made; ``forName`` always shows the newest.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.delta.protocol.schema import StructType
from trilake.delta.scan.scan import read_schema
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.spark.session.schemas import to_spark

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
    if not spark.catalog.tableExists(quoted(name)):
        return None
    try:
        place = location_in(spark.table(quoted(name)).schema)
    except AnalysisException:
        place = None  # a table of a source that cannot be looked at by name
    return place or _stated(spark, name)


def _stated(spark: SparkSession, name: str) -> str:
    """The location that the catalogue itself states, for tables that were made by SQL with a LOCATION."""
    *database, table = parts_of(name)
    inside = f" IN {quoted('.'.join('`' + d.replace('`', '``') + '`' for d in database))}" if database else ""
    pattern = re.sub(r"([|*\\'])", ".", table)
    for row in spark.sql(f"SHOW TABLE EXTENDED{inside} LIKE '{pattern}'").collect():
        text = row["information"]
        provider = re.search(r"^Provider: (.*)$", text, re.MULTILINE)
        place = re.search(r"^Location: (.*)$", text, re.MULTILINE)
        if row["tableName"].lower() == table.lower() and provider and place and provider[1].lower() in _PROVIDERS:
            return str(place[1])
    raise InvalidArgumentError(
        f"{name} is no Delta table of the catalogue",
        help="views and tables of other formats are read with spark.table",
    )


def default_location(spark: SparkSession, name: str) -> str:
    """Where Spark keeps a table of that name that says no place."""
    *database, table = parts_of(name)
    of = (
        quoted(".".join("`" + d.replace("`", "``") + "`" for d in database))
        if database
        else spark.catalog.currentDatabase()
    )
    rows = {r[0]: r[1] for r in spark.sql(f"DESCRIBE DATABASE {of}").collect()}
    return unquote(f"{rows['Location'].rstrip('/')}/{table.lower()}")


def add_name(spark: SparkSession, name: str, location: str, schema: StructType, *, comment: str | None = None) -> None:
    """Make a name in the catalogue for the table at ``location``, whatever the name stood for among Delta tables."""
    described = to_spark(read_schema(schema))
    columns = T.StructType(
        [T.StructField(f.name, f.dataType, True, {**(f.metadata or {}), LOCATION: location}) for f in described.fields]
    )
    if spark.catalog.tableExists(quoted(name)):
        location_of(spark, name)  # refuses to take the place of anything else
        spark.sql(f"DROP TABLE {quoted(name)}")
    spark.catalog.createTable(quoted(name), path=location, source="delta", schema=columns, description=comment or "")


def known_location(spark: SparkSession, name: str) -> str:
    """Like :func:`location_of`, but an unknown name is a ``TableNotFoundError``."""
    place = location_of(spark, name)
    if place is None:
        raise TableNotFoundError(
            f"the catalogue has no table {name}", help="make it with DeltaTable.create, or use DeltaTable.forPath"
        )
    return place
