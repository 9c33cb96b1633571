"""Rows on their way from a Python data source to Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from trilake.errors import SchemaMismatchError

#: The limits of a batch for Spark.  A task holds two batches: one is being decoded, one is in transit.
BATCH_ROWS, BATCH_BYTES = 1 << 16, 32 << 20


def short_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slice a batch to the size for Spark, without a copy."""
    rows = min(BATCH_ROWS, max(1, BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1)))
    for start in range(0, max(batch.num_rows, 1), rows):
        yield batch.slice(start, rows)


def as_declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast rows to exactly the schema that Spark expects, which may come from the user.

    Raises ``SchemaMismatchError`` if a value does not fit.
    """
    if batch.schema.equals(schema):
        return batch
    try:
        return batch.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as e:
        raise SchemaMismatchError(
            f"the rows do not fit the schema of the read: {e}",
            help="leave .schema(...) out, or pass the table's own types",
        ) from e
