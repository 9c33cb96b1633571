"""The plan of a read: which files, which columns, and how to convert a file's rows to rows of the table.

A plan depends only on a snapshot.  It serves Arrow in this process, Spark tasks that run
:mod:`trilake.delta.scan.read`, and Spark's native scan.  Everything in it can be pickled.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arguments import resolve_columns
from trilake.delta.engine import Engine
from trilake.delta.log.snapshot import Head, Snapshot, decoded_paths
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor
from trilake.delta.protocol.partitions import partition_fields, typed_partitions
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.protocol.schema_edit import described_schema, nested_fields
from trilake.delta.scan.conform import Resolver
from trilake.delta.scan.generated import derived_partition_filter
from trilake.delta.scan.statistics import StatisticsReader, files_count_nan, is_float
from trilake.expr import FileStats, Filter, SkipResult, can_match, parse_filter
from trilake.storage.base import Store
from trilake.storage.uri import is_absolute
from trilake.table.table import FilterLike

#: Rows per batch: enough for vectorised work, few enough to bound memory with wide rows.
BATCH_ROWS = 64 * 1024


@dataclass(frozen=True)
class FileTask:
    """One data file to read: ``path`` is decoded, relative to the table or absolute; ``size`` is in bytes."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    vector: DeletionVectorDescriptor | None = None
    #: A serialized bitmap of the only rows to return, among those that ``vector`` leaves: in a change feed, the rows
    #: that differ between two vectors.
    selected: bytes | None = None


def file_tasks(files: pa.Table) -> list[FileTask]:
    """``add`` actions as tasks, in their order."""
    columns = [files[name].to_pylist() for name in ("partitionValues", "size", "deletionVector")]
    return [
        FileTask(path, size or 0, dict(values or ()), DeletionVectorDescriptor.from_json(vector))
        for path, values, size, vector in zip(decoded_paths(files["path"]).to_pylist(), *columns, strict=True)
    ]


@dataclass(frozen=True)
class ReadPlan:
    """How to convert data files to rows of the table."""

    uri: str
    version: int
    #: The columns read from files or partition values, all nullable, in table order.
    fields: tuple[StructField, ...]
    #: The columns returned, a subset of ``fields``.
    output: tuple[str, ...]
    partition_columns: tuple[str, ...]
    mode: str
    provider: str
    format_options: Mapping[str, str]
    #: All columns of the table, in its order.
    table_fields: tuple[StructField, ...]
    #: Reads the formats of files.
    engine: Engine
    filter: Filter | None = None

    @cached_property
    def file_fields(self) -> tuple[StructField, ...]:
        """All columns of the table that are in files; formats without column names need them in order."""
        return tuple(f for f in self.table_fields if f.name not in self.partition_columns)

    @cached_property
    def resolver(self) -> Resolver:
        return Resolver(self.mode)

    @cached_property
    def unchanged(self) -> pa.Schema | None:
        """The Arrow schema of file rows if they need no conversion, otherwise ``None``."""
        if self.mode == "id" or any(f.name in self.partition_columns for f in self.fields):
            return None
        nested = (g for f in self.fields if not isinstance(f.type, PrimitiveType) for g in nested_fields(f.type))
        if any(f.metadata and f.physical_name != f.name for f in chain(self.fields, nested)):
            return None
        return pa.schema([pa.field(f.name, f.type.arrow, True) for f in self.fields])

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches, with the fields' user metadata."""
        by_name = {f.name: f for f in self.fields}
        fields = (by_name[n] for n in self.output)
        return described_schema(StructType(tuple(f if f.nullable else replace(f, nullable=True) for f in fields)))


