"""Scan fragments: read chunks of row groups in parallel, filter them, and return them in order.

::

    fragments --(statistics)--> ranges of row groups --(cut)--> chunks --(pool)--> batches --(limit)--> out

A chunk is a range of rows of one fragment, small enough that several fit into memory.  The columns of the filter are
read first, the other columns only for matching rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.common.parallel import map_ahead
from trilake.expr import ColumnStats, FileStats, Filter, can_match
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.view import View
from trilake.lance.scan.fragment_reader import ROW_ID, ROW_METADATA_TYPE, FragmentReader, Rows, one_array, one_batch
from trilake.lance.scan.id_conditions import id_columns, with_ids
from trilake.lance.scan.joined_reader import joined, together
from trilake.table.data_files import no_columns

#: Most requests for remote files at once, and the number of whole chunks to read ahead.
THREADS, _AHEAD = 32, 8
#: Approximate bytes and rows of a chunk of a local file, and of a remote one, which costs two round trips.
CHUNK_BYTES, CHUNK_ROWS = 1 << 24, 1 << 17
_REMOTE_BYTES, _REMOTE_ROWS = 1 << 26, 1 << 20

#: Bytes of a local fragment that a filter tests together: a call costs as much as a thousand rows, and more bytes do
#: not fit into the processor's cache.
_TESTED_BYTES = 1 << 21

#: Rows of a local fragment that a filter tests before matching rows are read.
_TESTED_ROWS = 1 << 20

#: If less than 1/``_FEW`` of the rows of a chunk match, the other columns are taken row by row.
_FEW = 8

#: Statistics of a local fragment with fewer stored bytes are not read: they take 3 ms, its rows 1 ms.
_QUICK_BYTES = 1 << 16

#: Bits of a row id.
_ID_BITS = 64

#: Up to this many rows from an index are always taken one by one.
_ALWAYS_TAKEN = 1024
#: For up to this many rows from an index, all columns are read together with those of the condition.
_AT_ONCE = 256


@dataclass(frozen=True)
class ScanPlan:
    """The plan of a scan.

    Parameters
    ----------
    columns: the columns to return, as parts of ``view.schema``.
    filter: bound to the view's Arrow schema, and to the id columns.
    limit, offset: number of rows to return, and number of matching rows to skip first.
    row_metadata: those of :data:`~trilake.lance.scan.fragment_reader.ROW_METADATA` that come last.
    use_stats, use_index: whether to use statistics and scalar indices.
    include_deleted: whether deleted rows are returned too, without a row id.
    candidates: from an index, the sorted offsets of the only rows that can match, by fragment id; other fragments are
        scanned.
    certain: whether live candidates match without testing the filter.
    joined: whether row groups that are read together form one batch; only without a filter.
    """

    view: View
    columns: LanceSchema
    filter: Filter | None = None
    limit: int | None = None
    offset: int = 0
    batch_size: int | None = None
    row_metadata: tuple[str, ...] = ()
    use_stats: bool = True
    use_index: bool = True
    include_deleted: bool = False
    candidates: Mapping[int, Rows] | None = None
    certain: bool = False
    joined: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        return with_row_metadata_schema(self.columns.shown_schema, self.row_metadata)

    @cached_property
    def tested(self) -> LanceSchema:
        """The columns of the dataset that the filter reads."""
        names = frozenset() if self.filter is None else self.filter.columns
        return LanceSchema(tuple(f for f in self.view.schema.fields if f.name in names))

    @cached_property
    def stored_columns(self) -> tuple[LanceSchema, LanceSchema]:
        """The columns to read: first those of the filter, then the others."""
        return self.view.stored(self.tested), self.view.stored(self.rest)

    @cached_property
    def rest(self) -> LanceSchema:
        """The columns to return that the filter does not read."""
        return self.columns if self.filter is None else _rest(self, self.tested)


@dataclass(frozen=True)
class Chunk:
    """Rows ``start`` up to ``stop`` of a fragment, including deleted ones; or only ``rows`` of them."""

    reader: FragmentReader
    start: int
    stop: int
    rows: Rows | None = None


# --- planning --------------------------------------------------------------------------------------------------------


def chunks(plan: ScanPlan, readers: Iterable[FragmentReader]) -> Iterator[Chunk]:
    """Plan the chunks to read, in order; limit and offset apply as far as that needs no reading."""
    remaining, skip = plan.limit, plan.offset
    for reader in readers:
        if remaining is not None and remaining <= 0:
            return
        ranges = [(0, reader.physical_rows)]
        if plan.filter is None and (remaining is not None or skip):
            rows = _num_rows(plan, reader)
            if rows <= skip:
                skip -= rows
                continue
            count = rows - skip if remaining is None else min(rows - skip, remaining)
            ends = np.array([skip, skip + count - 1], np.int64)
            if not plan.include_deleted:
                ends = reader.offsets_of_live(ends)
            ranges = [(int(ends[0]), int(ends[1]) + 1)]
            skip, remaining = 0, None if remaining is None else remaining - count
        candidates = None if plan.candidates is None else plan.candidates.get(reader.fragment.id)
        if candidates is not None and (
            len(candidates) * _FEW < reader.physical_rows or len(candidates) < _ALWAYS_TAKEN
        ):
            reader.check_offsets(candidates)
            for at in range(0, len(candidates), CHUNK_ROWS):
                part = candidates[at : at + CHUNK_ROWS]
                yield Chunk(reader, int(part[0]), int(part[-1]) + 1, part)
            continue
        if plan.filter is not None and plan.use_stats and not _is_quick(plan, reader):
            ranges = candidate_groups(reader, plan.filter, plan.view)
        yield from _cut(reader, ranges, _chunk_rows(plan, reader))


def candidate_groups(reader: FragmentReader, filter: Filter, view: View) -> list[tuple[int, int]]:
    """Find the ranges of a fragment's rows that may match; adjacent row groups are one range."""
    rows = reader.physical_rows
    if not rows:
        return []
    offsets = reader.batch_offsets if reader.has_row_groups else np.array([0, rows])
    groups = len(offsets) - 1

    def column(path: tuple[str, ...]) -> ColumnStats | None:
        field = view.schema.find(path)
        if field is None:
            return None
        ids = view.schema.column_ids(field)
        if not any(ids.intersection(f.fields) for f in reader.fragment.files):
            # No file has the column: it is null in every row.
            return ColumnStats(value=pa.nulls(groups, field.arrow_type))
        return reader.statistics(view.mask_ids).get(path)

    keep = can_match(filter, FileStats(groups, column, lambda: pa.array(np.diff(offsets)))).keep
    if keep.all():
        return [(0, rows)]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], keep, [False])).astype(np.int8)))
    return [(int(offsets[a]), int(offsets[b])) for a, b in edges.reshape(-1, 2)]


