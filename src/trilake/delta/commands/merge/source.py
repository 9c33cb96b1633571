"""The source of a MERGE, held for as long as the merge runs: it is read once, whatever it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from trilake.expr.nanoseconds import in_microseconds, microseconds_schema
from trilake.expr.views import stream_without_views
from trilake.frames import arrow_batches
from trilake.storage.spill import spilling, temporary_folder

#: Bytes of a stream that are held in memory; what is larger goes into a temporary file, which is mapped.
_IN_MEMORY = 256 << 20


@contextmanager
def materialized(data: Any, limit: int = _IN_MEMORY, *, round_times: bool = False) -> Iterator[pa.Table]:
    """The rows of a source as a table without views and in microseconds, for the time of the block.

    ``data`` is what :func:`trilake.frames.arrow_batches` takes; it raises ``InvalidArgumentError`` for anything else.
    Raises ``SchemaMismatchError`` for times finer than a microsecond, unless ``round_times`` says to round them down,
    ``StorageError`` where a stream is larger than ``limit`` and the temporary folder cannot take it.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    schema, batches = stream_without_views(*arrow_batches(data, "the source of a merge is a"))
    schema, batches = microseconds_schema(schema), map(partial(in_microseconds, round_down=round_times), batches)
    if isinstance(data, pa.Table):
        yield pa.Table.from_batches(batches, schema)
        return
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size > limit:
            break
    else:
        yield pa.Table.from_batches(waiting, schema)
        return
    with temporary_folder("trilake-merge-") as folder:
        path = str(folder / "source.arrow")
        with spilling():
            sink = pa.OSFile(path, "wb")
        with sink:
            _write(sink, schema, chain(_drained(waiting), batches))
        with spilling():
            mapped = pa.memory_map(path)
        with mapped:
            yield pa.ipc.open_file(mapped).read_all()


def _drained(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while batches:
        yield batches.pop(0)


def _write(sink: pa.NativeFile, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a stream into a temporary file; what the stream itself raises stays what it is."""
    with spilling():
        writer = pa.ipc.new_file(sink, schema)
    for batch in batches:
        with spilling():
            writer.write_batch(batch)
    with spilling():
        writer.close()
