"""The columns that a MERGE's condition compares, so that the source's keys can skip files of the target.

Only certain facts are used; without any, all files are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.delta.commands.merge.pruning import target_schema
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.sql_types import BY_BYTES
from trilake.errors import TrilakeError
from trilake.spark.scan.columns import empty_frame
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import connect_plan, query_execution
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.settings import reads_quotes_plainly

#: The names of tables without an alias.
TARGET_NAME, SOURCE_NAME = "__trilake_t", "__trilake_s"


@dataclass(frozen=True)
class KeyColumn:
    """A target column, as the parts of its name, that must equal a source expression."""

    column: tuple[str, ...]
    source: Column
    null_safe: bool


def key_columns(
    spark: SparkSession, snapshot: Snapshot, source: DataFrame, condition: str | Column, alias: str | None
) -> tuple[tuple[KeyColumn, ...], tuple[str, ...]]:
    """Target columns that must equal source expressions, and conditions, as SQL, that read only the target."""
    from trilake.delta.commands.merge.scope import Scope  # late: the parser takes a third of a second to load

    sql = condition_sql(spark, snapshot.schema, source, condition, alias)
    if sql is None:
        return (), ()
    source_schema = from_spark(source.schema)
    assert isinstance(source_schema, StructType)
    source_alias = alias_of(source)
    try:
        scope = Scope.of(
            target_schema(snapshot),
            source_schema.to_arrow_schema(),
            {"target": alias or TARGET_NAME, "source": source_alias or SOURCE_NAME},
            snapshot.engine.runtime.now(),
        )
        hints = scope.hints(sql)
    except TrilakeError:
        return (), ()  # names or syntax that only Spark can resolve
    keys = []
    for key in hints.keys:
        column = F.expr(key.source if source_alias else key.source.replace(f"`{SOURCE_NAME}`.", ""))
        if _resolves(source, column):
            keys.append(KeyColumn(key.column, column, key.null_safe))
    return tuple(keys), hints.alone


def _resolves(source: DataFrame, column: Column) -> bool:
    try:
        kind = source.select(column.alias("k")).schema[0].dataType
    except AnalysisException:
        return False
    # Files are chosen by the bytes of strings, whereas other collations compare differently.
    by_bytes = getattr(kind, "collation", BY_BYTES) == BY_BYTES
    return by_bytes and kind.typeName() not in ("array", "map", "struct", "variant")


def alias_of(frame: DataFrame) -> str | None:
    """A frame's last alias, before columns were added; ``None`` if it has none."""
    plan = connect_plan(frame)
    if plan is not None:  # Spark Connect, where plans are Python objects
        while type(plan).__name__ == "WithColumns":
            plan = plan._child
        return str(plan._alias) if type(plan).__name__ == "SubqueryAlias" else None
    try:
        attributes = query_execution(frame).analyzed().output()
        parts = attributes.apply(0).qualifier()
        return str(parts.apply(parts.size() - 1)) if parts.size() else None
    except Py4JError:
        return None


def condition_sql(
    spark: SparkSession, schema: StructType, source: DataFrame, condition: str | Column, alias: str | None
) -> str | None:
    """A condition as SQL, for a column as Spark resolves it; ``None`` if it has no SQL."""
    if isinstance(condition, str):
        return condition if reads_quotes_plainly(spark) else None
    if is_connect(spark):
        return None
    target = empty_frame(spark, schema)
    named = target if alias is None else target.alias(alias)
    try:
        plan = query_execution(named.join(source, condition)).analyzed()
        return str(plan.condition().get().sql())
    except (Py4JError, PySparkException):
        return None  # the join raises the error