def _num_rows(plan: ScanPlan, reader: FragmentReader) -> int:
    """Number of rows of a fragment that a scan without a filter returns."""
    return reader.physical_rows if plan.include_deleted else reader.num_rows


def _is_quick(plan: ScanPlan, reader: FragmentReader) -> bool:
    """Whether testing all rows takes less time than reading statistics."""
    return reader.is_local and reader.stored_bytes(plan.view.stored(plan.tested)) <= _QUICK_BYTES


def _chunk_rows(plan: ScanPlan, reader: FragmentReader) -> int:
    """Rows of a chunk.  A filter tests many rows of a local file together: matching rows are read in smaller parts."""
    if plan.filter is None or not reader.is_local or plan.limit is not None:
        return _rows_together(plan, reader, plan.tested, plan.rest)
    return _TESTED_ROWS if _tested_bits(plan) else _rows_together(plan, reader, plan.tested)


def _tested_bits(plan: ScanPlan) -> int:
    """Bits per row that a condition reads; 0 if it reads strings, lists or structs."""
    kinds = [f.arrow_type for f in plan.tested.fields]
    if not all(pa.types.is_primitive(kind) and kind.bit_width >= 8 for kind in kinds):
        return 0
    return sum(kind.bit_width for kind in kinds) or _ID_BITS


def _rows_together(plan: ScanPlan, reader: FragmentReader, *columns: LanceSchema) -> int:
    """Number of rows of some columns that are kept in memory together: a power of two, so that few pages are cut."""
    size = sum(reader.stored_bytes(plan.view.stored(each)) for each in columns)
    num_bytes, rows = (CHUNK_BYTES, CHUNK_ROWS) if reader.is_local else (_REMOTE_BYTES, _REMOTE_ROWS)
    most = num_bytes * max(reader.physical_rows, 1) // max(size, 1)
    return min(rows, 1 << max(most.bit_length() - 1, 0))


def _cut(reader: FragmentReader, ranges: Sequence[tuple[int, int]], rows: int) -> Iterator[Chunk]:
    offsets = reader.batch_offsets if reader.has_row_groups else None
    for start, stop in ranges:
        while start < stop:
            end = start + rows
            if offsets is not None:  # cut at the end of a row group: a divided one would be read twice
                last = int(np.searchsorted(offsets, end, "right")) - 1
                end = int(offsets[last]) if offsets[last] > start else int(offsets[last + 1])
            end = min(end, stop)
            yield Chunk(reader, start, end)
            start = end


