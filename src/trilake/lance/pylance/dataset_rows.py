"""``DatasetRows``: single rows and blobs of a dataset, and random samples."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.common.arguments import count, flag
from trilake.errors import InvalidArgumentError
from trilake.lance.commands.input_rows import numbers
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.pylance.dataset_part import D, DatasetPart
from trilake.lance.pylance.scanner import OF_ROWS, check_names
from trilake.lance.scan.blob_bytes import BlobFile, read_parts
from trilake.lance.scan.fragment_reader import ROW_METADATA
from trilake.lance.scan.projection import ColumnsLike, Selection


class DatasetRows(DatasetPart[D]):
    """Rows of a dataset by position, id or address."""

    def take(self, /, indices: npt.ArrayLike | pa.Array, columns: ColumnsLike | None = None, **more: Any) -> pa.Table:
        """Return the rows at the given positions, in the given order.  Reads only the bytes of these rows.

        Parameters
        ----------
        indices: positions among the live rows, from 0.
        columns: columns to return, by default all.
        more: ``with_row_id`` and ``with_row_address``, and hints of pylance.

        Raises ``UnknownRowError`` if a position is out of range.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-take")
        >>> ds.take([2, 0])["a"].to_pylist()
        [3, 1]
        """
        return self._taken(self._dataset.snapshot.take, numbers(indices), columns, more)

    def _take_rows(
        self, /, row_ids: npt.ArrayLike | pa.Array, columns: ColumnsLike | None = None, **more: Any
    ) -> pa.Table:
        """Return the rows with the given row ids, in the given order; see :meth:`take`."""
        return self._taken(self._dataset.snapshot.take_rows, numbers(row_ids, np.uint64), columns, more)

    def _taken(
        self,
        take: Callable[..., pa.Table],
        rows: npt.NDArray[Any],
        columns: ColumnsLike | None,
        more: Mapping[str, Any],
    ) -> pa.Table:
        check_names(more, OF_ROWS)
        ids, addresses = (flag(n, more.get(n, False)) for n in ("with_row_id", "with_row_address"))
        view = self._dataset.snapshot.view
        selection = Selection.of(view, columns, with_row_id=ids, with_row_address=addresses)
        return _with_repeated_ids(
            selection.show(take(rows, selection.columns, row_metadata=selection.row_metadata)), columns
        )

    def take_blobs(
        self,
        blob_column: str,
        ids: npt.ArrayLike | pa.Array | None = None,
        addresses: npt.ArrayLike | pa.Array | None = None,
        indices: npt.ArrayLike | pa.Array | None = None,
        *,
        buffer_size: int = 512 << 10,
    ) -> list[BlobFile | None]:
        """Return blobs as file objects that read lazily; ``None`` for a null.

        Parameters
        ----------
        blob_column: name of the column.
        ids, addresses, indices: rows by row id, address, or position; pass exactly one.
        buffer_size: minimum number of bytes per read; 0 disables buffering.

        Raises ``InvalidArgumentError`` unless exactly one of the three is set, ``WrongTypeError`` if the column has no
        blobs, and ``UnknownRowError``.
        """
        blobs = self._dataset.snapshot.blobs(self._selected(ids, addresses, indices), blob_column)
        size = count("buffer_size", buffer_size, other_type=WrongTypeError)
        return [None if blob is None else BlobFile(blob, size) for blob in blobs]

    def read_blobs(
        self,
        /,
        blob_column: str,
        ids: npt.ArrayLike | pa.Array | None = None,
        addresses: npt.ArrayLike | pa.Array | None = None,
        indices: npt.ArrayLike | pa.Array | None = None,
        **hints: Any,
    ) -> list[tuple[int, bytes | None]]:
        """Return the address of each row and the bytes of its blob; parameters are those of :meth:`take_blobs`.

        ``hints`` of pylance have no effect.
        """
        del hints
        rows = self._selected(ids, addresses, indices)
        blobs = self._dataset.snapshot.blobs(rows, blob_column)
        data = [None if blob is None else blob.read(0, blob.length) for blob in blobs]
        return list(zip(rows.tolist(), data, strict=True))

    def read_blob_ranges(
        self, /, blob_column: str, requests: Sequence[tuple[int, int, int]], *, selector: str, **hints: Any
    ) -> list[tuple[int, int, bytes | None]]:
        """Read ranges of blobs; returns request number, row address, and bytes or ``None`` (null) for each request.

        Parameters
        ----------
        blob_column: name of the column.
        requests: row, offset in its blob, and number of bytes of each range.
        selector: how requests identify rows: ``"ids"``, ``"addresses"`` or ``"indices"``.
        hints: hints of pylance, without effect.

        Raises ``InvalidArgumentError`` for a range outside the blob, ``WrongTypeError`` and ``UnknownRowError``.
        """
        del hints
        if selector not in ("ids", "addresses", "indices"):
            raise InvalidArgumentError(f"selector must be one of ids, addresses and indices, got {selector!r}")
        rows = self._selected(**{selector: [row for row, _, _ in requests]})
        blobs = self._dataset.snapshot.blobs(rows, blob_column)
        data = read_parts(blobs, [(offset, length) for _, offset, length in requests])
        return [(i, *read) for i, read in enumerate(zip(rows.tolist(), data, strict=True))]

    def _selected(self, ids: Any = None, addresses: Any = None, indices: Any = None) -> npt.NDArray[np.uint64]:
        """Return the addresses of rows."""
        number = sum(one is not None for one in (ids, addresses, indices))
        if number != 1:
            raise InvalidArgumentError(
                f"Exactly one of ids, indices, or addresses must be specified, got {number}",
                help="pass only one of the three",
            )
        if indices is not None:
            return self._dataset.snapshot.addresses_at(numbers(indices))
        if addresses is not None:
            return numbers(addresses, np.uint64)
        return self._dataset.snapshot.addresses_of(numbers(ids, np.uint64))

    def sample(
        self, /, num_rows: int, columns: ColumnsLike | None = None, randomize_order: bool = True, **more: Any
    ) -> pa.Table:
        """Return a random sample of rows without replacement.

        Parameters
        ----------
        num_rows: size of the sample.
        columns: columns to return, by default all.
        randomize_order: whether to shuffle the rows; otherwise they keep the order of the dataset.
        more: options of :meth:`take`.

        Raises ``InvalidArgumentError`` if the dataset has fewer rows.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-sample")
        >>> ds.sample(2).num_rows, ds.sample(3, randomize_order=False)["a"].to_pylist()
        (2, [1, 2, 3])
        """
        flag("randomize_order", randomize_order)
        total = self._dataset.snapshot.count()
        if not 0 <= num_rows <= total:
            raise InvalidArgumentError(
                f"num_rows must be from 0 to {total}, the number of rows, got {num_rows}", file=self._dataset.uri
            )
        positions = random.sample(range(total), num_rows)
        return self.take(positions if randomize_order else sorted(positions), columns, **more)


def _with_repeated_ids(rows: pa.Table, columns: ColumnsLike | None) -> pa.Table:
    """Repeat the id columns that are selected several times, as pylance does."""
    if columns is None or isinstance(columns, str | Mapping) or len(set(columns)) == len(columns):
        return rows
    if not set(columns) <= set(rows.schema.names):  # names in other cases
        return rows
    names = [name for i, name in enumerate(columns) if name in ROW_METADATA or name not in columns[:i]]
    return rows.select([*names, *(name for name in rows.schema.names if name not in names)])
