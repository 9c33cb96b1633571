"""Sources of a conversion: a table of any format, or a folder of Parquet files, split into pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from trilake.common.timestamps import TimestampLike
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.expr import Filter, parse_filter
from trilake.storage.base import Store
from trilake.table import registry
from trilake.table.conversion import Source, check_columns, packed
from trilake.table.folders import DataFile
from trilake.table.table import FilterLike
from trilake.tools.convert import parquet

PARQUET = "parquet"


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
    """Open a table of the given or detected format, split into pieces for tasks if ``distributed``.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``InvalidArgumentError``, ``FilterError`` and what
    opening a table raises.
    """
    name = format_at(store) if format is None else format.lower()
    selected = None if columns is None else list(columns)
    if name == PARQUET:
        if version is not None or timestamp is not None:
            raise InvalidArgumentError("Parquet files have no versions", help="leave version and timestamp out")
        return _cut(_parquet(store, selected, filter), distributed)
    if name is None:
        raise TableNotFoundError(
            "no table, dataset or folder of a known format found", help="check the path", file=store.uri
        )
    if name not in registry.names():
        raise InvalidArgumentError(f"unknown format {format!r}", help=f"use one of {', '.join(names())}")
    table = registry.format_named(name).open(store, version, timestamp)
    return _cut(registry.format_named(name).source(table, selected, filter), distributed)


def _cut(source: Source, distributed: bool) -> Source:
    return replace(source, tasks=source.cut() if distributed else (source.whole,))


def names() -> list[str]:
    """The formats of sources and targets."""
    return sorted([*registry.names(), PARQUET])


def format_at(store: Store) -> str | None:
    """The format at a location, ``None`` if there is none."""
    for row in registry.rows():
        if row.load().detect(store):
            return row.name
    return PARQUET if parquet.exists(store) else None


# --- Parquet ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetPiece:
    """Some files of a folder of Parquet files."""

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

    several = len(folder.files) > 1  # one may lack a column of another
    fields = [whole.field(n).with_nullable(whole.field(n).nullable or several) for n in names]
    return Source(
        uri=store.uri,
        format=PARQUET,
        version=None,
        schema=pa.schema(fields, whole.metadata),
        partition_by=tuple(f.name for f in folder.partitions if f.name in names),
        rows=folder.rows if filter is None else None,
        whole=(piece(folder.files),),
        cut=lambda: tuple((piece(run),) for run in packed([(f, f.size) for f in folder.files])),
    )
