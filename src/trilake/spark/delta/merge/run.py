"""Run a MERGE on Spark with the first strategy that supports it.

* :class:`~.embedded.EmbeddedMerge`: for a large source on one machine: the merge without Spark.
* :class:`JoinedRows`: for every other merge: a join in Spark.

A strategy's ``can_run`` says why it cannot run a merge, or ``None``, from plans and types, before any row is computed.
Its ``run`` merges and commits, or returns, without side effects, the reason why it cannot merge these rows.  The logger
``trilake.spark`` reports at level INFO which strategy runs, and why the earlier ones do not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession

from trilake.delta.commands.merge.clauses import VISIBLE, Clause, Side, VisibleColumns, check_clauses, insert_only
from trilake.delta.commands.merge.commit import ForHistory, MergeResult
from trilake.delta.commands.rows.row_changes import check_changeable
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.protocol.schema import StructType
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import ExpressionError, TrilakeError
from trilake.spark.delta.merge.embedded import EmbeddedMerge
from trilake.spark.delta.merge.job import MergeJob
from trilake.spark.delta.merge.source import TARGET_NAME, Expr, SparkMerge, alias_of, persisted
from trilake.spark.delta.settings import once
from trilake.spark.delta.storing.store_assignment import OF_CHANGES, overflows_named
from trilake.spark.scan.columns import as_column, column_sql, empty_frame, join_on, print_analysed
from trilake.spark.scan.planning.table_reads import reads_of_table
from trilake.spark.scan.resolution import UnresolvedName, check_row_values, resolving
from trilake.spark.session.analysis_errors import analysed_error
from trilake.spark.session.compat import analysed_frame, error_condition, is_connect
from trilake.spark.session.internals import query_execution

_log = logging.getLogger("trilake.spark")


class JoinedRows:
    """One join in Spark, whose result tasks write."""

    name = "a join in Spark"

    def __init__(self, job: MergeJob) -> None:
        self._job = job

    def can_run(self) -> str | None:
        return None

    def run(self, other_reads: Callable[[], ReadSet], for_history: ForHistory) -> MergeResult | str:
        with persisted(self._job.source) as self._job.source:
            return self._job.run(other_reads, for_history)


#: All strategies, the fastest first.
STRATEGIES: tuple[type[EmbeddedMerge] | type[JoinedRows], ...] = (EmbeddedMerge, JoinedRows)


def merge_dataframe(spark: SparkSession, table: ArrowDeltaTable, request: SparkMerge) -> MergeResult:
    """Merge a DataFrame into an open table; the errors are those of ``DeltaMergeBuilder.execute``."""
    if request.txn is not None:
        return _merge(spark, table, request)
    skipped = MergeResult("MERGE", table.version, committed=False)
    return once(spark, table.snapshot, skipped, lambda txn: _merge(spark, table, replace(request, txn=txn)))


def _merge(spark: SparkSession, table: ArrowDeltaTable, request: SparkMerge) -> MergeResult:
    check_clauses(request.clauses)
    check_changeable(table.snapshot, "MERGE", removes=not insert_only(request.clauses))
    request = request.by_name()
    job = MergeJob(spark, table, request)
    analysed = check_expressions(spark, request, table.snapshot.schema)
    history = _for_history(request.stated or request, analysed)
    name_errors = resolving(partial(name_error, visible_columns(request, table.snapshot.schema)))
    watched = reads_of_table(analysed, table.uri, table.version)
    with overflows_named(narrowed=True, condition=OF_CHANGES), name_errors, watched as other_reads:
        for strategy in (make(job) for make in STRATEGIES):
            reason = strategy.can_run()
            result = strategy.run(other_reads, history) if reason is None else reason
            if not isinstance(result, str):
                _log.info("%s is merged by %s", table.uri, strategy.name)
                return result
            _log.info("%s is not merged by %s: %s", table.uri, strategy.name, result)
    raise AssertionError("the last strategy runs every merge")


def _for_history(request: SparkMerge, analysed: Sequence[DataFrame]) -> ForHistory:
    on, *conditions = map(_printed, (request.condition, *(c.condition for c in request.clauses)), analysed)
    return str(on), [Clause(c.kind, c.action, sql) for c, sql in zip(request.clauses, conditions, strict=True)]


def _printed(condition: Expr | None, analysed: DataFrame) -> str | None:
    """A condition for the history; it is below the columns of its analysed frame."""
    if condition is None:
        return None
    if not is_connect(analysed.sparkSession):
        printed = print_analysed(query_execution(analysed).analyzed().child())
        if printed is not None:
            return printed
    return condition if isinstance(condition, str) else column_sql(condition) or str(condition)


# --- Spark resolves the names in condition and clauses of a MERGE before any row is read ------------------------------


def visible_columns(request: SparkMerge, schema: StructType) -> VisibleColumns:
    """The columns that the expressions of a merge into this table can name."""
    return VisibleColumns(
        {"target": schema.names, "source": request.source.columns},
        {"target": None if request.alias == TARGET_NAME else request.alias, "source": alias_of(request.source)},
    )


def name_error(columns: VisibleColumns, name: UnresolvedName) -> TrilakeError:
    """The error for a name that Spark could not resolve."""
    parts = name.parts[name.parts[0] == TARGET_NAME :]
    if not name.ambiguous:
        return columns.unknown(parts)
    aliases = {alias.lower() for alias in columns.aliases.values() if alias is not None}
    qualified = len(parts) > 1 and parts[0].lower() in aliases
    return columns.ambiguous(parts[1 if qualified else 0])


def check_expressions(spark: SparkSession, request: SparkMerge, schema: StructType) -> list[DataFrame]:
    """Let Spark analyse condition and clauses, before the source is computed; returns DataFrames with all expressions.
    Raises ``ExpressionError`` for a column that a clause does not see, or that both tables have."""
    columns = visible_columns(request, schema)
    matched = [c for c in request.clauses if c.kind == "matched"]
    of_both = [request.condition, *(e for c in matched for e in (c.condition, *(c.values or {}).values()))]
    shared = request.frames.shared(of_both, request.source)
    if shared is not None:
        raise columns.ambiguous(shared)  # Spark would resolve it to the source, and ``x = x`` matches every row
    target = empty_frame(spark, schema, request.alias)
    frames: dict[tuple[Side, ...], DataFrame] = {("source",): request.source, ("target",): target}
    with resolving(partial(name_error, columns), of_table=True), _deterministic():
        both = target.join(request.source, as_column(request.condition))
        analysed = [analysed_frame(both.select())]
        frames["target", "source"] = both
    for clause in request.clauses:
        frame = frames[VISIBLE[clause.kind]]
        with resolving(partial(name_error, columns.only(clause.kind)), of_table=True):
            rows = frame if clause.condition is None else frame.where(as_column(clause.condition))
            values = [as_column(e) for e in (clause.values or {}).values()]
            check_row_values(rows, values)
            analysed.append(analysed_frame(rows.select(*values)))
        if clause.condition is not None:
            _check_deterministic(frame, as_column(clause.condition))
    return analysed


def _check_deterministic(frame: DataFrame, condition: Column) -> None:
    """Raise ``ExpressionError`` for a condition such as ``rand() > 0.5``, which Spark rejects in joins."""
    try:
        with _deterministic():
            analysed_frame(join_on(frame, condition))
    except AnalysisException as e:
        if isinstance(e, TrilakeError):
            raise  # clauses may allow it


@contextmanager
def _deterministic() -> Iterator[None]:
    try:
        yield
    except AnalysisException as e:
        if error_condition(e) != "INVALID_NON_DETERMINISTIC_EXPRESSIONS":
            raise
        error = ExpressionError(
            "a condition of MERGE must be deterministic",
            help="compute the value in a column of the source first, and use that column",
            condition="DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED",
        )
        raise analysed_error(error, e) from None
