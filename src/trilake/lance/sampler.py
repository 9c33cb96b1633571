"""Random samples of datasets and streams, and samplers that distribute a dataset among readers.

Each reader has a rank below ``world_size``.  Together, they read every row exactly once.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappush, heapreplace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from trilake.common.arguments import count
from trilake.errors import InvalidArgumentError
from trilake.lance.pylance.lance_dataset import LanceDataset
from trilake.lance.pylance.lance_dataset import dataset as open_dataset
from trilake.lance.scan.fragment_reader import Rows, one_batch
from trilake.lance.scan.scan import regroup
from trilake.table.table import FilterLike

T = TypeVar("T")


def maybe_sample(
    dataset: str | os.PathLike[str] | LanceDataset,
    n: int,
    columns: Sequence[str] | str,
    batch_size: int = 10240,
    max_takes: int = 512,
) -> Iterator[pa.RecordBatch]:
    """Return ``n`` random rows of a dataset, or all of a smaller one.

    Parameters
    ----------
    columns: columns to return.
    batch_size: approximate number of rows in a batch.
    max_takes: maximum number of random reads; larger samples consist of runs of adjacent rows, which are read faster.
    """
    opened = dataset if isinstance(dataset, LanceDataset) else open_dataset(dataset)
    names = [columns] if isinstance(columns, str) else list(columns)
    total = len(opened)
    if n >= total:
        yield from opened.to_batches(columns=names, batch_size=batch_size)
        return
    rng = np.random.default_rng()
    runs = iter([rng.choice(total, n, replace=False)]) if n <= max_takes else _runs(total, n, max_takes, rng)
    pending: list[pa.Table] = []
    for places in runs:
        pending.append(opened.take(places, columns=names))
        if n <= max_takes or sum(t.num_rows for t in pending) >= batch_size:
            yield one_batch(pa.concat_tables(pending))
            pending = []
    if pending:
        yield one_batch(pa.concat_tables(pending))


def _runs(total: int, n: int, count: int, rng: np.random.Generator) -> Iterator[Rows]:
    """Yield ``n`` positions below ``total`` as runs: one at a random position in each of ``count`` equal parts."""
    edges = np.linspace(0, total, count + 1).astype(np.int64)
    parts, sizes = np.diff(edges), np.diff(edges * n // total)
    starts = np.cumsum(parts) - parts
    for start, part, size in zip(starts.tolist(), parts.tolist(), sizes.tolist()):
        first = start + int(rng.integers(0, part - size + 1))
        yield np.arange(first, first + size)


def reservoir_sampling(stream: Iterable[T], k: int) -> list[T]:
    """Return ``k`` uniformly random items of a stream, or all of a shorter one.

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


