"""``LanceFileReader``, ``LanceFileWriter`` and ``LanceFileSession``: single data files without a dataset.

They support all versions of the file format.  ``LanceFragment.create_from_file`` makes a fragment of such a file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import InvalidArgumentError, ObjectNotFoundError
from trilake.lance.commands import input_rows
from trilake.lance.commands.format_options import check_format
from trilake.lance.commands.fragment_writer import NullPolicy, Target, WriteOptions
from trilake.lance.data_files import new_data_file, open_by_footer
from trilake.lance.file.errors import NothingToWriteError, UnknownColumnError, UnknownRowError, WrongTypeError
from trilake.lance.file.interfaces import DataFileWriter
from trilake.lance.file.storage_version import LEGACY, STABLE, StorageVersion
from trilake.lance.file.view import View
from trilake.lance.pylance.beyond import NotInFormatError
from trilake.lance.pylance.blob_writers import DedicatedBlobWriter, PackedBlobWriter
from trilake.lance.scan.fragment_reader import finished, one_batch
from trilake.lance.scan.scan import regroup
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.v2.file import V2File
from trilake.lance.v2.writer import V2Writer
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.manifest import DataFile
from trilake.storage import open_store
from trilake.storage.base import Store

#: Default maximum page size in bytes.
_PAGE_BYTES = 32 << 20


def stable_version() -> str:
    """Return the default version of new files.

    >>> stable_version()
    '2.2'
    """
    return str(STABLE)


@dataclass(frozen=True)
class LanceBufferDescriptor:
    """Position and size of a buffer in a file."""

    position: int
    size: int


@dataclass(frozen=True)
class LancePageMetadata:
    """A page: its buffers and the description of its encoding."""

    buffers: list[LanceBufferDescriptor]
    encoding: str


@dataclass(frozen=True)
class LanceColumnMetadata:
    """A column: its pages and the buffers they share."""

    column_buffers: list[LanceBufferDescriptor]
    pages: list[LancePageMetadata]


@dataclass(frozen=True)
class LanceFileMetadata:
    """Metadata of a data file, sizes in bytes.  Files of the legacy format have no column metadata."""

    schema: pa.Schema
    num_rows: int
    size: int
    major_version: int
    minor_version: int
    num_batches: int = 0
    num_data_bytes: int = 0
    num_column_metadata_bytes: int = 0
    num_global_buffer_bytes: int = 0
    global_buffers: list[LanceBufferDescriptor] = field(default_factory=list)
    columns: list[LanceColumnMetadata] = field(default_factory=list)


@dataclass(frozen=True)
class LanceColumnStatistics:
    """Number and size of the pages of a column."""

    num_pages: int
    size_bytes: int


@dataclass(frozen=True)
class LanceFileStatistics:
    """Statistics of all columns."""

    columns: list[LanceColumnStatistics]


class ReaderResults:
    """Rows of a data file, read on demand."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self.reader = reader

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return self.reader

    def to_table(self) -> pa.Table:
        """Read all rows into a table."""
        return self.reader.read_all()


