"""Samples of rows: of a dataset, without reading all of it, and of any stream."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappush, heapreplace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from trilake.lance.fragment_reader import Rows
from trilake.lance.functions import dataset as open_dataset
from trilake.lance.lance_dataset import LanceDataset
from trilake.lance.scan import one_batch

T = TypeVar("T")


def maybe_sample(
    dataset: str | os.PathLike[str] | LanceDataset,
    n: int,
    columns: Sequence[str] | str,
    batch_size: int = 10240,
    max_takes: int = 512,
) -> Iterator[pa.RecordBatch]:
    """``n`` rows of a dataset, or all of a smaller one.

    Parameters
    ----------
    columns: to return.
    batch_size: rows of a batch, about.
    max_takes: a larger sample is made of so many runs of neighbouring rows, which are read faster than single ones.
    """
    found = dataset if isinstance(dataset, LanceDataset) else open_dataset(dataset)
    names = [columns] if isinstance(columns, str) else list(columns)
    total = len(found)
    if n >= total:
        yield from found.to_batches(columns=names, batch_size=batch_size)
        return
    rng = np.random.default_rng()
    if n <= max_takes:
        yield one_batch(found.take(rng.choice(total, n, replace=False), columns=names))
        return
    held: list[pa.Table] = []
    for places in _runs(total, n, max_takes, rng):
        held.append(found.take(places, columns=names))
        if sum(t.num_rows for t in held) >= batch_size:
            yield one_batch(pa.concat_tables(held))
            held = []
    if held:
        yield one_batch(pa.concat_tables(held))


def _runs(total: int, n: int, count: int, rng: np.random.Generator) -> Iterator[Rows]:
    """``n`` places among ``total``, as runs: one at a random place in each of ``count`` parts of the whole."""
    edges = np.linspace(0, total, count + 1).astype(np.int64)
    parts, sizes = np.diff(edges), np.diff(edges * n // total)
    starts = np.cumsum(parts) - parts
    for start, part, size in zip(starts.tolist(), parts.tolist(), sizes.tolist()):
        first = start + int(rng.integers(0, part - size + 1))
        yield np.arange(first, first + size)


def reservoir_sampling(stream: Iterable[T], k: int) -> list[T]:
    """``k`` items of a stream of unknown length, each as likely as any other; all of a shorter one.

    >>> len(reservoir_sampling(range(100), 5))
    5
    """
    rng = np.random.default_rng()
    heap: list[tuple[float, int, T]] = []
    for i, item in enumerate(stream):
        entry = (float(rng.random()), i, item)
        if len(heap) < k:
            heappush(heap, entry)
        elif heap and entry[0] > heap[0][0]:
            heapreplace(heap, entry)
    return [item for _, _, item in heap]