class Sampler(ABC):
    """Selects and orders the rows of a reader; calling it with a dataset yields their batches."""

    def __call__(
        self,
        dataset: LanceDataset,
        *,
        batch_size: int = 1024,
        columns: Sequence[str] | None = None,
        filter: FilterLike | None = None,
        batch_readahead: int | None = None,
        with_row_id: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches.

        Parameters
        ----------
        batch_size: maximum number of rows in a batch.
        columns: columns to return, by default all.
        filter: SQL or a pyarrow expression.
        batch_readahead: number of batches to read ahead (a hint).
        with_row_id: add a column ``_rowid``.
        """
        options = {"columns": columns, "filter": filter, "batch_readahead": batch_readahead, "with_row_id": with_row_id}
        return self._batches(dataset, batch_size, options)

    @abstractmethod
    def _batches(self, dataset: LanceDataset, batch_size: int, options: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, given the options of the scan."""


class FullScanSampler(Sampler):
    """All rows, in dataset order.

    >>> from trilake.lance import write_dataset
    >>> ds = write_dataset(pa.table({"a": range(5)}), "memory://doc-sampler", mode="overwrite")
    >>> [b.num_rows for b in FullScanSampler()(ds, batch_size=2)]
    [2, 2, 1]
    """

    def _batches(self, dataset: LanceDataset, batch_size: int, options: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        yield from regroup(dataset.to_batches(**options), batch_size)


class _ShardedSampler(Sampler):
    """Samples the rows of one of several readers.

    Parameters
    ----------
    rank, world_size: number of the reader, and number of readers.
    randomize: whether to shuffle the parts of the reader.
    seed: random seed, combined with the epoch of :meth:`set_epoch`.

    Raises ``InvalidArgumentError`` for an invalid rank.
    """

    def __init__(self, rank: int, world_size: int, randomize: bool = False, seed: int = 0) -> None:
        if not 0 <= rank < world_size:
            raise InvalidArgumentError(f"rank must be from 0 to {world_size - 1}, got {rank}")
        self.rank, self.world_size, self.randomize, self.seed = rank, world_size, randomize, seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; readers with the same seed and epoch use the same order."""
        self._epoch = count("epoch", epoch)

    def share(self, count: int) -> list[int]:
        """Return the numbers of this reader's parts out of ``count``."""
        return self.ordered(np.arange(self.rank, count, self.world_size))

    def ordered(self, parts: Rows) -> list[int]:
        """Return part numbers in order, or shuffled for the next epoch."""
        if self.randomize:
            parts = np.random.default_rng([self.seed, self._epoch]).permutation(parts)
        self._epoch += 1
        return [int(i) for i in parts]


class ShardedFragmentSampler(_ShardedSampler):
    """Every ``world_size``-th fragment: fast, but uneven if fragment sizes differ."""

    def _batches(self, dataset: LanceDataset, batch_size: int, options: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        fragments = dataset.get_fragments()
        share = [fragments[i] for i in self.share(len(fragments))]
        yield from regroup(dataset.to_batches(**options, fragments=share), batch_size)


class ShardedBatchSampler(_ShardedSampler):
    """Every ``world_size``-th batch: even shares; with a filter, each reader reads all rows.

    Raises ``InvalidArgumentError`` when shuffling filtered rows, whose number is unknown.
    """

    def _batches(self, dataset: LanceDataset, batch_size: int, options: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        if options["filter"] is not None:
            if self.randomize:
                raise InvalidArgumentError(
                    "batches of filtered rows cannot be shuffled", help="use ShardedFragmentSampler, or no filter"
                )
            whole = FullScanSampler()(dataset, batch_size=batch_size, **options)
            yield from islice(whole, self.rank, None, self.world_size)
            return
        total = dataset.count_rows()
        for number in self.share(-(-total // batch_size)):
            places = np.arange(number * batch_size, min((number + 1) * batch_size, total))
            yield one_batch(dataset.take(places, options["columns"], with_row_id=options["with_row_id"]))


class ShardedFixedBatchSampler(ShardedBatchSampler):
    """Positions of a reader's rows by batch, as ``batch_sampler`` of a PyTorch ``DataLoader``.

    Each reader has one contiguous range; only the last ranges may be shorter.  Called with a dataset, it is a
    :class:`ShardedBatchSampler`.

    Parameters
    ----------
    batch_size: maximum number of positions in a batch.
    total_num_rows: number of rows of the dataset.

    The other parameters are those of :class:`ShardedBatchSampler`.  Iterating raises ``InvalidArgumentError`` unless
    ``batch_size`` and ``total_num_rows`` are set.

    >>> list(ShardedFixedBatchSampler(1, 2, batch_size=2, total_num_rows=6))
    [[3, 4], [5]]
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        randomize: bool = False,
        seed: int = 0,
        batch_size: int = 0,
        total_num_rows: int = 0,
    ) -> None:
        super().__init__(rank, world_size, randomize, seed)
        self.batch_size, self.total_num_rows = count("batch_size", batch_size), count("total_num_rows", total_num_rows)

    def _places(self) -> range:
        if not self.batch_size:
            raise InvalidArgumentError("batch_size and total_num_rows are required", help="pass both")
        length = -(-self.total_num_rows // self.world_size)
        return range(self.total_num_rows)[self.rank * length : (self.rank + 1) * length]

    def __len__(self) -> int:
        return (len(self._places()) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        places = self._places()
        for number in self.ordered(np.arange(len(self))):
            yield list(places[number * self.batch_size : (number + 1) * self.batch_size])


class ShardedBatchIterator:
    """Batches for one of several readers: every ``world_size``-th fragment or batch.

    Parameters
    ----------
    data: a dataset, or its path or URI.
    rank, world_size: number of the reader, and number of readers.
    columns: columns to return, by default all.
    batch_size: maximum number of rows in a batch.
    granularity: ``"fragment"`` or ``"batch"``.
    batch_readahead: number of batches to read ahead (a hint).
    with_row_id: add a column ``_rowid``.

    >>> from trilake.lance import write_dataset
    >>> ds = write_dataset(pa.table({"a": range(6)}), "memory://doc-lance-sharded-batches")
    >>> [b["a"].to_pylist() for b in ShardedBatchIterator(ds, 1, 2, batch_size=2, granularity="batch")]
    [[2, 3]]
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | LanceDataset,
        rank: int,
        world_size: int,
        *,
        columns: Sequence[str] | None = None,
        batch_size: int = 10240,
        granularity: str = "fragment",
        batch_readahead: int = 8,
        with_row_id: bool = False,
    ) -> None:
        if granularity not in _GRANULARITIES:
            raise InvalidArgumentError(f"granularity must be fragment or batch, got {granularity!r}")
        self._dataset = data if isinstance(data, LanceDataset) else open_dataset(data)
        self._sampler: Sampler = _GRANULARITIES[granularity](rank, world_size)
        self._options: dict[str, Any] = {"columns": columns, "batch_size": batch_size, "with_row_id": with_row_id}
        self._options["batch_readahead"] = batch_readahead

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._sampler(self._dataset, **self._options))


_GRANULARITIES: dict[str, type[_ShardedSampler]] = {"fragment": ShardedFragmentSampler, "batch": ShardedBatchSampler}
