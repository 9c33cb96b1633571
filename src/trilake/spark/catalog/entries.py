"""Entries of Spark's catalog: the provider and location of a table, and whether its files are managed.

Classic sessions call the JVM's catalog, so entries are the same in every release, and may have a location for which
Spark has no file system.  Spark Connect uses SQL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.common.text import quote_name, quote_parts, string_literal
from trilake.delta.log.snapshot import Head
from trilake.delta.scan.scan import read_schema
from trilake.errors import UnsupportedSparkError
from trilake.spark.scan.obstacles import decoded
from trilake.spark.session.bypass import bypass
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import (
    SPARK_ERRORS,
    case_class_value,
    changed,
    items_of,
    java_session,
    jvm,
    some,
    string_map,
)
from trilake.spark.session.schemas import to_ddl, to_spark
from trilake.spark.session.sources.api import HAS_DATA_SOURCES

_CATALOG = "spark_catalog"
#: The loggers that report columns that Hive does not support.
_HIVE_LOGGERS = (
    "org.apache.hadoop.hive.metastore.HiveAlterHandler",
    "org.apache.hadoop.hive.metastore.RetryingHMSHandler",
    "org.apache.spark.sql.hive.HiveExternalCatalog",
)
#: Properties that Spark reserves.
_RESERVED = frozenset(("provider", "location", "owner", "external", "is_managed_location", "comment", "collation"))
_PACKAGE = "org.apache.spark.sql.catalyst"
#: The kind of a temporary view.
_TEMPORARY = "TEMPORARY"


class Catalogs(NamedTuple):
    """A session's catalog in the JVM, and the external catalog behind it.  A session never replaces them."""

    session: Any
    external: Any


_catalogs: WeakKeyDictionary[SparkSession, Catalogs] = WeakKeyDictionary()


@dataclass(frozen=True)
class ViewForm:
    """A permanent view's columns (name and type), the catalog and database in which it was created, and the names of
    its query's columns, empty for views of old releases."""

    namespace: tuple[str, ...]
    query_columns: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Entry:
    """A table or view of the catalog; ``provider`` is in lower case, and empty for a view.  ``form`` is set for a
    permanent view in a Connect session, ``java`` in a classic one."""

    database: str
    table: str
    kind: str
    provider: str = ""
    location: str | None = None
    view_text: str | None = None
    form: ViewForm | None = None
    java: Any = field(default=None, compare=False, repr=False)

    @property
    def managed(self) -> bool:
        """Whether DROP TABLE deletes the files."""
        return self.kind == "MANAGED"

    @property
    def full_name(self) -> str:
        return f"spark_catalog.{self.database}.{self.table}"

    @property
    def is_view(self) -> bool:
        return self.kind == "VIEW"

    @property
    def view_form(self) -> ViewForm:
        """The columns of a permanent view, and the namespace of its query."""
        if self.form is not None:
            return self.form
        columns = [(str(f.name()), str(f.dataType().sql())) for f in items_of(self.java.schema())]
        namespace, queried = self.java.viewCatalogAndNamespace(), self.java.viewQueryColumnNames()
        return ViewForm(tuple(map(str, items_of(namespace))), tuple(map(str, items_of(queried))), tuple(columns))


@dataclass(frozen=True)
class EntryContents:
    """What the entry of a table shows, apart from provider and location."""

    columns: T.StructType
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, head: Head) -> EntryContents:
        metadata = head.metadata
        return cls(to_spark(read_schema(head.schema)), metadata.description, metadata.configuration)


def find_entry(spark: SparkSession, parts: list[str]) -> Entry | None:
    """The entry of a name, which may be a temporary view; ``None`` if there is none."""
    has_jvm_catalog = has_catalog(spark, parts)
    parts = _short(parts)
    if not has_jvm_catalog:
        if not spark.catalog.tableExists(quote_parts(parts)):
            return None
        return next(_entries_by_sql(spark, parts), Entry("", parts[-1], _TEMPORARY))
    catalog = catalogs(spark).session
    if catalog.isTempView(_identifier(spark, parts)):
        return Entry("", parts[-1], _TEMPORARY)
    database = parts[0] if len(parts) > 1 else str(catalog.getCurrentDatabase())
    return permanent_entry(spark, database, parts[-1])


