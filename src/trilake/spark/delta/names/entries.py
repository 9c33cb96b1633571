"""What Spark's catalogue says of a name: its provider, its place, and whether the files go with the name.

A classic session is asked through its JVM, a Spark Connect session by SQL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import java_session
from trilake.spark.session.passing import spark_alone

_CATALOG = "spark_catalog"


@dataclass(frozen=True)
class Entry:
    """A table or view of the catalogue; ``provider`` is in lower case, and empty for a view.

    ``columns`` is the JSON of a managed table's columns, where it is known.
    """

    provider: str
    location: str | None
    managed: bool
    columns: str | None = None


def quoted_parts(parts: list[str]) -> str:
    """The parts of a name as SQL."""
    return ".".join("`" + p.replace("`", "``") + "`" for p in parts)


def find_entry(spark: SparkSession, parts: list[str]) -> Entry | None:
    """The entry of a name, ``None`` where there is none."""
    if len(parts) == 3 and parts[0].lower() == _CATALOG:
        parts = parts[1:]
    if is_connect(spark) or len(parts) > 2 or spark.catalog.currentCatalog() != _CATALOG:
        return _shown(spark, parts)
    catalog = _catalog(spark)
    name = _identifier(spark, parts)
    if catalog.isTempView(name):
        return Entry("", None, False)
    if not catalog.tableExists(name):
        return None
    table = catalog.getTableMetadata(name)
    provider, place = table.provider(), table.storage().locationUri()
    managed = str(table.tableType().name()) == "MANAGED"
    return Entry(
        str(provider.get()).lower() if provider.isDefined() and str(table.tableType().name()) != "VIEW" else "",
        decoded(str(place.get().toString())) if place.isDefined() else None,
        managed,
        str(table.schema().json()) if managed else None,
    )


def change_columns(spark: SparkSession, parts: list[str], columns: T.StructType) -> bool:
    """Give the entry of a table other columns, files untouched; whether that was possible."""
    if len(parts) == 3 and parts[0].lower() == _CATALOG:
        parts = parts[1:]
    if is_connect(spark) or len(parts) > 2 or spark.catalog.currentCatalog() != _CATALOG:
        return False
    catalog, name = _catalog(spark), _identifier(spark, parts)
    found = catalog.getTableMetadata(name).identifier()
    database, table = str(found.database().get()), str(found.table())
    wanted = java_session(spark).parseDataType(columns.json())
    for method in ("alterTableSchema", "alterTableDataSchema"):  # one or the other, by release of Spark
        try:
            getattr(catalog.externalCatalog(), method)(database, table, wanted)
        except (Py4JError, PySparkException):
            continue
        catalog.refreshTable(found)
        return True
    return False


def decoded(uri: str) -> str:
    """A place as a path, or as a URI that is not escaped.

    >>> decoded("file:/a%20b"), decoded("s3://b/x%20y")
    ('/a b', 's3://b/x y')
    """
    text = unquote(uri)
    return "/" + text.removeprefix("file:").lstrip("/") if text.startswith("file:") else text


def _catalog(spark: SparkSession) -> Any:
    return java_session(spark).sessionState().catalog()


def _identifier(spark: SparkSession, parts: list[str]) -> Any:
    return java_session(spark).sessionState().sqlParser().parseTableIdentifier(quoted_parts(parts))


def _shown(spark: SparkSession, parts: list[str]) -> Entry | None:
    """The entry as SQL shows it."""
    *database, table = parts
    if not spark.catalog.tableExists(quoted_parts(parts)):
        return None
    inside = f" IN {quoted_parts(database)}" if database else ""
    pattern = re.sub(r"([|*\\'])", ".", table)
    with spark_alone():
        rows = spark.sql(f"SHOW TABLE EXTENDED{inside} LIKE '{pattern}'").collect()
    for row in rows:
        if row["tableName"].lower() != table.lower():
            continue
        about = dict(re.findall(r"^(Provider|Location|Type): (.*)$", row["information"], re.MULTILINE))
        place = about.get("Location")
        kind = about.get("Type", "")
        provider = "" if kind == "VIEW" else about.get("Provider", "").lower()
        columns = None
        if kind == "MANAGED" and provider.endswith("delta"):
            with spark_alone():
                columns = spark.table(quoted_parts(parts)).schema.json()
        return Entry(provider, None if place is None else decoded(place), kind == "MANAGED", columns)
    return Entry("", None, False)
