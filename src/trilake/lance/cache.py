"""``CachedDataset``: a stream of record batches that can be read repeatedly."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

import pyarrow as pa

from trilake.errors import InvalidArgumentError


class CachedDataset:
    """A stream whose batches are stored in a file on the first pass.

    Parameters
    ----------
    stream: stream to read once.
    cache: folder of the file; ``True`` for the system's temporary folder.

    >>> batches = iter([pa.record_batch({"a": [1, 2]})])
    >>> with CachedDataset(batches) as found:
    ...     [b.num_rows for b in found], [b.num_rows for b in found]
    ([2], [2])
    """

    def __init__(self, stream: Iterable[pa.RecordBatch], cache: str | os.PathLike[str] | bool | None = None) -> None:
        if cache not in (None, True) and not isinstance(cache, str | os.PathLike):
            raise InvalidArgumentError(f"Unsupported cache type: {type(cache)}")
        parent = os.fspath(cache) if isinstance(cache, str | os.PathLike) else None
        self._folder: TemporaryDirectory[str] | None = TemporaryDirectory(prefix="lance-", dir=parent)
        self._file: Path | None = None
        self._stream, self._complete = stream, False

    def close(self) -> None:
        """Delete the file."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> CachedDataset:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._folder is None:
            raise InvalidArgumentError("the cache is closed")
        if self._complete:
            if self._file is not None:
                with pa.ipc.open_stream(self._file) as batches:
                    yield from batches
            return
        if self._file is not None:
            raise UnfinishedError(
                "the first pass over the stream has not ended", help="iterate to its end before the next pass"
            )
        self._file = Path(self._folder.name) / "cache.arrow"
        writer: pa.RecordBatchStreamWriter | None = None
        for batch in self._stream:
            writer = writer or pa.ipc.new_stream(str(self._file), batch.schema)
            writer.write(batch)
            yield batch
        if writer is None:
            self._file = None
        else:
            writer.close()
        self._complete = True


class UnfinishedError(InvalidArgumentError, RuntimeError):
    """The cache was read before the first pass was complete."""