# --- reading ---------------------------------------------------------------------------------------------------------


def read_chunk(plan: ScanPlan, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    """Read the matching rows of a chunk, as batches of the plan's columns."""
    if chunk.rows is not None:
        batches: Iterable[pa.RecordBatch] = _picked(plan, chunk, chunk.rows)
    else:
        batches = _filtered(plan, chunk) if plan.filter is not None else _whole(plan, chunk)
    for batch in batches:
        if plan.batch_size is None:
            yield batch
        else:
            yield from (batch.slice(at, plan.batch_size) for at in range(0, batch.num_rows, plan.batch_size))


def _whole(plan: ScanPlan, chunk: Chunk) -> list[pa.RecordBatch]:
    batches, at = [], chunk.start
    stored = plan.view.stored(plan.columns)
    # One read of a remote file takes fewer requests, but row groups are batches.
    in_one = plan.joined or not (chunk.reader.is_local or chunk.reader.has_row_groups)
    read = chunk.reader.read_range if in_one else chunk.reader.read_batches
    for batch in read(stored, chunk.start, chunk.stop):
        rows = batch.num_rows
        mask = None if plan.include_deleted else chunk.reader.live_mask(at, at + rows)
        offsets = np.arange(at, at + rows, dtype=np.int64) if plan.row_metadata else None
        if mask is not None:
            batch = batch.filter(pa.array(mask)) if batch.num_columns else no_columns(int(mask.sum()))
            offsets = None if offsets is None else offsets[mask]
        at += rows
        if batch.num_rows:
            batches.append(finish(plan, chunk.reader, batch, offsets))
    return batches


def finish(plan: ScanPlan, reader: FragmentReader, stored: pa.RecordBatch, offsets: Rows | None) -> pa.RecordBatch:
    """Convert a stored batch to the plan's schema; ``offsets`` are the offsets of its rows, for id columns."""
    batch = plan.view.show(stored, plan.columns)
    return batch if offsets is None else _with_row_metadata(plan, batch, reader, offsets)


def _with_row_metadata(plan: ScanPlan, batch: pa.RecordBatch, reader: FragmentReader, offsets: Rows) -> pa.RecordBatch:
    if not plan.row_metadata:
        return batch
    deleted = ~reader.is_live(offsets) if plan.include_deleted else None
    row_metadata = [
        pa.array(reader.row_metadata(name, offsets), mask=deleted if name == ROW_ID else None)
        for name in plan.row_metadata
    ]
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *row_metadata], schema=with_row_metadata_schema(batch.schema, plan.row_metadata)
    )


def with_row_metadata_schema(schema: pa.Schema, row_metadata: Sequence[str]) -> pa.Schema:
    """Append id columns to a schema."""
    for name in row_metadata:
        schema = schema.append(pa.field(name, ROW_METADATA_TYPE))
    return schema


def _rest(plan: ScanPlan, tested: LanceSchema) -> LanceSchema:
    """The columns of a plan without those of ``tested``."""
    have = {f.id: f for f in tested.fields}
    return LanceSchema(tuple(f for f in plan.columns.fields if have.get(f.id) != f), plan.columns.metadata)


