"""Rewrite files of a table: the task of an optimization, for one bin of files.

Drops deleted rows and moves row ids into columns; the table's rules are not applied again.  Runs in any process with
the plan and a store.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.delta.commands.optimize.curve_order import SAMPLE_ROWS, Curve, gathered, in_curve_order, sample_indexes
from trilake.delta.commands.rows.row_changes import ChangedFile, with_row_ids
from trilake.delta.files.file_plan import FilePlan
from trilake.delta.files.write_files import TaskWriter
from trilake.delta.scan.read import packs, read_together
from trilake.delta.scan.scan import ReadPlan
from trilake.parquet.merged_files import FEWEST
from trilake.storage.base import Store

#: Bytes of rows that a sort keeps in memory.
MEMORY = 512 << 20
#: Batches of one file to buffer, and bytes of files to read ahead.
_WAITING, _AHEAD_BYTES = 4, 16 << 20
#: Fixed cost per file, in bytes.
_OPENING = 128 << 10
#: Bytes of the batches in which rows of small files are gathered.
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True)
class Bin:
    """Files to rewrite as ``new_files`` new files.

    ``partition`` are their partition values, in partitioning order, as the first file spells them.  ``rows`` is the
    number of live rows, ``None`` if unknown.  ``unbounded`` are columns without an upper bound in some file, for
    example because of a NaN: the new files get no bounds for them.
    """

    number: int
    files: tuple[ChangedFile, ...]
    partition: tuple[str | None, ...]
    rows: int | None = None
    new_files: int = 1
    unbounded: frozenset[tuple[str, ...]] = frozenset()


@dataclass(frozen=True)
class RewritePlan:
    """The parameters of all tasks of an optimization.

    ``read`` reads the columns that files store; ``curve`` is the order of the rows, ``None`` to keep it; ``readers`` is
    the number of files that one task reads concurrently.
    """

    read: ReadPlan
    files: FilePlan
    curve: Curve | None = None
    memory: int = MEMORY
    readers: int = 1


@dataclass(frozen=True)
class Rewritten:
    """The ``add`` actions of a bin's new files."""

    number: int
    adds: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Rewrite:
    """The picklable task; ``advance`` reports files that were read, only in this process."""

    store: Store
    plan: RewritePlan
    advance: Callable[[int], object] | None = field(default=None, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Rewrite, (self.store, self.plan)

    def __call__(self, work: Bin) -> Rewritten:
        """Rewrite the files of a bin.  On failure, delete its new files."""
        runtime, plan = self.plan.files.engine.runtime, self.plan
        files = replace(plan.files, unbounded=work.unbounded)
        with TaskWriter(self.store, files, work.number, runtime) as writer:
            batches = self.rows(work.files)
            if plan.curve is None:
                for batch in batches:
                    writer.write_partition(work.partition, pa.Table.from_batches([batch]))
            else:
                self._in_order(writer, work, batches, plan.curve)
            return Rewritten(work.number, tuple(writer.close()))

    def _in_order(self, writer: TaskWriter, work: Bin, batches: Iterator[pa.RecordBatch], curve: Curve) -> None:
        ordered = in_curve_order(
            batches, curve, count=work.rows, sample=lambda: self.sample(work, curve), memory=self.plan.memory
        )
        # Make files of about equally many rows; if the number of rows is unknown, of equally many bytes.
        limit = -(-work.rows // work.new_files) if work.rows and work.new_files > 1 else None
        rows_so_far = 0
        for table in ordered:
            while limit is not None and rows_so_far + table.num_rows >= limit:
                writer.write_partition(work.partition, table.slice(0, limit - rows_so_far))
                writer.finish_partition(work.partition)
                table, rows_so_far = table.slice(limit - rows_so_far), 0
            writer.write_partition(work.partition, table)
            rows_so_far += table.num_rows

    def rows(self, files: Sequence[ChangedFile]) -> Iterator[pa.RecordBatch]:
        """The live rows of files in order, in the form in which they are written."""
        read, out = self.plan.read, self.plan.files

        def together(pack: Sequence[ChangedFile]) -> Iterator[pa.RecordBatch]:
            for some in read_together(self.store, [source.file for source in pack], read):
                yield with_row_ids(some, pack, read, out)
            if self.advance is not None:
                self.advance(len(pack))

        yield from in_turn(files, together, self.plan.readers)

    def sample(self, work: Bin, curve: Curve) -> pa.Table:
        """The curve's columns of some rows of each file, in total about ``SAMPLE_ROWS`` of ``work.rows``."""
        names = {path[0] for path in curve.columns}
        fields = tuple(f for f in self.plan.read.fields if f.name in names)
        narrow = replace(self.plan.read, fields=fields, output=tuple(f.name for f in fields))
        share = SAMPLE_ROWS / max(work.rows or 0, SAMPLE_ROWS) if work.rows is not None else 0.05

        def some(pack: Sequence[ChangedFile]) -> Iterator[pa.RecordBatch]:
            for _, _, batch in read_together(self.store, [source.file for source in pack], narrow):
                size = max(1, int(np.ceil(batch.num_rows * share)))
                yield batch.take(pa.array(sample_indexes(batch.num_rows, size)))

        return pa.Table.from_batches(in_turn(work.files, some, self.plan.readers), narrow.schema)


_End = type("_End", (), {})


def in_turn(
    items: Sequence[ChangedFile], read: Callable[[Sequence[ChangedFile]], Iterator[pa.RecordBatch]], readers: int
) -> Iterator[pa.RecordBatch]:
    """The batches of one item after the other; the next items are read ahead within bounds.

    Many small files are read together, since the cost per batch is the same for ten rows as for ten thousand.
    """
    stop = threading.Event()

    def put(place: queue.Queue[Any], value: object) -> bool:
        while not stop.is_set():
            with suppress(queue.Full):
                place.put(value, timeout=0.1)
                return True
        return False

    def work(place: queue.Queue[Any], pack: Sequence[ChangedFile]) -> None:
        try:
            for batch in _gathered(read(pack)) if len(pack) > 1 else read(pack):
                if not put(place, batch):
                    return
            put(place, _End)
        except BaseException as e:  # noqa: BLE001 - handed to the caller's thread, whatever it is
            put(place, e)

    share = len(items) // max(1, readers)
    # If files are merged, two packs per thread, since merging gets cheaper with their number; otherwise more packs,
    # for equal shares.
    most = share // 2 if share >= 2 * FEWEST else share // 8
    todo = packs(items, lambda item: item.file.size, most)
    queues = deque[tuple[queue.Queue[Any], int]]()
    with ThreadPoolExecutor(max(1, readers)) as pool:
        try:
            while True:
                while len(queues) <= readers or sum(size for _, size in queues) < _AHEAD_BYTES:
                    if (pack := next(todo, None)) is None:
                        break
                    queues.append((queue.Queue(_WAITING), sum(item.file.size + _OPENING for item in pack)))
                    pool.submit(work, queues[-1][0], pack)
                if not queues:
                    return
                place, _ = queues.popleft()
                while (result := place.get()) is not _End:
                    if isinstance(result, BaseException):
                        raise result
                    yield result
        finally:
            stop.set()


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of some megabytes."""
    for table in gathered(batches, _BATCH_BYTES):
        yield from table.combine_chunks().to_batches()
