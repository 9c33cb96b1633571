"""Rows on their way from a Python data source into Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from trilake.errors import SchemaMismatchError

#: Rows that go to Spark at a time, at most: it decodes one batch while the next is on its way, the sooner the shorter.
BATCH_ROWS = 20_000


def short_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in their order, ``BATCH_ROWS`` at a time; nothing is copied."""
    for start in range(0, max(batch.num_rows, 1), BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


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
