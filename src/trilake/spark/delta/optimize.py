"""``DeltaTable.optimize()``: delta-spark's builder; each bin of files is a task of a Spark job.

A task reads and writes its files as Arrow, so no row passes through the JVM.  Session settings have delta-spark's
names, ``spark.databricks.delta.optimize.*``.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.common.display import PublicNames
from trilake.delta.commands.alter.iceberg_upgrade import upgrade_iceberg
from trilake.delta.commands.optimize import bins
from trilake.delta.commands.optimize.metrics import OptimizeMetrics, as_row, camel
from trilake.delta.commands.optimize.optimize import DELETED_SHARE, OptimizeRequest, OptimizeResult, optimize, purge
from trilake.delta.log.log import DeltaLog
from trilake.spark.delta.optimize_shuffle import OptimizeRunner
from trilake.spark.delta.settings import session_log
from trilake.spark.session.analysis_errors import raises_for_spark
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import java_session
from trilake.spark.session.optimize_settings import flag, integer, setting, share
from trilake.storage import open_store


@raises_for_spark
class DeltaOptimizeBuilder(PublicNames):
    """Builds an OPTIMIZE command; :meth:`executeCompaction` and :meth:`executeZOrderBy` run it.

    Returned by ``DeltaTable.optimize()``.

    >>> import trilake
    >>> for day in 1, 2, 3:
    ...     rows = spark.range(day).selectExpr("id", f"{day} AS day")
    ...     _ = trilake.write(rows, "lake/days", mode="append", partition_by="day")
    >>> done = trilake.DeltaTable.forPath(spark, "lake/days").optimize().where("day < 3").executeZOrderBy("id")
    >>> trilake.open("lake/days").count("day = 3"), trilake.open("lake/days").history()["operation"][0].as_py()
    (3, 'OPTIMIZE')
    >>> trilake.DeltaTable.forPath(spark, "lake/days").optimize().executeCompaction().columns
    ['path', 'metrics']
    >>> trilake.DeltaTable.forPath(spark, "lake/days").optimize().where("day = 1").executePurge().columns
    ['path', 'metrics']
    >>> trilake.DeltaTable.forPath(spark, "lake/days").optimize().upgrade_iceberg_compat(2).columns
    ['path', 'metrics']
    """

    def __init__(self, spark: SparkSession, path: str, options: Mapping[str, str]) -> None:
        self._spark, self._path, self._options = spark, path, dict(options)
        self._conditions: tuple[str, ...] = ()

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Restrict the command to the partitions for which ``partitionFilter``, a SQL condition, is true.

        The condition may name only partition columns; the conditions of several calls are combined with AND.  Raises
        ``TypeError`` unless it is a string.
        """
        if not isinstance(partitionFilter, str):
            raise TypeError(f"partitionFilter needs to be a string but got '{type(partitionFilter)}'.")
        self._conditions = (*self._conditions, partitionFilter)
        return self

    def executeCompaction(self, *, full: bool = False) -> DataFrame:
        """Compact small files and files with many deleted rows; a table with clustering columns is clustered instead.

        ``full`` clusters all files again, including large clusters.  Returns one row with ``path`` and
        ``metrics``.
        """
        return self._frame(self._optimize((), full))

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:
        """Rewrite the files in the order of a curve through ``cols``, passed one by one or as one list.

        Returns one row with ``path`` and ``metrics``.
        """
        names: Any = cols
        if len(cols) == 1 and isinstance(cols[0], list | tuple):
            names = cols[0]
        for c in names:
            if type(c) is not str:
                raise TypeError(f"Z-order column must be str. Found {c} with type {type(c)}")
        return self._frame(self._optimize(tuple(names), False))

    def executePurge(self) -> DataFrame:
        """Rewrite the files with deleted rows or dropped columns, as ``REORG TABLE ... APPLY (PURGE)`` does.

        Returns one row with ``path`` and ``metrics``.
        """
        result = purge(
            self._log(),
            where=self._where(),
            target_size=self._integer("maxFileSize"),
            predicates=self._predicates(),
            run=OptimizeRunner(self._spark),
        )
        return self._frame(result)

    def upgrade_iceberg_compat(self, version: int) -> DataFrame:
        """Make the table readable by Iceberg, as ``REORG TABLE ... APPLY (UPGRADE UNIFORM ...)`` does.

        ``version`` is the version of Iceberg compatibility: 1, 2 or 3.  Returns one row with ``path`` and ``metrics``.
        """
        return self._frame(upgrade_iceberg(self._log(), version, run=OptimizeRunner(self._spark)))

    def _log(self) -> DeltaLog:
        return session_log(self._spark, open_store(self._path, self._options))

    def _optimize(self, columns: tuple[str, ...], full: bool) -> OptimizeResult:
        log = self._log()
        minimum = self._integer("clustering.mergeStrategy.minCubeSize.threshold")
        target = self._integer("clustering.mergeStrategy.minCubeSize.targetCubeSize")
        request = OptimizeRequest(
            where=self._where(),
            zorder_by=columns,
            target_size=self._integer("maxFileSize"),
            min_file_size=self._integer("minFileSize"),
            deleted_share=share(self._spark, "optimize.maxDeletedRowsRatio", DELETED_SHARE),
            full=full,
            check_statistics=flag(self._spark, "optimize.zorder.checkStatsCollection.enabled") is not False,
            min_cube_size=bins.MIN_CUBE_SIZE if minimum is None else max(1, minimum),
            target_cube_size=bins.TARGET_CUBE_SIZE if target is None else max(1, target),
            predicates=self._predicates(),
        )
        return optimize(log, request, run=OptimizeRunner(self._spark))

    def _where(self) -> str | None:
        return " AND ".join(f"({c})" for c in self._conditions) or None

    def _predicates(self) -> tuple[str, ...]:
        return tuple(p for c in self._conditions for p in history_predicates(self._spark, c))

    def _conf(self, name: str) -> str | None:
        return setting(self._spark, f"optimize.{name}")

    def _integer(self, name: str) -> int | None:
        return None if self._conf(name) is None else integer(self._spark, f"optimize.{name}", 0)

    def _frame(self, result: OptimizeResult) -> DataFrame:
        row = (self._log().store.uri, as_row(result.metrics))
        return self._spark.createDataFrame([row], RESULT)

    def __repr__(self) -> str:
        return f"<OPTIMIZE of {self._path}" + (f" where {self._where()}>" if self._conditions else ">")


