"""The rows of a small batch of a stream over a Delta table, read in this process.

A task of Spark's that reads through Python takes 50 to 100 ms before its first row, and so does the plan of Spark's own
scan.  A few small files are read here in a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.delta.scan.scan import FileTask, ReadPlan
from trilake.spark.delta.stream.source import DeltaStreamReader, StreamPartition
from trilake.spark.session.schemas import to_spark

#: Files, and bytes of their rows in memory, up to which they are read here.
MOST_FILES, MOST_BYTES = 16, 64 << 20
#: Types that Spark has forms of its own for, on their way in and out.
_OWN_FORMS = ("variant", "void")


@dataclass(frozen=True)
class BatchRows:
    """The rows of a batch: as a frame, and as they are where they were read here and need no step of Spark's."""

    make: Callable[[], DataFrame]
    here: pa.Table | None = None

    @cached_property
    def frame(self) -> DataFrame:
        """The rows as a frame."""
        return self.make()


def few_rows(
    reader: DeltaStreamReader, schema: T.StructType, tasks: Sequence[FileTask], plan: ReadPlan
) -> pa.Table | None:
    """The rows of the files; ``None`` where they are many, or Spark may see them otherwise.

    Raises as a task that reads them would.
    """
    if len(tasks) > MOST_FILES or not _as_stored(reader, schema):
        return None
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in reader.read(StreamPartition(list(tasks), plan)):
        batches.append(batch)
        size += batch.nbytes
        if size > MOST_BYTES:
            return None
    return pa.Table.from_batches(batches, reader.declared)


def _as_stored(reader: DeltaStreamReader, schema: T.StructType) -> bool:
    """Whether the columns have the types of the table as it is now: what it was when the query began is not known."""
    types = {f.name.lower(): f.dataType.simpleString() for f in to_spark(reader.stream.reading.metadata.schema)}
    kinds = [(types.get(f.name.lower()), f.dataType.simpleString()) for f in schema]
    return all(stored == wanted and not any(n in wanted for n in _OWN_FORMS) for stored, wanted in kinds)
