"""``LanceDataset`` of torch: batches of a Lance dataset as tensors, parted between processes and workers of a loader.

The module needs torch (``pip install "trilake[torch]"``): ``MissingDependencyError`` says so where it is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from trilake.common.extras import load
from trilake.errors import InvalidArgumentError
from trilake.lance.cache import CachedDataset
from trilake.lance.pylance import lance_dataset
from trilake.lance.pylance.functions import dataset as open_dataset
from trilake.lance.sampler import FullScanSampler, Sampler, ShardedBatchSampler, ShardedFragmentSampler, maybe_sample
from trilake.lance.scan.tensors import batch_to_numpy
from trilake.table.table import FilterLike

_torch: Any = load("torch", "datasets of torch")
_data: Any = load("torch.utils.data", "datasets of torch")
_SHARDED = {"fragment": ShardedFragmentSampler, "batch": ShardedBatchSampler}


def to_tensors(batch: pa.RecordBatch) -> Any:
    """The columns of a batch as tensors by name; of a batch of one column its tensor alone.

    Numbers, booleans, vectors and tensors of numbers can be; numbers of 64 bits without a sign become those with one.
    Raises ``WrongTypeError`` for columns of other types, and ``InvalidArgumentError`` for nulls.
    """
    arrays = batch_to_numpy(batch)
    # Torch warns of memory that it may not write to, as that of Arrow is.
    tensors = {name: _torch.from_numpy(np.require(array, requirements=["C", "W"])) for name, array in arrays.items()}
    return next(iter(tensors.values())) if len(tensors) == 1 else tensors


class LanceDataset(_data.IterableDataset):  # type: ignore[misc]
    """The rows of a Lance dataset, a batch of tensors at a time.

    A loader with several workers (``DataLoader(ds, batch_size=None, num_workers=2)``) gets each row once: a worker
    reads a share of what the process reads.

    Parameters
    ----------
    dataset: an open dataset, or where one is.
    batch_size: rows of a batch; the last one of a reader may have fewer.
    columns: to return, all by default.
    filter: SQL text, or a pyarrow expression.
    samples: so many rows at random, in place of all.
    cache: keep the batches in a file after the first pass: ``True``, or the folder for it.
    pin_memory: accepted for other implementations' sake; ``DataLoader`` pins.
    with_row_id: return a column ``_rowid`` too.
    rank, world_size: which of how many processes this is; each gets its own rows.
    shard_granularity: whether readers get whole fragments (``"fragment"``, the default) or batches (``"batch"``).
    batch_readahead: a hint how much to read ahead.
    to_tensor_fn: makes what is returned of a batch, in place of :func:`to_tensors`.
    sampler: says which rows are read, in place of ``rank`` and ``shard_granularity``.

    Raises ``InvalidArgumentError`` for parameters that exclude each other.

    Example::

        from torch.utils.data import DataLoader
        from trilake.lance.torch.data import LanceDataset

        rows = LanceDataset("vectors.lance", batch_size=512, columns=["vector", "label"], filter="label >= 0")
        for batch in DataLoader(rows, batch_size=None, num_workers=2):
            train(batch["vector"], batch["label"])
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str] | lance_dataset.LanceDataset,
        batch_size: int,
        *,
        columns: Sequence[str] | None = None,
        filter: FilterLike | None = None,
        samples: int | None = 0,
        cache: str | os.PathLike[str] | bool | None = None,
        pin_memory: bool = False,
        with_row_id: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        shard_granularity: Literal["fragment", "batch"] | None = None,
        batch_readahead: int = 16,
        to_tensor_fn: Callable[[pa.RecordBatch], Any] | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        super().__init__()
        self.pin_memory = pin_memory
        self.dataset = dataset if isinstance(dataset, lance_dataset.LanceDataset) else open_dataset(dataset)
        self.batch_size, self.batch_readahead = batch_size, batch_readahead
        self.columns = None if columns is None else list(columns)
        self.filter, self.with_row_id, self.samples = filter, with_row_id, samples or 0
        self.cache, self.sampler = cache, sampler
        self.rank, self.world_size = 0 if rank is None else rank, 1 if world_size is None else world_size
        self.shard_granularity = shard_granularity or "fragment"
        self.to_tensor_fn = to_tensor_fn or to_tensors
        self._cached: CachedDataset | None = None
        if batch_size < 1:
            raise InvalidArgumentError(f"a batch of {batch_size} rows cannot be", help="1 or more")
        if (rank is None) != (world_size is None):
            raise InvalidArgumentError("rank and world_size are given together, or neither is")
        if self.shard_granularity not in _SHARDED:
            raise InvalidArgumentError(f"shard_granularity {shard_granularity!r} is unknown", help="fragment or batch")
        if sampler is not None and (rank is not None or shard_granularity is not None):
            raise InvalidArgumentError("a sampler says itself which rows are read", help="leave rank and shards to it")
        if self.samples and (filter is not None or with_row_id or rank is not None or sampler is not None):
            raise InvalidArgumentError("samples are of all rows, and without row ids", help="leave samples out")

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read, as Arrow has them."""
        whole = self.dataset.schema
        shown = whole if self.columns is None else pa.schema([whole.field(name) for name in self.columns])
        return shown.append(pa.field("_rowid", pa.uint64())) if self.with_row_id else shown

    def __repr__(self) -> str:
        return f"LanceDataset({self.dataset.uri}, batch_size={self.batch_size})"

    def __iter__(self) -> Iterator[Any]:
        batches: Iterable[pa.RecordBatch]
        if self.cache:
            if self._cached is None:
                self._cached = CachedDataset(self._batches(), self.cache)
            batches = self._cached
        else:
            batches = self._batches()
        for batch in batches:
            yield self.to_tensor_fn(batch)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        worker = _data.get_worker_info()
        count, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
        if count > 1 and (self.samples or self.sampler is not None):
            reads = "draw samples of its own" if self.samples else "read what the sampler says"
            raise InvalidArgumentError(f"each worker would {reads}", help="use num_workers=0")
        if self.samples:
            yield from maybe_sample(self.dataset, self.samples, self.schema.names, self.batch_size)
            return
        yield from self._sampler(number, count)(
            self.dataset,
            batch_size=self.batch_size,
            columns=self.columns,
            filter=self.filter,
            batch_readahead=self.batch_readahead,
            with_row_id=self.with_row_id,
        )

    def _sampler(self, worker: int, workers: int) -> Sampler:
        """What says which rows a worker of this process reads."""
        if self.sampler is not None:
            return self.sampler
        readers = self.world_size * workers
        if readers == 1:
            return FullScanSampler()
        return _SHARDED[self.shard_granularity](self.rank * workers + worker, readers)
