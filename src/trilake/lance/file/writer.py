"""``DataFileWriter``: a data file of any version of the format, batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class WrittenFile:
    """A data file that is complete, as the entry of a manifest describes it.

    Parameters
    ----------
    rows: of the file.
    field_ids: of the fields in it.
    column_indices: the column of each field; empty in the first format.
    version: major and minor number; (0, 0) where the entry need not say it.
    size: in bytes; 0 where the entry need not say it.
    """

    rows: int
    field_ids: tuple[int, ...]
    column_indices: tuple[int, ...] = ()
    version: tuple[int, int] = (0, 0)
    size: int = 0


class DataFileWriter(ABC):
    """Writes one data file, which appears in the store when it is closed, whole, or not at all."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Rows that were written."""

    @property
    @abstractmethod
    def size(self) -> int:
        """About how many bytes the file has by now."""

    @property
    def dictionaries(self) -> Mapping[int, pa.Array]:
        """Values of dictionaries that belong in the manifest, by field id."""
        return {}

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write one batch.  Raises ``SchemaMismatchError`` where it does not have the columns of the file."""

    @abstractmethod
    def add_metadata(self, metadata: Mapping[bytes, bytes]) -> None:
        """Add metadata to the schema that is in the file."""

    @abstractmethod
    def close(self) -> WrittenFile:
        """Finish the file.  Raises ``StorageError``."""

    @abstractmethod
    def discard(self) -> None:
        """Give up what was written; the file does not appear."""
