"""Tables of vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import NothingToWriteError
from trilake.lance.file.extensions import storage_array
from trilake.lance.fragment import write_fragments
from trilake.lance.pylance.lance_dataset import LanceDataset
from trilake.lance.scan.fragment_reader import ROW_ID
from trilake.lance.scan.search import vector_type, vectors_of


def vec_to_table(
    data: Mapping[Any, Any] | Sequence[Any] | npt.NDArray[Any],
    names: str | Sequence[str] | None = None,
    ndim: int | None = None,
    check_ndim: bool = True,
) -> pa.Table:
    """A table with a column of vectors of 32-bit floats.

    Parameters
    ----------
    data: vectors in a list or an array; or by key, which becomes a column in front.
    names: of the column, ``"vector"``; of a mapping, of both, ``["id", "vector"]``.
    ndim: numbers of each vector; the first one tells, by default.
    check_ndim: whether to check that all have as many.

    Raises ``InvalidArgumentError``.

    >>> vec_to_table({"a": [1, 2], "b": [3, 4]}).to_pylist()
    [{'id': 'a', 'vector': [1.0, 2.0]}, {'id': 'b', 'vector': [3.0, 4.0]}]
    """
    if not isinstance(data, Mapping | list | np.ndarray):
        raise NoVectorsError(f"data must be dict, list, or ndarray, got {type(data)} instead")
    count = 2 if isinstance(data, Mapping) else 1
    chosen = names if names is not None else ["id", "vector"][-count:]
    chosen = [chosen] if isinstance(chosen, str) else list(chosen)
    if len(chosen) != count:
        raise InvalidArgumentError(f"names are {chosen}", help=f"this data makes {count} columns")
    rows = list(data.values()) if isinstance(data, Mapping) else data
    vectors = _vectors(rows, ndim, check_ndim)
    keys = [pa.array(list(data))] if isinstance(data, Mapping) else []
    return pa.Table.from_arrays([*keys, vectors], names=chosen)


class NoVectorsError(InvalidArgumentError, NotImplementedError):
    """Vectors cannot be made of this."""


def _vectors(rows: Any, ndim: int | None, check: bool) -> pa.FixedSizeListArray:
    if ndim is None:
        ndim = len(next(iter(rows)))
    if check:
        wrong = next((row for row in rows if len(row) != ndim), None)
        if wrong is not None:
            raise InvalidArgumentError(f"Expected {ndim} dimensions but got {len(wrong)} for {wrong}")
    values = np.array(rows, np.float32).ravel()
    return pa.FixedSizeListArray.from_arrays(pa.array(values), ndim)


#: Columns of the file that :func:`compute_partitions` writes.
_PARTITIONS = pa.schema([pa.field("row_id", pa.uint64()), pa.field("partition", pa.uint32())])


def compute_partitions(dataset: LanceDataset, column: str, kmeans: Any, batch_size: int = 1024) -> str:
    """Write the partition of each row's vector into a data file of its own, and return the name of the file.

    Parameters
    ----------
    column: of vectors.
    kmeans: has learned: a :class:`~trilake.lance.util.KMeans`, or what else has its ``predict``.
    batch_size: vectors at once.

    The file has the columns ``row_id`` and ``partition``, and is of no version: a clean-up removes it when it is old.
    Raises ``UnknownColumnError``, ``WrongTypeError`` and ``NothingToWriteError``.
    """
    size = vector_type(dataset.snapshot, column).list_size
    rows = dataset.count_rows()
    if not rows:
        raise NothingToWriteError("there are no vectors whose partitions could be computed", file=dataset.uri)

    def partitions() -> Iterator[pa.RecordBatch]:
        for batch in dataset.to_batches(columns=[column], batch_size=batch_size, with_row_id=True):
            vectors = vectors_of(storage_array(batch.column(0)), size)
            numbers = pa.array(np.asarray(kmeans.predict(np.ascontiguousarray(vectors))), pa.uint32())
            yield pa.RecordBatch.from_arrays([batch.column(ROW_ID), numbers], schema=_PARTITIONS)

    reader = pa.RecordBatchReader.from_batches(_PARTITIONS, partitions())
    (fragment,) = write_fragments(reader, dataset.uri, max_rows_per_file=rows)
    return str(fragment.files[0].path)
