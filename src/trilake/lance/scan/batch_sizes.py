"""Batches of one size, made of batches of any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from trilake.lance.scan.scan import one_batch


def in_batches_of(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches of so many each, but for the last."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        at = 0
        while batch.num_rows - at >= rows - count:
            held.append(batch.slice(at, rows - count))
            at += rows - count
            yield _one(held)
            held, count = [], 0
        if at < batch.num_rows:
            held.append(batch.slice(at))
            count += batch.num_rows - at
    if held:
        yield _one(held)


def _one(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    return held[0] if len(held) == 1 else one_batch(pa.Table.from_batches(held))
