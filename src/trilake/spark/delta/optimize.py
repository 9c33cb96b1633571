"""``DeltaTable.optimize()``: delta-spark's builder; each bin of files is a task of a Spark job.

A task reads and writes its files as Arrow, so no row passes through the JVM.  Many tasks sort a bin that is too large
for one: a sample gives the boundaries of the curve's ranges, one per new file, and each row goes to the task of its
range::

    files --> tasks: read, index --> blobs of rows by range --> shuffle --> tasks: sort, write --> files

The shuffle moves Arrow streams in a binary column, which Spark does not decode, so no value changes its type.  Session
settings have delta-spark's names, ``spark.databricks.delta.optimize.*``.
"""

from __future__ import annotations

import re
import tempfile
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.common.display import PublicNames
from trilake.delta.commands.alter.iceberg_upgrade import upgrade_iceberg
from trilake.delta.commands.optimize import bins
from trilake.delta.commands.optimize.curve_order import SAMPLE_ROWS, divided, in_curve_order, sample_indexes
from trilake.delta.commands.optimize.metrics import OptimizeMetrics, as_row, camel
from trilake.delta.commands.optimize.optimize import DELETED_SHARE, OptimizeRequest, OptimizeResult, optimize, purge
from trilake.delta.commands.optimize.rewrite import Bin, Rewrite, Rewritten
from trilake.delta.commands.rows.row_changes import ChangedFile
from trilake.delta.files.write_files import TaskWriter
from trilake.delta.log.log import DeltaLog
from trilake.spark.delta.settings import session_log
from trilake.spark.session.analysis_errors import raises_for_spark
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import java_session
from trilake.spark.session.optimize_settings import flag, integer, share
from trilake.spark.session.runner import PICKLED, SparkRunner, map_in_arrow, outcomes, pickled, task_rows
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
            target_size=integer(self._spark, "optimize.maxFileSize", None),
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
        log, spark, cube = self._log(), self._spark, "optimize.clustering.mergeStrategy.minCubeSize"
        request = OptimizeRequest(
            where=self._where(),
            zorder_by=columns,
            target_size=integer(spark, "optimize.maxFileSize", None),
            min_file_size=integer(spark, "optimize.minFileSize", None),
            deleted_share=share(spark, "optimize.maxDeletedRowsRatio", DELETED_SHARE),
            full=full,
            check_statistics=flag(spark, "optimize.zorder.checkStatsCollection.enabled") is not False,
            min_cube_size=max(1, integer(spark, f"{cube}.threshold", bins.MIN_CUBE_SIZE)),
            target_cube_size=max(1, integer(spark, f"{cube}.targetCubeSize", bins.TARGET_CUBE_SIZE)),
            predicates=self._predicates(),
        )
        return optimize(log, request, run=OptimizeRunner(spark))

    def _where(self) -> str | None:
        return " AND ".join(f"({c})" for c in self._conditions) or None

    def _predicates(self) -> tuple[str, ...]:
        return tuple(p for c in self._conditions for p in history_predicates(self._spark, c))

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
    """The struct type of :func:`~trilake.delta.commands.optimize.metrics.as_row` for a dataclass of metrics."""
    hints = typing.get_type_hints(kind)
    return T.StructType([T.StructField(camel(f.name), _spark_type(hints[f.name])) for f in fields(kind)])


#: The row that the execute methods return.
RESULT = T.StructType([T.StructField("path", T.StringType()), T.StructField("metrics", struct_of(OptimizeMetrics))])


#: Bytes of files that one task reads.
_READ_BYTES = 256 << 20
#: Up to this number, each bin is a task; beyond it, small bins share tasks.
_FEW_TASKS = 256


