"""``JoinedReader``: read many small fragments as one, since a read costs as much as a thousand rows.

Only files of version 2.1 or later are joined, and only many of them.  Their whole content is read, from an object store
with one request for each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import chain, groupby

import numpy as np
import pyarrow as pa

from trilake.common.parallel import map_ahead
from trilake.errors import CorruptFileError, TrilakeError, UnsupportedProtocolError
from trilake.lance.file.interfaces import DataFileReader
from trilake.lance.file.schema import LanceSchema
from trilake.lance.scan.fragment_reader import FragmentReader, Ids, Rows
from trilake.lance.v2.file import V2File
from trilake.lance.versions import deletions
from trilake.lance.versions.manifest import DataFile as Entry

#: Maximum stored bytes of a fragment to join, and of all fragments that are joined; and their rows, as a few bytes may
#: hold millions of equal rows.
_FRAGMENT_BYTES, _BYTES = 1 << 17, 1 << 23
_FRAGMENT_ROWS, _ROWS = 1 << 14, 1 << 20
#: Fewer fragments are read one by one.
_LEAST = 8


class JoinedReader(FragmentReader):
    """The rows of several fragments with files of the same layout; an offset counts the rows of all of them."""

    def __init__(self, readers: Sequence[FragmentReader]) -> None:
        first = readers[0]
        super().__init__(first.store, first.fragment, first.schema, first.bases)
        self._readers = tuple(readers)
        #: The offset at which each fragment begins, then the number of rows.
        self._starts = np.cumsum([0, *(r.fragment.physical_rows for r in readers)], dtype=np.int64)
        self._row_metadata: dict[str, Ids] = {}

    @property
    def readers(self) -> Sequence[FragmentReader]:
        return self._readers

    def joined_offsets(self, offsets: Sequence[Rows]) -> Rows:
        return np.concatenate([at + own for at, own in zip(self._starts.tolist(), offsets, strict=False)])

    @property
    def physical_rows(self) -> int:
        return int(self._starts[-1])

    def file(self, entry: Entry) -> DataFileReader:
        """Open the files of all fragments that correspond to a file of the first one."""
        file = self._files.get(entry.path)
        if file is None:
            number = self.fragment.files.index(entry)
            store, _ = self.bases.data_file(entry)
            keys = [self.bases.data_file(r.fragment.files[number])[1] for r in self._readers]
            rows = np.diff(self._starts).tolist()
            contents = zip([f"{store.uri}/{key}" for key in keys], store.read_many(keys), rows, strict=True)
            file = V2File.join(list(contents), self.schema, entry.fields, entry.column_indices)
            self._files[entry.path] = file
        return file

    def open(self, projections: Iterable[LanceSchema]) -> None:
        for projection in projections:
            self._parts(projection)
        self.store.at_once([partial(getattr, r, "deleted_set") for r in self._readers if r.has_deletions])

    @property
    def has_deletions(self) -> bool:
        return any(r.has_deletions for r in self._readers)

    @cached_property
    def deleted(self) -> deletions.Offsets:
        parts = [r.deleted + np.uint32(at) for r, at in zip(self._readers, self._starts.tolist()) if r.has_deletions]
        return np.concatenate([np.empty(0, np.uint32), *parts])

    @property
    def num_deleted(self) -> int:
        return sum(r.num_deleted for r in self._readers)

    def ids_of(self, offsets: Rows) -> Ids:
        return self._of_each("ids", FragmentReader.ids_of)[offsets]

    def row_metadata(self, name: str, offsets: Rows) -> Ids:
        return self._of_each(name, lambda reader, own: reader.row_metadata(name, own))[offsets]

    def _of_each(self, name: str, values: Callable[[FragmentReader, Rows], Ids]) -> Ids:
        """Values of all rows, by fragment."""
        if name not in self._row_metadata:
            parts = [values(r, np.arange(r.fragment.physical_rows, dtype=np.int64)) for r in self._readers]
            self._row_metadata[name] = np.concatenate(parts)
        return self._row_metadata[name]

    def read_batches(
        self, projection: LanceSchema, start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        with self._naming_file(projection):
            yield from super().read_batches(projection, start, stop)

    def read_range(self, projection: LanceSchema, start: int, stop: int) -> list[pa.RecordBatch]:
        with self._naming_file(projection):
            return super().read_range(projection, start, stop)

    def take(self, offsets: Rows, projection: LanceSchema) -> pa.Table:
        with self._naming_file(projection):
            return super().take(offsets, projection)

    @contextmanager
    def _naming_file(self, projection: LanceSchema) -> Iterator[None]:
        """After an error, read the fragments one by one, so that the error is that of the damaged file."""
        try:
            yield
        except (CorruptFileError, UnsupportedProtocolError):
            for reader in self._readers:
                for _ in reader.read_batches(projection):
                    pass
            raise


def joined(
    groups: Iterable[Sequence[FragmentReader]],
    projections: Sequence[LanceSchema],
    *,
    pool: Executor | None = None,
    ahead: int = 0,
) -> Iterator[FragmentReader]:
    """Yield one reader for each group of :func:`together`, or several if it cannot be read as one.

    Joined fragments are opened, with the files of ``projections``.  With a ``pool``, all are, about ``ahead`` fragments
    at once.
    """
    if pool is None:
        return chain.from_iterable(_joined(group, projections) for group in groups)

    def open_all(group: Sequence[FragmentReader]) -> Sequence[FragmentReader]:
        opened = _joined(group, projections)
        for reader in opened:
            reader.open(projections)
        return opened

    return chain.from_iterable(map_ahead(pool, open_all, groups, 2 * ahead, lambda group: min(len(group), ahead)))


def together(readers: Iterable[FragmentReader], *, may_end_early: bool = False) -> Iterator[Sequence[FragmentReader]]:
    """Group adjacent small fragments, in order; others are groups of one.

    If the scan ``may_end_early``, groups begin small and grow, so that it reads at most twice as many fragments as it
    needs.
    """
    most = _LEAST if may_end_early else sys.maxsize
    for layout, alike in groupby(readers, _layout):
        group: list[FragmentReader] = []
        size = rows = 0
        for reader in alike:
            if layout is None:
                yield [reader]
                continue
            if size >= _BYTES or rows >= _ROWS or len(group) >= most:
                yield group
                group, size, rows, most = [], 0, 0, 2 * most
            group.append(reader)
            size += sum(f.size_bytes for f in reader.fragment.files)
            rows += reader.fragment.physical_rows
        yield from [group] if len(group) >= _LEAST else ([reader] for reader in group)


def _joined(group: Sequence[FragmentReader], projections: Sequence[LanceSchema]) -> Sequence[FragmentReader]:
    if len(group) < _LEAST:
        return group
    reader = JoinedReader(group)
    try:
        reader.open(projections)
    except (TrilakeError, OSError):  # the fragment with the cause raises it again
        return group
    return [reader]


def _layout(reader: FragmentReader) -> tuple[object, ...] | None:
    """What fragments to join have in common; ``None`` for a fragment that is read alone."""
    fragment = reader.fragment
    sizes = [f.size_bytes for f in fragment.files]
    if not 0 < fragment.physical_rows <= _FRAGMENT_ROWS or not sizes or 0 in sizes or sum(sizes) > _FRAGMENT_BYTES:
        return None
    if any((f.major_version, f.minor_version) < (2, 1) for f in fragment.files):
        return None
    if reader.schema.has_blobs:
        return None
    files = [(f.fields, f.column_indices, f.major_version, f.minor_version, f.base_id) for f in fragment.files]
    return (id(reader.schema), *files)