class LanceFileReader:
    """Read one data file.

    Parameters
    ----------
    path: path or URI of the file.
    storage_options: credentials, region and endpoint of the object store.
    columns: names of columns to read, by default all.
    later: catalog options; must be ``None``.

    Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for unsupported versions.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        **later: Any,
    ) -> None:
        check_format(later, of="LanceFileReader")
        store, key = _location(path, storage_options)
        self._location = store, key, Bases(store)
        self._file = open_by_footer(store, key)
        self._view = View(self._file.schema, blob_bytes=True)
        self._columns = self._view.columns(columns)
        self._stored = self._view.stored(self._columns)

    def num_rows(self) -> int:
        """Return the number of rows, including rows that are deleted in a dataset."""
        return self._file.num_rows

    def metadata(self) -> LanceFileMetadata:
        """Return the metadata of the file."""
        file = self._file
        if isinstance(file, V2File):
            return _metadata(file, self._view.arrow)
        batches = len(file.batch_offsets) - 1
        return LanceFileMetadata(self._view.arrow, file.num_rows, file.size, LEGACY.major, LEGACY.minor, batches)

    def file_statistics(self) -> LanceFileStatistics:
        """Return the number and size of each column's pages.  Raises ``NotInFormatError`` in the legacy format."""
        if not isinstance(self._file, V2File):
            raise NotInFormatError("legacy files do not store page sizes", help=_MIGRATE)
        file, columns = self._file, self.metadata().columns
        return LanceFileStatistics(
            [LanceColumnStatistics(len(c.pages), file.column_bytes(n)) for n, c in enumerate(columns)]
        )

    def read_all(self, *, batch_size: int = 1024, batch_readahead: int = 16) -> ReaderResults:
        """Read all rows in batches of ``batch_size``."""
        return self.read_range(0, self._file.num_rows, batch_size=batch_size, batch_readahead=batch_readahead)

    def read_range(
        self, start: int, num_rows: int, *, batch_size: int = 1024, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read a range of rows.  Raises ``UnknownRowError`` if it is out of bounds."""
        del batch_readahead
        if start < 0 or num_rows < 0 or start + num_rows > self._file.num_rows:
            raise UnknownRowError(
                f"rows {start} to {start + num_rows} are out of range: the file has {self._file.num_rows} rows",
                file=self._file.file,
            )
        return self._results(self._range(start, start + num_rows), batch_size)

    def _range(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        offsets = self._file.parts(self._stored)
        first = max(int(np.searchsorted(offsets, start, "right")) - 1, 0)
        for low, high in zip(offsets[first:-1].tolist(), offsets[first + 1 :].tolist(), strict=True):
            if low >= stop:
                return
            yield self._shown(self._file.read_rows(max(start, low), min(stop, high), self._stored))

    def take_rows(
        self, indices: npt.ArrayLike | pa.Array, *, batch_size: int = 1024, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read the rows at ascending positions.  Raises ``InvalidArgumentError``."""
        del batch_readahead
        rows = input_rows.numbers(indices)
        if (np.diff(rows) < 0).any():
            raise InvalidArgumentError(
                "row positions must be in ascending order", help="sort them", file=self._file.file
            )
        stored = one_batch(self._file.take(rows, self._stored))
        return self._results(iter([self._shown(stored)]), batch_size)

    def _shown(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        return self._view.show(finished(stored, self._stored, self._location), self._columns)

    def _results(self, batches: Iterator[pa.RecordBatch], batch_size: int) -> ReaderResults:
        schema = self._columns.shown_schema
        sized = regroup(batches, WriteOptions(max_rows_per_group=batch_size).max_rows_per_group)
        return ReaderResults(pa.RecordBatchReader.from_batches(schema, sized))

    def read_global_buffer(self, index: int) -> bytes:
        """Return the bytes of a global buffer; buffer 0 is the schema, added buffers follow.

        Raises ``InvalidArgumentError`` for an unknown index, and ``NotInFormatError`` for a file of the legacy format.
        """
        if not isinstance(self._file, V2File):
            raise NotInFormatError("legacy files have no global buffers", help=_MIGRATE)
        count = len(self._file.container.global_places)
        if not 0 <= index < count:
            raise InvalidArgumentError(f"global buffer {index} does not exist: the file has {count}", help=_BUFFERS)
        return bytes(self._file.container.global_buffer(index).to_pybytes())


_MIGRATE = "rewrite the file with LanceFileWriter"
_BUFFERS = "the first added buffer has index 1"


def described(snapshot: Snapshot, path: str) -> tuple[DataFile, int]:
    """Return the manifest entry and the number of rows of a data file of a dataset, which need not be committed.

    Raises ``MissingFileError``, ``CorruptFileError``, and ``UnknownColumnError`` for a column that the dataset lacks.
    """
    file = open_by_footer(snapshot.store, f"data/{path}")
    stored_schema, schema = file.schema, snapshot.manifest.schema
    columns = file.columns if isinstance(file, V2File) else dict.fromkeys(stored_schema.field_ids, -1)
    ids = []
    for field_ in stored_schema.walk():
        if field_.id in columns:
            name = stored_schema.name_of(field_)
            same = schema.find(name)
            if same is None:
                raise UnknownColumnError(
                    f"the file has a column {name!r} that is not in the dataset", file=path, column=name
                )
            ids.append((same.id, columns[field_.id]))
    fields = tuple(id for id, _ in ids)
    if not isinstance(file, V2File):
        if set(fields) != set(stored_schema.field_ids) or any(schema.by_id(f.id) != f for f in stored_schema.fields):
            raise InvalidArgumentError(
                "the field ids of a legacy file must be those of the dataset",
                help="write it with the schema of the dataset",
                file=path,
            )
        return DataFile(path, fields), file.num_rows
    entry = DataFile(path, fields, *file.version, file.size, column_indices=tuple(column for _, column in ids))
    return entry, file.num_rows


def _metadata(file: V2File, schema: pa.Schema) -> LanceFileMetadata:
    container = file.container
    columns = []
    for number in range(len(container.column_places)):
        pages = [LancePageMetadata(_buffers(p.buffers), str(p.encoding)) for p in container.column(number).pages]
        columns.append(LanceColumnMetadata([], pages))
    globals_ = _buffers(container.global_places)
    data = [b.size for c in columns for page in c.pages for b in page.buffers]
    return LanceFileMetadata(
        schema,
        file.num_rows,
        file.size,
        *container.footer_version,
        num_data_bytes=sum(data),
        num_column_metadata_bytes=sum(size for _, size in container.column_places),
        num_global_buffer_bytes=sum(b.size for b in globals_),
        global_buffers=globals_,
        columns=columns,
    )


def _buffers(ranges: Sequence[tuple[int, int]]) -> list[LanceBufferDescriptor]:
    return [LanceBufferDescriptor(*each) for each in ranges]


class LanceFileWriter:
    """Write one data file, which becomes visible when the writer is closed.

    Parameters
    ----------
    path: path or URI of the file.
    schema: schema of the rows, by default that of the first batch.
    data_cache_bytes: bytes of rows to buffer, for all columns together.
    version: ``"2.2"`` (``"stable"``) by default, ``"2.1"``, ``"2.0"`` or ``"legacy"``.
    storage_options: credentials, region and endpoint of an object store.
    max_page_bytes: maximum page size in files of 2.0, by default 32 MiB.
    keep_original_array: accepted for compatibility.
    max_rows_per_group: maximum rows of a row group in files of the legacy format.
    nulls: how to write nulls that the legacy format cannot store; see
        :class:`~trilake.lance.commands.fragment_writer.WriteOptions`.
    later: catalog options; must be ``None``.

    As a context manager, it closes the file at the end of the block, or discards it after an error.  Thread-safe.

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
        data_cache_bytes: int | None = None,
        version: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        max_page_bytes: int | None = None,
        keep_original_array: bool | None = None,
        max_rows_per_group: int = 1024,
        nulls: NullPolicy = "error",
        **later: Any,
    ) -> None:
        del keep_original_array
        check_format(later, of="LanceFileWriter")
        #: Row groups of the legacy format, and how to write nulls.
        self._groups = WriteOptions(max_rows_per_group=max_rows_per_group, nulls=nulls)
        self._store, self._key = _location(path, storage_options)
        self._version = STABLE if version is None else StorageVersion.parse(version)
        #: Page sizes, as arguments of the file writer.
        self._pages = {"max_page_bytes": (max_page_bytes if version == "2.0" else None) or _PAGE_BYTES}
        if data_cache_bytes is not None:
            self._pages["data_cache_bytes"] = data_cache_bytes
        #: Size of the closed file in bytes.
        self.size_bytes: int | None = None
        self.closed = False
        self._metadata: dict[bytes, bytes] = {}
        self._buffers: list[bytes] = []
        self._begun: tuple[Target, DataFileWriter] | None = None
        self._lock = threading.Lock()
        if schema is not None:
            self._begin(schema)

    def _begin(self, schema: pa.Schema) -> tuple[Target, DataFileWriter]:
        input_rows.check_metadata(schema)
        flat, _ = input_rows.plain(schema, ())
        target = Target.new(flat, self._version, nulls=self._groups.nulls)
        writer = new_data_file(self._store, self._key, target.schema, self._version, pages=self._pages)
        self._begun = target, writer
        return self._begun

    def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write rows.  Raises ``SchemaMismatchError`` if the columns differ from those of the file."""
        rows = input_rows.table(batch)
        with self._lock:
            self._check_open()
            target, writer = self._begun or self._begin(rows.schema)
            batches = rows.to_batches()
            groups = regroup(batches, self._groups.max_rows_per_group) if self._version.is_legacy else batches
            for group in groups:
                writer.write(target.stored(group))

    def add_schema_metadata(self, key: Any, value: Any) -> None:
        """Add metadata to the schema of the file."""
        self._check_open()
        if not isinstance(key, str) or not isinstance(value, str):
            raise WrongTypeError(f"metadata keys and values must be strings, got {key!r}: {value!r}")
        self._metadata[key.encode()] = value.encode()

    def add_global_buffer(self, data: bytes) -> int:
        """Add bytes that belong to no column, and return the index to read them with; indices start at 1.

        Raises ``NotInFormatError`` for a file of the legacy format.
        """
        self._check_open()
        if self._version.is_legacy:
            raise NotInFormatError(
                "legacy files have no global buffers", help="pass a newer version to LanceFileWriter"
            )
        self._buffers.append(bytes(data))
        return len(self._buffers)

    def close(self) -> int | None:
        """Finish the file and return its number of rows; ``None`` if it is already closed.

        Raises ``NothingToWriteError`` without a schema.
        """
        if self.closed:
            return None
        if self._begun is None:
            raise NothingToWriteError(
                "Schema is unknown and file cannot be created", help="pass a schema, or write a batch", file=self._key
            )
        self.closed = True
        writer = self._begun[1]
        writer.add_metadata(self._metadata)
        if isinstance(writer, V2Writer):
            for buffer in self._buffers:
                writer.add_global_buffer(buffer)
        done = writer.close()
        self.size_bytes = done.size or self._store.head(self._key).size
        return done.rows

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidArgumentError("the file is closed", help="open another writer", file=self._key)

    def __enter__(self) -> LanceFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if kind is not None and self._begun is not None and not self.closed:
            self._begun[1].discard()
        if kind is None and not self.closed:
            self.close()
        self.closed = True
        return False


@dataclass(frozen=True)
class ListResult:
    """The content of a folder: paths of folders and files relative to the session's path."""

    common_prefixes: list[str]
    objects: list[str]


class LanceFileSession:
    """Access files below a path through one store.

    Parameters
    ----------
    base_path: a path or URI.
    storage_options: credentials, region and endpoint of the object store.
    later: catalog options; must be ``None``.

    >>> session = LanceFileSession("memory://doc-lance-session")
    >>> with session.open_writer("a/x.lance") as writer:
    ...     writer.write_batch(pa.table({"a": [1, 2, 3]}))
    >>> session.open_reader("a/x.lance").num_rows(), session.list(), session.list_with_delimiter().common_prefixes
    (3, ['a/x.lance'], ['a'])
    """

    def __init__(
        self, base_path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None, **later: Any
    ) -> None:
        check_format(later, of="LanceFileSession")
        self._store = open_store(base_path, dict(storage_options or {}))

    def open_reader(self, path: str, columns: Sequence[str] | None = None) -> LanceFileReader:
        """Open a data file; see :class:`LanceFileReader`."""
        return LanceFileReader(_PathInStore(self._store, path), columns=columns)

    def open_writer(
        self,
        path: str,
        *,
        schema: pa.Schema | None = None,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        keep_original_array: bool | None = None,
        max_page_bytes: int | None = None,
    ) -> LanceFileWriter:
        """Create a data file; parameters are those of :class:`LanceFileWriter`."""
        return LanceFileWriter(
            _PathInStore(self._store, path),
            schema,
            data_cache_bytes=data_cache_bytes,
            version=version,
            max_page_bytes=max_page_bytes,
            keep_original_array=keep_original_array,
        )

    def open_packed_blob_writer(self, path: str, blob_id: int) -> PackedBlobWriter:
        """Create a file for several blobs of the data file at ``path``."""
        return PackedBlobWriter(self._store, path, blob_id)

    def open_dedicated_blob_writer(self, path: str, blob_id: int) -> DedicatedBlobWriter:
        """Create a file for one blob of the data file at ``path``."""
        return DedicatedBlobWriter(self._store, path, blob_id)

    def contains(self, path: str) -> bool:
        """Whether the file exists."""
        try:
            self._store.head(path)
        except ObjectNotFoundError:
            return False
        return True

    def list(self, path: str | None = None) -> list[str]:
        """List the files below a folder, recursively."""
        return [entry.key for entry in self._store.list(_folder(path))]

    def list_with_delimiter(self, path: str | None = None) -> ListResult:
        """List the folders and files in a folder."""
        prefix = _folder(path)
        names = [key[len(prefix) :].split("/", 1) for key in self.list(path)]
        folders = sorted({prefix + name[0] for name in names if len(name) > 1})
        return ListResult(folders, [prefix + name[0] for name in names if len(name) == 1])

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Read a range of bytes.  Raises ``OSError`` if the file does not exist."""
        return bytes(self._store.read_range(path, offset, length).to_pybytes()) if length else b""

    def delete_file(self, path: str) -> None:
        """Delete a file.  Raises ``OSError`` if it does not exist."""
        self._store.head(path)
        self._store.delete([path])

    def upload_file(self, local_path: str | os.PathLike[str], remote_path: str) -> None:
        """Upload a local file."""
        with open(local_path, "rb") as source, self._store.open_output(remote_path) as target:
            while part := source.read(8 << 20):
                target.write(part)

    def download_file(self, remote_path: str, local_path: str | os.PathLike[str]) -> None:
        """Download a file.  Raises ``OSError`` if it does not exist."""
        Path(local_path).write_bytes(self._store.read(remote_path).to_pybytes())


def _folder(path: str | None) -> str:
    return f"{path.strip('/')}/" if path and path.strip("/") else ""


class _PathInStore(os.PathLike[str]):
    """A path relative to the store of a session."""

    def __init__(self, store: Store, path: str) -> None:
        self.store, self.path = store, path

    def __fspath__(self) -> str:
        return self.path


def _location(path: str | os.PathLike[str], options: Mapping[str, str] | None) -> tuple[Store, str]:
    """Return the store of a file's folder, and the file's name."""
    if isinstance(path, _PathInStore):
        return path.store, path.path
    location = os.fspath(path)
    folder, slash, name = location.rpartition("/")
    if not name:
        raise InvalidArgumentError(f"{location!r} is a folder", help="pass the path of a data file")
    return open_store((folder or "/") if slash else ".", dict(options or {})), name
