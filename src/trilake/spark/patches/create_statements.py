"""``CREATE TABLE ... USING delta`` in a session without SQL of trilake: a name for a table that is there, or an error.

Spark makes an entry of its catalogue of such a statement and no table, since it asks a Python source for nothing.
After :func:`take_over_creates` a statement that names the place of a table, and says nothing else of it, makes a name
for it; one that would leave a name without a table says that :func:`trilake.install` is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T
from sqlglot import exp, parse_one, to_table
from sqlglot.errors import SqlglotError

from trilake.delta.log.log import DeltaLog
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.names.entries import About, find_entry, make_entry
from trilake.spark.patches.chains import classes, default_source
from trilake.spark.patches.dataframe_writer import SAVERS, translated
from trilake.spark.patches.reader import LOADERS
from trilake.spark.patches.recorder import Action, patch
from trilake.spark.scan.columns import no_rows
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.storage import session_options, session_store
from trilake.storage import is_absolute


def take_over_creates() -> None:
    """Look at the statements of this process that make tables; doing it again changes nothing."""
    for cls in classes("session"):
        patch(cls, "sql", _sql)
    for cls in classes("catalog"):
        patch(cls, "createTable", _create_table)


@dataclass(frozen=True)
class _Create:
    """A table that is to be made: ``alone`` says that nothing but its format and its place is said of it."""

    parts: tuple[str, ...]
    format: str
    location: str | None
    alone: bool


def _sql(own: Any, spark: SparkSession, sqlQuery: Any, *args: Any, **kwargs: Any) -> Action | None:
    call = _parsed(sqlQuery, SAVERS) if isinstance(sqlQuery, str) else None
    if call is None or not _in_session_catalog(spark, call):
        return None
    return _made(spark, call, "Spark's SQL", lambda: no_rows(spark, T.StructType([])))


def _create_table(
    own: Any,
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
    if format not in SAVERS or not isinstance(tableName, str):
        return None
    location = path if path is not None else options.get("path")
    said = (schema, description, *(value for key, value in options.items() if key != "path"))
    parts = tuple(p.name for p in to_table(tableName, dialect="databricks").parts)
    call = _Create(parts, format, location, alone=not any(said))

    def rows() -> Any:
        return LOADERS[format](spark, str(location), {})

    return _made(spark, call, "Spark's catalogue", rows)


def _made(spark: SparkSession, call: _Create, who: str, result: Callable[[], Any]) -> Action | None:
    """The action for a table that is to be made, whose result is ``result``; ``None`` for what Spark does well."""
    if find_entry(spark, list(call.parts)) is not None:
        return None  # Spark says so
    if not _is_table(spark, call):
        return lambda: translated(lambda: _refuse(call, f"{who} makes the name of a table, and no table"))
    if not call.alone:
        return None  # Spark makes a name with the columns that are said, and reads show the table's own

    def act() -> Any:
        translated(lambda: _name(spark, call))
        return translated(result)

    return act


def _parsed(text: str, formats: Collection[str]) -> _Create | None:
    """The CREATE TABLE of one of these formats that a string is; ``None`` for any other text.

    >>> _parsed("CREATE TABLE db.t USING delta LOCATION '/lake/t'", ["delta"])
    _Create(parts=('db', 't'), format='delta', location='/lake/t', alone=True)
    >>> _parsed("SELECT 'CREATE TABLE t USING delta'", ["delta"])
    """
    lowered = text.lower()
    if "create" not in lowered or not any(f in lowered for f in formats):
        return None
    try:
        tree = parse_one(text, dialect="databricks")
    except SqlglotError:
        return None
    if not isinstance(tree, exp.Create) or tree.kind != "TABLE" or tree.args.get("replace"):
        return None
    found = tree.args.get("properties")
    properties = {type(p): p for p in (found.expressions if found is not None else ())}
    format = properties.pop(exp.FileFormatProperty, None)
    if format is None or format.name.lower() not in formats or tree.expression is not None:
        return None  # the rows of a query reach our source, which says that it knows no place
    location = properties.pop(exp.LocationProperty, None)
    table = tree.find(exp.Table)
    parts = tuple(p.name for p in table.parts) if table is not None else ()
    alone = not properties and not isinstance(tree.this, exp.Schema)
    return _Create(parts, format.name.lower(), None if location is None else location.name, alone)


def _in_session_catalog(spark: SparkSession, call: _Create) -> bool:
    catalog = call.parts[0] if len(call.parts) > 2 else str(spark.catalog.currentCatalog())
    return catalog.lower() == "spark_catalog"


def _is_table(spark: SparkSession, call: _Create) -> bool:
    """Whether the statement names the place of a table; one that is not absolute is below Spark's warehouse."""
    if call.location is None or not is_absolute(call.location):
        return False
    store = session_store(spark, call.location)
    if call.format.endswith("delta"):
        return DeltaLog(store, spark_engine()).exists()
    return next(iter(store.list()), None) is not None


def _name(spark: SparkSession, call: _Create) -> None:
    """Make a name for the table at the place."""
    assert call.location is not None
    if call.format.endswith("delta"):
        about = About.of(DeltaLog(session_store(spark, call.location), spark_engine()).head())
    else:
        options = session_options(spark, call.location, {})
        about = About(LOADERS[call.format](spark, call.location, options).schema)
    make_entry(spark, list(call.parts), about, path=call.location, provider=call.format)


def _refuse(call: _Create, why: str) -> None:
    name, format = ".".join(call.parts), call.format
    raise InvalidArgumentError(
        f"{why}: {name} would be a name without a {format} table",
        help="call trilake.install(spark), and CREATE TABLE and spark.catalog.createTable make both; or write"
        f' df.write.format("{format}").saveAsTable("{name}")',
    )
