"""Convert input rows to a schema and batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from trilake.errors import InvalidArgumentError, SchemaMismatchError

#: Rows per batch.
_ROWS = 1 << 14


def as_batches(data: Any, schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch | pa.Table]]:
    """Return the schema and batches of any input that :func:`trilake.trevni.write` accepts."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return schema or data.schema, iter([data])
    if isinstance(data, Mapping):
        table = pa.table(dict(data), schema=schema)
        return table.schema, iter([table])
    if not isinstance(data, pa.RecordBatchReader) and hasattr(data, "__arrow_c_stream__"):
        data = pa.RecordBatchReader.from_stream(data)
    if isinstance(data, pa.RecordBatchReader):
        return schema or data.schema, iter(data)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _from_items(iter(data), schema)
    raise InvalidArgumentError(
        f"expected data to write, got {type(data).__name__}",
        help="pass an Arrow table, batches, or rows as dictionaries",
    )


def _from_items(
    items: Iterator[Any], schema: pa.Schema | None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch | pa.Table]]:
    first = next(items, None)
    if first is None:
        return schema or pa.schema([]), iter(())
    if isinstance(first, pa.RecordBatch | pa.Table):
        return schema or first.schema, chain([first], items)
    if isinstance(first, Mapping):
        batch = _row_batch([first, *islice(items, _ROWS - 1)], schema)
        parts = iter(lambda: list(islice(items, _ROWS)), [])
        return batch.schema, chain([batch], (_row_batch(part, batch.schema) for part in parts))
    raise InvalidArgumentError(f"expected a batch or a row, got {type(first).__name__}")


def _row_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None) -> pa.RecordBatch:
    """Convert rows to a batch; without a schema, its columns are those of all rows."""
    for row in rows:
        if not isinstance(row, Mapping):
            raise SchemaMismatchError(f"expected a row, got {type(row).__name__}", help="pass rows as dictionaries")
    names = list(dict.fromkeys(name for row in rows for name in row))
    if schema is not None:
        extra = [name for name in names if name not in set(schema.names)]
        if extra:
            raise SchemaMismatchError(
                f"a row has {', '.join(map(repr, extra))}, which the schema lacks", help="pass the schema of all rows"
            )
        names = schema.names
    try:
        arrays = [
            pa.array([row.get(name) for row in rows], None if schema is None else schema.field(name).type)
            for name in names
        ]
        return pa.RecordBatch.from_arrays(arrays, names if schema is None else None, schema=schema)
    except (pa.ArrowException, ValueError, TypeError) as e:
        raise SchemaMismatchError(f"the rows cannot become Arrow columns: {e}") from e