def permanent_entry(spark: SparkSession, database: str, table: str) -> Entry | None:
    """The session catalog's entry of a table or permanent view; ``None`` if there is none."""
    if is_connect(spark):
        if not spark.catalog.tableExists(quote_parts((database, table))):
            return None
        entry = next((e for e in _entries_by_sql(spark, [database, table]) if e.kind != _TEMPORARY), None)
        return _described(spark, entry) if entry is not None and entry.is_view else entry
    database, external = database.lower(), catalogs(spark).external
    if not external.tableExists(database, table.lower()):
        return None
    try:
        java = external.getTable(database, table.lower())
    except PySparkException as e:
        if "[TABLE_OR_VIEW_NOT_FOUND]" not in str(e):
            raise
        return None  # dropped since
    kind, provider, uri = str(java.tableType().name()), java.provider(), java.storage().locationUri()
    is_view = kind == "VIEW"
    sql = java.viewText() if is_view else None
    return Entry(
        database,
        str(java.identifier().table()),
        kind,
        str(provider.get()).lower() if provider.isDefined() and not is_view else "",
        decoded(str(uri.get().toString())) if uri.isDefined() else None,
        str(sql.get()) if sql is not None and sql.isDefined() else None,
        java=java,
    )


def make_entry(
    spark: SparkSession,
    parts: list[str],
    contents: EntryContents,
    *,
    path: str | None,
    provider: str = "delta",
    managed: bool = False,
) -> None:
    """Create the entry of a table; files are not touched.  Without ``path``, the table is managed, and its default
    location must be empty.  Raises Spark's ``TABLE_OR_VIEW_ALREADY_EXISTS`` and ``LOCATION_ALREADY_EXISTS``, and on
    Spark Connect ``UnsupportedSparkError`` for a table without columns or a managed one at a path."""
    has_jvm_catalog = has_catalog(spark, parts)
    parts, path = _short(parts), absolute(path)
    if not has_jvm_catalog:
        if not HAS_DATA_SOURCES and is_connect(spark):
            raise UnsupportedSparkError(
                f"PySpark {pyspark.__version__} does not support names of trilake tables over Spark Connect",
                table=".".join(parts),
                help="save to a path, or use a classic session or PySpark 4.0 or newer",
            )
        statement = create_sql(parts, contents, path=path, provider=provider, managed=managed)
        with bypass():
            spark.sql(statement)
        return
    catalog, name = catalogs(spark).session, _identifier(spark, parts)
    package = _package(spark)
    kinds = package.catalog.CatalogTableType
    storage = package.catalog.CatalogStorageFormat.empty()
    if path is not None:
        storage = changed(storage, locationUri=some(spark, jvm(spark).org.apache.hadoop.fs.Path(path).toUri()))
    columns = java_session(spark).parseDataType(contents.columns.json())
    kind = kinds.MANAGED() if managed or path is None else kinds.EXTERNAL()
    entry = changed(
        case_class_value(spark, f"{_PACKAGE}.catalog.CatalogTable", name, kind, storage, columns),
        provider=some(spark, provider),
        properties=string_map(spark, contents.properties),
        comment=some(spark, contents.comment),
    )
    catalog.createTable(entry, False, path is None)


def create_sql(
    parts: list[str], contents: EntryContents, *, path: str | None, provider: str = "delta", managed: bool = False
) -> str:
    """The CREATE TABLE statement of an entry.  It lists the columns, so that Spark does not read the table.

    Raises ``UnsupportedSparkError`` for a table without columns, and for a managed one at a path.

    >>> columns = T.StructType([T.StructField("id", T.LongType(), False)])
    >>> create_sql(["t"], EntryContents(columns), path="/lake/t", provider="delta", managed=False)
    "CREATE TABLE `t` (`id` bigint NOT NULL) USING `delta` LOCATION '/lake/t'"
    """
    name = quote_parts(parts)
    if not contents.columns.fields:
        raise UnsupportedSparkError(
            f"over Spark Connect, a new table needs columns, got none for {name}",
            help="list the columns, or use a classic session",
        )
    if managed and path is not None:
        raise UnsupportedSparkError(
            f"over Spark Connect, a managed table cannot be created where files exist: {name}",
            help="add LOCATION with the path, or use a classic session",
            file=path,
        )
    statement = f"CREATE TABLE {name} ({to_ddl(contents.columns)}) USING {quote_name(provider)}"
    if contents.comment is not None:
        statement += f" COMMENT {string_literal(contents.comment)}"
    properties = {k: v for k, v in contents.properties.items() if k.lower() not in _RESERVED}
    if properties:
        inside = ", ".join(f"{string_literal(k)} = {string_literal(v)}" for k, v in sorted(properties.items()))
        statement += f" TBLPROPERTIES ({inside})"
    return statement if path is None else f"{statement} LOCATION {string_literal(path)}"