def _filtered(plan: ScanPlan, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    reader, bits = chunk.reader, _tested_bits(plan)
    rows = _TESTED_BYTES * 8 // bits if bits else _rows_together(plan, reader, plan.tested)
    tests = [_test(plan, part) for part in _cut(reader, [(chunk.start, chunk.stop)], rows)]
    mask = np.concatenate([mask for _, mask in tests])
    hits = int(np.count_nonzero(mask))
    if not hits:
        return
    tested_rows = pa.concat_tables([table for table, _ in tests])
    # A call for each column and part costs as much as some thousand rows.
    rows = len(mask) if hits * _FEW < len(mask) else _rows_together(plan, reader, plan.tested, plan.rest)
    for part in _cut(reader, [(chunk.start, chunk.stop)], rows):
        low, high = part.start - chunk.start, part.stop - chunk.start
        if mask[low:high].any():
            yield _matching(plan, part, tested_rows.slice(low, high - low), mask[low:high])


def _test(plan: ScanPlan, chunk: Chunk) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Read the columns of a chunk that the filter needs; also return which live rows match."""
    assert plan.filter is not None
    reader, view, tested = chunk.reader, plan.view, plan.tested
    read = [view.show(b, tested) for b in reader.read_range(view.stored(tested), chunk.start, chunk.stop)]
    tested_rows = pa.Table.from_batches(read, schema=tested.shown_schema)
    ids = id_columns(plan.filter, view.arrow)
    rows = with_ids(tested_rows, ids, reader, np.arange(chunk.start, chunk.stop)) if ids else tested_rows
    mask = np.asarray(plan.filter.mask(rows))
    live = None if plan.include_deleted else reader.live_mask(chunk.start, chunk.stop)
    return tested_rows, mask if live is None else mask & live


def _matching(plan: ScanPlan, chunk: Chunk, tested_rows: pa.Table, mask: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the rows of a chunk that ``mask`` selects; ``tested_rows`` are the columns that were tested."""
    reader, rest = chunk.reader, plan.rest
    hits = np.flatnonzero(mask).astype(np.int64)
    offsets = hits + chunk.start
    groups = _groups_with(mask, reader.batch_offsets, chunk) if reader.has_row_groups else [(0, len(mask))]
    start, stop = int(offsets[0]), int(offsets[-1]) + 1
    if rest.fields and len(hits) > 1 and stop - start == len(hits):  # consecutive, as in a range of a sorted column
        batches = [plan.view.show(b, rest) for b in reader.read_range(plan.view.stored(rest), start, stop)]
    elif not rest.fields or len(hits) * _FEW < sum(b - a for a, b in groups):
        batches = _take(plan, reader, rest, offsets)
    else:
        selection, batches = pa.array(mask), []
        for a, b in groups:
            read = reader.read_batches(plan.view.stored(rest), chunk.start + a, chunk.start + b)
            batches += [plan.view.show(batch, rest).filter(selection.slice(a, b - a)) for batch in read]
    return _with_row_metadata(plan, _arranged(plan, tested_rows, rest, hits, batches), reader, offsets)


def _picked(plan: ScanPlan, chunk: Chunk, rows: Rows) -> list[pa.RecordBatch]:
    """Read the live, matching rows among those that an index returned."""
    assert plan.filter is not None
    reader, view = chunk.reader, plan.view
    rows = rows[reader.is_live(rows)]
    if not len(rows):
        return []
    if plan.certain:
        whole = one_batch(reader.take(rows, view.stored(plan.columns)))
        return [finish(plan, reader, whole, rows)]
    tested = plan.tested
    if len(rows) <= _AT_ONCE and not view.blob_bytes:  # a second read costs more than rows that do not match
        ids = {f.id for f in tested.fields}
        more = (f for f in plan.columns.fields if f.id not in ids)
        tested = LanceSchema((*tested.fields, *more), plan.columns.metadata)
    tested_rows = pa.Table.from_batches([view.show(one_batch(reader.take(rows, view.stored(tested))), tested)])
    shown_with_ids = with_ids(tested_rows, id_columns(plan.filter, view.arrow), reader, rows)
    hits = np.flatnonzero(np.asarray(plan.filter.mask(shown_with_ids))).astype(np.int64)
    if not len(hits):
        return []
    rest = _rest(plan, tested)
    batch = _arranged(plan, tested_rows, rest, hits, _take(plan, reader, rest, rows[hits]))
    return [_with_row_metadata(plan, batch, reader, rows[hits])]


def _take(plan: ScanPlan, reader: FragmentReader, columns: LanceSchema, offsets: Rows) -> list[pa.RecordBatch]:
    if not columns.fields:
        return []
    return [plan.view.show(one_batch(reader.take(offsets, plan.view.stored(columns))), columns)]


def _groups_with(mask: npt.NDArray[np.bool_], offsets: Rows, chunk: Chunk) -> list[tuple[int, int]]:
    """The ranges of a chunk's rows, counted from 0, of the row groups with a matching row."""
    inside = offsets[(offsets > chunk.start) & (offsets < chunk.stop)] - chunk.start
    starts = np.concatenate(([0], inside))
    ends = np.append(inside, len(mask))
    hit = np.add.reduceat(mask, starts) > 0
    return list(zip(starts[hit].tolist(), ends[hit].tolist()))


def _arranged(
    plan: ScanPlan, tested_rows: pa.Table, rest: LanceSchema, hits: Rows, batches: list[pa.RecordBatch]
) -> pa.RecordBatch:
    """Arrange the columns of a plan: rows ``hits`` of ``tested_rows``, and ``batches`` of the rest."""
    arrow = plan.columns.shown_schema
    if not arrow.names:
        return no_columns(len(hits))
    later = set(rest.names)
    early = tested_rows.select([name for name in arrow.names if name not in later])
    start, count = int(hits[0]), len(hits)
    consecutive = int(hits[-1]) - start == count - 1
    rows = early.slice(start, count) if consecutive else rows_at(early, pa.array(hits))
    columns = dict(zip(rows.column_names, rows.columns))
    if rest.fields:
        read = pa.Table.from_batches(batches)
        columns.update(zip(read.column_names, read.columns))
    return pa.RecordBatch.from_arrays([one_array(columns[name]) for name in arrow.names], schema=arrow)


def regroup(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Regroup rows into batches of ``rows`` each; the last may have fewer.

    >>> [b.num_rows for b in regroup([pa.record_batch({"n": range(5)})] * 2, 4)]
    [4, 4, 2]
    """
    pending: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, rows - count)
            at += part.num_rows
            count += part.num_rows
            pending.append(part)
            if count == rows:
                yield _one(pending)
                pending, count = [], 0
    if pending:
        yield _one(pending)


def limit_bytes(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Split batches of more than ``size`` bytes, between rows."""
    for batch in batches:
        rows = max(batch.num_rows * size // max(batch.nbytes, 1), 1)
        yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))


def _one(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else one_batch(pa.Table.from_batches(parts).unify_dictionaries())


def rows_at(table: pa.Table, places: pa.Array) -> pa.Table:
    """Take rows of a table; pyarrow 26.0 returns no rows for a table without columns."""
    return table.take(places) if table.num_columns else pa.Table.from_batches([no_columns(len(places))])


# --- running ---------------------------------------------------------------------------------------------------------


def scan(plan: ScanPlan, readers: Iterable[FragmentReader], *, threads: int | None = None) -> Iterator[pa.RecordBatch]:
    """Scan fragments in order; at most ``threads`` chunks are read ahead and kept.

    Local files are mapped: without waits, one thread is faster than several that take turns.
    """
    readers = list(readers)
    if threads is None:
        threads = 1 if all(r.is_local for r in readers) else THREADS
    if plan.limit is not None and plan.filter is None:
        readers = _first(plan, readers, plan.limit + plan.offset)
    if threads > 1:
        batches = _parallel(plan, readers, threads)
    else:  # another thread costs more than it saves
        each = chunks(plan, _joined(plan, readers))
        batches = chain.from_iterable(read_chunk(plan, chunk) for chunk in each)
    if plan.filter is None:
        return batches
    return _limited(batches, plan.limit, plan.offset)


def _first(plan: ScanPlan, readers: Sequence[FragmentReader], rows: int) -> Sequence[FragmentReader]:
    """The first readers that have this many rows."""
    for i, reader in enumerate(readers):
        if rows <= 0:
            return readers[:i]
        rows -= _num_rows(plan, reader)
    return readers


def _joined(
    plan: ScanPlan, readers: Sequence[FragmentReader], pool: ThreadPoolExecutor | None = None, ahead: int = 0
) -> Iterator[FragmentReader]:
    groups: Iterable[Sequence[FragmentReader]] = ([reader] for reader in readers)
    if plan.candidates is None:
        groups = together(readers, may_end_early=plan.filter is not None and plan.limit is not None)
    return joined(groups, plan.stored_columns, pool=pool, ahead=ahead)


def _parallel(plan: ScanPlan, readers: Sequence[FragmentReader], threads: int) -> Iterator[pa.RecordBatch]:
    ahead = min(threads, _AHEAD)

    def weight(chunk: Chunk) -> float:
        rows = chunk.stop - chunk.start if chunk.rows is None else len(chunk.rows)
        size = sum(chunk.reader.stored_bytes(each) for each in plan.stored_columns)
        return max(rows * size / (max(chunk.reader.physical_rows, 1) * CHUNK_BYTES), ahead / threads)

    with ThreadPoolExecutor(threads, thread_name_prefix="lance") as pool:
        pending = chunks(plan, _joined(plan, readers, pool, threads))
        yield from chain.from_iterable(
            map_ahead(pool, lambda chunk: list(read_chunk(plan, chunk)), pending, ahead, weight)
        )


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None, offset: int) -> Iterator[pa.RecordBatch]:
    if limit is not None and limit <= 0:
        return
    for batch in batches:
        if offset >= batch.num_rows:
            offset -= batch.num_rows
            continue
        batch = batch.slice(offset, limit)
        offset = 0
        yield batch
        if limit is not None:
            limit -= batch.num_rows
            if limit <= 0:  # do not read another batch
                return


def count(plan: ScanPlan, readers: Iterable[FragmentReader]) -> int:
    """Count the rows that a scan returns; without a filter, it reads only the manifest and headers."""
    if plan.filter is not None:
        return sum(b.num_rows for b in scan(plan, readers))
    total = max(sum(_num_rows(plan, r) for r in readers) - plan.offset, 0)
    return total if plan.limit is None else min(total, plan.limit)
