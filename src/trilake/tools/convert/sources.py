"""What is read: a table of any format, cut into pieces that tasks read one by one.

A piece can be pickled and opens its files itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from trilake.common.timestamps import TimestampLike
from trilake.delta.scan.read import read_tasks
from trilake.delta.scan.scan import FileTask, ReadPlan, plan_scan
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.expr import Filter, parse_filter
from trilake.storage.base import Store
from trilake.table import registry
from trilake.table.table import FilterLike, Table
from trilake.tools.convert import parquet
from trilake.tools.convert.columns import check_columns, fitted, from_delta, plain_schema
from trilake.trevni.tables.dataset import read_split
from trilake.trevni.tables.table import TrevniTable

if TYPE_CHECKING:
    from trilake.lance.file.schema import LanceSchema
    from trilake.lance.versions.manifest import Fragment
    from trilake.trevni.tables.dataset import DataFile, Split

PARQUET = "parquet"
#: Bytes of files that a task in Spark reads.
_TASK_SIZE = 128 << 20


class Piece(Protocol):
    """Some of the rows."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in the columns and types of the source's schema."""


@dataclass(frozen=True)
class Source:
    """Rows to be converted.

    ``schema`` has the columns that are wanted, ``partition_by`` those of them that the source is partitioned by,
    ``rows`` their number where that is known without reading; ``whole`` are all rows for one task, ``tasks`` the same
    rows for as many as there are to be, which ``cut`` finds by the sizes of files.
    """

    uri: str
    format: str
    version: int | None
    schema: pa.Schema
    partition_by: tuple[str, ...]
    rows: int | None
    whole: tuple[Piece, ...]
    cut: Callable[[], tuple[tuple[Piece, ...], ...]]
    tasks: tuple[tuple[Piece, ...], ...] = ()


def open_source(
    store: Store,
    *,
    format: str | None,
    version: int | None,
    timestamp: TimestampLike | None,
    columns: Sequence[str] | None,
    filter: FilterLike | None,
    distributed: bool = False,
) -> Source:
    """Open a table of a format, or of the one that is found, and cut it into pieces: one, unless ``distributed``.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``InvalidArgumentError``, ``FilterError`` and what opening
    a table raises.
    """
    name = format_at(store) if format is None else format.lower()
    wanted = None if columns is None else list(columns)
    if name == PARQUET:
        if version is not None or timestamp is not None:
            raise InvalidArgumentError("Parquet files have no versions", help="leave version and timestamp out")
        return _cut(_parquet(store, wanted, filter), distributed)
    if name is None:
        raise TableNotFoundError(
            "there is no table, dataset or folder of a known format", help="check the path", file=store.uri
        )
    if name not in registry.names():
        raise InvalidArgumentError(f"format {format!r} is unknown", help=f"formats are {', '.join(names())}")
    table = registry.format_named(name).open(store, version, timestamp)
    if isinstance(table, ArrowDeltaTable):
        return _cut(_delta(table, wanted, filter), distributed)
    return _cut((_lance if name == "lance" else _trevni)(table, wanted, filter), distributed)


def _cut(source: Source, distributed: bool) -> Source:
    return replace(source, tasks=source.cut() if distributed else (source.whole,))


def names() -> list[str]:
    """The formats that can be converted from and to."""
    return sorted([*registry.names(), PARQUET])


def format_at(store: Store) -> str | None:
    """The format of what is at a location; ``None`` where nothing is."""
    for row in registry.rows():
        if row.load().detect(store):
            return row.name
    return PARQUET if parquet.exists(store) else None


def _packed(sized: Sequence[tuple[Any, int]]) -> list[list[Any]]:
    """Items in runs of about the size of a task."""
    runs: list[list[Any]] = []
    size = 0
    for item, item_size in sized:
        if not runs or size + item_size > _TASK_SIZE:
            runs.append([])
            size = 0
        runs[-1].append(item)
        size += item_size
    return runs


# --- Delta -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeltaPiece:
    """Files of a Delta table."""

    store: Store
    tasks: tuple[FileTask, ...]
    plan: ReadPlan
    schema: pa.Schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in read_tasks(self.store, self.tasks, self.plan):
            yield fitted(batch, self.schema)


def _delta(table: ArrowDeltaTable, columns: list[str] | None, filter: FilterLike | None) -> Source:
    whole = from_delta(table.snapshot.schema)
    names = check_columns(columns, whole, table.uri)
    scan = plan_scan(table.snapshot, names, filter)
    schema = pa.schema([whole.field(n) for n in names])
    # Files may lack columns that the table requires: what is read is nullable, what is written is checked.
    read = pa.schema([f.with_nullable(True) for f in schema])
    store, files = table.log.store, scan.tasks()

    def piece(some: Sequence[FileTask]) -> DeltaPiece:
        return DeltaPiece(store, tuple(some), scan.plan, read)

    return Source(
        uri=table.uri,
        format="delta",
        version=table.version,
        schema=schema,
        partition_by=tuple(c for c in scan.plan.partition_columns if c in names),
        rows=table.count() if filter is None else None,
        whole=(piece(files),),
        cut=lambda: tuple((piece(run),) for run in _packed([(f, f.size) for f in files])),
    )


