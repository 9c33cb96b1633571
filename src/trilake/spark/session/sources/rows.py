"""Rows on their way from a Python data source into Spark."""

from __future__ import annotations

import pyarrow as pa

from trilake.errors import SchemaMismatchError


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
