"""Running a function over a list of tasks as one Spark job: for commands that look into many files."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from trilake.delta.row_changes import run_here


@dataclass(frozen=True)
class SparkRunner:
    """A :data:`trilake.delta.row_changes.Runner` whose tasks run on Spark's executors.

    A single task runs in this process: a job would cost more than it saves.
    """

    spark: SparkSession
    #: Tasks of one Spark partition at most, so that a failure repeats little.
    width: int = 16

    def __call__(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        if len(tasks) < 2:
            yield from run_here(function, tasks)
            return
        # As rows of bytes, not as an RDD: Spark Connect has DataFrames only.
        rows = pa.table({"task": pa.array([pickle.dumps(t) for t in tasks], pa.binary())})
        partitions = max(2, -(-len(tasks) // self.width))
        frame = self.spark.createDataFrame(rows).repartition(partitions)
        for row in frame.mapInArrow(_Apply(function), "outcome binary").collect():
            yield pickle.loads(row.outcome)


@dataclass(frozen=True)
class _Apply:
    function: Callable[[Any], Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                outcome = pickle.dumps(self.function(pickle.loads(task)))
                yield pa.RecordBatch.from_arrays([pa.array([outcome], pa.binary())], ["outcome"])
