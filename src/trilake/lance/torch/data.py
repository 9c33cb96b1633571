"""``LanceDataset`` for PyTorch: batches of tensors, distributed among processes and loader workers.

Needs torch (``pip install "trilake[torch]"``); the import raises ``MissingDependencyError`` without it.
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
from trilake.lance.pylance.lance_dataset import dataset as open_dataset
from trilake.lance.sampler import FullScanSampler, Sampler, ShardedBatchSampler, ShardedFragmentSampler, maybe_sample
from trilake.lance.scan.tensors import batch_to_numpy
from trilake.table.table import FilterLike

_torch: Any = load("torch", "PyTorch datasets")
_data: Any = load("torch.utils.data", "PyTorch datasets")
_SHARDED = {"fragment": ShardedFragmentSampler, "batch": ShardedBatchSampler}


def to_tensors(batch: pa.RecordBatch) -> Any:
    """Convert a batch to a dictionary of tensors, or to a single tensor if it has one column.

    Supports numbers, booleans, vectors and tensors; uint64 becomes int64.  Raises ``WrongTypeError`` for other types,
    and ``InvalidArgumentError`` for nulls.
    """
    arrays = batch_to_numpy(batch)
    # Copy if needed: torch warns about read-only memory such as Arrow's.
    tensors = {name: _torch.from_numpy(np.require(array, requirements=["C", "W"])) for name, array in arrays.items()}
    return next(iter(tensors.values())) if len(tensors) == 1 else tensors


class LanceDataset(_data.IterableDataset):  # type: ignore[misc]
    """A PyTorch iterable dataset of the rows of a Lance dataset.

    With several loader workers (``DataLoader(ds, batch_size=None, num_workers=2)``) each row is returned once: workers
    share the rows of their process.

    Parameters
    ----------
    dataset: an open dataset, or its path or URI.
    batch_size: maximum number of rows in a batch.
    columns: columns to return, by default all.
    filter: SQL or a pyarrow expression.
    samples: return a random sample of this size instead of all rows.
    cache: store the batches of the first pass in a file: ``True``, or a folder for it.
    pin_memory: accepted for compatibility; use that of ``DataLoader``.
    with_row_id: add a column ``_rowid``.
    rank, world_size: number of this process, and number of processes; each gets its own rows.
    shard_granularity: unit of distribution: ``"fragment"`` (default) or ``"batch"``.
    batch_readahead: number of batches to read ahead (a hint).
    to_tensor_fn: replaces :func:`to_tensors`.
    sampler: selects the rows, instead of ``rank`` and ``shard_granularity``.

    Raises ``InvalidArgumentError`` for mutually exclusive parameters.

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
            raise InvalidArgumentError(f"batch_size must be >= 1, got {batch_size}")
        if (rank is None) != (world_size is None):
            raise InvalidArgumentError("rank and world_size must be passed together")
        if self.shard_granularity not in _SHARDED:
            raise InvalidArgumentError(f"shard_granularity must be fragment or batch, got {shard_granularity!r}")
        if sampler is not None and (rank is not None or shard_granularity is not None):
            raise InvalidArgumentError(
                "sampler cannot be used together with rank or shard_granularity",
                help="leave rank and shard_granularity out: the sampler has its own",
            )
        if self.samples and (filter is not None or with_row_id or rank is not None or sampler is not None):
            raise InvalidArgumentError(
                "samples cannot be used together with filter, with_row_id, rank or sampler", help="leave samples out"
            )

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        whole = self.dataset.schema
        schema = whole if self.columns is None else pa.schema([whole.field(name) for name in self.columns])
        return schema.append(pa.field("_rowid", pa.uint64())) if self.with_row_id else schema

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
            reads = "draw its own sample" if self.samples else "read all rows of the sampler"
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
        if self.sampler is not None:
            return self.sampler
        readers = self.world_size * workers
        if readers == 1:
            return FullScanSampler()
        return _SHARDED[self.shard_granularity](self.rank * workers + worker, readers)
