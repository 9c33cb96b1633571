"""``V1Writer``: a data file of the first format, batch by batch.

::

    pages of batch 0, of batch 1, ... | page table | statistics, and their page table | dictionaries
    | schema (an inner Manifest) | Metadata | footer

The file appears in the store when the writer is closed, whole, or not at all.  A second thread writes what pages there
are while the next are made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Literal

import pyarrow as pa

from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.lance.file import framing
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.storage_version import FIRST
from trilake.lance.file.types import storage_type
from trilake.lance.file.writer import DataFileWriter, WrittenFile
from trilake.lance.proto import format_pb2
from trilake.lance.v1.dictionaries import DictionaryUnifier, encode_dictionaries
from trilake.lance.v1.encode import ALIGN, BatchEncoder, Part, walk_columns
from trilake.lance.v1.layout import PageKind, layout_of
from trilake.lance.v1.pages import PageTableBuilder
from trilake.lance.v1.statistics import Collector, has_statistics
from trilake.storage.base import Store, WriteGroup

#: What the schema in a file says of its writer: readers parse the version as three numbers.
WRITER = ("trilake", "0.8.19")
#: Rows of a file are counted in 32 bits.
MAX_ROWS = 2**31 - 1
#: Bytes that are handed to the second thread at once, and how often that may be before the first one waits.
_CHUNK, _AHEAD = 1 << 20, 2


class V1Writer(DataFileWriter):
    """Write one data file of the first format.

    Parameters
    ----------
    store, key: where it will be.
    schema: of the file; ids must be contiguous, as :meth:`LanceSchema.from_arrow` makes them.  Dictionaries that it
        has keep their keys, and are extended.
    extend_dictionaries: whether batches may bring values that those dictionaries do not have.
    statistics: whether to note null counts and bounds of each batch.

    Used as a context manager, an exception in the block discards the file.

    >>> from trilake.storage.memory import MemoryStore
    >>> from trilake.lance.v1.data_file import V1File
    >>> schema = LanceSchema.from_arrow(pa.schema({"a": pa.int64()}))
    >>> store = MemoryStore("memory://docs")
    >>> writer = V1Writer(store, "data/x.lance", schema)
    >>> writer.write(pa.record_batch({"a": pa.array([1, 2, 3])}))
    >>> writer.close().field_ids
    (0,)
    >>> V1File.open(store, "data/x.lance", schema).take([2, 0])["a"].to_pylist()
    [3, 1]
    """

    def __init__(
        self,
        store: Store | WriteGroup,
        key: str,
        schema: LanceSchema,
        *,
        extend_dictionaries: bool = True,
        statistics: bool = True,
    ) -> None:
        ids = schema.field_ids
        if len(set(ids)) < len(ids):
            raise InvalidArgumentError("two fields of the schema have the same id", file=key)
        FIRST.check_types(schema)
        self._schema = schema
        self._arrow = schema.storage_schema
        self._unifiers = {
            f.id: DictionaryUnifier(f, schema.dictionaries.get(f.id), extend=extend_dictionaries)
            for f in schema.walk()
            if f.is_dictionary
        }
        self._collectors = {f.id: Collector(f) for f in _outside_lists(schema) if statistics and has_statistics(f)}
        self._pages = PageTableBuilder(ids)
        self._offsets = [0]
        self._file = store.open_output(key)
        self._key = key
        self._parts: list[Part] = []
        self._known: pa.Schema | None = None
        self._handed = 0
        self._worker: ThreadPoolExecutor | None = None
        self._pending: deque[Future[int]] = deque()
        self._encoder = BatchEncoder(self._parts.append, 0, self._pages, self._keys)

    @property
    def num_rows(self) -> int:
        return self._offsets[-1]

    @property
    def size(self) -> int:
        """Bytes that were written."""
        return self._encoder.position

    @property
    def dictionaries(self) -> dict[int, pa.Array]:
        """The values of dictionary columns by field id, those of the schema first; they belong in the manifest."""
        return {id: unifier.values for id, unifier in self._unifiers.items()}

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one batch; a batch without rows is passed over.

        Raises ``SchemaMismatchError`` if its columns are not those of the schema, and ``InvalidArgumentError`` when
        the file would have more rows than can be counted.
        """
        if not batch.num_rows:
            return
        if self.num_rows + batch.num_rows > MAX_ROWS:
            raise InvalidArgumentError(
                f"a data file has {MAX_ROWS} rows at most", help="lower max_rows_per_file", file=self._key
            )
        self._check(batch)
        for field, array in zip(self._schema.fields, batch.columns, strict=True):
            self._encoder.column(field, array)
            if self._collectors:
                for each, values in walk_columns(field, array):
                    collector = self._collectors.get(each.id)
                    if collector is not None:
                        collector.add(values)
        self._offsets.append(self.num_rows + batch.num_rows)
        if self.size - self._handed > _CHUNK:
            self._hand_over()

    def add_metadata(self, metadata: Mapping[bytes, bytes]) -> None:
        """Add metadata to the schema that is in the file."""
        self._schema = replace(self._schema, metadata={**self._schema.metadata, **metadata})

    def close(self) -> WrittenFile:
        encoder = self._encoder
        metadata = format_pb2.Metadata(batch_offsets=self._offsets, page_table_position=self._aligned())
        encoder.append([self._pages.serialise(len(self._offsets) - 1)])
        if self._collectors and len(self._offsets) > 1:
            self._write_statistics(metadata.statistics)
        data, places = encode_dictionaries(self._schema.with_dictionaries(self.dictionaries), encoder.position)
        encoder.append([memoryview(data)])
        manifest = format_pb2.Manifest(
            fields=self._schema.to_proto(places), version=1, metadata=self._schema.metadata_to_proto()
        )
        manifest.writer_version.library, manifest.writer_version.version = WRITER
        if not encoder.position:
            self._encoder.append([bytes(ALIGN)])  # position 0 would mean that there is no schema
        metadata.manifest_position = encoder.position
        encoder.append([framing.frame(manifest)])
        position = encoder.position
        encoder.append([framing.frame(metadata), framing.footer(position)])
        self._wait()
        self._file.write(b"".join(self._parts))
        self._file.close()
        return WrittenFile(self.num_rows, self._schema.field_ids)

    def discard(self) -> None:
        if self._worker is not None:
            self._worker.shutdown(cancel_futures=True)
        discard = getattr(self._file, "discard", None)
        if discard is not None:
            discard()
        else:
            self._file.__exit__(InvalidArgumentError, InvalidArgumentError("discarded"), None)

    def __enter__(self) -> V1Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if kind is not None:
            self.discard()
        elif not self._file.closed:
            self.close()
        return False

    # --- the second thread ---

    def _hand_over(self) -> None:
        """Have the second thread write what there is; in one piece, so that it does not ask for Python's lock."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "trilake-lance-write")
        if len(self._pending) >= _AHEAD:
            self._pending.popleft().result()
        self._pending.append(self._worker.submit(self._file.write, b"".join(self._parts)))
        self._parts.clear()  # the encoder appends to this very list
        self._handed = self.size

    def _wait(self) -> None:
        """Wait for the second thread, whose errors are raised here."""
        while self._pending:
            self._pending.popleft().result()
        if self._worker is not None:
            self._worker.shutdown()

    # --- parts ---

    def _keys(self, field: Field, array: pa.DictionaryArray) -> pa.Array:
        return self._unifiers[field.id].keys(array)

    def _aligned(self) -> int:
        self._encoder.append([bytes(-self._encoder.position % ALIGN)])
        return self._encoder.position

    def _check(self, batch: pa.RecordBatch) -> None:
        if self._known is not None and batch.schema.equals(self._known):
            return
        self._compare(batch)
        self._known = batch.schema

    def _compare(self, batch: pa.RecordBatch) -> None:
        if batch.num_columns == len(self._arrow) and all(
            a == b or storage_type(a) == b for a, b in zip(batch.schema.types, self._arrow.types, strict=True)
        ):
            if batch.schema.names == self._arrow.names:
                return
        else:
            # Extension types inside of structs and lists differ from what they are stored as.
            self._schema.check_compatible(LanceSchema.from_arrow(batch.schema), file=self._key)
            return
        raise SchemaMismatchError(
            f"the batch has the columns {', '.join(batch.schema.names)}, not {', '.join(self._arrow.names)}",
            help="select the columns in the order of the schema",
            file=self._key,
        )

    def _write_statistics(self, metadata: format_pb2.Metadata.StatisticsMetadata) -> None:
        arrays = {str(id): collector.arrays() for id, collector in self._collectors.items()}
        schema = LanceSchema.from_arrow(pa.schema([pa.field(n, a.type, nullable=False) for n, a in arrays.items()]))
        pages = PageTableBuilder(schema.field_ids)
        encoder = BatchEncoder(self._parts.append, self._encoder.position, pages, self._keys)
        for field, array in zip(schema.fields, arrays.values(), strict=True):
            encoder.column(field, array)
        self._encoder.position = encoder.position
        metadata.schema.extend(schema.to_proto())
        metadata.fields.extend(schema.field_ids)
        metadata.page_table_position = self._aligned()
        self._encoder.append([pages.serialise(1)])


def _outside_lists(schema: LanceSchema) -> list[Field]:
    """The fields at the top and in structs."""
    outside: list[Field] = []

    def walk(fields: tuple[Field, ...]) -> None:
        for each in fields:
            outside.append(each)
            if layout_of(each).kind is PageKind.STRUCT:
                walk(each.children)

    walk(schema.fields)
    return outside