def change_entry(spark: SparkSession, parts: list[str], contents: EntryContents) -> bool:
    """Update the entry of a table, if it exists; returns whether that was possible.  Unchanged facts are not written,
    since the location may change concurrently and the catalog replaces whole entries."""
    if not has_catalog(spark, parts):
        return False
    catalog, name = catalogs(spark).session, _identifier(spark, _short(parts))
    entry = _metadata(catalog, name)
    if entry is None:
        return True
    columns = java_session(spark).parseDataType(contents.columns.json())
    identifier = entry.identifier()
    properties, comment = string_map(spark, contents.properties), some(spark, contents.comment)
    if not (entry.properties().equals(properties) and entry.comment().equals(comment)):
        catalog.alterTable(changed(entry, properties=properties, comment=comment))
    if entry.schema().equals(columns):
        catalog.refreshTable(identifier)
        return True
    with _hive_is_quiet(spark):
        for method in ("alterTableSchema", "alterTableDataSchema"):  # depends on the release
            try:
                getattr(catalogs(spark).external, method)(
                    str(identifier.database().get()), str(identifier.table()), columns
                )
            except SPARK_ERRORS:
                continue
            catalog.refreshTable(identifier)
            return True
    return not catalog.tableExists(name)


@contextmanager
def _hive_is_quiet(spark: SparkSession) -> Iterator[None]:
    """Silence a Hive metastore, which logs 55 lines for columns that Hive does not support and Spark then stores
    itself."""
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
        pass  # another logging library is in use
    try:
        yield
    finally:
        for name, level in levels.items():
            log4j.core.config.Configurator.setLevel(name, level)


def move_entry(spark: SparkSession, parts: list[str], path: str, contents: EntryContents) -> None:
    """Change the location of a table's entry, which becomes external; needs :func:`has_catalog`.  Raises Spark's
    ``TABLE_OR_VIEW_NOT_FOUND`` if it is gone."""
    catalog, external = catalogs(spark).session, _package(spark).catalog.CatalogTableType.EXTERNAL()
    entry = catalog.getTableMetadata(_identifier(spark, _short(parts)))
    storage = changed(entry.storage(), locationUri=some(spark, jvm(spark).org.apache.hadoop.fs.Path(path).toUri()))
    catalogs(spark).external.alterTable(changed(entry, storage=storage, tableType=external))
    change_entry(spark, parts, contents)


def change_view(spark: SparkSession, entry: Entry, sql: str) -> None:
    """Replace a permanent view's SQL; its columns stay.  Classic sessions only."""
    catalog, external = catalogs(spark)
    view_sql = some(spark, sql)
    now = external.getTable(entry.database, entry.table)
    catalog.alterTable(changed(now, viewText=view_sql, viewOriginalText=view_sql))


def convert_entry(spark: SparkSession, parts: list[str], contents: EntryContents) -> None:
    """Change the format of a table's entry to Delta; needs :func:`has_catalog`.  Files, location and owner stay."""
    catalog = catalogs(spark).session
    entry = catalog.getTableMetadata(_identifier(spark, _short(parts)))
    # Partition columns are in the Delta log, not in the entry.
    none = jvm(spark).PythonUtils.toSeq([])
    delta = some(spark, "delta")
    catalog.alterTable(changed(entry, provider=delta, partitionColumnNames=none, tracksPartitionsInCatalog=False))
    change_entry(spark, parts, contents)


def rename_entry(spark: SparkSession, parts: list[str], new: list[str]) -> None:
    """Rename a table within its database; files of a managed table move.  For Spark releases that read a table before
    renaming it, which fails for trilake's sources.  Raises Spark's ``LOCATION_ALREADY_EXISTS``."""
    catalog, name = catalogs(spark).session, _identifier(spark, _short(parts))
    catalog.refreshTable(name)
    catalog.renameTable(name, _identifier(spark, _short(new)))


def drop_entry(spark: SparkSession, parts: list[str]) -> None:
    """Drop a name, if it exists, and keep its files; SQL alone deletes the files of a managed table."""
    if not has_catalog(spark, parts):
        with bypass():
            spark.sql(f"DROP TABLE IF EXISTS {quote_parts(parts)}")
        return
    catalog, name = catalogs(spark).session, _identifier(spark, _short(parts))
    entry = _metadata(catalog, name)
    if entry is None:
        return
    kinds = _package(spark).catalog.CatalogTableType
    if str(entry.tableType().name()) == "MANAGED":  # DROP keeps the files of an external table
        catalogs(spark).external.alterTable(changed(entry, tableType=kinds.EXTERNAL()))
    catalog.dropTable(entry.identifier(), True, False)


