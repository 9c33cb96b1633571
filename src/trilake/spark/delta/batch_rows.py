"""Read the rows of a small streaming batch over a Delta table in this process.

A Spark task that reads through Python takes 50 to 100 ms before its first row, and so does planning Spark's own scan.
Here, a few small files take a few milliseconds.
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

#: Limits on files, and on the bytes of their rows in memory.
MOST_FILES, MOST_BYTES = 16, 64 << 20
#: Types that Spark converts between Arrow and its rows.
_OWN_FORMS = ("variant", "void")


@dataclass(frozen=True)
class BatchRows:
    """The rows of a batch as a frame; ``here`` has them as Arrow, if this process read them and the query has no
    steps.
    """

    make: Callable[[], DataFrame]
    here: pa.Table | None = None

    @cached_property
    def frame(self) -> DataFrame:
        """The rows as a frame."""
        return self.make()


def few_rows(
    reader: DeltaStreamReader, schema: T.StructType, tasks: Sequence[FileTask], plan: ReadPlan
) -> pa.Table | None:
    """The rows of the files; ``None`` if there are too many, or Spark may convert them."""
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
    """Whether the columns have the table's current types."""
    types = {f.name.lower(): f.dataType.simpleString() for f in to_spark(reader.stream.reading.metadata.schema)}
    kinds = [(types.get(f.name.lower()), f.dataType.simpleString()) for f in schema]
    return all(stored == declared and not any(n in declared for n in _OWN_FORMS) for stored, declared in kinds)
