"""``LanceDataset.sql``: query one version of a dataset with DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, ROW_ID
from trilake.lance.scan.functions import in_duckdbs_words
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.table import LanceTable
from trilake.table.table import FilterLike

#: The module that runs queries, imported by name because it belongs to a higher layer.
_QUERIES = "trilake.sql.duckdb.run"


@dataclass(frozen=True)
class SqlQuery:
    """A query; each call that returns rows runs it again."""

    sql: str
    rows: RowsWithIds
    name: str
    rows_of_a_batch: int | None = None

    def to_table(self) -> pa.Table:
        """Return the result as a table.

        Raises ``SqlTextError`` if the SQL is not a query, and ``InvalidArgumentError`` for other errors.
        """
        result: pa.Table = import_module(_QUERIES).query(in_duckdbs_words(self.sql), {self.name: self.rows})
        return result

    def to_batch_records(self) -> list[pa.RecordBatch]:
        """Return the result as batches."""
        batches: list[pa.RecordBatch] = self.to_table().to_batches(max_chunksize=self.rows_of_a_batch)
        return batches

    def to_stream_reader(self) -> pa.RecordBatchReader:
        """Return the result as a stream."""
        return self.to_table().to_reader(max_chunksize=self.rows_of_a_batch)


@dataclass(frozen=True)
class SqlQueryBuilder:
    """Builder of a query."""

    sql: str
    snapshot: Snapshot
    name: str = "dataset"
    rows_of_a_batch: int | None = None
    row_metadata: tuple[str, ...] = ()

    def table_name(self, table_name: Any) -> SqlQueryBuilder:
        """Set the name of the dataset in the query, by default ``dataset``."""
        if not isinstance(table_name, str) or not table_name:
            raise WrongTypeError(f"the table name must be a string, got {table_name!r}")
        return replace(self, name=table_name)

    def with_row_id(self, with_row_id: bool = True) -> SqlQueryBuilder:
        """Add a column ``_rowid`` to the dataset."""
        return self._with_row_metadata(ROW_ID, with_row_id)

    def with_row_addr(self, with_row_addr: bool = True) -> SqlQueryBuilder:
        """Add a column ``_rowaddr`` to the dataset."""
        return self._with_row_metadata(ROW_ADDRESS, with_row_addr)

    def _with_row_metadata(self, name: str, enabled: bool) -> SqlQueryBuilder:
        others = tuple(each for each in self.row_metadata if each != name)
        return replace(self, row_metadata=(*others, name) if enabled else others)

    def batch_size(self, batch_size: Any) -> SqlQueryBuilder:
        """Set the maximum number of rows in a batch."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise InvalidArgumentError(f"batch_size must be a positive integer, got {batch_size!r}")
        return replace(self, rows_of_a_batch=batch_size)

    def build(self) -> SqlQuery:
        return SqlQuery(self.sql, RowsWithIds(self.snapshot, self.row_metadata), self.name, self.rows_of_a_batch)


class RowsWithIds(LanceTable):
    """The rows of a version, with row id and address columns."""

    def __init__(self, snapshot: Snapshot, row_metadata: Sequence[str] = ()) -> None:
        self.uri, self.snapshot = snapshot.store.uri, snapshot
        self.row_metadata = tuple(name for name in row_metadata if name not in snapshot.schema.names)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.snapshot.schema, *(pa.field(name, pa.uint64()) for name in self.row_metadata)])

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: FilterLike | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows as batches.  Filters cannot use the row id and address columns."""
        names = self.schema.names if columns is None else list(columns)
        if not set(names) & set(self.row_metadata):
            yield from super().to_batches(columns, filter)
            return
        schema = self.projected_schema(names)
        columns = [n for n in schema.names if n not in self.row_metadata]
        plan = self.snapshot.plan(
            columns, filter, row_metadata=tuple(n for n in schema.names if n in self.row_metadata)
        )
        for batch in self.snapshot.scan(plan):
            yield batch.select(schema.names)
