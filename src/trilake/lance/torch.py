"""Lance datasets as data sets of PyTorch: batches of tensors, shared out between processes and their workers.

``LanceDataset`` here is a ``torch.utils.data.IterableDataset``, so it is made when it is first asked for, and importing
this module needs no torch.  What does not need torch, the shares of readers and arrays of columns, is here as well.

>>> from trilake.lance import write_dataset
>>> ds = write_dataset(pa.table({"a": range(5)}), "memory://doc-torch", mode="overwrite")
>>> [arrays(b)["a"].tolist() for b in TensorBatches(ds, 2).batches(worker=0, workers=2)]
[[0, 1], [4]]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.extras import load
from trilake.lance.pylance.functions import dataset as open_dataset
from trilake.lance.pylance.lance_dataset import LanceDataset as Dataset
from trilake.lance.sampler import Sampler, ShardedBatchSampler, ShardedFragmentSampler
from trilake.table import FilterLike

_t = pa.types
Arrays = dict[str, npt.NDArray[Any] | list[Any]]


class TensorBatches:
    """Batches of a dataset for one of several readers; each batch is a dict of tensors by column.

    Parameters
    ----------
    dataset: an open dataset, or the address of one, whose newest version is opened then.
    batch_size: rows of a batch; the last one of a reader may have fewer.
    columns: to return, all by default.
    filter: SQL text, or a pyarrow expression; rows for which it is not true are left out.
    with_row_id: return a column ``_rowid`` too.
    rank, world_size: of this process, and the number of all.  Each worker of a ``DataLoader`` gets a share of its
        process's share: together they get every row, and each row once.
    shard_granularity: ``"batch"`` for even shares, ``"fragment"`` for quick reads.
    to_tensor_fn: makes of an Arrow batch what the loader returns.  The default is :func:`tensors`.
    sampler: other shares than those of ``shard_granularity``; with one, workers are not told apart.

    Raises ``InvalidArgumentError`` for a rank, a size or a granularity that cannot be.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Dataset,
        batch_size: int = 1024,
        *,
        columns: Sequence[str] | None = None,
        filter: FilterLike | None = None,
        with_row_id: bool = False,
        rank: int = 0,
        world_size: int = 1,
        shard_granularity: Literal["batch", "fragment"] = "batch",
        to_tensor_fn: Callable[[pa.RecordBatch], Any] | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        if batch_size < 1:
            raise InvalidArgumentError(f"batch_size={batch_size} is no number of rows", help="use a number above 0")
        if not 0 <= rank < world_size:
            raise InvalidArgumentError(f"reader {rank} of {world_size} cannot be", help="ranks count from 0")
        if shard_granularity not in ("batch", "fragment"):
            raise InvalidArgumentError(
                f"shard_granularity={shard_granularity!r} is unknown", help="it is 'batch' or 'fragment'"
            )
        self.dataset = dataset if isinstance(dataset, Dataset) else open_dataset(dataset)
        self.batch_size, self.filter, self.with_row_id = batch_size, filter, with_row_id
        self.columns = None if columns is None else list(columns)
        self.rank, self.world_size, self.shard_granularity = rank, world_size, shard_granularity
        self.to_tensor_fn, self.sampler = to_tensor_fn, sampler

    def batches(self, worker: int = 0, workers: int = 1) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of one of the workers of this process."""
        sampler = self.sampler
        if sampler is None:
            kind = ShardedBatchSampler if self.shard_granularity == "batch" else ShardedFragmentSampler
            sampler = kind(self.rank * workers + worker, self.world_size * workers)
        elif worker:
            return
        yield from sampler(
            self.dataset,
            batch_size=self.batch_size,
            columns=self.columns,
            filter=self.filter,
            with_row_id=self.with_row_id,
        )

    def __iter__(self) -> Iterator[Any]:
        """The batches of this worker as tensors.  Raises ``MissingDependencyError`` without torch."""
        info = load("torch.utils.data", "data sets of PyTorch").get_worker_info()
        make = self.to_tensor_fn or tensors
        yield from map(make, self.batches() if info is None else self.batches(info.id, info.num_workers))


def arrays(batch: pa.RecordBatch) -> Arrays:
    """The columns of a batch as numpy arrays: vectors as rows of a matrix, texts and binaries as lists.

    Raises ``SchemaMismatchError`` for nulls among numbers and for types that have no tensors.
    """
    return {f.name: _array(f.name, batch.column(i)) for i, f in enumerate(batch.schema)}


def tensors(batch: pa.RecordBatch) -> dict[str, Any]:
    """The columns of a batch as tensors of torch; texts and binaries as lists.

    Raises as :func:`arrays` does, and ``MissingDependencyError`` without torch.
    """
    torch = load("torch", "tensors of PyTorch")
    columns = arrays(batch).items()
    return {name: column if isinstance(column, list) else torch.from_numpy(column) for name, column in columns}


def _array(name: str, column: pa.Array) -> npt.NDArray[Any] | list[Any]:
    kind, shape = column.type, [len(column)]
    if isinstance(kind, pa.FixedShapeTensorType):
        if column.null_count:
            raise _without_tensor(name, "has nulls")
        return np.array(column.to_numpy_ndarray())
    while _t.is_fixed_size_list(kind):
        if column.null_count:
            raise _without_tensor(name, "has nulls")
        shape.append(kind.list_size)
        column, kind = column.flatten(), kind.value_type
    if len(shape) == 1 and any(f(kind) for f in (_t.is_string, _t.is_large_string, _t.is_binary, _t.is_large_binary)):
        return list(column.to_pylist())
    if not (_t.is_integer(kind) or _t.is_floating(kind) or _t.is_boolean(kind)):
        raise _without_tensor(name, f"is of type {kind}")
    if column.null_count:
        raise _without_tensor(name, "has nulls")
    # A copy: torch wants memory that may be written.
    return np.array(column.to_numpy(zero_copy_only=False)).reshape(shape)


def _without_tensor(name: str, reason: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {name!r} {reason}, and a tensor has no such values",
        help="leave the column out, fill its nulls, or pass to_tensor_fn",
        column=name,
    )


@cache
def _torch_dataset() -> type[TensorBatches]:
    base = load("torch.utils.data", "data sets of PyTorch").IterableDataset
    members = {"__doc__": TensorBatches.__doc__, "__module__": __name__, "__iter__": TensorBatches.__iter__}
    made: type[TensorBatches] = type("LanceDataset", (TensorBatches, base), members)
    return made


if TYPE_CHECKING:
    LanceDataset = TensorBatches


def __getattr__(name: str) -> Any:
    if name == "LanceDataset":
        return _torch_dataset()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
