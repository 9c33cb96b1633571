"""Execute a plan: from files to batches of rows, in parallel, with bounded memory.

Runs in any process that has the plan and a store: the caller's, or a Spark task.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from trilake.delta.protocol.deletion_vectors import RowSet, row_indexes
from trilake.delta.protocol.partitions import parse_values
from trilake.delta.scan.conform import conform_batch
from trilake.delta.scan.data_files import parquet_batches, read_data_file
from trilake.delta.scan.scan import BATCH_ROWS, FileTask, ReadPlan
from trilake.errors import CorruptLogError, InvalidArgumentError, TrilakeError
from trilake.expr.views import numbered_without_views
from trilake.parquet.files import DAMAGE
from trilake.parquet.merged_files import FEWEST, Run, merge_files
from trilake.storage.base import Store, check_key
from trilake.storage.opening import open_sibling
from trilake.storage.uri import is_absolute, split_absolute

#: Up to this many files and bytes are read without threads, which take longer to start.
_FEW, _SMALL = 8, 64 << 10
#: The largest file to read together with others, and the most uncompressed bytes in a batch of their rows.
MERGED_FILE, _MERGED_BATCH = 256 << 10, 4 << 20
#: The most small files that one thread reads at a time, and their total bytes.
_PACK_FILES, _PACK_BYTES = 1024, 8 << 20
#: Bits of the row index in a key of file and row.
_POSITION_BITS = 40


def locate(store: Store, path: str) -> tuple[Store, str]:
    """The store and key of a decoded path in a log; ``./p=1//f`` is ``p=1/f``.  Raises ``CorruptLogError``."""
    try:
        root, key = split_absolute(path, decoded=True) if is_absolute(path) else (None, path)
        if key.startswith("./") or "/./" in key or "//" in key:
            key = "/".join(part for part in key.split("/") if part not in ("", "."))
        check_key(key)
    except InvalidArgumentError as e:
        message = f"the log names {path!r:.200}, which is not a valid path of a file: {e.message}"
        raise CorruptLogError(message, file=store.uri) from e
    return (store if root is None else open_sibling(store, root)), key


def partition_constants(tasks: Sequence[FileTask], plan: ReadPlan) -> dict[str, pa.Scalar | pa.Array]:
    """The typed values of the partition columns that the plan reads: one for all files, or one per file."""
    out: dict[str, pa.Scalar | pa.Array] = {}
    for f in plan.fields:
        if f.name in plan.partition_columns:
            strings = pa.array([t.partition_values.get(f.physical_name) for t in tasks], pa.string())
            values = pa.concat_arrays(parse_values(pa.chunked_array([strings]), f).chunks)
            out[f.name] = values[0] if len(tasks) == 1 or len(pc.unique(strings)) == 1 else values
    return out


#: Indexes of rows in their file.
Positions = np.ndarray[Any, np.dtype[np.int64]]