@dataclass(frozen=True)
class Scan:
    """A read of one snapshot: its files after skipping, and the plan for each."""

    snapshot: Snapshot
    files: pa.Table
    plan: ReadPlan

    @cached_property
    def paths(self) -> pa.ChunkedArray:
        """Decoded paths of the files, relative to the table or absolute."""
        return decoded_paths(self.files["path"])

    @cached_property
    def partitions(self) -> dict[str, pa.ChunkedArray]:
        """Typed partition values of the files by column."""
        return typed_partitions(
            self.files, partition_fields(self.snapshot.schema, self.snapshot.metadata.partition_columns)
        )

    @cached_property
    def nan_counted(self) -> bool:
        """Whether, according to the files' tags, the bounds inside the files take NaN into account."""
        return not any(map(is_float, nested_fields(self.snapshot.schema))) or files_count_nan(self.files)

    def tasks(self) -> list[FileTask]:
        """The files as tasks, in the order of ``files``."""
        return file_tasks(self.files)


def read_schema(schema: StructType) -> StructType:
    """The schema of a read: all parts are nullable, since files may lack columns that the table requires."""
    return schema.nullable


def parse_table_filter(filter: FilterLike | Filter | None, snapshot: Head) -> Filter | None:
    """Parse a filter over the table's columns.  Raises ``FilterError``."""
    if filter is None or isinstance(filter, Filter):
        return filter
    return parse_filter(filter, filter_schema(read_schema(snapshot.schema)))


def plan_scan(
    snapshot: Snapshot, columns: Sequence[str] | None = None, filter: FilterLike | Filter | None = None
) -> Scan:
    """Plan a read of ``columns`` (all by default) of the rows for which ``filter`` is true.

    Raises ``InvalidArgumentError`` for an unknown column and ``FilterError`` for an unsuitable filter.
    """
    condition = parse_table_filter(filter, snapshot)
    plan = read_plan(snapshot, columns, condition)
    files = snapshot.adds if condition is None else snapshot.adds.filter(pa.array(skip_files(snapshot, condition).keep))
    return Scan(snapshot, files, plan)


def read_plan(snapshot: Head, columns: Sequence[str] | None, filter: Filter | None) -> ReadPlan:
    """The plan without files."""
    return metadata_plan(snapshot.metadata, snapshot.engine, snapshot.uri, snapshot.version, columns, filter)


def metadata_plan(
    metadata: Metadata,
    engine: Engine,
    uri: str,
    version: int,
    columns: Sequence[str] | None = None,
    filter: Filter | None = None,
) -> ReadPlan:
    """The plan for reading files of a table with this metadata, including files that no version contains yet."""
    schema = read_schema(metadata.schema)
    output = resolve_columns(schema.names, columns, uri)
    field_names = set(output) | (set(filter.columns) if filter is not None else set())
    partition = tuple(schema.field(c).name for c in metadata.partition_columns)
    return ReadPlan(
        uri=uri,
        version=version,
        fields=tuple(f for f in schema.fields if f.name in field_names),
        output=tuple(output),
        partition_columns=partition,
        mode=metadata.column_mapping_mode,
        provider=metadata.provider.lower(),
        format_options=dict(metadata.format_options),
        table_fields=tuple(schema.fields),
        engine=engine.for_tasks(),
        filter=filter,
    )


def vector_count(files: pa.Table) -> int:
    """The number of rows that deletion vectors delete from ``files``."""
    total = pc.sum(pc.struct_field(files["deletionVector"], "cardinality")).as_py()
    return int(total or 0)


def stated_rows(counts: pa.ChunkedArray, vectors: pa.ChunkedArray) -> int | None:
    """The number of rows of files; ``None`` if it is unknown, or a vector deletes more rows than its file has."""
    deleted = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
    live = pc.subtract(counts, deleted)
    if live.null_count or pc.any(pc.or_(pc.less(live, 0), pc.less(deleted, 0))).as_py():
        return None
    return int(pc.sum(live).as_py() or 0)


# --- Data skipping ----------------------------------------------------------------------------------------------------


