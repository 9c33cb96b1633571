"""Entries of Spark's catalogue: provider and place of a name, and whether the files go with it.

Of a classic session the catalogue itself is asked, and told, through the JVM: so an entry is the same on every release,
and may stand for a place that Spark knows no file system for.  A Spark Connect session is asked, and told, by SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T

from trilake.common.text import quote_name, quote_parts, string_literal
from trilake.delta.log.snapshot import Head
from trilake.delta.scan.scan import read_schema
from trilake.errors import UnsupportedSparkError
from trilake.spark.session.bypass import bypass
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import java_session, jvm
from trilake.spark.session.scala_values import case_class_value, changed, some, text_map
from trilake.spark.session.schemas import ddl_text, to_spark
from trilake.spark.session.sources.api import HAS_DATA_SOURCES

_CATALOG = "spark_catalog"
#: Who logs that columns are refused which only Spark understands.
_HIVE_LOGGERS = (
    "org.apache.hadoop.hive.metastore.HiveAlterHandler",
    "org.apache.hadoop.hive.metastore.RetryingHMSHandler",
    "org.apache.spark.sql.hive.HiveExternalCatalog",
)
#: Properties that Spark keeps for itself, and that no statement may set.
_RESERVED = frozenset(("provider", "location", "owner", "external", "is_managed_location", "comment", "collation"))
_PACKAGE = "org.apache.spark.sql.catalyst"


@dataclass(frozen=True)
class Entry:
    """A table or view of the catalogue; ``provider`` is in lower case, and empty for a view."""

    provider: str
    location: str | None
    managed: bool


@dataclass(frozen=True)
class About:
    """What the catalogue keeps of a table, so that whoever looks there sees what it is."""

    columns: T.StructType
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, head: Head) -> About:
        """What the catalogue shall say of a Delta table."""
        metadata = head.metadata
        return cls(to_spark(read_schema(head.schema)), metadata.description, metadata.configuration)


def find_entry(spark: SparkSession, parts: list[str]) -> Entry | None:
    """The entry of a name, ``None`` where there is none."""
    known = has_catalog(spark, parts)
    parts = _short(parts)
    if not known:
        return _shown(spark, parts)
    catalog = _catalog(spark)
    name = _identifier(spark, parts)
    if catalog.isTempView(name):
        return Entry("", None, False)
    table = _metadata(catalog, name)
    if table is None:
        return None
    provider, place, kind = table.provider(), table.storage().locationUri(), str(table.tableType().name())
    return Entry(
        str(provider.get()).lower() if provider.isDefined() and kind != "VIEW" else "",
        decoded(str(place.get().toString())) if place.isDefined() else None,
        kind == "MANAGED",
    )


def make_entry(
    spark: SparkSession,
    parts: list[str],
    about: About,
    *,
    path: str | None,
    provider: str = "delta",
    managed: bool = False,
) -> None:
    """Make the entry of a table; its files are not touched.

    Parameters
    ----------
    spark: the session.
    parts: the name.
    about: what the catalogue shall say of the table.
    path: its place; ``None`` for the one that the catalogue chooses for a managed table, which must be empty.
    provider: the format of its files.
    managed: whether the files at ``path`` go with the name.

    Raises Spark's ``TABLE_OR_VIEW_ALREADY_EXISTS`` for a name that is taken, ``LOCATION_ALREADY_EXISTS`` where files
    are at the place that the catalogue chooses, and ``UnsupportedSparkError`` for what SQL cannot say: a table without
    columns, a managed one at a place that is given, and any name where a client cannot register our formats.
    """
    known = has_catalog(spark, parts)
    parts = _short(parts)
    if not known:
        if not HAS_DATA_SOURCES and is_connect(spark):
            raise UnsupportedSparkError(
                f"over Spark Connect, a client of PySpark {pyspark.__version__} makes no names of trilake tables",
                table=".".join(parts),
                help="save to a path, use a classic session, or PySpark 4.0 or newer",
            )
        text = create_text(parts, about, path=path, provider=provider, managed=managed)
        with bypass():
            spark.sql(text)
        return
    catalog, name = _catalog(spark), _identifier(spark, parts)
    package = _package(spark)
    kinds = package.catalog.CatalogTableType
    storage = package.catalog.CatalogStorageFormat.empty()
    if path is not None:
        storage = changed(storage, locationUri=some(spark, jvm(spark).org.apache.hadoop.fs.Path(path).toUri()))
    columns = java_session(spark).parseDataType(about.columns.json())
    kind = kinds.MANAGED() if managed or path is None else kinds.EXTERNAL()
    entry = changed(
        case_class_value(spark, f"{_PACKAGE}.catalog.CatalogTable", name, kind, storage, columns),
        provider=some(spark, provider),
        properties=text_map(spark, about.properties),
        comment=some(spark, about.comment),
    )
    catalog.createTable(entry, False, path is None)


def create_text(
    parts: list[str], about: About, *, path: str | None, provider: str = "delta", managed: bool = False
) -> str:
    """The statement that makes an entry.  With its columns in the statement, Spark does not read the table.

    Raises ``UnsupportedSparkError`` for what no statement can say.

    >>> columns = T.StructType([T.StructField("id", T.LongType(), False)])
    >>> create_text(["t"], About(columns), path="/lake/t", provider="delta", managed=False)
    "CREATE TABLE `t` (`id` bigint NOT NULL) USING `delta` LOCATION '/lake/t'"
    """
    name = quote_parts(parts)
    if not about.columns.fields:
        raise UnsupportedSparkError(
            f"over Spark Connect, the catalogue takes no table without columns, and {name} has none",
            help="name the columns, or use a classic session",
        )
    if managed and path is not None:
        raise UnsupportedSparkError(
            f"over Spark Connect, the catalogue takes no managed table where files are, and {name} has some",
            help="name the place with LOCATION, or use a classic session",
            file=path,
        )
    text = f"CREATE TABLE {name} ({ddl_text(about.columns)}) USING {quote_name(provider)}"
    if about.comment is not None:
        text += f" COMMENT {string_literal(about.comment)}"
    properties = {k: v for k, v in about.properties.items() if k.lower() not in _RESERVED}
    if properties:
        inside = ", ".join(f"{string_literal(k)} = {string_literal(v)}" for k, v in sorted(properties.items()))
        text += f" TBLPROPERTIES ({inside})"
    return text if path is None else f"{text} LOCATION {string_literal(path)}"


def change_entry(spark: SparkSession, parts: list[str], about: About) -> bool:
    """Let the entry of a table say what the table is now, files untouched; whether that was possible.

    What it says already is not said again: the place of the table may get another one at the same time, and the
    catalogue takes a whole entry.  An entry that is gone now needs nothing.
    """
    if not has_catalog(spark, parts):
        return False
    catalog, name = _catalog(spark), _identifier(spark, _short(parts))
    entry = _metadata(catalog, name)
    if entry is None:
        return True
    columns = java_session(spark).parseDataType(about.columns.json())
    identifier = entry.identifier()
    properties, comment = text_map(spark, about.properties), some(spark, about.comment)
    if not (entry.properties().equals(properties) and entry.comment().equals(comment)):
        catalog.alterTable(changed(entry, properties=properties, comment=comment))
    if entry.schema().equals(columns):
        catalog.refreshTable(identifier)
        return True
    with _hive_is_quiet(spark):
        for method in ("alterTableSchema", "alterTableDataSchema"):  # one or the other, by release of Spark
            try:
                getattr(catalog.externalCatalog(), method)(
                    str(identifier.database().get()), str(identifier.table()), columns
                )
            except (Py4JError, PySparkException):
                continue
            catalog.refreshTable(identifier)
            return True
    return not catalog.tableExists(name)


@contextmanager
def _hive_is_quiet(spark: SparkSession) -> Iterator[None]:
    """Let a Hive metastore in this JVM say nothing in the block.

    Spark tries columns that Hive understands first.  The metastore logs that it refuses those, with 55 lines of stack,
    and Spark keeps them in its own form.
    """
    if spark.conf.get("spark.sql.catalogImplementation", None) != "hive":
        yield
        return
    levels: dict[str, Any] = {}
    try:
        log4j = jvm(spark).org.apache.logging.log4j
        for name in _HIVE_LOGGERS:
            levels[name] = log4j.LogManager.getLogger(name).getLevel()
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    except (Py4JError, TypeError):
        pass  # another way of logging, which says it
    try:
        yield
    finally:
        for name, level in levels.items():
            log4j.core.config.Configurator.setLevel(name, level)


def move_entry(spark: SparkSession, parts: list[str], path: str, about: About) -> None:
    """Let the entry of a table stand for the Delta table at another place, files untouched; see :func:`has_catalog`.

    It is there all the time, and becomes that of an external table: the files at the old place stay where it goes.
    Raises Spark's ``TABLE_OR_VIEW_NOT_FOUND`` where it is gone.
    """
    catalog, external = _catalog(spark), _package(spark).catalog.CatalogTableType.EXTERNAL()
    entry = catalog.getTableMetadata(_identifier(spark, _short(parts)))
    place = changed(entry.storage(), locationUri=some(spark, jvm(spark).org.apache.hadoop.fs.Path(path).toUri()))
    catalog.externalCatalog().alterTable(changed(entry, storage=place, tableType=external))
    change_entry(spark, parts, about)


def convert_entry(spark: SparkSession, parts: list[str], about: About) -> None:
    """Let the entry of a table of another format say that its files are a Delta table; see :func:`has_catalog`.

    Files, place and owner stay what they are: those of a managed table still go with its name.
    """
    catalog = _catalog(spark)
    entry = catalog.getTableMetadata(_identifier(spark, _short(parts)))
    # What a Delta table is partitioned by is in its log; an entry of trilake never says it.
    none = jvm(spark).PythonUtils.toSeq([])
    delta = some(spark, "delta")
    catalog.alterTable(changed(entry, provider=delta, partitionColumnNames=none, tracksPartitionsInCatalog=False))
    change_entry(spark, parts, about)


def rename_entry(spark: SparkSession, parts: list[str], new: list[str]) -> None:
    """Give the table of a name another one in its database, as Spark's catalogue does: files of a managed table move.

    For classic sessions of a Spark that reads a table before it gives it another name, and knows no source of trilake.
    Raises Spark's ``LOCATION_ALREADY_EXISTS`` where files are at the place of the new name.
    """
    catalog, name = _catalog(spark), _identifier(spark, _short(parts))
    catalog.refreshTable(name)
    catalog.renameTable(name, _identifier(spark, _short(new)))


def drop_entry(spark: SparkSession, parts: list[str]) -> None:
    """Take a name away and leave the files at its place, whoever wrote them; no error where it is gone.

    Where the catalogue is told by SQL alone, the files of a managed table go with its name.
    """
    if not has_catalog(spark, parts):
        with bypass():
            spark.sql(f"DROP TABLE IF EXISTS {quote_parts(parts)}")
        return
    catalog, name = _catalog(spark), _identifier(spark, _short(parts))
    entry = _metadata(catalog, name)
    if entry is None:
        return
    kinds = _package(spark).catalog.CatalogTableType
    if str(entry.tableType().name()) == "MANAGED":  # the files of an external table stay
        catalog.externalCatalog().alterTable(changed(entry, tableType=kinds.EXTERNAL()))
    catalog.dropTable(entry.identifier(), True, False)


def database_location(spark: SparkSession, parts: list[str]) -> str:
    """Where the catalogue keeps the tables of a database that say no place."""
    if has_catalog(spark, [*parts, ""]):
        about = _catalog(spark).getDatabaseMetadata(parts[-1])
        return decoded(str(about.locationUri().toString()))
    with bypass():
        rows = {r[0]: r[1] for r in spark.sql(f"DESCRIBE DATABASE {quote_parts(parts)}").collect()}
    return decoded(str(rows["Location"]))


def decoded(uri: str) -> str:
    """A place as a path, or as a URI that is not escaped.

    >>> decoded("file:/a%20b"), decoded("s3://b/x%20y")
    ('/a b', 's3://b/x y')
    """
    text = unquote(uri)
    return "/" + text.removeprefix("file:").lstrip("/") if text.startswith("file:") else text


def _short(parts: list[str]) -> list[str]:
    """A name of the session's own catalogue without that."""
    return parts[1:] if len(parts) == 3 and parts[0].lower() == _CATALOG else parts


