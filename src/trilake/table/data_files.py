"""``FileFormat``: data files inside tables of another format (Delta's ``metaData.format.provider``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from trilake.storage.base import Store

#: ``(index of the first row in the file, rows)``
FileBatches = Iterator[tuple[int, pa.RecordBatch]]
#: Returns the positions of the columns to read.
NeededColumns = Callable[[pa.Schema], list[int]]


class RowFile(Protocol):
    """A data file that is being written."""

    @property
    def size(self) -> int:
        """The approximate number of bytes written."""

    def write(self, batch: pa.Table) -> None:
        """Add rows."""

    def close(self) -> None:
        """Finish and publish the file."""

    def discard(self) -> None:
        """Discard the file."""


@dataclass(frozen=True)
class FileFormat:
    """How data files of one format are read and written.

    All fields are module-level functions, so that plans can be pickled.

    Parameters
    ----------
    name: the format's name.
    read: reads the columns of a file, by store and key; the flag allows threads.
    write: opens a file, by store, key, schema and optional compression.
    check: raises ``SchemaMismatchError`` for unsupported columns.
    has_field_ids: whether files store column ids.
    """

    name: str
    read: Callable[[Store, str, NeededColumns, bool], FileBatches]
    write: Callable[[Store, str, pa.Schema, str | None], RowFile]
    check: Callable[[pa.Schema], None] | None = None
    has_field_ids: bool = True


def no_columns(rows: int) -> pa.RecordBatch:
    """``rows`` rows without columns, for counting."""
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))
