"""Convert rows to DuckDB's types: 16-bit floats become 32-bit, and durations microseconds.

DuckDB turns durations into intervals and drops everything below a microsecond.  It returns intervals in nanoseconds, of
which 64 bits hold 292 years.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import mapped
from trilake.errors import SchemaMismatchError, TrilakeError
from trilake.table.relations.dataset import Rows

T = TypeVar("T", pa.RecordBatch, pa.Table)
_LONGEST = (2**63 - 1) // 1000


class WatchedRows:
    """A table's rows for DuckDB; errors go to ``errors``, because DuckDB turns them into strings."""

    def __init__(self, table: Rows, errors: list[TrilakeError]) -> None:
        self.table, self.errors = table, errors

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return duckdb_schema(self.table.schema)

    def count(self, filter: Any = None) -> int:
        """The number of rows for which ``filter`` is true."""
        return self.table.count(filter)

    def to_reader(self, columns: Sequence[str] | None = None, filter: Any = None) -> pa.RecordBatchReader:
        """The rows of some columns for which ``filter`` is true."""
        reader = self.table.to_reader(columns, filter)
        return pa.RecordBatchReader.from_batches(duckdb_schema(reader.schema), self._batches(reader))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from map(duckdb_rows, reader)
        except TrilakeError as e:
            self.errors.append(e)
            raise


def duckdb_rows(rows: T) -> T:
    """Convert rows to DuckDB's types; unchanged where they fit.

    Raises ``SchemaMismatchError`` for a duration that DuckDB would change.
    """
    schema = duckdb_schema(rows.schema)
    if schema is rows.schema and not any(map(pa.types.is_duration, schema.types)):
        return rows
    columns = [_fitted(c, f) for c, f in zip(rows.columns, schema, strict=True)]
    converted: T = type(rows).from_arrays(columns, schema=schema)
    return converted


def _fitted(column: Any, field: pa.Field) -> Any:
    try:
        fitted = column.cast(field.type)
    except pa.ArrowInvalid as e:
        raise _refused(field, str(e)) from e
    if pa.types.is_duration(field.type):
        bounds = pc.min_max(fitted.cast(pa.int64()))
        if any(b is not None and abs(b) > _LONGEST for b in (bounds["min"].as_py(), bounds["max"].as_py())):
            raise _refused(field, "it is longer than 292 years")
    return fitted


def _refused(field: pa.Field, reason: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"DuckDB does not support a value of column {field.name}: {reason}",
        help="leave the column out, or read it as Arrow",
        column=field.name,
    )


def duckdb_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with DuckDB's types at every depth; itself if nothing changes.

    >>> duckdb_schema(pa.schema([("v", pa.list_(pa.float16(), 2))])).field("v").type
    FixedSizeListType(fixed_size_list<item: float>[2])
    """
    fields = [f.with_type(mapped(f.type, _duckdb_type)) for f in schema]
    return schema if all(a.type == b.type for a, b in zip(schema, fields, strict=True)) else pa.schema(fields)


def _duckdb_type(t: pa.DataType) -> pa.DataType:
    if pa.types.is_float16(t):
        return pa.float32()
    return pa.duration("us") if pa.types.is_duration(t) else t
