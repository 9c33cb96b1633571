"""``LanceDataset`` for PyTorch: batches of tensors, distributed among processes and loader workers.

Needs torch (``pip install "trilake[torch]"``); the import raises ``MissingDependencyError`` without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from trilake.common.extras import load
from trilake.errors import InvalidArgumentError
from trilake.lance.cache import CachedDataset
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.pylance import lance_dataset
from trilake.lance.pylance.lance_dataset import dataset as open_dataset
from trilake.lance.sampler import FullScanSampler, Sampler, ShardedBatchSampler, ShardedFragmentSampler, maybe_sample
from trilake.lance.scan.projection import ColumnsLike
from trilake.table.table import FilterLike

_torch: Any = load("torch", "PyTorch datasets")
_data: Any = load("torch.utils.data", "PyTorch datasets")
_distributed: Any = load("torch.distributed", "PyTorch datasets")
_SHARDED = {"fragment": ShardedFragmentSampler, "batch": ShardedBatchSampler}


def to_tensors(batch: pa.RecordBatch) -> Any:
    """Convert a batch to a dictionary of tensors, or to a single tensor if it has one column.

    Supports numbers, booleans, vectors and tensors; uint64 becomes int64, which row ids fit.  Raises ``WrongTypeError``
    for other types, and ``InvalidArgumentError`` for nulls and numbers above 2^63.
    """
    arrays = {name: _array(name, column) for name, column in zip(batch.schema.names, batch.columns)}
    # Copy if needed: torch warns about read-only memory such as Arrow's.
    tensors = {name: _torch.from_numpy(np.require(array, requirements=["C", "W"])) for name, array in arrays.items()}
    return next(iter(tensors.values())) if len(tensors) == 1 else tensors


def _array(name: str, column: pa.Array) -> npt.NDArray[Any]:
    if column.null_count:
        raise InvalidArgumentError(
            "the column has nulls, which tensors cannot represent",
            help="filter them out: column IS NOT NULL",
            column=name,
        )
    if isinstance(column, pa.FixedShapeTensorArray):
        return np.asarray(column.to_numpy_ndarray())
    if pt.is_fixed_size_list(column.type) and _is_number(column.type.value_type):
        return _numbers(name, column.flatten()).reshape(len(column), column.type.list_size)
    if not _is_number(column.type):
        raise WrongTypeError(
            f"the column is of type {column.type}",
            help="tensors are made of numbers, booleans, and fixed-size lists of them",
            column=name,
        )
    return _numbers(name, column)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind))


def _numbers(name: str, column: pa.Array) -> npt.NDArray[Any]:
    if column.null_count:
        raise InvalidArgumentError("a vector in the column contains nulls, which tensors cannot represent", column=name)
    if pt.is_uint64(column.type):
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid as e:
            raise InvalidArgumentError(f"a number does not fit int64: {e}", column=name) from e
    numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers


class LanceDataset(_data.IterableDataset):
    """A PyTorch iterable dataset of the rows of a Lance dataset.

    With several loader workers (``DataLoader(ds, batch_size=None, num_workers=2)``) each row is returned once: workers
    share the rows of their process.

    Parameters
    ----------
    dataset: an open dataset, or its path or URI.
    batch_size: maximum number of rows in a batch.
    dataset_options: options of :func:`trilake.lance.dataset` for a path or URI.
    columns: columns to return, by default all; or SQL by name.
    filter: SQL or a pyarrow expression.
    samples: return a random sample of this size instead of all rows.
    cache: store the batches of the first pass in a file: ``True``, or a folder for it.
    pin_memory: accepted for compatibility; use that of ``DataLoader``.
    with_row_id: add a column ``_rowid``.
    rank, world_size: number of this process, and number of processes; each gets its own rows.  By default those of
        ``torch.distributed``, if its process group is initialized.
    shard_granularity: unit of distribution: ``"fragment"`` (default) or ``"batch"``.
    batch_readahead: number of batches to read ahead (a hint).
    to_tensor_fn: replaces :func:`to_tensors`.  If there are blob columns, it gets a dictionary of columns, with lists
        of :class:`~trilake.lance.blob.BlobFile` for the blobs.
    sampler: selects the rows, instead of ``rank`` and ``shard_granularity``.
    auto_detect_rank: whether to use the rank of ``torch.distributed``.

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
        dataset_options: Mapping[str, Any] | None = None,
        columns: ColumnsLike | None = None,
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
        auto_detect_rank: bool = True,
    ) -> None:
        super().__init__()
        self.pin_memory = pin_memory
        if not isinstance(dataset, lance_dataset.LanceDataset):
            dataset = open_dataset(dataset, **(dataset_options or {}))
        self.dataset = dataset
        self.batch_size, self.batch_readahead = batch_size, batch_readahead
        self.columns = list(columns) if isinstance(columns, Sequence) else columns
        names = dataset.schema.names if columns is None else columns
        fields = dataset.snapshot.view.schema.fields
        self._blobs = [field.name for field in fields if field.is_blob and field.name in names]
        self.filter, self.with_row_id, self.samples = filter, with_row_id, samples or 0
        self.cache, self.sampler = cache, sampler
        self.rank, self.world_size = 0 if rank is None else rank, 1 if world_size is None else world_size
        self.shard_granularity = shard_granularity or "fragment"
        self.to_tensor_fn = to_tensor_fn or to_tensors
        self._cached: CachedDataset | None = None
        self._detects = auto_detect_rank and rank is None and world_size is None
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
        if self.samples and (with_row_id or rank is not None or sampler is not None):
            raise InvalidArgumentError(
                "samples cannot be used together with with_row_id, rank or sampler", help="leave samples out"
            )
        if self.samples and self._blobs:
            raise InvalidArgumentError("samples cannot have blobs", help="pass the other columns, or leave samples out")
        self._detect()

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        schema = self.dataset.schema if self.columns is None else self.dataset.scanner(self.columns).projected_schema
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
            yield self.to_tensor_fn(self._with_blobs(batch) if self._blobs else batch)

    def _with_blobs(self, batch: pa.RecordBatch) -> dict[str, Any]:
        columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
        ids = columns["_rowid"] if self.with_row_id else columns.pop("_rowid")
        return {**columns, **{name: self.dataset.take_blobs(name, ids=ids) for name in self._blobs}}

    def _detect(self) -> None:
        """Use the rank of the process group; a worker process has none, but gets that of the process that made it."""
        if self._detects and _distributed.is_available() and _distributed.is_initialized():
            self.rank, self.world_size = _distributed.get_rank(), _distributed.get_world_size()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        worker = _data.get_worker_info()
        count, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
        if count > 1 and (self.samples or self.sampler is not None):
            reads = "draw its own sample" if self.samples else "read all rows of the sampler"
            raise InvalidArgumentError(f"each worker would {reads}", help="use num_workers=0")
        if self.samples:
            columns = self.dataset.schema.names if self.columns is None else self.columns
            yield from maybe_sample(self.dataset, self.samples, columns, self.batch_size, filt=self.filter)
            return
        yield from self._sampler(number, count)(
            self.dataset,
            batch_size=self.batch_size,
            columns=self._read_columns(),
            filter=self.filter,
            batch_readahead=self.batch_readahead,
            with_row_id=self.with_row_id or bool(self._blobs),
        )

    def _read_columns(self) -> ColumnsLike | None:
        if not self._blobs:
            return self.columns
        if isinstance(self.columns, Mapping):
            return {name: sql for name, sql in self.columns.items() if name not in self._blobs}
        return [name for name in self.columns or self.dataset.schema.names if name not in self._blobs]

    def _sampler(self, worker: int, workers: int) -> Sampler:
        if self.sampler is not None:
            return self.sampler
        self._detect()
        readers = self.world_size * workers
        if readers == 1:
            return FullScanSampler()
        return _SHARDED[self.shard_granularity](self.rank * workers + worker, readers)


