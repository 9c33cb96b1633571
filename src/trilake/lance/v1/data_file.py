"""``V1File``: read some columns of a fragment, by batch or by row.

A local file is memory-mapped, and its pages are used in place.  An object in a store is read in ranges: the end with
the footer on open, then the pages of each batch or take, in as few requests as possible.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.expr import ColumnStats
from trilake.expr.terms.datatypes import Path
from trilake.lance.file import extensions, framing
from trilake.lance.file.interfaces import DataFileReader
from trilake.lance.file.schema import TOMBSTONE, Field, LanceSchema
from trilake.lance.file.sources import Int64s, MappedSource, Source, open_source, together
from trilake.lance.proto import format_pb2
from trilake.lance.v1.decode import MAX_UNBACKED, Decoder, Slots, joined, joins, take
from trilake.lance.v1.dictionaries import read_dictionaries
from trilake.lance.v1.pages import PageKind, PageTable, layout_of
from trilake.lance.v1.statistics import read_statistics, trusted
from trilake.storage.base import Store
from trilake.table.data_files import no_columns

#: Bytes of batches to fetch at once.
_AHEAD = 16 << 20
#: Strings are stored before their offsets: at most this many bytes before the offsets are fetched with them.
MAX_GUESS = 64 << 20


class V1File(DataFileReader):
    """An open data file of the legacy format; see :meth:`open`."""

    def __init__(
        self,
        source: Source,
        schema: LanceSchema,
        metadata: format_pb2.Metadata,
        batch_offsets: Int64s,
        pages: PageTable,
    ) -> None:
        super().__init__(source)
        self._metadata = metadata
        self._pages = pages
        self.schema = schema
        self.batch_offsets = batch_offsets
        self._bounds: list[int] = batch_offsets.tolist()
        self._decoder = Decoder(source, pages, dict(schema.dictionaries))
        self._ends: Int64s | None = None
        self._last: tuple[LanceSchema | None, LanceSchema] = None, schema

    @classmethod
    def open(
        cls, store: Store, key: str, schema: LanceSchema | None = None, field_ids: Sequence[int] | None = None
    ) -> V1File:
        """Open a data file.  Raises ``MissingFileError``, ``CorruptFileError`` and ``UnsupportedProtocolError``.

        ``schema`` is that of the dataset, with its dictionaries, by default that of the file.  ``field_ids`` are those
        of the file in the manifest, by default all; some may be :data:`~trilake.lance.file.schema.TOMBSTONE`.
        """
        source = open_source(store, key)
        metadata = framing.read_message(source, framing.read_footer(source), format_pb2.Metadata)
        if schema is None:
            schema = _file_schema(source, metadata)
            schema = schema.with_dictionaries(read_dictionaries(schema, source))
        ids = tuple(schema.field_ids if field_ids is None else field_ids)
        columns = schema.project_ids(ids)
        if TOMBSTONE in ids:  # the page table covers all fields that were written
            ids = _file_schema(source, metadata).field_ids
        offsets = np.array(metadata.batch_offsets or [0], np.int64)
        if offsets[0] != 0 or (np.diff(offsets) < 0).any():
            raise CorruptFileError("expected batch offsets that start at 0 and increase", file=source.file)
        if offsets[-1] > MAX_UNBACKED + 8 * source.size:
            raise CorruptFileError(f"{source.size} bytes are too few for {offsets[-1]} rows", file=source.file)
        pages = _page_table(source, metadata.page_table_position, ids, columns, len(offsets) - 1)
        return cls(source, columns, metadata, offsets, pages)

    @property
    def num_batches(self) -> int:
        """Number of batches; all data files of a fragment have the same."""
        return len(self._bounds) - 1

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Ids of the fields with pages in the file, and of their parents."""
        return self.schema.field_ids

    def statistics(self) -> pa.Table | None:
        """Read the statistics in the file, one row per batch; ``None`` if it has none.

        Columns are named by field id, such as ``"3"``; each is a struct of ``null_count`` (int64), ``min_value`` and
        ``max_value`` (null if unknown).  Use :func:`trilake.lance.v1.statistics.trusted` to derive reliable statistics
        from them.
        """
        return read_statistics(self._source, self._metadata.statistics, self.num_batches)

    def column_stats(self, mask_ids: Mapping[int, int] = {}) -> Mapping[Path, ColumnStats]:
        return trusted(self.statistics(), self.schema, np.diff(self.batch_offsets).tolist(), mask_ids)

    def parts(self, columns: LanceSchema) -> Int64s:
        return self.batch_offsets

    def read_rows(self, start: int, stop: int, columns: LanceSchema) -> pa.RecordBatch:
        first, last = self._batches(start, stop)
        base = self._bounds[first]
        if last - first <= 1:
            return self.read_batch(first, columns, slice(start - base, stop - base))
        schema = self._projection(columns)
        if not schema.fields:
            return no_columns(stop - start)
        joined = self.read_joined(first, last, columns)
        if joined is None:
            joined = pa.concat_batches([self.read_batch(i, columns) for i in range(first, last)])
        return joined.slice(start - base, stop - start)

    def read_ranges(self, ranges: Sequence[tuple[int, int]], columns: LanceSchema) -> Iterator[pa.RecordBatch]:
        if not ranges:
            return
        final = self._batches(*ranges[-1])[1]
        ahead, fetched = 0, None
        for start, stop in ranges:
            first, last = self._batches(start, stop)
            if last - first > 1:
                yield self.read_rows(start, stop, columns)
                continue
            if first >= ahead:
                ahead, fetched = self._ahead(first, final, columns)
            base = self._bounds[first]
            yield self.read_batch(first, columns, slice(start - base, stop - base), fetched=fetched)

    def _batches(self, start: int, stop: int) -> tuple[int, int]:
        """Return the first batch of a range of rows, and the one after its last."""
        self._check_rows(start, stop)
        first = min(bisect_right(self._bounds, start) - 1, max(self.num_batches - 1, 0))
        return first, max(bisect_left(self._bounds, stop), first)

    def _projection(self, columns: LanceSchema | None) -> LanceSchema:
        if columns is None:
            return self.schema
        last_columns, projection = self._last
        if last_columns is not columns:  # by identity: batch after batch passes the same object
            fields = [_common(f, self.schema) for f in columns.fields]
            projection = LanceSchema(tuple(f for f in fields if f is not None), columns.metadata)
            self._last = columns, projection
        return projection

    def _ahead(self, first: int, last: int, columns: LanceSchema) -> tuple[int, Source | None]:
        """Fetch batches from ``first`` on in one request; return the one after them, and their source (``None`` if
        local).
        """
        if isinstance(self._source, MappedSource):
            return last, None
        schema = self._projection(columns)
        ranges: list[tuple[int, int]] = []
        size, stop = 0, first
        while stop < last:
            total = self._bounds[stop + 1] - self._bounds[stop]
            more = self._ranges(schema, stop, 0, total, total)
            size += sum(length for _, length in more)
            if ranges and size > _AHEAD:
                break
            ranges, stop = ranges + more, stop + 1
        return stop, self._source.window(ranges)

    def read_batch(
        self,
        batch: int,
        columns: LanceSchema | None = None,
        rows: slice | None = None,
        *,
        fetched: Source | None = None,
    ) -> pa.RecordBatch:
        """Read one batch, or some consecutive ``rows`` of it; ``fetched`` is a source with prefetched bytes."""
        if not 0 <= batch < self.num_batches:
            raise InvalidArgumentError(f"expected a batch below {self.num_batches}, got {batch}", file=self.file)
        total = self._bounds[batch + 1] - self._bounds[batch]
        start, stop, step = (rows or slice(None)).indices(total)
        if step != 1:
            raise InvalidArgumentError(f"expected a slice with step 1, got {step}", file=self.file)
        count = max(stop - start, 0)
        schema = self._projection(columns)
        for field in schema.fields:
            self._decoder.check(field)
        decoder = self._decoder
        if fetched is not None:
            decoder = decoder.with_source(fetched)
        elif not isinstance(self._source, MappedSource):
            decoder = decoder.with_source(self._source.window(self._ranges(schema, batch, start, count, total)))
        arrays = [decoder.column(field, batch, start, count, total) for field in schema.fields]
        return _batch(arrays, schema, count)

    def read_joined(self, first: int, last: int, columns: LanceSchema) -> pa.RecordBatch | None:
        """Read batches as one, gathering all pages at once; ``None`` if the pages of a column cannot be joined."""
        schema = self._projection(columns)
        mapped = isinstance(self._source, MappedSource)
        if not schema.fields or not all(joins(f, mapped=mapped) for f in schema.fields):
            return None
        totals: Int64s = np.diff(self.batch_offsets[first : last + 1])
        for field in schema.fields:
            self._decoder.check(field)
        arrays = self._source.run(together([joined(self._decoder, f, first, totals) for f in schema.fields]))
        return None if any(a is None for a in arrays) else _batch(arrays, schema, int(totals.sum()))

    def _take(self, rows: Int64s, columns: LanceSchema | None) -> pa.RecordBatch:
        schema = self._projection(columns)
        batch = np.searchsorted(self.batch_offsets, rows, "right") - 1
        slots = Slots(batch, rows - self.batch_offsets[batch])
        for field in schema.fields:
            self._decoder.check(field)
        arrays = self._source.run(together([take(self._decoder, field, slots) for field in schema.fields]))
        return _batch(arrays, schema, len(rows))

    def _ranges(self, schema: LanceSchema, batch: int, start: int, count: int, total: int) -> list[tuple[int, int]]:
        """The byte ranges of a batch's columns; a range of strings begins where the previous page ends."""
        ranges = []
        for top in schema.fields:
            for field in top.walk():
                layout = layout_of(field)
                if layout.kind in (PageKind.STRUCT, PageKind.NULL):
                    continue
                positions, lengths = self._pages.lists(field.id)
                position, length = positions[batch], lengths[batch]
                whole = field is not top or count == total
                if layout.kind is PageKind.VARIABLE and whole:
                    before = self._page_before(position)
                    ranges.append((before, position - before + layout.page_bytes(length)))
                elif whole:
                    ranges.append((position, -(-length * layout.bits // 8)))
                else:
                    first = start * layout.bits // 8
                    ranges.append((position + first, layout.page_bytes(start + count) - first))
        return ranges

    def _page_before(self, position: int) -> int:
        """The end of the page before ``position``; the strings of the page at ``position`` may begin there."""
        if self._ends is None:
            ends = [np.zeros(1, np.int64)]
            for field in self.schema.walk():
                layout = layout_of(field)
                if layout.kind is not PageKind.STRUCT and self._pages.has(field.id):
                    positions, lengths = self._pages.field(field.id)
                    extra = 64 if layout.kind is PageKind.VARIABLE else 0
                    ends.append(positions + (lengths * layout.bits + extra + 7) // 8)
            self._ends = np.unique(np.concatenate(ends))
        i = int(np.searchsorted(self._ends, position, "right")) - 1
        return max(int(self._ends[i]), position - MAX_GUESS)


def _file_schema(source: Source, metadata: format_pb2.Metadata) -> LanceSchema:
    """Read the schema in the file, without dictionaries.  Raises ``CorruptFileError``."""
    if not metadata.manifest_position:
        raise CorruptFileError("the file has no schema", file=source.file)
    manifest = framing.read_message(source, metadata.manifest_position, format_pb2.Manifest)
    return LanceSchema.from_proto(manifest.fields, dict(manifest.metadata), damaged=CorruptFileError, file=source.file)


def _page_table(source: Source, position: int, ids: Sequence[int], schema: LanceSchema, batches: int) -> PageTable:
    """Read the page table of a file with the fields ``ids``; ``schema`` lacks those that the dataset has dropped."""
    first, last = min(ids, default=0), max(ids, default=-1)
    table = PageTable.read(source, position, first, last, batches)
    if not first:
        return table
    with_pages = [f.id for f in schema.walk() if layout_of(f).kind not in (PageKind.STRUCT, PageKind.NULL)]
    if table.has_pages(with_pages):
        return table
    # Before pylance 0.8 the table began with field 0, even if the file has no such field.
    if position + PageTable.size(0, last, batches) <= source.size:
        older = PageTable.read(source, position, 0, last, batches)
        if older.has_pages(with_pages):
            return older
    return table


def _common(field: Field, schema: LanceSchema) -> Field | None:
    """Keep the parts of a field that the file has."""
    stored = schema.by_id(field.id)
    if stored is None or not field.children:
        return stored and field
    leaves = frozenset(f.id for f in field.walk() if not f.children)
    present = frozenset(f.id for f in stored.walk())
    return field if leaves <= present else field.keep(leaves & present)


def _batch(arrays: Sequence[pa.Array], schema: LanceSchema, count: int) -> pa.RecordBatch:
    if not arrays:
        return no_columns(count)
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema.storage_schema)
    return extensions.restore_batch(batch) if schema.has_extensions else batch
