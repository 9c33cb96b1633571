"""The source of a MERGE on Spark: computed once, and inspected before the target is read.

If the condition compares columns of the source and the target, the source's keys skip target files.  Only comparisons
that certainly hold are used; without any, all files are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.delta.commands.merge.clauses import Clause
from trilake.delta.commands.merge.pruning import MOST_KEYS, KeyValues, key_values, target_schema
from trilake.delta.commands.merge.source import materialized
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.schema import StructType, from_arrow, is_spatial
from trilake.delta.protocol.sql_types import BY_BYTES
from trilake.errors import InvalidArgumentError, TrilakeError
from trilake.spark.delta.frame_columns import FrameColumns
from trilake.spark.delta.merge.tasks import SOURCE
from trilake.spark.live_frames.frames import pinned
from trilake.spark.scan.columns import checked_condition, empty_frame
from trilake.spark.session.compat import arrow_frame, is_connect, is_frame, to_arrow
from trilake.spark.session.internals import SPARK_ERRORS, connect_plan, items_of, query_execution
from trilake.spark.session.schemas import columns_of_source
from trilake.spark.session.settings import reads_quotes_plainly
from trilake.spark.session.type_tree import types_in

Expr = str | Column
#: The names of tables without an alias.
TARGET_NAME, SOURCE_NAME = "__trilake_t", "__trilake_s"


@dataclass(frozen=True)
class SparkMerge:
    """The request of a merge."""

    source: DataFrame
    condition: Expr
    clauses: tuple[Clause[Expr], ...] = ()
    alias: str | None = None
    evolve: bool = False
    #: The application ID and version of the merge's ``txn`` action.
    txn: tuple[str, int] | None = None
    #: The frames of the table whose columns condition and clauses may name.
    frames: FrameColumns = field(default_factory=FrameColumns)
    #: The caller's request, for the history, if this is the result of :meth:`by_name`.
    stated: SparkMerge | None = None

    def by_name(self) -> SparkMerge:
        """The request with columns of :attr:`frames` by name; if there are any, the target has an alias."""
        alias, changed = self.alias or TARGET_NAME, False

        def named(expression: Expr) -> Expr:
            nonlocal changed
            renamed = self.frames.named(expression, alias, self.source)
            changed = changed or renamed is not expression
            return renamed

        clauses = tuple(
            replace(
                c,
                condition=None if c.condition is None else named(c.condition),
                values=None if c.values is None else {name: named(value) for name, value in c.values.items()},
            )
            for c in self.clauses
        )
        request = replace(self, condition=named(self.condition), clauses=clauses, alias=alias, stated=self)
        return request if changed else self


def merge_request(
    spark: SparkSession,
    source: object,
    condition: object,
    alias: str | None,
    frames: FrameColumns,
    *,
    round_times: bool = True,
) -> SparkMerge:
    """Start a merge of a DataFrame, which is pinned to its version, or of Arrow, pandas or polars rows, which get the
    alias ``source``; ``frames`` has the table's DataFrames whose columns it may name.  Raises ``ValueError`` for
    ``None``, ``TypeError`` for arguments of other types, and ``SchemaMismatchError`` for timestamps finer than a
    microsecond unless ``round_times`` is set."""
    if source is None:
        raise ValueError("'source' in merge cannot be None")
    frame = pinned(source) if is_frame(source) else _local_frame(spark, source, round_times=round_times)
    if condition is None:
        raise ValueError("'condition' in merge cannot be None")
    checked_condition(condition)
    return SparkMerge(frame, cast("str | Column", condition), alias=alias, frames=frames)


def _local_frame(spark: SparkSession, source: object, *, round_times: bool) -> DataFrame:
    try:
        with materialized(source, round_times=round_times) as rows:
            return arrow_frame(spark, rows.cast(from_arrow(rows.schema).to_arrow_schema())).alias("source")
    except InvalidArgumentError:
        raise TypeError("Type of 'source' in merge must be DataFrame.") from None


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
    source_alias = alias_of(source)
    try:
        scope = Scope.of(
            target_schema(snapshot),
            columns_of_source(source.schema).to_arrow_schema(),
            {"target": alias or TARGET_NAME, "source": source_alias or SOURCE_NAME},
            snapshot.engine.runtime.now(),
        )
        equal, target_only = scope.hints(sql)
    except TrilakeError:
        return (), ()  # names or syntax that only Spark can resolve
    keys = []
    for key in equal:
        column = F.expr(key.source if source_alias else key.source.replace(f"`{SOURCE_NAME}`.", ""))
        if _resolves(source, column):
            keys.append(KeyColumn(key.column, column, key.null_safe))
    return tuple(keys), tuple(target_only)


def _resolves(source: DataFrame, column: Column) -> bool:
    try:
        kind = source.select(column.alias("k")).schema[0].dataType
    except AnalysisException:
        return False
    # Files are chosen by the bytes of strings, whereas other collations compare differently.
    by_bytes = getattr(kind, "collation", BY_BYTES) == BY_BYTES
    return by_bytes and kind.typeName() not in ("array", "map", "struct", "variant")


def alias_of(frame: DataFrame) -> str | None:
    """The last alias of a DataFrame, to which columns may have been added since; ``None`` if it has none."""
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
    target = empty_frame(spark, schema, alias)
    try:
        plan = query_execution(target.join(source, condition)).analyzed()
        return str(plan.condition().get().sql())
    except SPARK_ERRORS:
        return None  # the join raises the error


#: Up to this many bytes, by Spark's estimate, the driver reads the source's rows.
FEW_BYTES = 16 << 20
#: Operators that add no rows, so that Spark's size estimate is an upper bound.
_STEADY = frozenset(
    (
        *("Aggregate", "Deduplicate", "Distinct", "Filter", "GlobalLimit", "InMemoryRelation", "LocalLimit"),
        *("LocalRelation", "LogicalRelation", "OneRowRelation", "Project", "Range", "Repartition"),
        *("RepartitionByExpression", "Sample", "Sort", "SubqueryAlias", "Union", "Window"),
    )
)
#: Prefix of the columns for the source's keys.
_KEY = "__trilake_key_"

#: Computes the rows to insert from source rows, with some extra columns.
Inserts = Callable[[DataFrame, Sequence[str]], DataFrame]


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Cache the rows of a DataFrame during the block."""
    if any(is_spatial(kind.simpleString()) for _, kind in types_in(frame.schema)):
        yield frame.localCheckpoint(eager=False)
        return
    frame.persist()
    try:
        yield frame
    finally:
        with suppress(*SPARK_ERRORS):  # the session may have ended
            frame.unpersist()


