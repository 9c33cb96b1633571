"""Executing a plan: files to batches of rows, in parallel, with bounded memory.

Runs in any process that has the plan and a store: the caller's own, or a Spark task.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from trilake.delta.conform import conform_batch
from trilake.delta.data_files import read_data_file
from trilake.delta.deletion_vectors import keep_mask, row_indexes
from trilake.delta.partitions import parse_values
from trilake.delta.scan import FileTask, ReadPlan
from trilake.errors import DeletionVectorError, MissingFileError, ObjectNotFoundError
from trilake.storage.base import Store
from trilake.storage.uri import is_absolute, split_absolute


def locate(store: Store, path: str) -> tuple[Store, str]:
    """The store and key of a decoded path in a log: relative to the table, or absolute."""
    if not is_absolute(path):
        return store, path
    root, key = split_absolute(path, decoded=True)
    return store.sibling(root), key


def partition_constants(task: FileTask, plan: ReadPlan) -> dict[str, pa.Scalar]:
    """The partition columns that the plan reads, as typed values of one file."""
    out = {}
    for f in plan.fields:
        if f.name in plan.partition_columns:
            text = task.partition_values.get(f.physical_name)
            out[f.name] = parse_values(pa.chunked_array([[text]], pa.string()), f)[0]
    return out


def read_task(store: Store, task: FileTask, plan: ReadPlan, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
    """The rows of one file: deleted rows dropped, columns conformed, the filter applied.

    Raises ``MissingFileError``, ``CorruptFileError`` or ``DeletionVectorError``: never fewer rows.
    """
    deleted = row_indexes(task.vector.load(store)) if task.vector is not None else None
    selected = row_indexes(BitMap64.deserialize(task.selected)) if task.selected is not None else None
    place, key = locate(store, task.path)
    constants = partition_constants(task, plan)
    rows = 0
    try:
        for start, raw in read_data_file(place, key, plan, threads=threads):
            rows = start + raw.num_rows
            if deleted is not None and (mask := keep_mask(deleted, start, raw.num_rows)) is not None:
                raw = raw.filter(mask) if raw.num_columns else raw.slice(0, int(np.sum(mask.to_numpy(False))))
            if selected is not None:
                mask = keep_mask(selected, start, raw.num_rows)
                raw = raw.filter(pc.invert(mask)) if mask is not None else raw.slice(0, 0)
            if not raw.num_rows:
                continue
            batch = conform_batch(raw, list(plan.fields), plan.resolver, constants)
            if plan.filter is not None:
                batch = plan.filter.apply(batch)
            if batch.num_rows:
                yield batch.select(list(plan.output))
    except ObjectNotFoundError as e:
        raise MissingFileError(
            "a data file of the table is missing", file=f"{place.uri}/{key}", version=plan.version
        ) from e
    if deleted is not None and len(deleted) and plan.filter is None and deleted[-1] >= rows:
        raise DeletionVectorError(
            f"deletion vector deletes row {deleted[-1]} of a file with {rows} rows",
            help="restore the vector's file, or read a version without it",
            file=f"{place.uri}/{key}",
            version=plan.version,
        )


def read_tasks(
    store: Store, tasks: Sequence[FileTask], plan: ReadPlan, *, workers: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of many files, several read at a time; a file's rows stay in order, files may interleave."""
    count = min(workers or _default_workers(store), len(tasks))
    if count <= 1:
        for task in tasks:
            yield from read_task(store, task, plan, threads=True)
        return
    yield from _parallel(tasks, lambda t: read_task(store, t, plan), count)


def _default_workers(store: Store) -> int:
    cores = os.cpu_count() or 1
    return cores if store.uri.startswith("file:") else max(8, 2 * cores)


class _Stopped(BaseException):
    """Tells a worker that nobody wants its rows any more."""


def _parallel(
    tasks: Iterable[FileTask], read: Callable[[FileTask], Iterator[pa.RecordBatch]], workers: int
) -> Iterator[pa.RecordBatch]:
    """Workers take tasks in turn and put batches into a short queue: what is in memory is what the queue holds."""
    todo = iter(tasks)
    lock, stop = threading.Lock(), threading.Event()
    out: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(maxsize=2 * workers)

    def put(item: pa.RecordBatch | BaseException | None) -> None:
        while not stop.is_set():
            try:
                out.put(item, timeout=0.1)
                return
            except queue.Full:
                continue
        raise _Stopped

    def work() -> None:
        try:
            while True:
                with lock:
                    task = next(todo, None)
                if task is None:
                    break
                for batch in read(task):
                    put(batch)
            put(None)
        except _Stopped:
            pass
        except BaseException as e:  # noqa: BLE001 - handed to the caller's thread, whatever it is
            with suppress(_Stopped):
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
