"""``DataFileReader``: an open data file of any version of the format.

In: a store, a key, and what a manifest says of the file.  Out: Arrow data by range of rows or by single rows.
Fragments and scans know no more of a data file than this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.expr import ColumnStats
from trilake.expr.terms.datatypes import Path
from trilake.lance.file.null_masks import Masked
from trilake.lance.file.schema import LanceSchema

Rows = npt.NDArray[np.int64]


class DataFileReader(ABC):
    """Some columns of a fragment.  Instances can be shared between threads."""

    #: The columns that the file has, with the ids of the dataset.
    schema: LanceSchema
    #: Rows before each part that is best read as a whole, and all of them at the end.
    batch_offsets: Rows

    @property
    @abstractmethod
    def file(self) -> str:
        """Name of the file, as errors give it."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes of the file."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Rows, deleted ones included."""

    @abstractmethod
    def read_rows(self, start: int, stop: int, columns: LanceSchema) -> pa.RecordBatch:
        """The rows of a range, in the columns that the file has of these.  Raises ``CorruptFileError``."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]], columns: LanceSchema) -> Iterator[pa.RecordBatch]:
        """The rows of ascending ranges, a batch for each, as :meth:`read_rows` gives them."""
        for start, stop in ranges:
            yield self.read_rows(start, stop, columns)

    @abstractmethod
    def take(self, rows: npt.NDArray[np.int64] | Sequence[int], columns: LanceSchema) -> pa.Table:
        """Some rows, in the order they are asked for; a row may be asked for more than once.

        Raises ``InvalidArgumentError`` for rows that the file does not have, and ``CorruptFileError``.
        """

    def column_stats(self, masked: Sequence[Masked] = ()) -> Mapping[Path, ColumnStats]:
        """What the file says of the values in each part between two :attr:`batch_offsets`, by path of the column.

        ``masked`` are columns whose nulls are kept apart.
        """
        del masked
        return {}
