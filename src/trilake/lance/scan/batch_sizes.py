"""Batches of one size, or of a size at most, made of batches of any."""

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


def of_at_most(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The batches, those of more bytes cut into as many as that takes; a row is never cut."""
    for batch in batches:
        rows = max(batch.num_rows * size // max(batch.nbytes, 1), 1)
        yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))


def _one(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    return held[0] if len(held) == 1 else one_batch(pa.Table.from_batches(held))