def skip_files(snapshot: Snapshot, filter: Filter, files: pa.Table | None = None) -> SkipResult:
    """Decide for each of ``files``, by default all, whether it can hold a row for which ``filter`` is true."""
    stats = _statistics(snapshot, snapshot.adds if files is None else files, filter)
    result = can_match(filter, stats)
    derived = derived_partition_filter(filter, snapshot.schema, snapshot.metadata.partition_columns)
    return result if derived is None else _both(result, can_match(derived, stats))


def _both(first: SkipResult, second: SkipResult) -> SkipResult:
    """Files that both keep; ``first`` proves for more files than ``second`` that all rows match."""
    if len(first.reasons) + len(second.reasons) > np.iinfo(np.int16).max:
        return first  # reasons are numbered in 16 bits
    keep = first.keep & second.keep
    number = second.reason.astype(np.int64) + len(first.reasons)
    reason = np.where(first.keep & ~second.keep, number, first.reason).astype(np.int16)
    return SkipResult(keep, first.every_row & keep, reason, first.reasons + second.reasons)


def _statistics(snapshot: Snapshot, adds: pa.Table, filter: Filter, *, without_nan: bool = False) -> FileStats:
    columns = tuple(snapshot.schema.field(c).name for c in snapshot.metadata.partition_columns)
    reader = StatisticsReader(adds, snapshot.schema, columns, snapshot.engine.query, without_nan)
    reader.read(filter.paths)
    return reader.file_stats()


def explain_files(snapshot: Snapshot, filter: Filter | None) -> pa.Table:
    """One row per file: ``path``, ``kept`` and ``reason``, which says why the filter skips or keeps it."""
    paths = decoded_paths(snapshot.adds["path"])
    keep: Any = pa.repeat(True, len(paths))
    reasons: Any = pa.repeat("no filter", len(paths))
    if filter is not None:
        result = skip_files(snapshot, filter)
        keep = pa.array(result.keep)
        files = snapshot.adds.filter(keep)
        bounded = can_match(filter, _statistics(snapshot, files, filter, without_nan=True)).keep
        why_kept = pc.if_else(
            pa.array(bounded), "may contain matching rows", "may have a NaN, which bounds do not include"
        )
        reasons = pc.replace_with_mask(result.reason_strings(), keep, why_kept)
    return pa.table({"path": paths, "kept": keep, "reason": reasons})


def matching_partitions(snapshot: Snapshot, files: pa.Table, filter: Filter) -> pa.Array:
    """Whether ``filter``, a condition on partition columns, is true for each of ``files``."""
    columns: Mapping[str, pa.Array] = {"stats": pa.nulls(files.num_rows, pa.string())}
    adds = pa.table({"partitionValues": files["partitionValues"], **columns})
    return pa.array(can_match(filter, _statistics(snapshot, adds, filter)).every_row)


# --- Versions that any Parquet reader can read ------------------------------------------------------------------------

#: Above this many files, the table's scan is used, which skips files by statistics.
MOST_PLAIN_FILES = 64


def plain_files(snapshot: Snapshot, store: Store) -> list[str] | None:
    """The paths of local Parquet files whose rows are exactly those of the version; ``None`` if there are others.

    That is so for a table with deletion vectors, partition columns or mapped names, with a file outside the table or of
    an unexpected size, or with many files.  The caller must still compare the files' columns with the table's.
    """
    metadata, files = snapshot.metadata, snapshot.adds
    if metadata.provider.lower() != "parquet" or metadata.partition_columns or metadata.column_mapping_mode != "none":
        return None
    vectors = files["deletionVector"]
    if not 0 < files.num_rows <= MOST_PLAIN_FILES or vectors.null_count < len(vectors):
        return None
    paths = []
    for path, size in zip(decoded_paths(files["path"]).to_pylist(), files["size"].to_pylist(), strict=True):
        odd = is_absolute(path) or not {"", ".", ".."}.isdisjoint(path.split("/"))
        place = None if odd else store.local_path(path)
        try:
            status = None if place is None else os.stat(place)
        except (OSError, ValueError):
            return None
        if place is None or status is None or not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return None
        paths.append(place)
    return paths
