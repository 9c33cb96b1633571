"""Random samples of datasets and streams, and samplers that distribute a dataset among readers.

Each reader has a rank below ``world_size``.  Together, they read every row exactly once.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappush, heapreplace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import pyarrow as pa

from trilake.common.arguments import count
from trilake.common.extras import load
from trilake.errors import InvalidArgumentError
from trilake.lance.fragment import LanceFragment
from trilake.lance.pylance.lance_dataset import LanceDataset
from trilake.lance.pylance.lance_dataset import dataset as open_dataset
from trilake.lance.scan.fragment_reader import Rows, one_batch
from trilake.lance.scan.projection import ColumnsLike
from trilake.lance.scan.scan import regroup
from trilake.table.table import FilterLike

T = TypeVar("T")
#: Number of batches of filtered rows among which a reader shuffles.
_SHUFFLED = 256


def maybe_sample(
    dataset: str | os.PathLike[str] | LanceDataset,
    n: int,
    columns: ColumnsLike | str,
    batch_size: int = 10240,
    max_takes: int = 512,
    filt: FilterLike | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return ``n`` random rows of a dataset, or all of a smaller one.

    Parameters
    ----------
    dataset: a dataset, or its path or URI.
    n: number of rows.
    columns: columns to return.
    batch_size: approximate number of rows in a batch.
    max_takes: maximum number of random reads; larger samples consist of runs of adjacent rows, which are read faster.
    filt: SQL or a pyarrow expression that the rows satisfy; the sample is drawn from their row ids.
    """
    opened = dataset if isinstance(dataset, LanceDataset) else open_dataset(dataset)
    names = [columns] if isinstance(columns, str) else columns
    matches = None if filt is None else opened.to_table([], filter=filt, with_row_id=True)["_rowid"].to_numpy()
    total = len(opened) if matches is None else len(matches)
    if n >= total:
        yield from opened.to_batches(columns=names, batch_size=batch_size, filter=filt)
        return
    rng = np.random.default_rng()
    if matches is not None:
        chosen = np.sort(rng.choice(matches, n, replace=False))
        for start in range(0, n, batch_size):
            yield one_batch(opened._take_rows(chosen[start : start + batch_size], names))
        return
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
    """Selects and orders the rows of a reader."""

    @abstractmethod
    def __call__(
        self,
        dataset: LanceDataset,
        *,
        batch_size: int = 1024,
        columns: ColumnsLike | None = None,
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


class FragmentSampler(Sampler):
    """Selects and orders fragments, and yields their rows in this order."""

    @abstractmethod
    def iter_fragments(self, dataset: LanceDataset, **more: Any) -> Iterator[LanceFragment]:
        """Yield the fragments to read; ``more`` are further arguments of the call."""

    def __call__(
        self,
        dataset: LanceDataset,
        *,
        batch_size: int = 1024,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        batch_readahead: int | None = None,
        with_row_id: bool = False,
        **more: Any,
    ) -> Iterator[pa.RecordBatch]:
        batches = dataset.to_batches(
            columns=columns,
            filter=filter,
            batch_readahead=batch_readahead,
            with_row_id=with_row_id,
            fragments=list(self.iter_fragments(dataset, **more)),
        )
        yield from regroup(batches, batch_size)


class FullScanSampler(FragmentSampler):
    """All rows, in dataset order.

    >>> from trilake.lance import write_dataset
    >>> ds = write_dataset(pa.table({"a": range(5)}), "memory://doc-sampler", mode="overwrite")
    >>> [b.num_rows for b in FullScanSampler()(ds, batch_size=2)]
    [2, 2, 1]
    """

    def iter_fragments(self, dataset: LanceDataset, **more: Any) -> Iterator[LanceFragment]:
        yield from dataset.get_fragments()


class _Shard:
    """The rows of one of several readers.

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

    @classmethod
    def from_torch(cls, *args: Any, **options: Any) -> Self:
        """Create the sampler of this process of ``torch.distributed``; the arguments follow those of the rank.

        Raises ``MissingDependencyError`` without torch.
        """
        distributed = load("torch.distributed", "samplers of distributed processes")
        options |= {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
        return cls(**options, **dict(zip(cls._FROM_TORCH, args, strict=False)))

    _FROM_TORCH: ClassVar[Sequence[str]] = ("randomize", "seed")

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; readers with the same seed and epoch use the same order."""
        self._epoch = count("epoch", epoch)

    def share(self, count: int) -> list[int]:
        """Return the numbers of this reader's parts out of ``count``."""
        return self.ordered(np.arange(self.rank, count, self.world_size))

    def ordered(self, parts: Rows) -> list[int]:
        """Return part numbers in order, or shuffled for the next epoch."""
        rng = self.next_epoch()
        return [int(i) for i in (rng.permutation(parts) if self.randomize else parts)]

    def next_epoch(self) -> np.random.Generator:
        """Return the random numbers of the epoch, and begin the next one."""
        self._epoch += 1
        return np.random.default_rng([self.seed, self._epoch - 1])


class ShardedFragmentSampler(_Shard, FragmentSampler):
    """Every ``world_size``-th fragment: fast, but uneven if fragment sizes differ."""

    def iter_fragments(self, dataset: LanceDataset, **more: Any) -> Iterator[LanceFragment]:
        fragments = dataset.get_fragments()
        yield from (fragments[i] for i in self.share(len(fragments)))


class ShardedBatchSampler(_Shard, Sampler):
    """Every ``world_size``-th batch: even shares.

    With a filter, every ``world_size``-th matching row: each reader reads all rows, and shuffles batches only among
    the next 256.
    """

    def __call__(
        self,
        dataset: LanceDataset,
        *,
        batch_size: int = 1024,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        batch_readahead: int | None = None,
        with_row_id: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        if filter is not None:
            whole = dataset.to_batches(
                columns=columns, filter=filter, batch_readahead=batch_readahead, with_row_id=with_row_id
            )
            batches = regroup(self._own_rows(whole), batch_size)
            yield from _shuffled(batches, self.next_epoch()) if self.randomize else batches
            return
        total = dataset.count_rows()
        for number in self.share(-(-total // batch_size)):
            places = np.arange(number * batch_size, min((number + 1) * batch_size, total))
            yield one_batch(dataset.take(places, columns, with_row_id=with_row_id))

    def _own_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = self.rank
        for batch in batches:
            yield batch.take(pa.array(np.arange(first, batch.num_rows, self.world_size)))
            first = (first - batch.num_rows) % self.world_size


def _shuffled(batches: Iterable[pa.RecordBatch], rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
    """Yield batches in random order, holding at most ``_SHUFFLED`` of them."""
    pool: list[pa.RecordBatch] = []
    for batch in batches:
        if len(pool) < _SHUFFLED:
            pool.append(batch)
        else:
            place = int(rng.integers(_SHUFFLED))
            yield pool[place]
            pool[place] = batch
    yield from (pool[i] for i in rng.permutation(len(pool)))


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

    _FROM_TORCH = ("batch_size", "total_num_rows", "randomize", "seed")

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
        columns: ColumnsLike | None = None,
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


_GRANULARITIES: dict[str, type[ShardedFragmentSampler | ShardedBatchSampler]] = {
    "fragment": ShardedFragmentSampler,
    "batch": ShardedBatchSampler,
}