@dataclass(frozen=True)
class OptimizeRunner(SparkRunner):
    """Runs the tasks of an optimization: bins as tasks of one job; large bins that are sorted use a shuffle."""

    width: int = 1
    #: The minimum bytes of a large bin.
    large: int = 4 << 30

    def __call__(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        if not isinstance(function, Rewrite):
            yield from super().__call__(function, tasks)
            return
        ordered = function.curve is not None
        large = [ordered and t.new_files > 1 and _size(t) >= self.large for t in tasks]
        small = [t for t, is_large in zip(tasks, large, strict=True) if not is_large]
        if small:
            partitions = max(_FEW_TASKS, sum(map(_size, small)) // _READ_BYTES)
            yield from SparkRunner(self.spark, width=-(-len(small) // partitions))(function, small)
        for task, is_large in zip(tasks, large, strict=True):
            if is_large:
                yield self._shuffled(function, task)

    def _shuffled(self, job: Rewrite, work: Bin) -> Rewritten:
        curve = job.curve
        assert curve is not None
        pieces = [replace(work, number=n, files=files) for n, files in enumerate(_pieces(work.files))]
        sample = pa.concat_tables(super().__call__(lambda piece: job.sample(piece, curve), pieces))
        ranges = curve.ranges(sample)
        sorted_sample = np.sort(curve.index(sample, ranges))
        ends = np.unique(
            sorted_sample[np.linspace(0, len(sorted_sample) - 1, work.new_files + 1).astype(np.int64)[1:-1]]
        )

        def divide(piece: Bin) -> Iterator[pa.RecordBatch]:
            for stretch, rows in divided(job.rows(piece.files), curve, ranges, ends):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
                    writer.write_table(rows)
                blob = pa.array([sink.getvalue().to_pybytes()], pa.binary())
                yield pa.RecordBatch.from_arrays([pa.array([stretch], pa.int32()), blob], ["stretch", "rows"])

        blobs = task_rows(self.spark, divide, pieces, "stretch int, rows binary")
        stretches = blobs.repartitionById(len(ends) + 1, "stretch")  # one partition each
        written = outcomes(map_in_arrow(stretches, _Write(job, work), PICKLED))
        return Rewritten(work.number, tuple(add for adds in written for add in adds))


def _size(work: Bin) -> int:
    return sum(f.file.size for f in work.files)


def _pieces(files: Sequence[ChangedFile]) -> list[tuple[ChangedFile, ...]]:
    out, size = list[list[ChangedFile]](), _READ_BYTES
    for f in files:
        if size >= _READ_BYTES:
            out.append([])
            size = 0
        out[-1].append(f)
        size += f.file.size
    return [tuple(group) for group in out]


@dataclass(frozen=True)
class _Write:
    """Sorts the rows of a stretch, collected in a temporary file, and writes them."""

    job: Rewrite
    work: Bin

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(prefix="trilake-stretch-") as folder:
            file, rows = Path(folder) / "rows", 0
            with pa.OSFile(str(file), "wb") as sink:
                for batch in batches:
                    for number, blob in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                        rows += _append(sink, blob)
                        stretch = number
            if rows:
                yield pickled(self._write(file, rows, stretch))

    def _write(self, file: Path, rows: int, stretch: int) -> list[dict[str, Any]]:
        job = self.job
        assert job.curve is not None
        ordered = in_curve_order(
            _stored(file), job.curve, count=rows, sample=lambda: _sampled(file, rows), memory=job.memory
        )
        files = replace(job.files, unbounded=self.work.unbounded)
        with TaskWriter(job.store, files, stretch) as writer:
            for table in ordered:
                writer.write_partition(self.work.partition, table)
            return writer.close()


def _append(sink: pa.NativeFile, blob: bytes) -> int:
    """Append an Arrow stream to a file, preceded by its length; returns the number of its rows."""
    sink.write(len(blob).to_bytes(8, "little"))
    sink.write(blob)
    with pa.ipc.open_stream(blob) as reader:
        return sum(b.num_rows for b in reader)


def _stored(file: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(file)) as source:
        while size := source.read(8):
            with pa.ipc.open_stream(source.read(int.from_bytes(size, "little"))) as reader:
                yield from reader


def _sampled(file: Path, rows: int) -> pa.Table:
    share = min(1.0, SAMPLE_ROWS / rows)
    return pa.Table.from_batches(
        b.take(pa.array(sample_indexes(b.num_rows, max(1, int(np.ceil(b.num_rows * share)))))) for b in _stored(file)
    )
