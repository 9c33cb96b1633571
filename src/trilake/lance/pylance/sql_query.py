"""``LanceDataset.sql``: queries over one version of a dataset, which the room of SQL runs without Spark."""

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

#: What runs queries.  It is left of this room, which knows it by name alone.
_QUERIES = "trilake.sql.duckdb.run"


@dataclass(frozen=True)
class SqlQuery:
    """A query that was described and not begun; each call that returns rows runs it anew."""

    text: str
    rows: PlacedRows
    name: str
    rows_of_a_batch: int | None = None

    def to_table(self) -> pa.Table:
        """The rows of the result.

        Raises ``SqlTextError`` for SQL that is not a query, and ``InvalidArgumentError`` for what is wrong in it.
        """
        result: pa.Table = import_module(_QUERIES).query(in_duckdbs_words(self.text), {self.name: self.rows})
        return result

    def to_batch_records(self) -> list[pa.RecordBatch]:
        """The rows of the result as batches.  Raises as :meth:`to_table`."""
        batches: list[pa.RecordBatch] = self.to_table().to_batches(max_chunksize=self.rows_of_a_batch)
        return batches

    def to_stream_reader(self) -> pa.RecordBatchReader:
        """The rows of the result as a stream.  Raises as :meth:`to_table`."""
        return self.to_table().to_reader(max_chunksize=self.rows_of_a_batch)


@dataclass(frozen=True)
class SqlQueryBuilder:
    """Describes a query step by step; :meth:`build` gives it."""

    text: str
    snapshot: Snapshot
    name: str = "dataset"
    rows_of_a_batch: int | None = None
    places: tuple[str, ...] = ()

    def table_name(self, table_name: Any) -> SqlQueryBuilder:
        """What the query calls the dataset; ``dataset`` otherwise."""
        if not isinstance(table_name, str) or not table_name:
            raise WrongTypeError(f"the name of the table is {table_name!r}", help="pass a text")
        return replace(self, name=table_name)

    def with_row_id(self, with_row_id: bool = True) -> SqlQueryBuilder:
        """Give the dataset a column ``_rowid`` for the query."""
        return self._with_place(ROW_ID, with_row_id)

    def with_row_addr(self, with_row_addr: bool = True) -> SqlQueryBuilder:
        """Give the dataset a column ``_rowaddr`` for the query, which says where a row is."""
        return self._with_place(ROW_ADDRESS, with_row_addr)

    def _with_place(self, name: str, wanted: bool) -> SqlQueryBuilder:
        others = tuple(place for place in self.places if place != name)
        return replace(self, places=(*others, name) if wanted else others)

    def batch_size(self, batch_size: Any) -> SqlQueryBuilder:
        """Rows of a batch at most."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise InvalidArgumentError(f"batch_size is {batch_size!r}", help="it must be a number of 1 or more")
        return replace(self, rows_of_a_batch=batch_size)

    def build(self) -> SqlQuery:
        """The query."""
        return SqlQuery(self.text, PlacedRows(self.snapshot, self.places), self.name, self.rows_of_a_batch)


class PlacedRows(LanceTable):
    """The rows of a version, with columns that say where each is."""

    def __init__(self, snapshot: Snapshot, places: Sequence[str] = ()) -> None:
        self.uri, self.snapshot = snapshot.store.uri, snapshot
        self.places = tuple(place for place in places if place not in snapshot.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return pa.schema([*self.snapshot.schema, *(pa.field(place, pa.uint64()) for place in self.places)])

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: FilterLike | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows as batches.  Filters cannot name the columns that say where a row is."""
        names = self.schema.names if columns is None else list(columns)
        if not set(names) & set(self.places):
            yield from super().to_batches(columns, filter)
            return
        wanted = self.projected_schema(names)
        columns = [n for n in wanted.names if n not in self.places]
        plan = self.snapshot.plan(columns, filter, places=tuple(n for n in wanted.names if n in self.places))
        for batch in self.snapshot.scan(plan):
            yield batch.select(wanted.names)
