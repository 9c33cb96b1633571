"""Reading chosen rows of a Parquet file, and deciding which of its columns are best read as dictionaries.

A text column of few values is stored as a dictionary and numbers.  Read as such, nothing is done for rows that are not
wanted; as texts, every row would be built first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trilake.delta.conform import conform_batch, needed_file_columns
from trilake.delta.data_files import BATCH_ROWS
from trilake.delta.read import Positions, locate, partition_constants, read_positions
from trilake.delta.scan import FileTask, ReadPlan
from trilake.errors import CorruptFileError, MissingFileError, ObjectNotFoundError
from trilake.storage.base import Store

#: Bytes a value at which a column chunk can hold little but numbers of dictionary entries.
_NUMBERS_ONLY = 2.5


def rows_at(
    store: Store, file: FileTask, plan: ReadPlan, wanted: Positions
) -> Iterator[tuple[Positions, pa.RecordBatch]]:
    """The rows at these places of a file, with their places, as :func:`~trilake.delta.read.read_positions` has them.

    ``wanted`` is ascending and names rows that are not deleted.  Row groups without any are not read.  Raises
    ``MissingFileError`` or ``CorruptFileError``.
    """
    if plan.provider != "parquet":
        for positions, batch in read_positions(store, file, plan):
            hit = np.isin(positions, wanted, assume_unique=True)
            if hit.any():
                yield positions[hit], batch.filter(pa.array(hit))
        return
    place, key = locate(store, file.path)
    constants = partition_constants(file, plan)
    try:
        for start, raw in _batches(place, key, plan, wanted):
            lo, hi = np.searchsorted(wanted, [start, start + raw.num_rows])
            if lo < hi:
                rows = raw.take(pa.array(wanted[lo:hi] - start))
                yield wanted[lo:hi], conform_batch(rows, list(plan.fields), plan.resolver, constants)
    except ObjectNotFoundError as e:
        raise MissingFileError(
            "a data file of the table is missing", file=f"{place.uri}/{key}", version=plan.version
        ) from e
    except pa.ArrowException as e:
        raise CorruptFileError(f"the Parquet file cannot be read: {e}", file=f"{place.uri}/{key}") from e


def _batches(place: Store, key: str, plan: ReadPlan, wanted: Positions) -> Iterator[tuple[int, pa.RecordBatch]]:
    with place.open_input(key) as source:
        metadata = pq.read_metadata(source)
        file = pq.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=dictionary_columns(metadata),
            coerce_int96_timestamp_unit="us",
            arrow_extensions_enabled=False,
        )
        schema = file.schema_arrow
        fields = [f for f in plan.fields if f.name not in plan.partition_columns]
        columns = [schema.names[i] for i in needed_file_columns(fields, schema, plan.resolver)]
        counts = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
        starts = np.concatenate([[0], np.cumsum(counts)])
        found = np.searchsorted(wanted, starts)
        for group in np.flatnonzero(np.diff(found)):
            at = int(starts[group])
            if not columns:
                yield (
                    at,
                    pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), counts[group], [None])),
                )
                continue
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[int(group)], columns=columns, use_threads=False):
                fields_of = [schema.field(n).with_type(c.type) for n, c in zip(batch.schema.names, batch.columns)]
                yield at, pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields_of))
                at += batch.num_rows


def dictionary_columns(metadata: pq.FileMetaData) -> list[str]:
    """The top-level text columns that are stored as dictionaries throughout a file."""
    if not metadata.num_row_groups:
        return []
    out = []
    for i in range(metadata.num_columns):
        column: Any = metadata.schema.column(i)
        if column.physical_type != "BYTE_ARRAY" or column.path != column.name or column.max_repetition_level:
            continue
        chunks = [metadata.row_group(g).column(i) for g in range(metadata.num_row_groups)]
        small = sum(c.total_uncompressed_size for c in chunks) <= _NUMBERS_ONLY * sum(c.num_values for c in chunks)
        if small and all(c.has_dictionary_page for c in chunks):
            out.append(column.path)
    return out