def history_predicates(spark: SparkSession, condition: str) -> list[str]:
    """A condition in the form of delta-spark's history: the conjuncts of the parsed condition, as Spark prints them."""
    if is_connect(spark):
        return conjuncts(print_condition(spark, condition))
    try:
        todo, out = [java_session(spark).sessionState().sqlParser().parseExpression(condition)], []
        while todo:
            node = todo.pop()
            if node.getClass().getSimpleName() == "And":
                todo += [node.right(), node.left()]
            else:
                out.append(str(node.toString()))
    except Py4JError:
        return conjuncts(print_condition(spark, condition))
    return out


def print_condition(spark: SparkSession, condition: str) -> str:
    """A condition as Spark prints it, from the parsed plan of a query that is never analysed."""
    plan = str(spark.sql(f"EXPLAIN EXTENDED SELECT 1 FROM trilake_no_such_table WHERE {condition}").collect()[0][0])
    match = re.search(r"^.*?'?Filter (.*)$", plan, re.MULTILINE)
    return condition if match is None else match[1]


def conjuncts(printed: str) -> list[str]:
    """The conjuncts of a printed condition.

    >>> conjuncts("((('a = 1) AND ('b = x AND y)) AND isnotnull('c))")
    ["('a = 1)", "('b = x AND y)", "isnotnull('c)"]
    """
    depth = 0
    for at, character in enumerate(printed):
        depth += {"(": 1, ")": -1}.get(character, 0)
        # Only inside the outer parentheses, between two operands in parentheses.
        if depth == 1 and printed.startswith(") AND ", at) and printed.endswith("))"):
            left, right = printed[1 : at + 1], printed[at + 6 : -1]
            return [*conjuncts(left), *conjuncts(right)]
    return [printed]


def _spark_type(annotation: Any) -> T.DataType:
    options = [a for a in typing.get_args(annotation) if a is not type(None)]
    kind = options[0] if options else annotation
    if is_dataclass(kind):
        return struct_of(kind)
    return {int: T.LongType(), float: T.DoubleType(), bool: T.BooleanType(), str: T.StringType()}[kind]


def struct_of(kind: Any) -> T.StructType:
    """The struct type that :func:`~trilake.delta.commands.optimize.metrics.as_row` gives for a dataclass of metrics."""
    hints = typing.get_type_hints(kind)
    return T.StructType([T.StructField(camel(f.name), _spark_type(hints[f.name])) for f in fields(kind)])


#: The row that the execute methods return.
RESULT = T.StructType([T.StructField("path", T.StringType()), T.StructField("metrics", struct_of(OptimizeMetrics))])
