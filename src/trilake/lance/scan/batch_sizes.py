"""Resize batches: to a number of rows, or to a maximum number of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from trilake.lance.scan.scan import one_batch


def regroup(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Regroup rows into batches of ``rows`` each; the last may have fewer.

    >>> [b.num_rows for b in regroup([pa.record_batch({"n": range(5)})] * 2, 4)]
    [4, 4, 2]
    """
    pending: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, rows - count)
            at += part.num_rows
            count += part.num_rows
            pending.append(part)
            if count == rows:
                yield _joined(pending)
                pending, count = [], 0
    if pending:
        yield _joined(pending)


def limit_bytes(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Split batches of more than ``size`` bytes, between rows."""
    for batch in batches:
        rows = max(batch.num_rows * size // max(batch.nbytes, 1), 1)
        yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else one_batch(pa.Table.from_batches(parts).unify_dictionaries())
