"""``TrevniContext``: the files of a table, each opened once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from trilake.errors import SchemaMismatchError, TrilakeError
from trilake.storage import Store, open_store
from trilake.table.findings import Depth
from trilake.table.folders import DataFile
from trilake.trevni.blocks.layout import BlockTable
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.tables.dataset import find_files, list_files

_THREADS = 8


@dataclass(frozen=True)
class OpenFile:
    """A file, or the error from opening it; the block tables of its columns, or their errors."""

    key: str
    file: TrevniFile | None = None
    error: Exception | None = None
    tables: Mapping[int, BlockTable] = field(default_factory=dict)
    table_errors: Mapping[int, Exception] = field(default_factory=dict)


@dataclass
class TrevniContext:
    """A folder of Trevni files, or one file, to verify.

    Parameters
    ----------
    location, options: location of the folder or file, and options of its store.
    depth: depth of the checks.
    sample: number of files whose rows are read; ``None`` for all.
    """

    location: str
    options: Mapping[str, str]
    depth: Depth
    sample: int | None = None
    #: Result of :func:`~trilake.trevni.verify.blocks.block_faults`, which several checks use.
    blocks: Any = None

    @cached_property
    def _store_and_files(self) -> tuple[Store, list[DataFile]]:
        try:
            return find_files(self.location, self.options)
        except SchemaMismatchError:  # partition folders differ, which a check reports: list the folder instead
            store = open_store(self.location, self.options)
            return store, list_files(store)

    @property
    def files(self) -> list[DataFile]:
        """All files.  Raises ``TableNotFoundError`` for a location without files."""
        return self._store_and_files[1]

    @cached_property
    def opened(self) -> list[OpenFile]:
        """All files, opened."""
        store = self._store_and_files[0]
        with ThreadPoolExecutor(_THREADS, "trilake-verify") as pool:
            return list(pool.map(lambda f: _open(store, f.key), self.files))

    @property
    def chosen(self) -> list[OpenFile]:
        """The files whose rows are read."""
        if self.sample is None or self.sample >= len(self.opened):
            return self.opened
        at = np.unique(np.linspace(0, len(self.opened) - 1, self.sample).round().astype(int))
        return [self.opened[i] for i in at.tolist()]


def _open(store: Store, key: str) -> OpenFile:
    try:
        file = TrevniFile((store, key))
    except (TrilakeError, OSError) as e:
        return OpenFile(key, error=e)
    tables: dict[int, BlockTable] = {}
    errors: dict[int, Exception] = {}
    for column in file.header.columns:
        try:
            tables[column.number] = file.blocks(column.number)
        except (TrilakeError, OSError) as e:
            errors[column.number] = e
    return OpenFile(key, file, None, tables, errors)
