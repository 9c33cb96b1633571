"""``CREATE TABLE ... USING delta`` in a session without trilake's SQL: name an existing table, or raise.

For such a statement Spark adds an entry to its catalog but creates no table, since it does not call the Python data
source.  After :func:`patch_create_table`, a statement with only the location of an existing table names that table; a
statement that would create a name without a table raises an error that points to :func:`trilake.install`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T
from sqlglot import exp, parse_one, to_table
from sqlglot.errors import SqlglotError

from trilake.delta.log.log import DeltaLog
from trilake.errors import InvalidArgumentError
from trilake.spark.catalog.entries import EntryContents, find_entry, make_entry
from trilake.spark.catalog.named_tables import has_table
from trilake.spark.patches.chains import classes, default_source, with_spark_errors
from trilake.spark.patches.formats import FORMATS
from trilake.spark.patches.recorder import Action, patch
from trilake.spark.scan.columns import no_rows
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.settings import session_options, session_store
from trilake.storage import is_absolute
from trilake.table.registry import has_log


def patch_create_table() -> None:
    """Patch the methods that create tables.  Idempotent."""
    for cls in classes("session"):
        patch(cls, "sql", _sql)
    for cls in classes("catalog"):
        patch(cls, "createTable", _create_table)


@dataclass(frozen=True)
class _Create:
    """A CREATE TABLE statement; ``alone`` means that it has only a format and a location."""

    parts: tuple[str, ...]
    format: str
    location: str | None
    alone: bool


def _sql(original: Any, spark: SparkSession, sqlQuery: Any, *args: Any, **kwargs: Any) -> Action | None:
    call = _parsed(sqlQuery, FORMATS) if isinstance(sqlQuery, str) else None
    catalog = None if call is None else call.parts[0] if len(call.parts) > 2 else str(spark.catalog.currentCatalog())
    if call is None or str(catalog).lower() != "spark_catalog":
        return None
    return _action(spark, call, "Spark's SQL", lambda: no_rows(spark, T.StructType([])))


def _create_table(
    original: Any,
    catalog: Any,
    tableName: Any,
    path: Any = None,
    source: Any = None,
    schema: Any = None,
    description: Any = None,
    **options: Any,
) -> Action | None:
    spark: SparkSession = catalog._sparkSession
    format = str(source or default_source(spark)).lower()
    if format not in FORMATS or not isinstance(tableName, str):
        return None
    location = path if path is not None else options.get("path")
    details = (schema, description, *(value for key, value in options.items() if key != "path"))
    parts = tuple(p.name for p in to_table(tableName, dialect="databricks").parts)
    call = _Create(parts, format, location, alone=not any(details))

    def rows() -> Any:
        return FORMATS[format].load(spark, str(location), {})

    return _action(spark, call, "Spark's catalog", rows)


def _action(spark: SparkSession, call: _Create, who: str, result: Callable[[], Any]) -> Action | None:
    """The action for a CREATE TABLE, which returns ``result()``; ``None`` if Spark handles the statement correctly."""
    if find_entry(spark, list(call.parts)) is not None:
        return None  # Spark raises its own error
    if not _is_table(spark, call):
        return with_spark_errors(partial(_reject, call, f"{who} would create only a catalog entry"))
    if not call.alone:
        return None  # Spark makes an entry with the given columns; reads show the table's

    @with_spark_errors
    def act() -> Any:
        assert call.location is not None
        if has_log(call.format):
            contents = EntryContents.of(DeltaLog(session_store(spark, call.location), spark_engine()).head())
        else:
            options = session_options(spark, call.location, {})
            contents = EntryContents(FORMATS[call.format].load(spark, call.location, options).schema)
        make_entry(spark, list(call.parts), contents, path=call.location, provider=call.format)
        return result()

    return act


def _parsed(sql: str, formats: Collection[str]) -> _Create | None:
    """The CREATE TABLE statement in a string, if it has one of these formats.

    >>> _parsed("CREATE TABLE db.t USING delta LOCATION '/lake/t'", ["delta"])
    _Create(parts=('db', 't'), format='delta', location='/lake/t', alone=True)
    >>> _parsed("SELECT 'CREATE TABLE t USING delta'", ["delta"])
    """
    lowered = sql.lower()
    if "create" not in lowered or not any(f in lowered for f in formats):
        return None
    try:
        tree = parse_one(sql, dialect="databricks")
    except SqlglotError:
        return None
    if not isinstance(tree, exp.Create) or tree.kind != "TABLE" or tree.args.get("replace"):
        return None
    clause = tree.args.get("properties")
    properties = {type(p): p for p in (clause.expressions if clause is not None else ())}
    format = properties.pop(exp.FileFormatProperty, None)
    if format is None or format.name.lower() not in formats or tree.expression is not None:
        return None  # a CTAS reaches trilake's data source, which raises
    location = properties.pop(exp.LocationProperty, None)
    table = tree.find(exp.Table)
    parts = tuple(p.name for p in table.parts) if table is not None else ()
    alone = not properties and not isinstance(tree.this, exp.Schema)
    return _Create(parts, format.name.lower(), None if location is None else location.name, alone)


def _is_table(spark: SparkSession, call: _Create) -> bool:
    """Whether the location is a table.  A relative location is below Spark's warehouse."""
    if call.location is None or not is_absolute(call.location):
        return False
    return has_table(session_store(spark, call.location), call.format)


def _reject(call: _Create, why: str) -> None:
    name, format = ".".join(call.parts), call.format
    raise InvalidArgumentError(
        f"{why}, but no {format} table: {name}",
        help="call trilake.install(spark), so that CREATE TABLE and spark.catalog.createTable create both, or write"
        f' df.write.format("{format}").saveAsTable("{name}")',
    )
