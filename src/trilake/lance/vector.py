"""Tables of vectors, and assignment of vectors to partitions."""

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
from trilake.lance.scan.vectors import vector_type, vectors_of


def vec_to_table(
    data: Mapping[Any, Any] | Sequence[Any] | npt.NDArray[Any],
    names: str | Sequence[str] | None = None,
    ndim: int | None = None,
    check_ndim: bool = True,
) -> pa.Table:
    """Create a table with a float32 vector column.

    Parameters
    ----------
    data: vectors in a list or array; or a mapping, whose keys become the first column.
    names: name of the column, by default ``"vector"``; for a mapping both names, by default ``["id", "vector"]``.
    ndim: dimension of the vectors, by default that of the first one.
    check_ndim: whether to check the dimension of all vectors.

    Raises ``InvalidArgumentError``.

    >>> vec_to_table({"a": [1, 2], "b": [3, 4]}).to_pylist()
    [{'id': 'a', 'vector': [1.0, 2.0]}, {'id': 'b', 'vector': [3.0, 4.0]}]
    """
    if not isinstance(data, Mapping | list | np.ndarray):
        raise NoVectorsError(f"data must be dict, list, or ndarray, got {type(data)} instead")
    count = 2 if isinstance(data, Mapping) else 1
    column_names = names if names is not None else ["id", "vector"][-count:]
    column_names = [column_names] if isinstance(column_names, str) else list(column_names)
    if len(column_names) != count:
        raise InvalidArgumentError(f"expected {count} names, got {column_names}")
    rows = list(data.values()) if isinstance(data, Mapping) else data
    if ndim is None:
        ndim = len(next(iter(rows)))
    if check_ndim:
        wrong = next((row for row in rows if len(row) != ndim), None)
        if wrong is not None:
            raise InvalidArgumentError(f"Expected {ndim} dimensions but got {len(wrong)} for {wrong}")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.array(rows, np.float32).ravel()), ndim)
    keys = [pa.array(list(data))] if isinstance(data, Mapping) else []
    return pa.Table.from_arrays([*keys, vectors], names=column_names)


class NoVectorsError(InvalidArgumentError, NotImplementedError):
    """The data cannot be converted to vectors."""


#: Columns of the file written by :func:`compute_partitions`.
_PARTITIONS = pa.schema([pa.field("row_id", pa.uint64()), pa.field("partition", pa.uint32())])


def compute_partitions(dataset: LanceDataset, column: str, kmeans: Any, batch_size: int = 1024) -> str:
    """Write the partition of each row's vector to a data file, and return its name.

    Parameters
    ----------
    column: the vector column.
    kmeans: a trained :class:`~trilake.lance.util.KMeans`, or an object with its ``predict``.
    batch_size: number of vectors to process at a time.

    The file has the columns ``row_id`` and ``partition``.  It does not belong to a version, so a later clean-up deletes
    it.  Raises ``UnknownColumnError``, ``WrongTypeError`` and ``NothingToWriteError``.
    """
    size = vector_type(dataset.snapshot, column).list_size
    rows = dataset.count_rows()
    if not rows:
        raise NothingToWriteError("the column has no vectors", file=dataset.uri)

    def partitions() -> Iterator[pa.RecordBatch]:
        for batch in dataset.to_batches(columns=[column], batch_size=batch_size, with_row_id=True):
            vectors = vectors_of(storage_array(batch.column(0)), size)
            numbers = pa.array(np.asarray(kmeans.predict(np.ascontiguousarray(vectors))), pa.uint32())
            yield pa.RecordBatch.from_arrays([batch.column(ROW_ID), numbers], schema=_PARTITIONS)

    reader = pa.RecordBatchReader.from_batches(_PARTITIONS, partitions())
    (fragment,) = write_fragments(reader, dataset.uri, max_rows_per_file=rows)
    return str(fragment.files[0].path)
