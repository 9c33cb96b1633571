"""``V1Writer``: a data file of the legacy format, batch by batch.

::

    pages of batch 0, of batch 1, ... | page table | statistics, and their page table | dictionaries
    | schema (an inner Manifest) | Metadata | footer

The file appears in the store as a whole when the writer is closed, or not at all.  A second thread writes finished
pages while the next ones are encoded.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.file import framing
from trilake.lance.file.interfaces import DataFileWriter, WrittenFile
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.storage_version import LEGACY
from trilake.lance.proto import format_pb2
from trilake.lance.v1.dictionaries import DictionaryUnifier, encode_dictionaries
from trilake.lance.v1.encode import ALIGN, BatchEncoder, Part, walk_columns
from trilake.lance.v1.pages import PageTableBuilder, outside_lists
from trilake.lance.v1.statistics import Collector, has_statistics
from trilake.storage.base import Store, WriteGroup

#: Writer of the schema in a file; readers parse the version as three numbers.
WRITER = ("trilake", "0.8.19")
#: Rows of a file are counted in 32 bits.
MAX_ROWS = 2**31 - 1
#: Bytes per write of the second thread, and pending writes before the first thread waits.
_CHUNK, _AHEAD = 1 << 20, 2


class V1Writer(DataFileWriter):
    """Write one data file of the legacy format.

    The ids of ``schema`` must be contiguous, as :meth:`LanceSchema.from_arrow` makes them.  Its dictionaries keep their
    keys; with ``extend_dictionaries`` batches may add values.  ``statistics`` are null counts and bounds of each batch.

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
            raise InvalidArgumentError("the schema has duplicate field IDs", file=key)
        LEGACY.check_types(schema)
        self._schema = schema
        self._unifiers = {
            f.id: DictionaryUnifier(f, schema.dictionaries.get(f.id), extend=extend_dictionaries)
            for f in schema.walk()
            if f.is_dictionary
        }
        self._collectors = {f.id: Collector(f) for _, f in outside_lists(schema) if statistics and has_statistics(f)}
        self._pages = PageTableBuilder(ids)
        self._offsets = [0]
        self._file = store.open_output(key)
        self._key = key
        self._parts: list[Part] = []
        self._submitted = 0
        self._worker: ThreadPoolExecutor | None = None
        self._pending: deque[Future[int]] = deque()
        self._encoder = BatchEncoder(self._parts.append, 0, self._pages, self._keys)

    @property
    def num_rows(self) -> int:
        return self._offsets[-1]

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._encoder.position

    @property
    def dictionaries(self) -> dict[int, pa.Array]:
        """Dictionary values by field id, for the manifest; those of the schema come first."""
        return {id: unifier.values for id, unifier in self._unifiers.items()}

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one batch; ignore an empty one.  Raises ``SchemaMismatchError``, and ``InvalidArgumentError`` at 2^31
        rows.
        """
        if not batch.num_rows:
            return
        if self.num_rows + batch.num_rows > MAX_ROWS:
            raise InvalidArgumentError(
                f"a data file can have at most {MAX_ROWS} rows", help="lower max_rows_per_file", file=self._key
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
        if self.size - self._submitted > _CHUNK:
            # The second thread writes all parts in one piece, which does not hold the GIL.
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, "trilake-lance-write")
            if len(self._pending) >= _AHEAD:
                self._pending.popleft().result()
            self._pending.append(self._worker.submit(self._file.write, b"".join(self._parts)))
            self._parts.clear()  # the encoder appends to this same list
            self._submitted = self.size

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
        while self._pending:
            self._pending.popleft().result()
        if self._worker is not None:
            self._worker.shutdown()
        self._file.write(b"".join(self._parts))
        self._file.close()
        return WrittenFile(self.num_rows, self._schema.field_ids)

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.shutdown(cancel_futures=True)

    def _keys(self, field: Field, array: pa.DictionaryArray) -> pa.Array:
        return self._unifiers[field.id].keys(array)

    def _aligned(self) -> int:
        self._encoder.append([bytes(-self._encoder.position % ALIGN)])
        return self._encoder.position

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
