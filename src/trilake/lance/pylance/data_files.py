"""``LanceFileReader`` and ``LanceFileWriter``: one data file of the first format, without a dataset.

pylance has these names for files of Lance 2.x alone; here they read what datasets of the first format are made of, and
write such files, which ``LanceFragment.create_from_file`` makes fragments of.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import InvalidArgumentError, UnsupportedProtocolError
from trilake.lance.commands import input_rows
from trilake.lance.commands.fragment_writer import NullPolicy, Target, WriteOptions, regroup
from trilake.lance.file.errors import NothingToWriteError, UnknownRowError, WrongTypeError
from trilake.lance.file.storage_version import FIRST
from trilake.lance.file.view import View
from trilake.lance.pylance.beyond import NotInFormatError
from trilake.lance.scan.scan import one_batch
from trilake.lance.v1.data_file import V1File
from trilake.lance.v1.data_file_writer import V1Writer
from trilake.storage import open_store
from trilake.storage.base import Store

#: Names of the version of files that are written here.
_VERSIONS = (None, "legacy", "0.1")


@dataclass(frozen=True)
class LanceFileMetadata:
    """What a data file says of itself; ``size`` is in bytes."""

    schema: pa.Schema
    num_rows: int
    num_batches: int
    size: int


class ReaderResults:
    """Rows of a data file, which are read when they are asked for."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self.reader = reader

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return self.reader

    def to_table(self) -> pa.Table:
        """The rows as a table."""
        return self.reader.read_all()