# --- Lance -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LancePiece:
    """Fragments of a Lance dataset."""

    store: Store
    fragments: tuple[Fragment, ...]
    stored: LanceSchema
    columns: tuple[str, ...]
    filter: Filter | None

    def batches(self) -> Iterator[pa.RecordBatch]:
        from trilake.lance.file.schema import LanceSchema
        from trilake.lance.file.view import View
        from trilake.lance.scan.fragment_reader import FragmentReader
        from trilake.lance.scan.scan import ScanPlan, scan

        view = View(self.stored)
        by_name = {f.name: f for f in view.schema.fields}
        columns = LanceSchema(tuple(by_name[n] for n in self.columns), view.schema.metadata)
        readers = [FragmentReader(self.store, f, self.stored) for f in self.fragments]
        yield from scan(ScanPlan(view, columns, self.filter, batch_size=_LANCE_BATCH), readers)


_LANCE_BATCH = 1 << 16


def _lance(table: Table, columns: list[str] | None, filter: FilterLike | None) -> Source:
    from trilake.lance.table import LanceTable

    assert isinstance(table, LanceTable)
    snapshot = table.snapshot
    names = check_columns(columns, table.schema, table.uri)
    bound = snapshot.filter(filter)

    def piece(some: Sequence[Fragment]) -> LancePiece:
        return LancePiece(snapshot.store, tuple(some), snapshot.manifest.schema, tuple(names), bound)

    fragments = snapshot.manifest.fragments

    def sized() -> list[tuple[Fragment, int]]:
        return [(f, sum(e.size_bytes or snapshot.store.head(e.key).size for e in f.files)) for f in fragments]

    whole = plain_schema(table.schema)
    return Source(
        uri=table.uri,
        format="lance",
        version=table.version,
        schema=pa.schema([whole.field(n) for n in names], whole.metadata),
        partition_by=(),
        rows=table.count() if filter is None else None,
        whole=(piece(fragments),),
        cut=lambda: tuple((piece(run),) for run in _packed(sized())),
    )


# --- Trevni ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrevniPiece:
    """Files of a Trevni table, or parts of them."""

    splits: tuple[Split, ...]
    schema: pa.Schema
    columns: tuple[str, ...]
    filter: Filter | None

    def batches(self) -> Iterator[pa.RecordBatch]:
        for split in self.splits:
            yield from read_split(split, self.schema, self.columns, self.filter)


def _trevni(table: Table, columns: list[str] | None, filter: FilterLike | None) -> Source:
    assert isinstance(table, TrevniTable)
    names = check_columns(columns, table.schema, table.uri)
    bound = parse_filter(filter, table.schema)

    def piece(some: Sequence[Split]) -> TrevniPiece:
        return TrevniPiece(tuple(some), table.schema, tuple(names), bound)

    splits = table.splits(filter)
    whole = plain_schema(table.schema)
    partition = () if not splits else tuple(n for n, _ in splits[0].partition if n in names)
    return Source(
        uri=table.uri,
        format="trevni",
        version=None,
        # A file may lack what another has.
        schema=pa.schema([whole.field(n) for n in names], whole.metadata),
        partition_by=partition,
        rows=table.count() if filter is None else None,
        whole=(piece(splits),),
        cut=lambda: tuple((piece([split]),) for split in splits),
    )


# --- Parquet ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetPiece:
    """Files of a folder of Parquet files."""

    store: Store
    files: tuple[DataFile, ...]
    schema: pa.Schema
    columns: tuple[str, ...]
    filter: Filter | None

    def batches(self) -> Iterator[pa.RecordBatch]:
        return parquet.read_files(self.store, self.files, self.schema, self.columns, self.filter)


def _parquet(store: Store, columns: list[str] | None, filter: FilterLike | None) -> Source:
    folder = parquet.ParquetFolder.open(store)
    whole = folder.schema
    names = check_columns(columns, whole, store.uri)
    bound = parse_filter(filter, whole)

    def piece(some: Sequence[DataFile]) -> ParquetPiece:
        return ParquetPiece(folder.store, tuple(some), whole, tuple(names), bound)

    several = len(folder.files) > 1  # of which one may lack a column that another has
    fields = [whole.field(n).with_nullable(whole.field(n).nullable or several) for n in names]
    return Source(
        uri=store.uri,
        format=PARQUET,
        version=None,
        schema=pa.schema(fields, whole.metadata),
        partition_by=tuple(f.name for f in folder.partitions if f.name in names),
        rows=folder.rows if filter is None else None,
        whole=(piece(folder.files),),
        cut=lambda: tuple((piece(run),) for run in _packed([(f, f.size) for f in folder.files])),
    )
