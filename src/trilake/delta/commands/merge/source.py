"""The source of a MERGE, held for as long as the merge runs: it is read once, whatever it is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pds

from trilake.errors import InvalidArgumentError

#: Bytes of a stream that are held in memory; what is larger goes into a temporary file, which is mapped.
_IN_MEMORY = 256 << 20


@contextmanager
def held(data: Any, limit: int = _IN_MEMORY) -> Iterator[pa.Table]:
    """The rows of a source as a table, for the time of the block.

    ``data`` is an Arrow table, batch, reader or dataset, or a frame with the Arrow stream interface.  Raises
    ``InvalidArgumentError`` for anything else.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        yield data
        return
    reader = _reader(data)
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in reader:
        waiting.append(batch)
        size += batch.nbytes
        if size > limit:
            break
    else:
        yield _without_index(pa.Table.from_batches(waiting, reader.schema))
        return
    with tempfile.TemporaryDirectory(prefix="trilake-merge-") as folder:
        path = str(Path(folder, "source.arrow"))
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, reader.schema) as writer:
            for batch in waiting:
                writer.write_batch(batch)
            waiting.clear()
            for batch in reader:
                writer.write_batch(batch)
        with pa.memory_map(path) as mapped:
            yield _without_index(pa.ipc.open_file(mapped).read_all())


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pds.Dataset):
        return data.scanner().to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    raise InvalidArgumentError(
        f"the source of a merge is a {type(data).__name__}",
        help="pass an Arrow table, reader or dataset, or a frame with the Arrow stream interface",
    )


def _without_index(table: pa.Table) -> pa.Table:
    """Rows without the unnamed row labels that pandas adds to a frame that was filtered or sorted."""
    if b"pandas" not in (table.schema.metadata or {}):
        return table
    return table.select([n for n in table.schema.names if not (n.startswith("__index_level_") and n.endswith("__"))])