class SafeLanceDataset(_data.Dataset):
    """A PyTorch map-style dataset: rows by position, as dictionaries.  Each worker process opens the dataset itself.

    Parameters
    ----------
    uri: path or URI.
    dataset_options: options of :func:`trilake.lance.dataset`.
    """

    def __init__(self, uri: str | os.PathLike[str], *, dataset_options: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.uri, self.dataset_options = uri, dict(dataset_options or {})
        self._length = open_dataset(uri, **self.dataset_options).count_rows()
        self._opened: lance_dataset.LanceDataset | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        if self._opened is None:
            self._opened = open_dataset(self.uri, **self.dataset_options)
        rows: list[dict[str, Any]] = self._opened.take(indices).to_pylist()
        return rows


def get_safe_loader(dataset: Any, batch_size: int = 32, num_workers: int = 4, **options: Any) -> Any:
    """Create a ``DataLoader`` whose worker processes are spawned, and are kept between passes.

    Parameters
    ----------
    dataset: a :class:`SafeLanceDataset`.
    batch_size: number of rows in a batch.
    num_workers: number of worker processes.
    options: other options of ``DataLoader``.
    """
    if num_workers:
        options = {"persistent_workers": True, "multiprocessing_context": "spawn", **options}
    return _data.DataLoader(dataset, batch_size=batch_size, num_workers=num_workers, **options)
