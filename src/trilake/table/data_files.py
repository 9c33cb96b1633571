"""``FileFormat``: data files of one format inside tables of another, as Delta's ``metaData.format.provider`` allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from trilake.storage.base import Store

#: ``(index of the first row in the file, rows)``
FileBatches = Iterator[tuple[int, pa.RecordBatch]]
#: The columns of a file, by position, that a read needs.
NeededColumns = Callable[[pa.Schema], list[int]]


class RowFile(Protocol):
    """A data file that is being written."""

    @property
    def size(self) -> int:
        """The approximate number of bytes written."""

    def write(self, batch: pa.Table) -> None:
        """Add rows."""

    def close(self) -> None:
        """Finish the file, which then appears whole."""

    def discard(self) -> None:
        """Discard the file."""


@dataclass(frozen=True)
class FileFormat:
    """How data files of one format are read and written.

    All fields are module-level functions, so that plans can be pickled.

    Parameters
    ----------
    name: of the format.
    read: from a store, a key and the needed columns; the flag allows threads.
    write: to a store and key, rows of a schema, with a compression where the table names one.
    check: raises ``SchemaMismatchError`` for columns that the format cannot hold.
    has_field_ids: whether columns can be found by id.
    """

    name: str
    read: Callable[[Store, str, NeededColumns, bool], FileBatches]
    write: Callable[[Store, str, pa.Schema, str | None], RowFile]
    check: Callable[[pa.Schema], None] | None = None
    has_field_ids: bool = True


def no_columns(rows: int) -> pa.RecordBatch:
    """``rows`` rows without columns, for counting."""
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))
