"""Write sidecars one after another: start a new one when one is full, and before the tombstones.

Protocol: *Sidecar Files*.  Names are unique, and no reader opens a sidecar before a top-level file names it.  A writer
that fails deletes its finished sidecars; log cleanup deletes those of a writer that died.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.delta.log.checkpoint_parts import CheckpointFile, FileColumns, file_schema
from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.segment import SIDECARS
from trilake.delta.log.sidecars.reuse import PathBounds, Sidecar, layout_of
from trilake.errors import TrilakeError
from trilake.storage.base import Store


def unique(runtime: Runtime) -> str:
    """A UUID for the name of a checkpoint file."""
    return str(UUID(runtime.new_id()))


@dataclass(frozen=True)
class Written:
    """Finished sidecars: their ``sidecar`` actions, the totals of their files, and the number of actions."""

    actions: tuple[dict[str, Any], ...] = ()
    totals: FileTotals = field(default_factory=FileTotals)
    rows: int = 0

    def __add__(self, other: Written) -> Written:
        return Written((*self.actions, *other.actions), self.totals + other.totals, self.rows + other.rows)

    @property
    def size(self) -> int:
        return sum(int(a["sizeInBytes"]) for a in self.actions)

    @property
    def newest_ms(self) -> int:
        """When the last one was finished, by the store's clock."""
        return max((int(a["modificationTime"]) for a in self.actions), default=0)

    def take_back(self, store: Store) -> None:
        """Delete the sidecars; call this only before a checkpoint names them."""
        with suppress(TrilakeError):
            store.delete([f"{SIDECARS}/{a['path']}" for a in self.actions])


class SidecarWriter:
    """Writes file actions to sidecars of at most ``most`` actions.

    Parameters
    ----------
    store, runtime: the store for the sidecars, and the source of ids.
    columns: of the table's checkpoints.
    most: the most actions in one sidecar.
    expected: approximate number of actions.
    mixed: whether tombstones go into the same sidecar as the files, as in a small table.  Later checkpoints cannot
        reuse such a sidecar.
    """

    def __init__(
        self, store: Store, runtime: Runtime, columns: FileColumns, *, most: int, expected: int, mixed: bool
    ) -> None:
        self.store, self.runtime, self.columns = store, runtime, columns
        self.most, self.expected, self.mixed = most, expected, mixed
        self.written = Written()
        self._schema, self._layout = file_schema(columns, (), files_only=True), layout_of(columns.type)
        self._file: CheckpointFile | None = None
        self._kind, self._held, self._files, self._bounds = "add", 0, FileTotals(), PathBounds()

    def write(self, pieces: Iterator[tuple[str, pa.Table]]) -> Written:
        """Write file actions; ``add`` actions come before ``remove`` actions."""
        try:
            for kind, piece in pieces:
                self._take(kind, piece)
            self._end()
        except BaseException as e:
            if self._file is not None:
                self._file.__exit__(type(e), e, None)
                self._file = None
            self.written.take_back(self.store)
            raise
        return self.written

    def _take(self, kind: str, piece: pa.Table) -> None:
        if kind != self._kind:
            if not self.mixed:
                self._end()
            self._kind = kind
        start = 0
        while start < piece.num_rows:
            file = self._open()
            part = piece.slice(start, self.most - self._held)
            start += part.num_rows
            self._held += part.num_rows
            file.take(kind, part)
            if kind == "add":
                self._files += FileTotals.of(part)
                self._bounds.take(part)
            if self._held == self.most:
                self._end()

    def _open(self) -> CheckpointFile:
        if self._file is None:
            key = f"{SIDECARS}/{unique(self.runtime)}.parquet"
            expected = min(self.most, max(1, self.expected))
            self._file = CheckpointFile(self.store, key, self.columns, self._schema, expected, keep_empty=False)
            self._file.__enter__()
            self._held = 0
        return self._file

    def _end(self) -> None:
        file = self._file
        if file is None:
            return
        self._file = None  # a file that fails to finish deletes itself
        file.__exit__(None, None, None)
        files, bounds = self._files, self._bounds.bounds
        self._files, self._bounds = FileTotals(), PathBounds()
        path, modified = file.key.rpartition("/")[2], self.store.head(file.key).modified_ms
        action: dict[str, Any] = {"path": path, "sizeInBytes": file.size, "modificationTime": modified}
        if files.num_files == file.rows and not self.mixed:
            action = Sidecar(path, file.size, modified, files, self._layout, bounds).action
        self.written += Written((action,), files, file.rows)
