"""Rows of a table on Spark with their addresses: the file, and the position in it.

Commands that change rows use this DataFrame to find the rows.  Spark's native scan reads only the needed columns; if
Spark cannot scan the files itself, tasks read them through Arrow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.arguments import resolve_columns
from trilake.delta.commands.rows.row_changes import ChangedFile, changed_files, row_columns
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.schema import StructType
from trilake.delta.rules.store_assignment import assign_batch
from trilake.delta.scan.read import read_positions
from trilake.delta.scan.scan import plan_scan, read_plan, read_schema
from trilake.delta.scan.statistics import record_counts
from trilake.delta.table import ArrowDeltaTable
from trilake.spark.delta.reading.native_files import load_vectors, native_files
from trilake.spark.delta.reading.read import scan_obstacle
from trilake.spark.scan.char_padding import with_padding
from trilake.spark.scan.manifest import NativeScanError
from trilake.spark.scan.scan import native_frame
from trilake.spark.session.compat import to_arrow
from trilake.spark.session.runner import task_rows
from trilake.spark.session.schemas import to_spark
from trilake.storage.base import Store

_log = logging.getLogger("trilake.spark")
R = TypeVar("R")

#: The columns of an address: a number in :attr:`AddressedRows.files`, and the index of the row in that file.
FILE, ROW = "__trilake_file", "__trilake_row"
#: Prefix of the columns with a row's old values, followed by their number.
OLD = "__trilake_old_"
#: With more rows than this, addresses are collected as bitmaps, by a shuffle, instead of row by row.
_MANY_ROWS = 1 << 24
#: The number of rows in one of Spark's bitmaps.
_BUCKET = 1 << 15


@dataclass(frozen=True)
class AddressedRows:
    """Live rows of some files: ``frame`` has the table's columns, the IDs of moved rows if requested, then :data:`FILE`
    and :data:`ROW`.  ``files`` are positions in ``snapshot.adds``."""

    frame: DataFrame
    files: npt.NDArray[np.int64]
    #: The maximum number of rows; ``None`` if the files' statistics lack it.
    most_rows: int | None

    def aliased(self, alias: str | None) -> DataFrame:
        return self.frame if alias is None else self.frame.alias(alias)

    def by_file(self, rows: Mapping[int, R]) -> dict[int, R]:
        """The values of ``rows`` by position in ``snapshot.adds``, given by :data:`FILE`."""
        return {int(self.files[n]): value for n, value in rows.items()}

    def collect(self, rows: DataFrame) -> dict[int, BitMap64]:
        """The row indexes of ``rows``, derived from :attr:`frame`, by position in ``snapshot.adds``; for many rows, one
        bit of memory per row."""
        if self.most_rows is not None and self.most_rows <= _MANY_ROWS:
            return self.by_file(bitmaps(to_arrow(rows.select(FILE, ROW))))
        position = F.col(ROW) + 1
        keys = F.col(FILE).alias("file"), F.bitmap_bucket_number(position).alias("bucket")
        packed = to_arrow(
            rows.groupBy(*keys).agg(F.bitmap_construct_agg(F.bitmap_bit_position(position)).alias("bits"))
        )
        out: dict[int, BitMap64] = {}
        for file, bucket, bits in zip(*(packed[n].to_pylist() for n in ("file", "bucket", "bits")), strict=True):
            offsets = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little"))
            rows_of = BitMap64((offsets + (bucket - 1) * _BUCKET).astype(np.uint64))
            out[file] = out[file] | rows_of if file in out else rows_of
        return self.by_file(out)


def bitmaps(addresses: pa.Table) -> dict[int, BitMap64]:
    """Pairs of :data:`FILE` and :data:`ROW` as row indexes by file."""
    if not addresses.num_rows:
        return {}
    files = addresses.column(0).to_numpy()
    rows = addresses.column(1).to_numpy().astype(np.uint64)
    order = np.argsort(files, kind="stable")
    files, rows = files[order], rows[order]
    numbers, starts = np.unique(files, return_index=True)
    return {int(n): BitMap64(part) for n, part in zip(numbers, np.split(rows, starts[1:]), strict=True)}


def addressed_rows(
    spark: SparkSession,
    table: ArrowDeltaTable,
    files: Sequence[int],
    *,
    columns: Sequence[str] | None = None,
    row_ids: bool = False,
) -> AddressedRows:
    """The rows of some files (positions in ``table.snapshot.adds``) with their addresses.  ``columns`` are those that
    the caller uses; the DataFrame may have more.  ``row_ids`` adds the IDs of moved rows, if the table tracks its
    rows."""
    snapshot = table.snapshot
    chosen = np.asarray(files, np.int64)
    part = replace(snapshot, state=replace(snapshot.state, adds=snapshot.adds.take(pa.array(chosen))))
    extra = row_columns(snapshot) if row_ids else ()
    counts = record_counts(part.adds, snapshot.engine.query)
    most = None if counts.null_count else int(pc.sum(counts).as_py() or 0)
    frame = _native(spark, table, part, [f.name for f in extra])
    if frame is None:
        frame = _through_arrow(spark, table.log.store, snapshot, chosen, columns, row_ids)
    return AddressedRows(with_padding(frame, snapshot.schema), chosen, most)


def _native(spark: SparkSession, table: ArrowDeltaTable, part: Snapshot, extra: Sequence[str]) -> DataFrame | None:
    provider = part.metadata.provider.lower()
    if provider != "parquet" or scan_obstacle(table, spark) is not None:
        return None
    scan = plan_scan(part)
    if extra and scan.plan.mode == "id":
        return None  # these columns have no field ID, and Spark would match only by ID
    files = native_files(table.log.store, scan, load_vectors(table.log.store, scan))
    fields = [T.StructField(name, T.LongType()) for name in extra]
    files = replace(
        files,
        read_schema=T.StructType([*files.read_schema.fields, *fields]),
        output=[*files.output, *((f.name, f) for f in fields)],
    )
    try:
        return native_frame(spark, files, address=(FILE, ROW))
    except NativeScanError as e:  # appears only when every file is checked
        _log.info("%s is read through Arrow: %s", table.uri, e)
        return None


def _through_arrow(
    spark: SparkSession,
    store: Store,
    snapshot: Snapshot,
    chosen: npt.NDArray[np.int64],
    columns: Sequence[str] | None,
    row_ids: bool,
) -> DataFrame:
    schema = read_schema(snapshot.schema)
    required = set(resolve_columns(schema.names, columns, snapshot.uri))
    fields = [f for f in schema.fields if f.name in required]
    extra = row_columns(snapshot) if row_ids else ()
    plan = read_plan(snapshot, [f.name for f in fields], None)
    plan = replace(plan, fields=(*plan.fields, *extra), output=(*(f.name for f in fields), *(f.name for f in extra)))
    types = to_spark(type(schema)(tuple(fields)))
    types = T.StructType(
        [
            *types.fields,
            *(T.StructField(f.name, T.LongType()) for f in extra),
            T.StructField(FILE, T.IntegerType()),
            T.StructField(ROW, T.LongType()),
        ]
    )
    tasks = [replace(f, number=n) for n, f in enumerate(changed_files(snapshot, chosen))]

    def read(task: ChangedFile) -> Iterator[pa.RecordBatch]:
        for positions, batch in read_positions(store, task.file, plan):
            rows = batch.select(list(plan.output))
            rows = rows.append_column(FILE, pa.repeat(pa.scalar(task.number, pa.int32()), rows.num_rows))
            yield rows.append_column(ROW, pa.array(positions, pa.int64()))

    return task_rows(spark, read, tasks, types)


def old_images(rows: pa.RecordBatch, names: Sequence[str], schema: StructType) -> pa.RecordBatch:
    """The old rows, from the columns :data:`OLD`, in the form of the change files; ``names`` are the table's columns
    before the change."""
    old = pa.RecordBatch.from_arrays([rows.column(f"{OLD}{i}") for i in range(len(names))], list(names))
    return assign_batch(old, read_schema(schema))


@dataclass(frozen=True)
class RowOrigins:
    """The row IDs of rows that were never moved, by address; picklable."""

    base_row_ids: pa.Array

    @classmethod
    def of(cls, snapshot: Snapshot, files: npt.NDArray[np.int64]) -> RowOrigins:
        return cls(snapshot.adds["baseRowId"].take(pa.array(files)).combine_chunks())

    def kept_ids(self, rows: pa.RecordBatch, column: str | None) -> pa.Array | None:
        """The IDs that rewritten rows keep; ``column``, if any, has the IDs of rows that were moved before."""
        if column is None:
            return None
        return pc.coalesce(rows.column(column), pc.add(self.base_row_ids.take(rows.column(FILE)), rows.column(ROW)))
