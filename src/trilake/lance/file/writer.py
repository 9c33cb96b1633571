"""``DataFileWriter``: a data file of any version of the format, batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import IO, Literal, Self

import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.file.schema import LanceSchema


@dataclass(frozen=True)
class WrittenFile:
    """A complete data file: the values for its manifest entry.

    Parameters
    ----------
    rows: number of rows.
    field_ids: ids of its fields.
    column_indices: the column of each field; empty in the first format.
    version: major and minor number; (0, 0) if the entry may omit it.
    size: in bytes; 0 if the entry may omit it.
    """

    rows: int
    field_ids: tuple[int, ...]
    column_indices: tuple[int, ...] = ()
    version: tuple[int, int] = (0, 0)
    size: int = 0


class DataFileWriter(ABC):
    """Writes one data file, which appears in the store as a whole when it is closed, or not at all.

    As a context manager, it discards the file if the block raises.
    """

    _schema: LanceSchema
    _file: IO[bytes]

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

    def add_metadata(self, metadata: Mapping[bytes, bytes]) -> None:
        """Add metadata to the schema in the file."""
        self._schema = replace(self._schema, metadata={**self._schema.metadata, **metadata})

    @abstractmethod
    def close(self) -> WrittenFile:
        """Finish the file.  Raises ``StorageError``."""

    def discard(self) -> None:
        """Discard what was written; the file does not appear."""
        self._stop()
        discard = getattr(self._file, "discard", None)
        if discard is not None:
            discard()
        else:
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
