"""Read selected rows of a Parquet file, and choose the columns to read as dictionaries.

Parquet stores a string column with few values as a dictionary.  If the column is read as an Arrow dictionary, no
strings are decoded for skipped rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trilake.delta.protocol.deletion_vectors import RowSet
from trilake.delta.scan.conform import conform_batch, decode_dictionary
from trilake.delta.scan.data_files import columns_and_starts, file_errors, fitting_rows
from trilake.delta.scan.read import Positions, keys_mask, locate, partition_constants, read_positions
from trilake.delta.scan.scan import BATCH_ROWS, FileTask, ReadPlan
from trilake.expr.views import without_views
from trilake.parquet.files import ColumnChunk, checked_footer, fetched_together, open_parquet
from trilake.parquet.old_calendar import rebasing_of
from trilake.storage.base import Store
from trilake.table.data_files import no_columns

#: The most bytes per value of a column chunk that can only hold dictionary indexes.
_NUMBERS_ONLY = 2.5
_TEXTS = pa.dictionary(pa.int32(), pa.string())


def rows_at(
    store: Store, file: FileTask, plan: ReadPlan, chosen: Positions
) -> Iterator[tuple[Positions, pa.RecordBatch]]:
    """Like :func:`~trilake.delta.scan.read.read_positions`, for the ascending, undeleted positions ``chosen``.

    Row groups without such rows are not read.
    """
    if plan.provider != "parquet":
        for positions, batch in read_positions(store, file, plan):
            hit = keys_mask(positions, chosen)
            if hit.any():
                yield positions[hit], batch.filter(pa.array(hit))
        return
    file_store, key = locate(store, file.path)
    constants = partition_constants([file], plan)
    with file_errors(file_store, key, version=plan.version):
        for start, raw in _batches(file_store, key, plan, chosen):
            lo, hi = np.searchsorted(chosen, [start, start + raw.num_rows])
            if lo < hi:
                rows = raw.take(pa.array(chosen[lo:hi] - start))
                yield chosen[lo:hi], conform_batch(rows, list(plan.fields), plan.resolver, constants)


def rows_as_stored(store: Store, file: FileTask, plan: ReadPlan) -> Iterator[tuple[Positions, pa.RecordBatch]]:
    """Like :func:`~trilake.delta.scan.read.read_positions`, for rewriting: strings may come as dictionaries."""
    if plan.provider != "parquet" or plan.mode != "none":
        yield from read_positions(store, file, plan)
        return
    file_store, key = locate(store, file.path)
    constants = partition_constants([file], plan)
    deleted = RowSet(file.vector.load(store)) if file.vector is not None else None
    rows = 0
    with file_errors(file_store, key, version=plan.version):
        for start, raw in _batches(file_store, key, plan, None):
            rows = start + raw.num_rows
            positions = np.arange(start, rows, dtype=np.int64)
            if deleted is not None and (mask := deleted.keep_mask(start, raw.num_rows)) is not None:
                raw, positions = raw.filter(mask), positions[mask.to_numpy(False)]
            if raw.num_rows:
                yield positions, _conformed(raw, plan, constants)
    if deleted is not None:
        assert file.vector is not None
        file.vector.check_fits(deleted.bitmap, rows, f"{file_store.uri}/{key}")


def _conformed(raw: pa.RecordBatch, plan: ReadPlan, constants: Mapping[str, pa.Scalar | pa.Array]) -> pa.RecordBatch:
    dictionaries = {}
    for f, i in zip(plan.fields, plan.resolver.places(plan.fields, raw.schema), strict=True):
        is_string = f.name not in constants and pa.types.is_string(f.type.arrow)
        if i is not None and is_string and raw.column(i).type == _TEXTS:
            dictionaries[f.name] = raw.column(i)
    rest = conform_batch(raw, [f for f in plan.fields if f.name not in dictionaries], plan.resolver, constants)
    columns = dict(zip(rest.schema.names, rest.columns, strict=True)) | dictionaries
    arrays = [columns[f.name] for f in plan.fields]
    return pa.RecordBatch.from_arrays(arrays, [f.name for f in plan.fields])


def as_strings(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Decode dictionaries to strings."""
    if not any(pa.types.is_dictionary(t) for t in rows.schema.types):
        return rows
    columns = [decode_dictionary(c) if pa.types.is_dictionary(c.type) else c for c in rows.columns]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def as_dictionaries(rows: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    """Encode the strings of some columns as dictionaries."""
    if not names:
        return rows
    columns = [
        c.dictionary_encode() if f.name in names and not pa.types.is_dictionary(f.type) else c
        for f, c in zip(rows.schema, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def _batches(
    file_store: Store, key: str, plan: ReadPlan, positions: Positions | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    with file_store.open_input(key) as source:
        first = open_parquet(source)
        metadata = first.metadata
        dictionaries = dictionary_columns(metadata, checked_footer(source, first))
        file = open_parquet(source, metadata=metadata, read_dictionary=dictionaries)
        schema = file.schema_arrow
        columns, starts = columns_and_starts(file, plan)
        groups: Sequence[int] = range(metadata.num_row_groups)
        if positions is not None:
            groups = np.flatnonzero(np.diff(np.searchsorted(positions, starts))).tolist()
        if not columns:
            yield from ((int(starts[g]), no_columns(int(starts[g + 1] - starts[g]))) for g in groups)
            return
        rebasing = rebasing_of(file)
        runs = fetched_together(source, file, groups, columns)
        for group in (g for run in runs for g in run):
            at = int(starts[group])
            rows = min(BATCH_ROWS, fitting_rows(metadata, [group], columns))
            for batch in file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
                if rebasing is not None:
                    batch = rebasing.rows(batch)
                fields_of = [schema.field(n).with_type(c.type) for n, c in zip(batch.schema.names, batch.columns)]
                yield at, without_views(pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields_of)))
                at += batch.num_rows


def dictionary_columns(metadata: pq.FileMetaData, footer: Sequence[Sequence[ColumnChunk]]) -> list[str]:
    """The top-level string columns that are dictionary-encoded throughout a file."""
    if not footer:
        return []
    out = []
    for i in range(metadata.num_columns):
        column: Any = metadata.schema.column(i)
        if column.physical_type != "BYTE_ARRAY" or column.path != column.name or column.max_repetition_level:
            continue
        chunks = [group[i] for group in footer]
        small = sum(c.uncompressed_size for c in chunks) <= _NUMBERS_ONLY * sum(c.num_values for c in chunks)
        if small and all(c.has_dictionary_page for c in chunks):
            out.append(column.path)
    return out
