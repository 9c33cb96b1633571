"""What callers pass for data, as a schema and batches of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from trilake.errors import InvalidArgumentError, SchemaMismatchError

#: Rows that are turned into one batch.
_ROWS = 1 << 14


def as_batches(data: Any, schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch | pa.Table]]:
    """The schema of what a caller passed for data, and its batches; see :func:`trilake.trevni.write`."""
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
        f"a {type(data).__name__} is not data that can be written",
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
        return _from_rows(chain([first], items), schema)
    raise InvalidArgumentError(f"a {type(first).__name__} is neither a batch nor a row")


def _from_rows(
    rows: Iterator[Mapping[str, Any]], schema: pa.Schema | None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    first = _row_batch(list(islice(rows, _ROWS)), schema)
    return first.schema, _row_batches(first, rows)


def _row_batches(first: pa.RecordBatch, rows: Iterator[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    yield first
    while part := list(islice(rows, _ROWS)):
        yield _row_batch(part, first.schema)


def _row_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None) -> pa.RecordBatch:
    """Rows as a batch; without a schema, of all columns that any of them has."""
    for row in rows:
        if not isinstance(row, Mapping):
            raise SchemaMismatchError(f"a {type(row).__name__} is not a row", help="pass each row as a dictionary")
    names = list(dict.fromkeys(name for row in rows for name in row))
    wanted = names if schema is None else schema.names
    if schema is not None:
        extra = [name for name in names if name not in set(wanted)]
        if extra:
            raise SchemaMismatchError(
                f"a row has {', '.join(map(repr, extra))}, which the columns have not",
                help="pass the schema of all rows",
            )
    try:
        arrays = [
            pa.array([row.get(name) for row in rows], None if schema is None else schema.field(name).type)
            for name in wanted
        ]
        return pa.RecordBatch.from_arrays(arrays, wanted if schema is None else None, schema=schema)
    except (pa.ArrowException, ValueError, TypeError) as e:
        raise SchemaMismatchError(f"the rows cannot become Arrow columns: {e}") from e