@dataclass(frozen=True)
class SourceRows:
    """Facts about the computed source; ``inserts`` has the rows to insert with their numbers, if they are few."""

    count: int
    keys: Sequence[KeyValues]
    inserts: pa.Table | None = None


def look_at_source(
    original: DataFrame,
    source: DataFrame,
    columns: Sequence[KeyColumn],
    inserts: Inserts | None,
    *,
    files: int,
    small: bool = True,
) -> SourceRows:
    """Compute ``source``, which is ``original`` with row numbers: its row count, facts about the ``columns`` to compare
    and, if it is small and ``small`` allows that, the rows that ``inserts`` computes.  ``files`` is the number of
    target files, which keys may skip."""
    if small and plan_bytes(original) <= FEW_BYTES:
        try:
            return _small_source(source, columns, inserts)
        except AnalysisException:
            raise
        except PySparkException:
            pass  # an expression fails on a row that may never be inserted
    aggregates = [F.count(F.lit(1)).alias("n")]
    for i, key in enumerate(columns):
        aggregates += [F.min(key.source).alias(f"low{i}"), F.max(key.source).alias(f"high{i}")]
        aggregates.append(F.count(F.when(key.source.isNull(), 1)).alias(f"null{i}"))
    totals = to_arrow(source.agg(*aggregates))
    count = int(totals["n"][0].as_py())
    if count <= MOST_KEYS and files > 1 and columns:
        rows = to_arrow(source.select(*(k.source.alias(f"k{i}") for i, k in enumerate(columns))))
        return SourceRows(count, _key_values(columns, rows.columns))
    out = []
    for i, key in enumerate(columns):
        ends = pa.concat_arrays([totals[f"{e}{i}"].combine_chunks() for e in ("low", "high")])
        if not pa.types.is_floating(ends.type):  # NaN has no place in bounds
            null = key.null_safe and bool(totals[f"null{i}"][0].as_py())
            out.append(replace(key_values(key.column, pc.drop_null(ends), False), bounds=True, null=null))
    return SourceRows(count, out)


def _small_source(source: DataFrame, columns: Sequence[KeyColumn], inserts: Inserts | None) -> SourceRows:
    named = {f"{_KEY}{i}": k.source for i, k in enumerate(columns)}
    rows = source.withColumns(named) if columns else source
    carried = [SOURCE, *named]
    here = to_arrow(rows.select(*carried) if inserts is None else inserts(rows, carried))
    keys = _key_values(columns, [here.column(name) for name in named])
    return SourceRows(here.num_rows, keys, None if inserts is None else here.drop(list(named)))


def _key_values(columns: Sequence[KeyColumn], values: Sequence[pa.ChunkedArray]) -> list[KeyValues]:
    return [key_values(k.column, v, k.null_safe) for k, v in zip(columns, values, strict=True)]


def row_bytes(frame: DataFrame) -> int:
    """The approximate number of bytes per row."""
    sizes = {"boolean": 1, "byte": 1, "short": 2, "integer": 4, "float": 4, "date": 4}
    return sum(sizes.get(f.dataType.typeName(), 8 if f.dataType.typeName() == "long" else 32) for f in frame.schema)


def plan_bytes(frame: DataFrame) -> int:
    """Spark's estimate of a DataFrame's size in bytes; ``sys.maxsize`` without one, or if an operator may add rows."""
    try:
        plan = query_execution(frame).optimizedPlan()
        todo = [plan]
        while todo:
            node = todo.pop()
            if node.nodeName() not in _STEADY:
                return sys.maxsize
            todo += items_of(node.children())
        return int(str(plan.stats().sizeInBytes()))
    except Py4JError:
        return sys.maxsize
