"""``DataFileReader`` and ``DataFileWriter``: the interfaces of data files of any version of the format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import IO, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.expr import ColumnStats
from trilake.expr.terms.datatypes import Path
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.sources import Source

Rows = npt.NDArray[np.int64]

#: Target bytes of one part of a file, and the minimum and maximum rows of a part.
_PART_BYTES, _MIN_PART, _MAX_PART = 16 << 20, 1 << 12, 1 << 18


class DataFileReader(ABC):
    """Some columns of a fragment.  Immutable: instances can be shared between threads."""

    #: The columns of the file, with the field ids of the dataset.
    schema: LanceSchema
    #: The first row of each row group, then the number of rows; files of 2.x are one group.
    batch_offsets: Rows

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def file(self) -> str:
        """Name of the file in errors."""
        return self._source.file

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._source.size

    @property
    def num_rows(self) -> int:
        """Number of rows, including deleted ones."""
        return int(self.batch_offsets[-1])

    def stored_bytes(self, columns: LanceSchema) -> int:
        """Approximate bytes of all rows of some columns."""
        del columns
        return self.size

    def parts(self, columns: LanceSchema) -> Rows:
        """The first row of each part of these columns that is best read whole, then the number of rows."""
        return even_parts(self.num_rows, self.stored_bytes(columns))

    @abstractmethod
    def read_rows(self, start: int, stop: int, columns: LanceSchema) -> pa.RecordBatch:
        """Read rows ``start`` up to ``stop``, with those of the columns that the file has.  Raises
        ``CorruptFileError``.
        """

    def read_ranges(self, ranges: Sequence[tuple[int, int]], columns: LanceSchema) -> Iterator[pa.RecordBatch]:
        """Read ascending ranges of rows, one batch each; see :meth:`read_rows`."""
        for start, stop in ranges:
            yield self.read_rows(start, stop, columns)

    def take(self, rows: Rows | Sequence[int], columns: LanceSchema | None = None) -> pa.Table:
        """Read single rows, in the order of ``rows``, which count from the start of the file, including deleted ones.

        Raises ``InvalidArgumentError`` for rows that the file does not have, and ``CorruptFileError``.
        """
        numbers = np.asarray(rows, np.int64)
        if len(numbers):
            self._check_rows(int(numbers.min()), int(numbers.max()) + 1)
        order: Rows | None = None
        if len(numbers) > 1 and not (np.diff(numbers) > 0).all():
            numbers, order = np.unique(numbers, return_inverse=True)
        table = pa.Table.from_batches([self._take(numbers, columns)])
        return table if order is None else table.take(pa.array(order))

    @abstractmethod
    def _take(self, rows: Rows, columns: LanceSchema | None) -> pa.RecordBatch:
        """Read ascending rows."""

    def column_stats(self, mask_ids: Mapping[int, int] = {}) -> Mapping[Path, ColumnStats]:
        """Statistics of each row group, by path.

        ``mask_ids`` are the field ids of companions by those of their columns.
        """
        del mask_ids
        return {}

    def _check_rows(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.num_rows:
            message = f"expected rows from 0 up to {self.num_rows}, got {start} to {stop}"
            raise InvalidArgumentError(message, file=self.file)


def even_parts(rows: int, size: int) -> Rows:
    """Row offsets of parts of at most about 16 MiB each, for rows of ``size`` bytes together.

    >>> even_parts(10_000, 40 << 20).tolist()
    [0, 4096, 8192, 10000]
    """
    step = _MAX_PART
    while step > _MIN_PART and step * size > _PART_BYTES * max(rows, 1):
        step //= 2
    return np.append(np.arange(0, rows, step), rows).astype(np.int64)


@dataclass(frozen=True)
class WrittenFile:
    """A complete data file: the values for its manifest entry, which may omit a version (0, 0) and a size of 0."""

    rows: int
    field_ids: tuple[int, ...]
    column_indices: tuple[int, ...] = ()
    version: tuple[int, int] = (0, 0)
    size: int = 0


class DataFileWriter(ABC):
    """Writes one data file, which appears in the store when it is closed; after an error in a ``with`` block, it does
    not.
    """

    _schema: LanceSchema
    _key: str
    _file: IO[bytes]
    #: The types of the last batch.
    _types: list[pa.DataType] | None = None

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Number of rows written so far."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Approximate bytes of the file so far."""

    @property
    def dictionaries(self) -> Mapping[int, pa.Array]:
        """Dictionary values for the manifest, by field id."""
        return {}

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write one batch.  Raises ``SchemaMismatchError`` if its columns differ from those of the file."""

    def _check(self, batch: pa.RecordBatch) -> None:
        """Raise ``SchemaMismatchError`` unless a batch has the columns of the file."""
        if batch.schema.names != self._schema.names:
            raise SchemaMismatchError(
                f"expected the columns {', '.join(self._schema.names)}, got {', '.join(batch.schema.names)}",
                help="select the columns in the order of the schema",
                file=self._key,
            )
        if batch.schema.types != self._types:
            self._schema.check_compatible(LanceSchema.from_arrow(batch.schema), file=self._key)
            self._types = batch.schema.types

    def add_metadata(self, metadata: Mapping[bytes, bytes]) -> None:
        """Add metadata to the schema in the file."""
        self._schema = replace(self._schema, metadata={**self._schema.metadata, **metadata})

    @abstractmethod
    def close(self) -> WrittenFile:
        """Finish the file.  Raises ``StorageError``."""

    def discard(self) -> None:
        """Discard what was written; the file does not appear."""
        self._stop()
        self._file.__exit__(InvalidArgumentError, InvalidArgumentError("discarded"), None)

    @abstractmethod
    def _stop(self) -> None:
        """Stop background threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if kind is not None:
            self.discard()
        elif not self._file.closed:
            self.close()
        return False
