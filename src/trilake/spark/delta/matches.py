"""Find the rows that an overwrite with ``replaceOn`` or ``replaceUsing`` replaces: those that match a new row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyroaring import BitMap64
from pyspark.sql import DataFrame

from trilake.common.text import quote_name
from trilake.delta.commands.merge.clauses import Clause
from trilake.delta.commands.rows.row_changes import FoundRows
from trilake.delta.commands.write.overwrite import Matches
from trilake.delta.commands.write.request import ReplaceMatches
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import ExpressionError, InvalidArgumentError, stating
from trilake.spark.delta.merge.job import MergeJob
from trilake.spark.delta.merge.request import SparkMerge
from trilake.spark.delta.merge.run import check_expressions, name_error, visible_columns
from trilake.spark.delta.row_addresses import addressed_rows
from trilake.spark.scan.columns import as_column
from trilake.spark.scan.resolution import resolving

_TABLE, _ROWS = "__trilake_table", "__trilake_rows"


@stating(
    {
        "AMBIGUOUS_REFERENCE": "DELTA_INSERT_REPLACE_ON_AMBIGUOUS_COLUMNS_IN_CONDITION",
        "DELTA_MERGE_UNRESOLVED_EXPRESSION": "DELTA_INSERT_REPLACE_ON_UNRESOLVED_COLUMNS_IN_CONDITION",
    }
)
def find_matches(
    rows: DataFrame, log: DeltaLog, snapshot: Snapshot, replaced: ReplaceMatches, *, by_name: bool
) -> Matches:
    """Find the rows of a version that match one of ``rows``, as a MERGE would find them.

    Without ``by_name``, rows are inserted by position, and a column to compare must have the same position on both
    sides.

    Raises ``InvalidArgumentError`` for a column that one side lacks, ``ExpressionError`` for a condition that names
    columns of neither side, or of both without saying which.
    """
    spark, condition, alias = rows.sparkSession, replaced.condition, replaced.target_alias
    if replaced.columns:
        _check_columns(replaced.columns, rows, snapshot, by_name=by_name)
        names = map(quote_name, replaced.columns)
        condition, alias = " AND ".join(f"{_TABLE}.{n} = {_ROWS}.{n}" for n in names), _TABLE
        rows = rows.alias(_ROWS)
    request = SparkMerge(rows, condition, (Clause("matched", "delete"),), alias=alias)
    table = ArrowDeltaTable(log.store, log.engine, version=snapshot.version, known=snapshot)
    try:
        check_expressions(spark, request, snapshot.schema)
    except ExpressionError as e:
        if e.condition == "AMBIGUOUS_REFERENCE":
            e.help = "name the table with the option targetAlias and the rows with alias(), and write t.a or s.a"
        raise
    job = MergeJob(spark, table, request)
    found: dict[int, BitMap64] = {}
    with resolving(partial(name_error, visible_columns(request, snapshot.schema))):
        source = job.look_at_source(small=False)
        pruned = job.pruned(source.keys)
        numbers = pruned.numbers.tolist() if source.count else []
        if numbers:
            target = addressed_rows(spark, table, numbers)
            matches = job.named(target).join(job.source, as_column(condition), "left_semi")
            found = target.collect(matches)
    return Matches(FoundRows(found, (), tuple(numbers)), pruned.read)


def _check_columns(columns: Sequence[str], rows: DataFrame, snapshot: Snapshot, *, by_name: bool) -> None:
    sides = {"table": snapshot.schema.names, "DataFrame": rows.columns}
    places = {side: {n.lower(): i for i, n in enumerate(names)} for side, names in sides.items()}
    for column in columns:
        for side, names in sides.items():
            if column.lower() not in places[side]:
                raise InvalidArgumentError(
                    f"replaceUsing: column {column!r} not found in the {side}",
                    help=f"the columns are {', '.join(names)}",
                    condition="UNRESOLVED_INSERT_REPLACE_USING_COLUMN",
                )
        if not by_name and len({at[column.lower()] for at in places.values()}) > 1:
            raise InvalidArgumentError(
                f"insertInto matches columns by position, but column {column!r} of replaceUsing has different positions"
                " in the table and in the DataFrame",
                help="select the table's columns in its order",
                condition="INSERT_REPLACE_USING_DISALLOW_MISALIGNED_COLUMNS",
            )