def database_location(spark: SparkSession, parts: list[str]) -> str:
    """The default location of a database's tables."""
    if has_catalog(spark, [*parts, ""]):
        about = catalogs(spark).session.getDatabaseMetadata(parts[-1])
        return decoded(str(about.locationUri().toString()))
    with bypass():
        rows = {r[0]: r[1] for r in spark.sql(f"DESCRIBE DATABASE {quote_parts(parts)}").collect()}
    return decoded(str(rows["Location"]))


def absolute(path: str | None) -> str | None:
    """Make a path absolute, since the catalog would put a relative one below its warehouse."""
    return path if path is None or re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:/", path) else os.path.abspath(path)


def _short(parts: list[str]) -> list[str]:
    """A name without the name of the session catalog."""
    return parts[1:] if len(parts) == 3 and parts[0].lower() == _CATALOG else parts


def has_catalog(spark: SparkSession, parts: list[str]) -> bool:
    """Whether a name is in the session's own catalog, and the JVM is available."""
    if is_connect(spark):
        return False
    if len(parts) == 3:
        return parts[0].lower() == _CATALOG
    return len(parts) <= 2 and spark.catalog.currentCatalog() == _CATALOG


def _package(spark: SparkSession) -> Any:
    return jvm(spark).org.apache.spark.sql.catalyst


def catalogs(spark: SparkSession) -> Catalogs:
    """The catalogs of a classic session."""
    found = _catalogs.get(spark)
    if found is None:
        catalog = java_session(spark).sessionState().catalog()
        found = _catalogs[spark] = Catalogs(catalog, catalog.externalCatalog())
    return found


def _metadata(catalog: Any, name: Any) -> Any:
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


def _entries_by_sql(spark: SparkSession, parts: Sequence[str]) -> Iterator[Entry]:
    """The entries of a name, from ``SHOW TABLE EXTENDED``."""
    *database, table = parts
    inside = f" IN {quote_parts(database)}" if database else ""
    pattern = re.sub(r"([|*\\'])", ".", table)
    with bypass():
        rows = spark.sql(f"SHOW TABLE EXTENDED{inside} LIKE '{pattern}'").collect()
    for row in rows:
        if row["tableName"].lower() == table.lower():
            facts = dict(re.findall(r"^(Provider|Location|Type): (.*)$", row["information"], re.MULTILINE))
            uri, kind = facts.get("Location"), _TEMPORARY if row["isTemporary"] else facts.get("Type", "")
            provider = facts.get("Provider", "").lower() if kind not in ("VIEW", _TEMPORARY) else ""
            location = None if uri is None else decoded(uri)
            yield Entry("".join(database[-1:]).lower(), row["tableName"], kind, provider, location)


def _described(spark: SparkSession, view: Entry) -> Entry:
    """Add a view's SQL and form, which only DESCRIBE returns completely."""
    with bypass():
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quote_parts((view.database, view.table))}").collect()
    sql, form = view_description([(row["col_name"], row["data_type"]) for row in rows])
    return replace(view, view_text=sql, form=form)


def view_description(rows: Sequence[tuple[str, str]]) -> tuple[str | None, ViewForm]:
    r"""Parse a view's SQL and form from the first two columns of its description.

    >>> rows = [("n", "int"), ("", ""), ("# Detailed Table Information", ""), ("View Text", "SELECT `a b`\nFROM t")]
    >>> rows += [("View Catalog and Namespace", "spark_catalog.`d b`"), ("View Query Output Columns", "[`a b`]")]
    >>> sql, form = view_description(rows)
    >>> sql
    'SELECT `a b`\nFROM t'
    >>> form.namespace, form.query_columns, form.columns
    (('spark_catalog', 'd b'), ('a b',), (('n', 'int'),))
    """
    end = next((i for i, (name, _) in enumerate(rows) if not name), len(rows))
    stated = dict(rows[end:])
    queried = stated.get("View Query Output Columns", "[]")[1:-1]
    return stated.get("View Text"), ViewForm(
        _names(stated.get("View Catalog and Namespace", ""), r"[^.`]+"),
        _names(queried, r"[^`]+?(?=, |$)"),
        tuple(rows[:end]),
    )


def _names(quoted_names: str, plain: str) -> tuple[str, ...]:
    """Split a list of names, which are in backticks or match ``plain``."""
    matches = re.findall(rf"`((?:[^`]|``)*)`|(?:(?<=, )|(?<=\.)|^)({plain})", quoted_names)
    return tuple((quoted or bare).replace("``", "`") for quoted, bare in matches)
