"""A table as a ``pyarrow.dataset.Dataset``, for duckdb, polars and others.

The table's scan skips files by the filter, and handles deleted rows, renamed columns and partition values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from trilake.common.arrow_types import mapped, nulls
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TrilakeError
from trilake.expr.views import retyped


class Rows(Protocol):
    """The rows behind a dataset."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""

    def to_reader(self, columns: Sequence[str] | None = None, filter: Any = None) -> pa.RecordBatchReader:
        """The rows of some columns for which ``filter`` is true."""

    def count(self, filter: Any = None) -> int:
        """The number of rows for which ``filter`` is true."""


class TableDataset(ds.Dataset):
    """The rows of an open table; engines select columns and rows.  ``where`` is a filter for all reads."""

    def __init__(self, table: Rows, where: ds.Expression | None = None) -> None:
        # The parent cannot be created from Python; its public methods that need it are replaced below.
        self.table, self.where = table, where

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def partition_expression(self) -> ds.Expression:
        """True: the table's scan handles partitions."""
        return ds.scalar(True)

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, ds.Expression] | None = None,
        filter: ds.Expression | None = None,
        batch_size: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        fragment_scan_options: ds.FragmentScanOptions | None = None,
        use_threads: bool = True,
        cache_metadata: bool = True,
        memory_pool: pa.MemoryPool | None = None,
    ) -> ds.Scanner:
        """Scan ``columns`` of the rows for which ``filter`` is true; the result can be read once.

        Parameters after ``batch_size`` only affect how Arrow reads files, which the table's scan does itself.
        """
        del batch_readahead, fragment_readahead, fragment_scan_options, use_threads, cache_metadata, memory_pool
        reader = self._read(None if isinstance(columns, Mapping) else columns, self._with(filter))
        how = {"columns": dict(columns)} if isinstance(columns, Mapping) else {}
        return ds.Scanner.from_batches(reader, **how, **({} if batch_size is None else {"batch_size": batch_size}))

    def _with(self, filter: ds.Expression | None) -> ds.Expression | None:
        if filter is None or self.where is None:
            return self.where if filter is None else filter
        return self.where & filter

    def _read(self, columns: Sequence[str] | None, filter: ds.Expression | None) -> pa.RecordBatchReader:
        names = None if columns is None else list(columns)
        if filter is None:
            return self.table.to_reader(names)
        try:
            return self.table.to_reader(names, filter)
        except TrilakeError:
            # An unsupported expression: read all rows and let Arrow apply it.
            rows = ds.Scanner.from_batches(self.table.to_reader(), filter=filter, columns=names)
            return rows.to_reader()

    def to_table(self, *args: Any, **kwargs: Any) -> pa.Table:
        """The rows as one table; parameters are those of :meth:`scanner`."""
        return self.scanner(*args, **kwargs).to_table()

    def to_batches(self, *args: Any, **kwargs: Any) -> Iterator[pa.RecordBatch]:
        """The rows in batches; parameters are those of :meth:`scanner`."""
        batches: Iterator[pa.RecordBatch] = self.scanner(*args, **kwargs).to_batches()
        return batches

    def head(self, num_rows: int, **kwargs: Any) -> pa.Table:
        """The first rows that arrive; no more files are read than needed."""
        return self.scanner(**kwargs).head(num_rows)

    def take(self, indices: Any, **kwargs: Any) -> pa.Table:
        """Rows by position in a scan, whose order is undefined."""
        return self.to_table(**kwargs).take(indices)

    def count_rows(self, filter: ds.Expression | None = None, **kwargs: Any) -> int:
        """The number of rows, from the metadata alone where that is exact.

        Other parameters are those of :meth:`scanner`.
        """
        if kwargs:
            return int(self.scanner([], filter, **kwargs).count_rows())
        both = self._with(filter)
        try:
            return self.table.count(both)
        except TrilakeError:
            return sum(b.num_rows for b in self._read(None, both))

    def filter(self, expression: ds.Expression) -> TableDataset:
        """The same dataset with another filter."""
        return TableDataset(self.table, self._with(expression))

    def sort_by(self, sorting: Any, **kwargs: Any) -> ds.InMemoryDataset:
        """The sorted rows, in memory; parameters are those of ``pyarrow.Table.sort_by``."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **kwargs))

    def get_fragments(self, filter: ds.Expression | None = None) -> Iterator[ds.Fragment]:
        """One in-memory fragment with the rows."""
        return iter(ds.InMemoryDataset(self.to_table(filter=filter)).get_fragments())

    def join(self, right_dataset: Any, *args: Any, **kwargs: Any) -> ds.InMemoryDataset:
        """Join with another dataset, in memory; parameters are those of ``pyarrow.Table.join``."""
        return ds.InMemoryDataset(self.to_table().join(_in_memory(right_dataset), *args, **kwargs))

    def join_asof(self, right_dataset: Any, *args: Any, **kwargs: Any) -> ds.InMemoryDataset:
        """Join with the nearest keys of another dataset; parameters are those of ``pyarrow.Table.join_asof``."""
        return ds.InMemoryDataset(self.to_table().join_asof(_in_memory(right_dataset), *args, **kwargs))

    def replace_schema(self, schema: pa.Schema) -> ds.InMemoryDataset:
        """The rows with the columns of ``schema``, in memory, for ``pyarrow.dataset.dataset([this, other])``.

        Missing columns are null.  Raises ``InvalidArgumentError`` if values do not fit its types.
        """
        rows = self.to_table([name for name in schema.names if name in self.schema.names])
        columns = []
        for field in schema:
            try:
                has = field.name in rows.column_names
                columns.append(rows[field.name].cast(field.type) if has else nulls(rows.num_rows, field.type))
            except pa.ArrowException as e:
                raise InvalidArgumentError(
                    f"column {field.name} of type {self.schema.field(field.name).type} cannot be cast to {field.type}:"
                    f" {e}",
                    help="select and cast columns in the scan instead",
                    column=field.name,
                ) from e
        return ds.InMemoryDataset(pa.Table.from_arrays(columns, schema=schema))

    def __reduce__(self) -> tuple[Any, ...]:
        return TableDataset, (self.table, self.where)

    def __repr__(self) -> str:
        return f"<TableDataset of {self.table!r}>"


def _in_memory(right: Any) -> pa.Table:
    return right.to_table() if isinstance(right, ds.Dataset) else right


# --- DuckDB's types: 16-bit floats become 32-bit, and durations microseconds ------------------------------------------
# DuckDB turns durations into intervals and drops everything below a microsecond.  It returns intervals in nanoseconds,
# of which 64 bits hold 292 years.

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
        raise _rejected(field, str(e)) from e
    if pa.types.is_duration(field.type):
        bounds = pc.min_max(fitted.cast(pa.int64()))
        if any(b is not None and abs(b) > _LONGEST for b in (bounds["min"].as_py(), bounds["max"].as_py())):
            raise _rejected(field, "it is longer than 292 years")
    return fitted


def _rejected(field: pa.Field, reason: str) -> SchemaMismatchError:
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
    return retyped(schema, lambda t: mapped(t, _duckdb_type))


def _duckdb_type(t: pa.DataType) -> pa.DataType:
    if pa.types.is_float16(t):
        return pa.float32()
    return pa.duration("us") if pa.types.is_duration(t) else t
