"""``DeltaMergeBuilder``: delta-spark's builder of a MERGE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from trilake.common.display import PublicNames
from trilake.delta.commands.merge.clauses import Action, Clause, Kind
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import AmbiguousMergeError
from trilake.spark.delta.merge.run import merge_dataframe
from trilake.spark.delta.merge.source import SparkMerge
from trilake.spark.scan.columns import assignment_columns, checked_condition
from trilake.spark.session.analysis_errors import raises_for_spark, unsupported_error
from trilake.spark.session.compat import arrow_frame

Condition = str | Column | None
Assigned = Mapping[str, str | Column] | None


@raises_for_spark
class DeltaMergeBuilder(PublicNames):
    """Builds a MERGE: clauses for matched rows, and for source and target rows without a match; then :meth:`execute`.

    Each kind can have any number of clauses: the first one whose condition is true for a row applies, and only the last
    may omit the condition.  Conditions and values are SQL strings or columns.  In ``whenMatched`` clauses they see both
    tables, in ``whenNotMatched`` clauses the source, and in ``whenNotMatchedBySource`` clauses the target.  Builders
    are immutable: every call returns a new one.

    >>> import trilake
    >>> _ = trilake.write(spark.sql("SELECT 1 AS id, 'old' AS s"), "lake/people", mode="overwrite")
    >>> people = trilake.DeltaTable.forPath(spark, "lake/people")
    >>> news = spark.sql("SELECT * FROM VALUES (1, 'new'), (2, 'first') AS t (id, s)")
    >>> matched = people.alias("t").merge(news.alias("s"), "t.id = s.id")
    >>> _ = matched.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    >>> [tuple(row) for row in people.toDF().orderBy("id").collect()]
    [(1, 'new'), (2, 'first')]

    All kinds of clauses, with conditions:

    >>> news = spark.sql("SELECT * FROM VALUES (1, 'gone', 0), (3, 'third', 3) AS t (id, s, n)")
    >>> merge = (
    ...     people.alias("t")
    ...     .merge(news.alias("s"), "t.id = s.id")
    ...     .withSchemaEvolution()
    ...     .withTransaction("people", 1)
    ...     .whenMatchedDelete("s.s = 'gone'")
    ...     .whenMatchedUpdate(set={"s": "s.s"})
    ...     .whenNotMatchedInsert("s.n > 0", values={"id": "s.id", "s": "upper(s.s)"})
    ...     .whenNotMatchedBySourceDelete("t.id > 100")
    ...     .whenNotMatchedBySourceUpdate(set={"s": "'kept'"})
    ... )
    >>> merge.execute().collect()
    [Row(num_affected_rows=3, num_updated_rows=1, num_deleted_rows=1, num_inserted_rows=1)]
    """

    def __init__(self, spark: SparkSession, open_table: Callable[[], ArrowDeltaTable], request: SparkMerge) -> None:
        self._spark, self._open_table, self._request = spark, open_table, request

    def whenMatchedUpdate(self, condition: Condition = None, set: Assigned = None) -> DeltaMergeBuilder:
        """Update matched rows of the target: ``set`` are the new values by column, ``"a.b"`` for a nested column.

        ``condition`` selects some of the matched rows; by default, all are updated.

        Raises ``ValueError`` without ``set``, ``TypeError`` for arguments of other types.
        """
        return self._with("matched", "update", condition, _checked_values(set, "'set' in whenMatchedUpdate"))

    def whenMatchedUpdateAll(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Update all columns of matched rows, or of those with ``condition``, from source columns of the same names.

        Raises ``TypeError`` for a condition that is neither a string nor a column.
        """
        return self._with("matched", "update", condition)

    def whenMatchedDelete(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Delete matched rows of the target, or those with ``condition``.

        Raises ``TypeError`` for a condition that is neither a string nor a column.
        """
        return self._with("matched", "delete", condition)

    def whenNotMatchedInsert(self, condition: Condition = None, values: Assigned = None) -> DeltaMergeBuilder:
        """Insert source rows without a match: ``values`` by column of the target.

        ``condition`` selects some of these rows; by default, all are inserted.

        Raises ``ValueError`` without ``values``, ``TypeError`` for arguments of other types.
        """
        return self._with(
            "not_matched", "insert", condition, _checked_values(values, "'values' in whenNotMatchedInsert")
        )

    def whenNotMatchedInsertAll(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Insert source rows without a match, or those with ``condition``: all columns, from those of the same names.

        Raises ``TypeError`` for a condition that is neither a string nor a column.
        """
        return self._with("not_matched", "insert", condition)

    def whenNotMatchedBySourceUpdate(self, condition: Condition = None, set: Assigned = None) -> DeltaMergeBuilder:
        """Update rows of the target without a match in the source: ``set`` are the new values by column.

        ``condition`` selects some of these rows; by default, all are updated.

        Raises ``ValueError`` without ``set``, ``TypeError`` for arguments of other types.
        """
        values = _checked_values(set, "'set' in whenNotMatchedBySourceUpdate")
        return self._with("not_matched_by_source", "update", condition, values)

    def whenNotMatchedBySourceDelete(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Delete rows of the target without a match in the source, or those with ``condition``.

        Raises ``TypeError`` for a condition that is neither a string nor a column.
        """
        return self._with("not_matched_by_source", "delete", condition)

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add columns that the target lacks, and widen types if the table allows that.

        The session's ``spark.databricks.delta.schema.autoMerge.enabled`` does the same for all merges.
        """
        return DeltaMergeBuilder(self._spark, self._open_table, replace(self._request, evolve=True))

    def withTransaction(self, appId: str, version: int) -> DeltaMergeBuilder:
        """Record ``version`` of the application ``appId`` as a ``txn`` action of the commit.

        If two merges for one version run concurrently, the second is rejected as a conflict; the caller must check
        whether the table already has the version.
        """
        return DeltaMergeBuilder(self._spark, self._open_table, replace(self._request, txn=(appId, version)))

    def execute(self) -> DataFrame:
        """Run the merge and commit it.

        Returns one row: ``num_affected_rows``, ``num_updated_rows``, ``num_deleted_rows`` and ``num_inserted_rows``.

        Raises ``InvalidArgumentError`` or ``SchemaMismatchError`` for invalid clauses, Spark's errors for expressions
        that cannot be resolved, ``AmbiguousMergeError`` if several source rows would change one row,
        ``ConstraintViolatedError`` for a new row that violates a rule of the table, ``WriteFailedError`` for a failed
        job, and ``ConflictError`` if a concurrent commit conflicts.
        """
        try:
            result = merge_dataframe(self._spark, self._open_table(), self._request)
        except AmbiguousMergeError as e:
            raise unsupported_error(e) from e
        names = ("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows")
        return arrow_frame(self._spark, pa.table({n: pa.array([getattr(result, n)], pa.int64()) for n in names}))

    def _with(
        self, kind: Kind, action: Action, condition: Condition, values: Mapping[str, Any] | None = None
    ) -> DeltaMergeBuilder:
        checked_condition(condition)
        clause: Clause[str | Column] = Clause(kind, action, condition, values)
        request = replace(self._request, clauses=(*self._request.clauses, clause))
        return DeltaMergeBuilder(self._spark, self._open_table, request)


def _checked_values(values: Assigned, argument: str) -> dict[str, Any]:
    assignment_columns(values, argument)
    assert values is not None
    return dict(values)
