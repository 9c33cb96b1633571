"""The names in the condition and the clauses of a MERGE, resolved by Spark before a row is read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession

from trilake.delta.commands.merge.names import VISIBLE, Side, VisibleColumns
from trilake.delta.protocol.schema import StructType
from trilake.errors import TrilakeError
from trilake.spark.delta.merge.request import SparkMerge
from trilake.spark.delta.merge.source_keys import alias_of
from trilake.spark.native.columns import as_column, empty_frame
from trilake.spark.native.resolution import UnresolvedName, resolving
from trilake.spark.session.compat import is_connect


def visible_columns(request: SparkMerge, schema: StructType) -> VisibleColumns:
    """What the expressions of a merge into a table of this schema can name."""
    return VisibleColumns(
        {"target": schema.names, "source": request.source.columns},
        {"target": request.alias, "source": alias_of(request.source)},
    )


def name_error(columns: VisibleColumns, name: UnresolvedName) -> TrilakeError:
    """The error for a name that Spark could not resolve."""
    if not name.ambiguous:
        return columns.unknown(name.parts)
    aliases = {alias.lower() for alias in columns.aliases.values() if alias is not None}
    qualified = len(name.parts) > 1 and name.parts[0].lower() in aliases
    return columns.ambiguous(name.parts[1 if qualified else 0])


def check_expressions(spark: SparkSession, request: SparkMerge, schema: StructType) -> None:
    """Raise ``ExpressionError`` where an expression names a column that its clause does not see, or both tables have.

    What can be wrong is found before the source is computed, and where no row would ever come to a clause.
    """
    columns = visible_columns(request, schema)
    empty = empty_frame(spark, schema)
    named = empty if request.alias is None else empty.alias(request.alias)
    target = request.frames.added(named, request.expressions, besides=request.source)
    frames: dict[tuple[Side, ...], DataFrame] = {("source",): request.source, ("target",): target}
    with resolving(partial(name_error, columns), of_table=True):
        both = target.join(request.source, as_column(request.condition))
        _analyse(spark, both, [])
        frames["target", "source"] = both
    for clause in request.clauses:
        frame = frames.get(VISIBLE[clause.kind])
        if frame is None:
            continue
        with resolving(partial(name_error, columns.only(clause.kind)), of_table=True):
            rows = frame if clause.condition is None else frame.where(as_column(clause.condition))
            _analyse(spark, rows, [as_column(e) for e in (clause.values or {}).values()])


def _analyse(spark: SparkSession, frame: DataFrame, expressions: Sequence[Column]) -> None:
    checked = frame.select(*expressions)
    if is_connect(spark):
        _ = checked.schema  # a plan is analysed there when it is asked for
