"""Open the indices of a dataset: their files never change, so each is opened once for all versions."""

from __future__ import annotations

from typing import Any

from trilake.errors import InvalidArgumentError, MissingFileError, UnsupportedProtocolError
from trilake.lance.index.bitmap import BitmapIndex, LabelListIndex
from trilake.lance.index.btree import BTreeIndex
from trilake.lance.index.files import CACHE_BYTES, ReadCache
from trilake.lance.index.scalar import ScalarIndex
from trilake.lance.index.vector_index import VectorIndex
from trilake.lance.index.zonemap import ZoneMapIndex
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.manifest import IndexMetadata

#: Scalar indices other than BTREE, by the message in their entry.
_SCALAR: dict[str, type[ScalarIndex]] = {
    "BitmapIndexDetails": BitmapIndex,
    "LabelListIndexDetails": LabelListIndex,
    "ZoneMapIndexDetails": ZoneMapIndex,
}


def scalar_class(entry: IndexMetadata) -> type[ScalarIndex]:
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
        self._whole = ReadCache(max(self._size, 1))
        self._partitions = ReadCache(self._size)
        self._pages = ReadCache(min(self._size * _PAGE_BYTES, CACHE_BYTES))
        #: Keys of the indices that cannot be opened.
        self._unknown: set[str] = set()

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
        index: ScalarIndex | None = self._opened(scalar_class(entry), entry)
        return index

    def any(self, entry: IndexMetadata) -> VectorIndex | ScalarIndex | None:
        """Open an index of any kind; see :meth:`vector` and :meth:`scalar`."""
        return self.vector(entry) or self.scalar(entry)

    def _opened(self, kind: Any, entry: IndexMetadata) -> Any:
        key = f"{kind.__name__} {entry.uuid}"
        if key in self._unknown:
            return None
        index = self._whole.get(key, 0)
        if index is None:
            try:
                index = kind.open(*self._bases.index_folder(entry))
            except (UnsupportedProtocolError, MissingFileError):
                self._unknown.add(key)
                return None
            if isinstance(index, VectorIndex):
                index.partitions = self._partitions
            else:
                index.cache = self._pages
            self._whole.keep(key, 0, index)
            self._partitions.resize(max(self._size - len(self._whole), 1))
        return index

    @property
    def entry_count(self) -> int:
        return len(self._whole) + len(self._partitions)

    @property
    def hit_rate(self) -> float:
        """The share of requests that found an open index or partition."""
        requests = self._whole.requests + self._partitions.requests
        return (self._whole.hits + self._partitions.hits) / requests if requests else 0.0
