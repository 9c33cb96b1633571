"""Read selected rows of a data file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from trilake.delta.scan.conform import conform_batch
from trilake.delta.scan.data_files import file_errors, parquet_batches
from trilake.delta.scan.read import Positions, keys_mask, locate, partition_constants, read_positions
from trilake.delta.scan.scan import FileTask, ReadPlan
from trilake.expr.views import numbered_without_views
from trilake.storage.base import Store


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
    place, key = locate(store, file.path)
    constants = partition_constants([file], plan)
    with file_errors(place, key, plan), place.open_input(key) as source:
        for start, raw in numbered_without_views(parquet_batches(source, plan, threads=False, chosen=chosen)):
            lo, hi = np.searchsorted(chosen, [start, start + raw.num_rows])
            if lo < hi:
                rows = raw.take(pa.array(chosen[lo:hi] - start))
                yield chosen[lo:hi], conform_batch(rows, list(plan.fields), plan.resolver, constants)
