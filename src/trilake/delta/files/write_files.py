"""Write data files: from rows to actions.

Runs in any process with the plan and a store: the caller's, or a Spark task.  The files are invisible until a commit
names them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.file_writer import OtherFile, ParquetFile, ParquetLayout
from trilake.delta.files.spliced_file import OldStatistics, SplicedFile
from trilake.delta.protocol.column_mapping import relabelled, to_physical
from trilake.delta.protocol.partitions import format_values, hive_directory, parse_values
from trilake.delta.protocol.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    all_nullable,
)
from trilake.delta.protocol.schema_edit import has_void, is_void, no_type, stored_type, strip
from trilake.delta.rules.store_assignment import assign_batch
from trilake.delta.scan.conform import Resolver, conform_array
from trilake.delta.scan.row_text import describe_row
from trilake.errors import SchemaMismatchError
from trilake.expr import Filter
from trilake.parquet.splice import Parts
from trilake.storage.base import Store, WriteGroup
from trilake.storage.ownership import discard

#: Bytes of rows to split into partitions at once: sixteen columns of a few rows each cost more than the rows
#: themselves.
_SPLIT_SIZE = 16 << 20
#: Up to this many bytes, rows are not split to limit the file size: the metadata of a row group would take as much.
_LEAST_GROUP = 1 << 16
#: Pieces with fewer rows are joined before they are written.
_SMALL_PIECE = 1_000
#: Up to this many bytes of rows, a whole file is built in memory; its dictionaries never outgrow their page.
_SMALL_FILE = 1 << 20

DataFile = ParquetFile | OtherFile | SplicedFile


def write_files(
    store: Store,
    plan: FilePlan,
    batches: Iterable[pa.RecordBatch],
    *,
    task: int = 0,
    tasks: int | None = None,
) -> WrittenFiles:
    """Write rows to files, by partition and target size.

    ``task`` is the number of this task among ``tasks``, if known.  Returns one ``add`` action per file, as a JSON
    object.  On failure, deletes its finished files.  Raises ``SchemaMismatchError`` for rows that do not fit the
    table's schema, and the errors of the table's rules.
    """
    pipeline = None if plan.rules is None else plan.rules.start(task, tasks=tasks)
    with TaskWriter(store, plan, task) as writer:
        rows = pipeline.run(batches) if pipeline is not None else (assign_batch(b, plan.schema) for b in batches)
        for batch in rows:
            if plan.required is not None:
                _check_required(batch, plan.required)
            writer.write(batch)
        return WrittenFiles(tuple(writer.close()), {} if pipeline is None else pipeline.marks)


def _check_required(rows: pa.RecordBatch, required: Filter) -> None:
    mask = required.mask(rows)
    if not pc.all(mask).as_py():
        wrong = rows.slice(pc.index(mask, pa.scalar(False)).as_py(), 1).to_pylist()[0]
        raise SchemaMismatchError(
            f"a row with {describe_row(wrong, required.columns)} violates replace_where ({required.sql})",
            help="filter the rows before writing, or widen the predicate",
            condition="DELTA_REPLACE_WHERE_MISMATCH",
        )


class TaskWriter:
    """Writes all files of one task: rows are buffered by partition and written as row groups.

    A context manager that discards everything on an error.
    """

    def __init__(self, store: Store, plan: FilePlan, task: int) -> None:
        self.store, self.plan, self.task, self.runtime = store, plan, task, plan.engine.runtime
        self.partition_fields = [plan.schema.field(c) for c in plan.partition_columns]
        #: Columns with void parts, which files do not store.
        self.with_voids = [f for f in plan.schema.fields if has_void(f.type)]
        #: The schema of rows that can be written unchanged.
        self.physical: pa.Schema | None = None
        self.open: OrderedDict[tuple[str | None, ...], DataFile] = OrderedDict()
        self.waiting: dict[tuple[str | None, ...], list[pa.Table]] = {}
        self.sizes: dict[tuple[str | None, ...], int] = {}
        #: Up to this many bytes, rows are written as a whole file from memory.
        self.small = min(_SMALL_FILE, max(plan.target_size, _LEAST_GROUP))
        #: Numbers of rows in the open files.
        self.records: dict[tuple[str | None, ...], int] = {}
        self.unsplit: list[pa.RecordBatch] = []
        self.unsplit_size = 0
        self.attempt = self.runtime.new_attempt()
        # Other formats open their files themselves.
        self.group = store.write_group() if plan.provider == "parquet" else WriteGroup(store)
        self.closing = Closing(self.group.writes_at_once)
        self.keys: list[str] = []

    @cached_property
    def layout(self) -> ParquetLayout:
        # Without a change feed, the columns of change files may clash with the table's `_change_type`.
        return ParquetLayout(self.plan)

    def __enter__(self) -> TaskWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows with the table's columns, followed by the plan's extra columns."""
        if not batch.num_rows:
            return
        if not self.partition_fields:
            self._buffer((), pa.Table.from_batches([batch]))
        else:
            self.unsplit.append(batch)
            self.unsplit_size += batch.nbytes
            if self.unsplit_size >= _SPLIT_SIZE:
                self._buffer_unsplit()
        self._flush_largest()

    def write_partition(self, values: tuple[str | None, ...], rows: pa.Table) -> None:
        """Add rows of a single partition, without its columns; ``values`` as the log spells them."""
        if rows.num_rows:
            self._buffer(values, rows)
            self._flush_largest()

    def finish_partition(self, values: tuple[str | None, ...]) -> None:
        """Close the file of a partition; later rows start a new one."""
        if values in self.waiting:
            self._flush(values, last=True)
        if values in self.open:
            self._finish(values)

    def _flush_largest(self) -> None:
        # A single partition may use the whole buffer; with many, flush the largest first.
        while sum(self.sizes.values()) > self.plan.buffer_size:
            self._flush(max(self.sizes, key=lambda v: self.sizes[v]))

    def _buffer(self, values: tuple[str | None, ...], rows: pa.Table, size: int | None = None) -> None:
        self.waiting.setdefault(values, []).append(rows)
        self.sizes[values] = self.sizes.get(values, 0) + (rows.nbytes if size is None else size)

    def _buffer_unsplit(self) -> None:
        if self.unsplit:
            table = pa.Table.from_batches(self.unsplit).combine_chunks()
            self.unsplit, self.unsplit_size = [], 0
            # Computing the size of a few rows takes as long as writing them: estimate it if all are small.
            total = int(table.nbytes)
            share = total / table.num_rows if total <= self.small else None
            for values, rows in self._split(table):
                self._buffer(values, rows, None if share is None else int(share * rows.num_rows))

    def _split(self, table: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        data = table.drop_columns([f.name for f in self.partition_fields])
        codes, span = np.zeros(table.num_rows, dtype=np.int64), 1
        columns: list[tuple[Sequence[str | None], np.ndarray[Any, np.dtype[np.int32]]]] = []
        for f in self.partition_fields:
            encoded = pc.dictionary_encode(table[f.name].combine_chunks(), null_encoding="encode")
            indices = encoded.indices.to_numpy(zero_copy_only=False)
            columns.append((_partition_strings(f, encoded.dictionary), indices))
            if span * len(encoded.dictionary) >= 1 << 62:
                # With many values in many columns, number only the combinations that occur: codes would overflow.
                distinct, codes = np.unique(codes, return_inverse=True)
                span = len(distinct)
            codes = codes * len(encoded.dictionary) + indices
            span *= len(encoded.dictionary)
        order = np.argsort(codes, kind="stable")
        sorted_codes = codes[order]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(sorted_codes)) + 1, [len(codes)]])
        data = data.take(pa.array(order)) if len(starts) > 2 else data
        firsts = order[starts[:-1]]
        strings = [[strings[i] for i in indices[firsts].tolist()] for strings, indices in columns]
        for values, (lo, hi) in zip(zip(*strings, strict=True), pairwise(starts.tolist()), strict=True):
            yield values, data.slice(lo, hi - lo)

    def _flush(self, values: tuple[str | None, ...], *, last: bool = False) -> None:
        """Write the buffered rows of a partition; ``last`` means that no more rows go into the same file."""
        pieces = self.waiting.pop(values)
        rows = pieces[0] if len(pieces) == 1 else pa.concat_tables(pieces)
        if len(pieces) > 1 and rows.num_rows < len(pieces) * _SMALL_PIECE:
            rows = rows.combine_chunks()  # each piece has a fixed cost of about a thousand rows
        table = self._physical(rows)
        for column, field, string in zip(self.plan.partition_schema, self.partition_fields, values, strict=False):
            value = parse_values(pa.chunked_array([[string]], pa.string()), field)[0]
            table = table.append_column(column, pa.repeat(value, table.num_rows))
        size = self.sizes.pop(values) if len(pieces) == 1 else int(table.nbytes)
        self.sizes.pop(values, None)
        most = self.plan.max_records
        while most is not None and self.records.get(values, 0) + table.num_rows >= most:
            room = most - self.records.get(values, 0)
            self._put(values, table.slice(0, room))
            if values in self.open:
                self._finish(values)
            table = table.slice(room)
        if last and table.num_rows and values not in self.open and size <= self.small:
            self.open[values] = self._start(values, table, whole=True)
            self.open[values].write(table)
            self._finish(values)
        elif table.num_rows:
            self._put(values, table)

    def _physical(self, rows: pa.Table) -> pa.Table:
        if self.physical is not None and rows.schema.equals(self.physical, check_metadata=True):
            return rows
        storable = without_void_columns(rows, self.with_voids, self.plan.stored) if self.with_voids else rows
        table = to_physical(storable, self.plan.stored, self.plan.mode)
        self.physical = table.schema if table is rows else self.physical
        return table

    def _put(self, values: tuple[str | None, ...], table: pa.Table) -> None:
        """Write rows to files of the target size; the buffer may fill many of them."""
        pieces = max(table.nbytes // max(self.plan.target_size, _LEAST_GROUP), 1)
        step = -(-table.num_rows // pieces)
        for start in range(0, table.num_rows, step):
            piece = table.slice(start, step)
            writer = self.open.pop(values, None)
            if writer is not None and not writer.accepts(piece):
                self._close(values, writer)
                writer = None
            writer = writer or self._start(values, piece)
            self.open[values] = writer
            writer.write(piece)
            self.records[values] = self.records.get(values, 0) + piece.num_rows
            if writer.size >= self.plan.target_size:
                self._finish(values)
            elif len(self.open) > self.plan.open_partitions:
                self._finish(next(iter(self.open)))

    def splice(self, values: tuple[str | None, ...], old: Parts, stated: OldStatistics) -> SplicedFile:
        """Start a file of a partition that copies columns from another file; it is closed like the others."""
        key, by_name = self._new_file(values)
        schema = self.layout.schema
        writer = SplicedFile(self.group.open_output(key), key, by_name, schema, self.plan, old, stated)
        self.open[values] = writer
        return writer

    def _start(
        self, values: tuple[str | None, ...], first: pa.Table, *, whole: bool = False
    ) -> ParquetFile | OtherFile:
        key, by_name = self._new_file(values)
        if self.plan.provider != "parquet":
            return OtherFile(self.store, key, by_name, self.plan.file_schema, self.plan)
        return ParquetFile(self.group.open_output(key), key, by_name, self.layout, first, whole=whole)

    def _new_file(self, values: tuple[str | None, ...]) -> tuple[str, dict[str, str | None]]:
        by_name = dict(zip([f.physical_name for f in self.partition_fields], values, strict=True))
        number = len(self.keys)
        kind = "cdc" if self.plan.action == "cdc" else "part"
        file = f"{kind}-{self.task:05d}-{self.plan.job_id}-{self.attempt}.c{number:03d}.{self.plan.ending}"
        key = "/".join(part for part in (self.plan.folder, hive_directory(by_name), file) if part)
        self.keys.append(key)
        return key, by_name

    def _finish(self, values: tuple[str | None, ...]) -> None:
        self._close(values, self.open.pop(values))

    def _close(self, values: tuple[str | None, ...], writer: DataFile) -> None:
        self.records.pop(values, None)
        self.closing.end(writer, self.runtime.clock_ms(), last=not (self.open or self.waiting))

    def close(self) -> list[dict[str, Any]]:
        """Finish all files and return their actions."""
        self._buffer_unsplit()
        for values in list(self.waiting):
            self._flush(values, last=True)
        for values in list(self.open):
            self._finish(values)
        actions = self.closing.actions()
        self.group.finish()
        return actions

    def abort(self) -> None:
        """Discard all files, including finished ones."""
        self.closing.abandon()
        for writer in self.open.values():
            writer.discard()
        self.group.abandon()
        discard(self.store, self.keys)


def _partition_strings(field: StructField, values: pa.Array) -> list[str | None]:
    assert isinstance(field.type, PrimitiveType)
    try:
        return format_values(values, field.type)
    except UnicodeDecodeError as e:
        raise SchemaMismatchError(
            f"a string that is not UTF-8 cannot be a partition value: {e}",
            help="write such values as binary",
            column=field.name,
        ) from e


class Closing:
    """Files that are being closed, and the actions of closed files, in the order of the calls.

    ``at_once`` is the concurrency that the store allows; with 1, files are closed synchronously.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._actions: list[dict[str, Any]] = []
        self._running: deque[tuple[Future[dict[str, Any]], DataFile]] = deque()
        self._pool = ThreadPoolExecutor(at_once, "trilake-close")

    def end(self, file: DataFile, now_ms: int, *, last: bool) -> None:
        """Close a file; set ``last`` if no other file is expected.

        Raises errors of this and earlier files.
        """
        if not self._running and (last or self._at_once == 1):
            self._actions.append(file.close(now_ms))
            return
        while len(self._running) >= self._at_once:
            self._settle()
        self._running.append((self._pool.submit(file.close, now_ms), file))

    def _settle(self) -> None:
        future, _ = self._running.popleft()
        self._actions.append(future.result())

    def actions(self) -> list[dict[str, Any]]:
        """Wait for all files and return their actions."""
        while self._running:
            self._settle()
        self._pool.shutdown()
        return self._actions

    def abandon(self) -> None:
        """Discard files whose closing has not started; wait for the others."""
        for future, file in self._running:
            if future.cancel():
                file.discard()
        wait([future for future, _ in self._running])
        self._running.clear()
        self._pool.shutdown()


def without_void_columns(rows: pa.Table, fields: Sequence[StructField], stored: StructType) -> pa.Table:
    """Remove void columns and void parts of columns from rows.

    ``fields`` are the columns of the table that have void parts, ``stored`` the columns as files store them.  Raises
    ``SchemaMismatchError`` for a value of which nothing would remain, such as an array of void.
    """
    # Rows have the display names at every depth.
    types = {f.name: f.type for f in strip(stored).fields}
    for f in fields:
        index = rows.schema.get_field_index(f.name)
        if index < 0:
            continue
        column = rows.column(index)
        for chunk in column.chunks:
            _check(chunk, f.type, f.name)
        target = types.get(f.name)
        if target is None:
            rows = rows.remove_column(index)
            continue
        field = rows.schema.field(index)
        loose = all_nullable(target)
        converted = pa.chunked_array([conform_array(c, loose, Resolver(), f.name) for c in column.chunks], loose.arrow)
        rows = rows.set_column(index, field.with_type(loose.arrow), converted)
    kinds = {f.name: types[f.name].arrow for f in fields if f.name in types}
    return relabelled(rows, pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in rows.schema]))


def _check(array: pa.Array, type_: DataType, path: str) -> None:
    """Reject a value that cannot be stored: one that is not null although all its parts are void."""
    if is_void(type_) or pa.types.is_null(array.type):
        return
    if stored_type(type_) is None:
        if array.null_count < len(array):
            raise no_type(path, type_)
    elif isinstance(type_, StructType):
        for f in type_.fields:
            inside = array.field(f.name)
            _check(inside.filter(array.is_valid()) if array.null_count else inside, f.type, f"{path}.{f.name}")
    elif isinstance(type_, ArrayType):
        _check(pc.list_flatten(array), type_.element, f"{path}.element")
    elif isinstance(type_, MapType):
        entries = pa.list_(pa.struct([array.type.key_field, array.type.item_field]))
        _check(pc.list_flatten(array.cast(entries)).field(1), type_.value, f"{path}.value")