def has_catalog(spark: SparkSession, parts: list[str]) -> bool:
    """Whether a name is one of the session's own catalogue, which this process can ask."""
    if is_connect(spark):
        return False
    if len(parts) == 3:
        return parts[0].lower() == _CATALOG
    return len(parts) <= 2 and spark.catalog.currentCatalog() == _CATALOG


def _package(spark: SparkSession) -> Any:
    """The JVM's package of the catalogue's classes."""
    return jvm(spark).org.apache.spark.sql.catalyst


def _catalog(spark: SparkSession) -> Any:
    return java_session(spark).sessionState().catalog()


def _metadata(catalog: Any, name: Any) -> Any:
    """What the catalogue says of a name, ``None`` where it is gone, if only since it was looked for."""
    if not catalog.tableExists(name):
        return None
    try:
        return catalog.getTableMetadata(name)
    except PySparkException as e:
        if "[TABLE_OR_VIEW_NOT_FOUND]" not in str(e):
            raise
        return None


def _identifier(spark: SparkSession, parts: list[str]) -> Any:
    return java_session(spark).sessionState().sqlParser().parseTableIdentifier(quote_parts(parts))


def _shown(spark: SparkSession, parts: list[str]) -> Entry | None:
    """The entry as SQL shows it."""
    if not spark.catalog.tableExists(quote_parts(parts)):
        return None
    for _, stated in shown_entries(spark, parts):
        place, kind = stated.get("Location"), stated.get("Type", "")
        provider = "" if kind == "VIEW" else stated.get("Provider", "").lower()
        return Entry(provider, None if place is None else decoded(place), kind == "MANAGED")
    return Entry("", None, False)


def shown_entries(spark: SparkSession, parts: Sequence[str]) -> Iterator[tuple[Row, dict[str, str]]]:
    """What ``SHOW TABLE EXTENDED`` says of a name: the rows, each with what its text states."""
    *database, table = parts
    inside = f" IN {quote_parts(database)}" if database else ""
    pattern = re.sub(r"([|*\\'])", ".", table)
    with bypass():
        rows = spark.sql(f"SHOW TABLE EXTENDED{inside} LIKE '{pattern}'").collect()
    for row in rows:
        if row["tableName"].lower() == table.lower():
            lines = re.findall(r"^(Provider|Location|Type): (.*)$", row["information"], re.MULTILINE)
            yield row, dict(lines)