def read_task(store: Store, task: FileTask, plan: ReadPlan, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
    """Read one file: drop deleted rows, conform columns, apply the filter.

    Raises ``MissingFileError``, ``CorruptFileError`` or ``DeletionVectorError``: never fewer rows.
    """
    yield from _wanted((batch for _, batch in _read_rows(store, task, plan, threads, positions=False)), plan)


def _wanted(batches: Iterable[pa.RecordBatch], plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    all_of_them = plan.output == tuple(f.name for f in plan.fields)
    for batch in batches:
        if plan.filter is not None:
            batch = plan.filter.apply(batch)
        if batch.num_rows:
            yield batch if all_of_them else batch.select(list(plan.output))


def _conformed(batch: pa.RecordBatch, plan: ReadPlan, constants: Mapping[str, pa.Scalar | pa.Array]) -> pa.RecordBatch:
    """Convert rows to the table's columns; unchanged if possible, since checking each column is slow for few rows."""
    if plan.unchanged is not None:
        bare = batch.replace_schema_metadata()
        if bare.schema.equals(plan.unchanged, check_metadata=True):
            return bare
    return conform_batch(batch, list(plan.fields), plan.resolver, constants)


def read_positions(store: Store, task: FileTask, plan: ReadPlan) -> Iterator[tuple[Positions, pa.RecordBatch]]:
    """Read all columns of the undeleted rows of a file, with their indexes; the filter only prunes row groups."""
    for positions, batch in _read_rows(store, task, plan, False, positions=True):
        assert positions is not None
        yield positions, batch


class RowsOfFiles(NamedTuple):
    """Rows of some files: for each row the number of its file and its index in that file, both ascending."""

    files: Positions
    positions: Positions
    rows: pa.RecordBatch

    @property
    def keys(self) -> Positions:
        """File and index of each row as one ascending number."""
        return row_keys(self.files, self.positions)


def row_keys(files: Positions | int, positions: Positions) -> Positions:
    """Compute :attr:`RowsOfFiles.keys` for these rows."""
    keys: Positions = np.left_shift(files, _POSITION_BITS) | positions
    return keys


def read_together(store: Store, tasks: Sequence[FileTask], plan: ReadPlan) -> Iterator[RowsOfFiles]:
    """Read some files in order, like :func:`read_positions`, but without applying the filter.

    Many small Parquet files, all in memory at once, are decoded in one call, which hardly holds the GIL.
    """
    is_parquet = plan.provider == "parquet" and plan.engine.format(plan.provider) is None
    contents = _contents(store, tasks) if is_parquet and len(tasks) >= FEWEST else None
    for run in merge_files(contents) if contents is not None else [Run(0, len(tasks))]:
        yield from _run_rows(store, tasks, plan, run)


def _contents(store: Store, tasks: Sequence[FileTask]) -> list[pa.Buffer] | None:
    """The bytes of the files that may be read together, empty for others; ``None`` if one of them cannot be read."""
    out = [pa.py_buffer(b"")] * len(tasks)
    try:
        located = [locate(store, t.path) for t in tasks]
        small_files = [
            n
            for n, (task, (file_store, _)) in enumerate(zip(tasks, located, strict=True))
            if file_store is store and 0 < task.size <= MERGED_FILE and task.selected is None
        ]
        # One extra byte detects a file that is longer than the log states.
        calls = [partial(store.read_range, located[n][1], 0, tasks[n].size + 1) for n in small_files]
        for n, data in zip(small_files, store.at_once(calls), strict=True):
            if data.size == tasks[n].size:
                out[n] = data
    except (TrilakeError, OSError):  # reading the file by itself gives the precise error
        return None
    return out


def _run_rows(store: Store, tasks: Sequence[FileTask], plan: ReadPlan, run: Run) -> Iterator[RowsOfFiles]:
    count = 0
    if run.merged is not None:
        try:
            for some in _merged_rows(store, tasks[run.start : run.stop], plan, run):
                yield some._replace(files=some.files + run.start)
                count += some.rows.num_rows
            return
        except (TrilakeError, *DAMAGE, OSError):
            pass  # reading the files one by one shows which one is damaged; earlier rows are correct
    for number in range(run.start, run.stop):
        for positions, batch in _read_rows(store, tasks[number], plan, False, positions=True):
            assert positions is not None
            if batch.num_rows > count:
                files = np.full(len(positions) - count, number, np.int64)
                yield RowsOfFiles(files, positions[count:], batch.slice(count))
            count = max(0, count - batch.num_rows)


def _merged_rows(store: Store, tasks: Sequence[FileTask], plan: ReadPlan, run: Run) -> Iterator[RowsOfFiles]:
    assert run.merged is not None
    assert run.counts is not None
    plain = replace(plan, filter=None)  # a merged file has no statistics to prune row groups by
    most = max(1, min(BATCH_ROWS, run.rows * _MERGED_BATCH // max(1, run.plain_size)))
    ends = np.cumsum(run.counts)
    constants = partition_constants(tasks, plan)
    deleted = _deleted_keys(store, tasks, run.counts)
    merged = parquet_batches(pa.BufferReader(run.merged), plain, threads=False, checked=True, batch_rows=most)
    for start, raw in numbered_without_views(merged):
        rows = np.arange(start, start + raw.num_rows, dtype=np.int64)
        files = np.searchsorted(ends, rows, side="right")
        positions = rows - (ends - run.counts)[files]
        if len(deleted):
            live = ~keys_mask(row_keys(files, positions), deleted)
            files, positions = files[live], positions[live]
            raw = raw.filter(pa.array(live)) if raw.num_columns else raw.slice(0, len(files))
        if len(files):
            values = {n: v if isinstance(v, pa.Scalar) else v.take(pa.array(files)) for n, v in constants.items()}
            yield RowsOfFiles(files, positions, _conformed(raw, plan, values))


def _deleted_keys(store: Store, tasks: Sequence[FileTask], counts: Positions) -> Positions:
    vectors = [(n, task.vector) for n, task in enumerate(tasks) if task.vector is not None]
    bitmaps = store.at_once([partial(vector.load, store, int(counts[n])) for n, vector in vectors])
    keys = (row_keys(n, row_indexes(bitmap)) for (n, _), bitmap in zip(vectors, bitmaps, strict=True))
    return np.concatenate([np.empty(0, np.int64), *keys])


def keys_mask(keys: Positions, chosen: Positions) -> npt.NDArray[np.bool_]:
    """Which of ``keys`` are in ``chosen``; both ascend.

    >>> keys_mask(np.array([3, 5, 6]), np.array([0, 5, 9])).tolist()
    [False, True, False]
    """
    mask = np.zeros(len(keys), bool)
    if len(keys):
        lo, hi = np.searchsorted(chosen, [keys[0], keys[-1] + 1])
        inside = chosen[lo:hi]
        at = np.searchsorted(keys, inside)
        mask[at[keys[at] == inside]] = True
    return mask


def _read_rows(
    store: Store, task: FileTask, plan: ReadPlan, threads: bool, *, positions: bool
) -> Iterator[tuple[Positions | None, pa.RecordBatch]]:
    deleted = RowSet(task.vector.load(store)) if task.vector is not None else None
    selected = RowSet(BitMap64.deserialize(task.selected)) if task.selected is not None else None
    file_store, key = locate(store, task.path)
    constants = partition_constants([task], plan)
    rows = 0
    for start, raw in read_data_file(file_store, key, plan, threads=threads):
        rows = start + raw.num_rows
        numbers = np.arange(start, rows, dtype=np.int64) if positions else None
        if deleted is not None and (mask := deleted.keep_mask(start, raw.num_rows)) is not None:
            live = mask.to_numpy(False)
            raw = raw.filter(mask) if raw.num_columns else raw.slice(0, int(np.sum(live)))
            numbers = numbers[live] if numbers is not None else None
        if selected is not None:
            assert numbers is None  # a change feed needs no positions
            mask = selected.keep_mask(start, raw.num_rows)
            raw = raw.filter(pc.invert(mask)) if mask is not None else raw.slice(0, 0)
        if raw.num_rows:
            yield numbers, _conformed(raw, plan, constants)
    # Readers of other formats may skip the end of a file because of the filter.
    if deleted is not None and (plan.filter is None or plan.provider == "parquet"):
        assert task.vector is not None
        task.vector.check_fits(deleted.bitmap, rows, f"{file_store.uri}/{key}")


def read_tasks(store: Store, tasks: Sequence[FileTask], plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Read many files, several at a time; each file's rows stay in order, but files may interleave."""
    count = min(_workers(store, tasks), len(tasks))
    if count <= 1:
        for task in tasks:
            yield from read_task(store, task, plan, threads=True)
        return

    def read(pack: Sequence[FileTask]) -> Iterator[pa.RecordBatch]:
        if len(pack) == 1:
            return read_task(store, pack[0], plan)
        return _wanted((some.rows for some in read_together(store, pack, plan)), plan)

    share = len(tasks) // (2 * count)
    todo = packs(tasks, attrgetter("size"), share if share >= FEWEST else 1)
    yield from _parallel(todo, read, count)


T = TypeVar("T")


def pack_size(count: int, workers: int) -> int:
    """The most files per pack, for equal shares and joint reads."""
    share = max(1, count // (2 * max(1, workers)))
    return share if count < FEWEST else max(FEWEST, share)


def packs(
    items: Sequence[T], size_of: Callable[[T], int], most: int, *, most_bytes: int = _PACK_BYTES
) -> Iterator[Sequence[T]]:
    """Group neighbouring small items, at most ``most`` per group, in their order."""
    pack, size = list[T](), 0
    for item in items:
        if pack and (len(pack) >= min(most, _PACK_FILES) or size + size_of(item) > most_bytes):
            yield pack
            pack, size = [], 0
        pack.append(item)
        size += size_of(item)
    if pack:
        yield pack


def _workers(store: Store, tasks: Sequence[FileTask]) -> int:
    cores = os.cpu_count() or 1
    if not store.uri.startswith(("file:", "memory:")):
        return max(8, 2 * cores)
    return 1 if len(tasks) <= _FEW and sum(task.size for task in tasks) <= _SMALL else cores


def _parallel(
    tasks: Iterable[T], read: Callable[[T], Iterator[pa.RecordBatch]], workers: int
) -> Iterator[pa.RecordBatch]:
    """Read in worker threads, which put batches into a bounded queue to bound memory."""
    todo = iter(tasks)
    lock, stop = threading.Lock(), threading.Event()
    out: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(maxsize=2 * workers)

    def put(item: pa.RecordBatch | BaseException | None) -> bool:
        while not stop.is_set():
            with suppress(queue.Full):
                out.put(item, timeout=0.1)
                return True
        return False

    def work() -> None:
        try:
            while True:
                with lock:
                    task = next(todo, None)
                if task is None:
                    break
                for batch in read(task):
                    if not put(batch):
                        return
            put(None)
        except BaseException as e:  # noqa: BLE001 - handed to the caller's thread, whatever it is
            put(e)

    threads = [threading.Thread(target=work, name=f"trilake-read-{i}", daemon=True) for i in range(workers)]
    for t in threads:
        t.start()
    running = workers
    try:
        while running:
            item = out.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        stop.set()
        for t in threads:
            t.join()
