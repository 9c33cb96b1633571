"""Indices of a dataset that are open: their files never change, so each is opened once for all versions."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

from trilake.errors import MissingFileError, UnsupportedProtocolError
from trilake.lance.index.btree import ScalarIndex
from trilake.lance.index.ivf_pq_index import VectorIndex
from trilake.lance.manifest import IndexMetadata
from trilake.storage.base import Store


class OpenIndices:
    """The indices at the root of a store.  May be used by several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[tuple[type[Any], UUID], Any] = {}
        self._lock = threading.Lock()
        self._hits = self._asked = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenIndices, (self._store,)  # a task opens what it needs

    def vector(self, entry: IndexMetadata) -> VectorIndex | None:
        """The index of vectors of an entry; ``None`` where it is of another kind, of a newer writer, or gone.

        Raises ``CorruptFileError``.
        """
        found: VectorIndex | None = self._opened(VectorIndex, entry)
        return found

    def scalar(self, entry: IndexMetadata) -> ScalarIndex | None:
        """The BTREE of an entry; otherwise as :meth:`vector`."""
        found: ScalarIndex | None = self._opened(ScalarIndex, entry)
        return found

    def _opened(self, kind: Any, entry: IndexMetadata) -> Any:
        key = kind, entry.uuid
        with self._lock:
            self._asked += 1
            if key in self._open:
                self._hits += 1
                return self._open[key]
        try:
            found = kind.open(self._store, f"_indices/{entry.uuid}")
        except (UnsupportedProtocolError, MissingFileError):
            found = None
        with self._lock:
            return self._open.setdefault(key, found)

    @property
    def entry_count(self) -> int:
        """Indices that are open."""
        return sum(found is not None for found in self._open.values())

    @property
    def hit_rate(self) -> float:
        """The share of requests for which the index was open already."""
        return self._hits / self._asked if self._asked else 0.0
