"""Open the indices of a dataset: their files never change, so each is opened once for all versions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any
from uuid import UUID

from trilake.errors import InvalidArgumentError, MissingFileError, UnsupportedProtocolError
from trilake.lance.index.bitmap import BitmapIndex, LabelListIndex
from trilake.lance.index.btree import BTreeIndex
from trilake.lance.index.files import CACHE_BYTES, ReadCache
from trilake.lance.index.ivf_pq_index import VectorIndex
from trilake.lance.index.scalar import ScalarIndex
from trilake.lance.index.zonemap import ZoneMapIndex
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.manifest import IndexMetadata

#: Scalar indices other than BTREE, by the message in their entry.
_SCALAR: dict[str, type[BTreeIndex | BitmapIndex | ZoneMapIndex]] = {
    "BitmapIndexDetails": BitmapIndex,
    "LabelListIndexDetails": LabelListIndex,
    "ZoneMapIndexDetails": ZoneMapIndex,
}


def scalar_kind(entry: IndexMetadata) -> type[BTreeIndex | BitmapIndex | ZoneMapIndex]:
    """The class of a scalar index; a BTREE if the entry does not state its kind."""
    details = "" if entry.details is None else entry.details.type_url.rpartition(".")[2]
    return _SCALAR.get(details, BTreeIndex)


#: The default number of entries to keep.
CACHE_SIZE = 256
#: Bytes of cached pages of scalar indices, for each entry.
_PAGE_BYTES = 1 << 18


class OpenIndices:
    """The open indices of a dataset, at its root and its base paths; can be shared between threads.

    ``size`` is the number of entries to keep: whole indices, and partitions of vector indices.  At least one of each is
    kept.
    """

    def __init__(self, bases: Bases, size: int | None = None) -> None:
        if size is not None and (isinstance(size, bool) or size < 0):
            raise InvalidArgumentError(
                f"index_cache_size must be >= 0, got {size!r}", help="leave it out for the default"
            )
        self._bases = bases
        self._size = CACHE_SIZE if size is None else size
        self._open: OrderedDict[tuple[type[Any], UUID], Any] = OrderedDict()
        self._partitions = ReadCache(self._size)
        self._pages = ReadCache(min(self._size * _PAGE_BYTES, CACHE_BYTES))
        self._lock = threading.Lock()
        self._hits = self._requests = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenIndices, (self._bases, self._size)  # a task opens what it needs

    def vector(self, entry: IndexMetadata) -> VectorIndex | None:
        """Open a vector index; ``None`` if it is of another kind, of a newer writer, or missing.

        Raises ``CorruptFileError``.
        """
        index: VectorIndex | None = self._opened(VectorIndex, entry)
        return index

    def scalar(self, entry: IndexMetadata) -> ScalarIndex | None:
        """Open a scalar index; ``None`` if it is of a newer writer, or missing.  Raises ``CorruptFileError``."""
        index: ScalarIndex | None = self._opened(scalar_kind(entry), entry)
        return index

    def _opened(self, kind: Any, entry: IndexMetadata) -> Any:
        key = kind, entry.uuid
        with self._lock:
            if key in self._open:
                index = self._open[key]
                self._open.move_to_end(key)
                if index is not None:
                    self._requests += 1
                    self._hits += 1
                return index
        try:
            index = kind.open(*self._bases.index_folder(entry))
        except (UnsupportedProtocolError, MissingFileError):
            index = None
        with self._lock:
            index = self._open.setdefault(key, index)
            if isinstance(index, VectorIndex):
                index.partitions = self._partitions
            elif index is not None:
                index.cache = self._pages
            self._requests += index is not None
            while self._whole() > max(self._size, 1):
                self._open.popitem(last=False)
            self._partitions.resize(max(self._size - self._whole(), 1))
            return index

    def _whole(self) -> int:
        return sum(index is not None for index in self._open.values())

    @property
    def entry_count(self) -> int:
        return self._whole() + len(self._partitions)

    @property
    def hit_rate(self) -> float:
        """The share of requests that found an open index or partition."""
        requests = self._requests + self._partitions.requests
        return (self._hits + self._partitions.hits) / requests if requests else 0.0
