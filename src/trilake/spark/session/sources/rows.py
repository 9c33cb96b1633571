"""Rows on their way from a Python data source into Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from trilake.errors import SchemaMismatchError

#: Rows and bytes that go to Spark at a time, at most: of short batches many would wait for each other, and a task keeps
#: two of them, one that it decodes and one on its way.
BATCH_ROWS, BATCH_BYTES = 1 << 16, 32 << 20


def short_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in their order, as many at a time as Spark is to get; nothing is copied."""
    rows = min(BATCH_ROWS, max(1, BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1)))
    for start in range(0, max(batch.num_rows, 1), rows):
        yield batch.slice(start, rows)


def as_declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows under exactly the schema that Spark expects, which a user may have given.

    Raises ``SchemaMismatchError`` where a value does not fit its type.
    """
    if batch.schema.equals(schema):
        return batch
    try:
        return batch.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as e:
        raise SchemaMismatchError(
            f"the rows do not fit the schema given: {e}", help="leave .schema(...) out, or give the table's own types"
        ) from e