class LanceFileReader:
    """Read one data file.

    Parameters
    ----------
    path: of the file, or its URI.
    storage_options: credentials, region and endpoint of an object store.
    columns: names of the columns to read, all by default.

    Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for files of Lance 2.x.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        store, key = _place(path, storage_options)
        self._file = V1File.open(store, key)
        self._view = View(self._file.schema)
        self._columns = self._view.columns(columns)
        self._stored = self._view.stored(self._columns)

    def num_rows(self) -> int:
        """Number of rows, those included that a dataset has deleted."""
        return self._file.num_rows

    def metadata(self) -> LanceFileMetadata:
        """What the file says of itself."""
        return LanceFileMetadata(self._view.arrow, self._file.num_rows, self._file.num_batches, self._file.size)

    def read_all(self, *, batch_size: int = 1024, batch_readahead: int = 16) -> ReaderResults:
        """All rows, in batches of ``batch_size``."""
        return self.read_range(0, self._file.num_rows, batch_size=batch_size, batch_readahead=batch_readahead)

    def read_range(
        self, start: int, num_rows: int, *, batch_size: int = 1024, batch_readahead: int = 16
    ) -> ReaderResults:
        """Some rows that follow one another.  Raises ``UnknownRowError`` for rows that the file does not have."""
        del batch_readahead
        if start < 0 or num_rows < 0 or start + num_rows > self._file.num_rows:
            raise UnknownRowError(
                f"the file has {self._file.num_rows} rows; asked for were {num_rows} from {start} on",
                file=self._file.file,
            )
        return self._results(self._range(start, start + num_rows), batch_size)

    def _range(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        offsets = self._file.batch_offsets
        first = max(int(np.searchsorted(offsets, start, "right")) - 1, 0)
        for number in range(first, self._file.num_batches):
            low, high = int(offsets[number]), int(offsets[number + 1])
            if low >= stop:
                return
            rows = slice(max(start - low, 0), min(stop, high) - low)
            yield self._view.show(self._file.read_batch(number, self._stored, rows), self._columns)

    def take_rows(
        self, indices: npt.ArrayLike | pa.Array, *, batch_size: int = 1024, batch_readahead: int = 16
    ) -> ReaderResults:
        """The rows at some places, which must ascend.  Raises ``InvalidArgumentError``."""
        del batch_readahead
        places = input_rows.numbers(indices)
        if (np.diff(places) < 0).any():
            raise InvalidArgumentError("the places of rows do not ascend", help="sort them", file=self._file.file)
        stored = one_batch(self._file.take(places, self._stored))
        return self._results(iter([self._view.show(stored, self._columns)]), batch_size)

    def _results(self, batches: Iterator[pa.RecordBatch], batch_size: int) -> ReaderResults:
        schema = self._columns.to_arrow()
        sized = regroup(batches, WriteOptions(max_rows_per_group=batch_size).max_rows_per_group)
        return ReaderResults(pa.RecordBatchReader.from_batches(schema, sized))

    def read_global_buffer(self, index: int) -> bytes:
        """Raise ``NotInFormatError``: files of the first format have no such buffers."""
        raise NotInFormatError("files of the first format have no global buffers", help="write a column of bytes")


class LanceFileWriter:
    """Write one data file of the first format, which appears whole when the writer is closed.

    Parameters
    ----------
    path: of the file, or its URI.
    schema: of the rows; that of the first batch by default.
    version: ``"legacy"``, which may be left out.
    storage_options: credentials, region and endpoint of an object store.
    max_rows_per_group: rows that are read together at most.
    nulls: what becomes of nulls that the format cannot hold; see
        :class:`~trilake.lance.commands.fragment_writer.WriteOptions`.
    hints: of other implementations, which change nothing: ``data_cache_bytes``, ``max_page_bytes`` and
        ``keep_original_array``.

    Used as a context manager, an exception in the block discards the file.

    >>> with LanceFileWriter("memory://doc-lance-file/x.lance") as writer:
    ...     writer.write_batch(pa.table({"a": [1, 2, 3]}))
    >>> LanceFileReader("memory://doc-lance-file/x.lance").read_range(1, 2).to_table().to_pydict()
    {'a': [2, 3]}
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema | None = None,
        *,
        version: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        max_rows_per_group: int = 1024,
        nulls: NullPolicy = "error",
        **hints: Any,
    ) -> None:
        if version not in _VERSIONS:
            raise UnsupportedProtocolError(
                f"files of version {version!r} of Lance cannot be written", help='leave it out, or pass "legacy"'
            )
        unknown = set(hints) - {"data_cache_bytes", "max_page_bytes", "keep_original_array"}
        if unknown:
            raise WrongTypeError(f"a data file has no option {min(unknown)!r}")
        self._options = WriteOptions(max_rows_per_group=max_rows_per_group, nulls=nulls)
        self._store, self._key = _place(path, storage_options)
        self._metadata: dict[str, str] = {}
        self._target: Target | None = None
        self._writer: V1Writer | None = None
        self._closed = False
        if schema is not None:
            self._begin(schema)

    def _begin(self, schema: pa.Schema) -> tuple[Target, V1Writer]:
        input_rows.check_metadata(schema)
        flat, _ = input_rows.plain(schema, ())
        self._target = Target.new(flat, FIRST, nulls=self._options.nulls)
        self._writer = V1Writer(self._store, self._key, self._target.schema)
        return self._target, self._writer

    def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write rows.  Raises ``SchemaMismatchError`` where they do not have the columns of the file."""
        self._check_open()
        rows = input_rows.table(batch)
        target, writer = self._begin(rows.schema) if self._target is None else (self._target, self._writer)
        assert writer is not None
        for group in regroup(rows.to_batches(), self._options.max_rows_per_group):
            writer.write(target.stored(group))

    def add_schema_metadata(self, key: Any, value: Any) -> None:
        """Add metadata to the schema in the file."""
        self._check_open()
        if not isinstance(key, str) or not isinstance(value, str):
            raise WrongTypeError(f"the metadata {key!r} is {value!r}", help="names and values are texts")
        self._metadata[key] = value

    def add_global_buffer(self, data: bytes) -> int:
        """Raise ``NotInFormatError``: files of the first format have no such buffers."""
        raise NotInFormatError("files of the first format have no global buffers", help="write a column of bytes")

    def close(self) -> int:
        """Finish the file; its number of rows.  Raises ``NothingToWriteError`` where its columns are not known."""
        self._check_open()
        if self._writer is None:
            raise NothingToWriteError("the file has no columns", help="pass a schema, or write a batch", file=self._key)
        self._closed = True
        self._writer.add_metadata({key.encode(): value.encode() for key, value in self._metadata.items()})
        return self._writer.close().rows

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgumentError("the file is closed", help="open another writer", file=self._key)

    def __enter__(self) -> LanceFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if kind is not None and self._writer is not None and not self._closed:
            self._writer.discard()
        if kind is None and not self._closed:
            self.close()
        self._closed = True
        return False


def _place(path: str | os.PathLike[str], options: Mapping[str, str] | None) -> tuple[Store, str]:
    """The store of a file's folder, and the file's name in it."""
    text = os.fspath(path)
    folder, slash, name = text.rpartition("/")
    if not name:
        raise InvalidArgumentError(f"{text!r} names no file", help="pass the path of a data file")
    return open_store((folder or "/") if slash else ".", dict(options or {})), name
