"""Read one fragment: the columns of all its data files, without deleted rows.

Rows are identified by their offset in the fragment, which counts deleted rows.  Batches end where those of the first
data file do.  A column that no file has is null.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from trilake.errors import CorruptFileError, MissingFileError, ObjectNotFoundError, SchemaMismatchError
from trilake.expr import ColumnStats
from trilake.expr.terms.datatypes import Path
from trilake.lance.data_files import open_data_file
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.interfaces import DataFileReader, even_parts
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.types import LISTS, fixed_width
from trilake.lance.file.view import with_items
from trilake.lance.scan import blob_bytes
from trilake.lance.scan.blob_bytes import BlobLocation, FileLocation
from trilake.lance.versions import deletions, row_ids
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.manifest import DataFile as Entry
from trilake.lance.versions.manifest import Fragment, RowSequence
from trilake.storage.base import Store
from trilake.table.data_files import no_columns

Rows = npt.NDArray[np.int64]

#: Maximum rows of a fragment without data files: a tiny manifest must not exhaust the memory.
MAX_UNBACKED = 1 << 25

#: Maximum bytes of nulls in one batch for a column that no file has.
MAX_NULL_BYTES = 1 << 31

#: Columns that no file has: the id of a row, its address, its rank among the rows of the dataset, and the versions
#: that inserted and last updated it.
ROW_ID, ROW_ADDRESS, ROW_OFFSET = "_rowid", "_rowaddr", "_rowoffset"
CREATED_AT, UPDATED_AT = "_row_created_at_version", "_row_last_updated_at_version"
ROW_METADATA = (ROW_ID, ROW_ADDRESS, ROW_OFFSET, CREATED_AT, UPDATED_AT)
ROW_METADATA_TYPE = pa.uint64()

Ids = npt.NDArray[np.uint64]


def addresses(fragment_id: int, offsets: npt.NDArray[np.integer]) -> Ids:
    """The row addresses of offsets in a fragment.

    >>> addresses(1, np.array([2])).tolist()
    [4294967298]
    """
    return offsets.astype(np.uint64) | np.uint64(fragment_id << 32)


def split(addresses: Ids) -> tuple[Rows, Rows]:
    """Split row addresses into fragment ids and offsets."""
    return (addresses >> np.uint64(32)).astype(np.int64), (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)


def by_fragment(addresses: Ids) -> Iterator[tuple[int, Rows, Rows]]:
    """Group row addresses by fragment: yields its id, the positions of its addresses, and their offsets."""
    if not len(addresses):
        return
    of, offsets = split(addresses)
    order = np.argsort(of, kind="stable")
    firsts = np.flatnonzero(np.diff(of[order], prepend=-1))
    for fragment_id, at in zip(of[order[firsts]].tolist(), np.split(order, firsts[1:]), strict=True):
        yield fragment_id, at, offsets[at]


def runs(addresses: Ids) -> Iterator[tuple[int, Rows]]:
    """Split row addresses where their fragment changes, in their order; yields its id and their offsets."""
    if len(addresses):
        of, offsets = split(addresses)
        edges = np.flatnonzero(np.diff(of)) + 1
        yield from zip(of[[0, *edges]].tolist(), np.split(offsets, edges), strict=True)


@dataclass(frozen=True)
class _Part:
    """The columns of a projection in one file: as the projection needs them, and as the file stores them."""

    file: DataFileReader
    schema: LanceSchema
    stored: LanceSchema
    location: FileLocation

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return finished(batch, self.schema, self.location, self.stored)


#: A projection, and its columns by file.
_Projected = tuple[LanceSchema, list[_Part]]


def finished(
    batch: pa.RecordBatch, schema: LanceSchema, location: FileLocation, stored: LanceSchema | None = None
) -> pa.RecordBatch:
    """Replace descriptions of blobs with bytes where they are read as bytes; drop fields that only ``stored`` has."""
    if schema.is_plain and (stored is None or stored is schema):
        return batch
    pairs = zip(schema.fields, (stored or schema).fields, batch.columns, strict=True)
    arrays = [_finished(field, whole, array, location) for field, whole, array in pairs]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.read_schema())


def _finished(field: Field, stored: Field, array: pa.Array, location: FileLocation) -> pa.Array:
    if field.as_bytes:
        return blob_bytes.read(location, storage_array(array))
    if field.is_blob or (field.is_plain and field == stored):
        return array
    kind = field.read_field.type
    if field.logical_type in LISTS:
        return with_items(array, lambda items: _finished(field.children[0], stored.children[0], items, location), kind)
    if field.logical_type != "struct":
        return array
    children = []
    for child in field.children:
        index = next(i for i, f in enumerate(stored.children) if f.id == child.id)
        children.append(_finished(child, stored.children[index], array.field(index), location))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


#: Most projections that a reader remembers.
_PROJECTIONS = 8


class FragmentReader:
    """The rows of one fragment; can be shared between threads.

    ``schema`` is the schema of the dataset, with dictionary values; projections are parts of it.
    """

    def __init__(self, store: Store, fragment: Fragment, schema: LanceSchema, bases: Bases | None = None) -> None:
        self.store, self.fragment, self.schema = store, fragment, schema
        self.bases = bases or Bases(store)
        #: Returns the number of rows in the fragments before this one.
        self.first_rank: Callable[[], int] = int
        self._files: dict[str, DataFileReader] = {}
        self._lock = threading.Lock()
        self._statistics: Mapping[Path, ColumnStats] | None = None
        self._deleted: BitMap | None = None
        self._projected: dict[int, _Projected] = {}

    def __repr__(self) -> str:
        return f"FragmentReader({self.fragment.id}, {self.store.uri!r})"

    @property
    def readers(self) -> Sequence[FragmentReader]:
        """The readers of each fragment."""
        return (self,)

    def joined_offsets(self, offsets: Sequence[Rows]) -> Rows:
        """Convert offsets in each fragment to offsets of this reader."""
        return offsets[0]

    @cached_property
    def is_local(self) -> bool:
        located = [self.bases.data_file(f) for f in self.fragment.files]
        return all(store.local_path(key) is not None for store, key in located)

    # --- metadata ----------------------------------------------------------------------------------------------------

    def file(self, entry: Entry) -> DataFileReader:
        """Open a data file.  Raises ``MissingFileError`` and ``CorruptFileError``."""
        with self._lock:
            file = self._files.get(entry.path)
        if file is None:
            store, key = self.bases.data_file(entry)
            try:
                file = open_data_file(
                    store, key, self.schema, entry.storage_version, entry.fields, entry.column_indices
                )
            except (ObjectNotFoundError, MissingFileError) as e:
                raise MissingFileError(
                    "a data file is missing",
                    help="it was removed by a cleanup or by hand; read a newer version, or restore the file",
                    file=f"{store.uri}/{key}",
                ) from e
            expected = self.fragment.physical_rows
            if expected and file.num_rows != expected:
                raise CorruptFileError(
                    f"the data file has {file.num_rows} rows, but its fragment has {expected}",
                    file=file.file,
                    fragment=self.fragment.id,
                )
            with self._lock:
                file = self._files.setdefault(entry.path, file)
        return file

    def open(self, projections: Iterable[LanceSchema]) -> None:
        """Read the headers of the files with some columns, and the deleted rows."""
        for projection in projections:
            self._parts(projection)
        _ = self.deleted_set

    @cached_property
    def batch_offsets(self) -> Rows:
        """The first row of each batch, then the number of rows."""
        if not self.fragment.files:
            rows = self.fragment.physical_rows
            if rows > MAX_UNBACKED:
                raise CorruptFileError(
                    f"a fragment without data files claims {rows} rows", fragment=self.fragment.id, file=self.store.uri
                )
            return np.array([0, rows], np.int64)
        return np.asarray(self.file(self.fragment.files[0]).batch_offsets, np.int64)

    @property
    def physical_rows(self) -> int:
        """Number of rows in the files, including deleted ones."""
        return self.fragment.physical_rows or int(self.batch_offsets[-1])

    @property
    def deleted_set(self) -> BitMap:
        """The deleted rows.  Raises ``DeletionVectorError`` for rows that the data files do not have."""
        # Not a cached_property: in Python 3.11 all instances share its lock.
        if self._deleted is None:
            none = self.fragment.deletion_file is None
            self._deleted = BitMap() if none else deletions.read(self.bases, self.fragment, self.physical_rows)
        return self._deleted

    @cached_property
    def deleted(self) -> deletions.Offsets:
        """The offsets of deleted rows, ascending."""
        return deletions.offsets_of(self.deleted_set)

    @property
    def has_deletions(self) -> bool:
        """Whether some rows may be deleted."""
        return self.fragment.deletion_file is not None

    @property
    def num_deleted(self) -> int:
        """Number of deleted rows, from the manifest if it states it."""
        entry = self.fragment.deletion_file
        return 0 if entry is None else entry.num_deleted_rows or len(self.deleted)

    @property
    def num_rows(self) -> int:
        return self.physical_rows - self.num_deleted

    def live_mask(self, start: int, stop: int) -> npt.NDArray[np.bool_] | None:
        """Whether each row of a range is live; ``None`` if all are."""
        if not self.has_deletions:
            return None
        a, b = np.searchsorted(self.deleted, [start, stop])
        if a == b:
            return None
        mask = np.ones(stop - start, bool)
        mask[self.deleted[a:b].astype(np.int64) - start] = False
        return mask

    def offsets_of_live(self, ranks: Rows) -> Rows:
        """Return the offset of the n-th live row, for each n in ``ranks``."""
        if not self.has_deletions:
            return ranks
        return deletions.live_offsets(self.deleted, ranks)

    @property
    def live_offsets(self) -> Rows:
        return self.offsets_of_live(np.arange(self.num_rows, dtype=np.int64))

    def is_live(self, offsets: Rows) -> npt.NDArray[np.bool_]:
        """Whether the row at each offset is live."""
        inside = (offsets >= 0) & (offsets < self.physical_rows)
        if not self.has_deletions:
            return inside
        at = np.searchsorted(self.deleted, offsets)
        deleted = np.zeros(len(offsets), bool)
        within = at < len(self.deleted)
        deleted[within] = self.deleted[at[within]] == offsets[within]
        return inside & ~deleted

    @cached_property
    def stable_ids(self) -> Ids | None:
        """The stable row ids of all physical rows; ``None`` if there are none.  Raises ``CorruptLogError``."""
        data = row_ids.read(self.store, self.fragment.row_ids, self.store.uri)
        return None if data is None else row_ids.parse_ids(data, self.physical_rows, file=self.store.uri)

    def ids_of(self, offsets: Rows) -> Ids:
        stable = self.stable_ids
        return addresses(self.fragment.id, offsets) if stable is None else stable[offsets]

    @cached_property
    def created(self) -> Ids:
        """The version in which each physical row was inserted; 1 if unknown."""
        return self._versions(self.fragment.created)

    @cached_property
    def updated(self) -> Ids:
        """The version in which each physical row was last updated; 1 if unknown."""
        return self._versions(self.fragment.last_updated)

    def _versions(self, placed: RowSequence) -> Ids:
        data = row_ids.read(self.store, placed, self.store.uri)
        if data is None:
            return np.ones(self.physical_rows, np.uint64)
        return row_ids.parse_versions(data, self.physical_rows, file=self.store.uri)

    def row_metadata(self, name: str, offsets: Rows) -> Ids:
        """The values of one of :data:`ROW_METADATA` at these offsets."""
        if name == ROW_ID:
            return self.ids_of(offsets)
        if name == ROW_ADDRESS:
            return addresses(self.fragment.id, offsets)
        if name == ROW_OFFSET:
            deleted = 0 if self.fragment.deletion_file is None else np.searchsorted(self.deleted, offsets)
            return (self.first_rank() + offsets - deleted).astype(np.uint64)
        return self.created[offsets] if name == CREATED_AT else self.updated[offsets]

    @property
    def has_row_groups(self) -> bool:
        """Whether a file is of the legacy format, which has row groups with statistics."""
        return any(file.storage_version.is_legacy for file in self.fragment.files)

    def statistics(self, mask_ids: Mapping[int, int] = {}) -> Mapping[Path, ColumnStats]:
        """The statistics of each row group in the files, by column path; see :meth:`DataFileReader.column_stats`."""
        if self._statistics is None:
            statistics: dict[Path, ColumnStats] = {}
            for entry in self.fragment.files if self.has_row_groups else ():
                file = self.file(entry)
                if np.array_equal(file.batch_offsets, self.batch_offsets):
                    statistics |= file.column_stats(mask_ids)
            self._statistics = statistics
        return self._statistics

    def stored_bytes(self, projection: LanceSchema) -> int:
        """Approximate bytes of all rows of some columns."""
        return sum(part.file.stored_bytes(part.stored) for part in self._parts(projection))

    def part_offsets(self, projection: LanceSchema) -> Rows:
        """The first row of each part of some columns that is best read whole, then the number of rows."""
        if self.has_row_groups or not self.fragment.files:
            return self.batch_offsets
        return even_parts(self.physical_rows, self.stored_bytes(projection))

    # --- rows --------------------------------------------------------------------------------------------------------

    def _parts(self, projection: LanceSchema) -> list[_Part]:
        known = self._projected.get(id(projection))
        if known is not None and known[0] is projection:  # read after read passes the same object
            return known[1]
        ids = {f.id for f in projection.columns()}
        parts: list[_Part] = []
        for entry in reversed(self.fragment.files):  # if several files have a column, the last one counts
            field_ids = ids.intersection(entry.fields)
            if field_ids:
                schema = projection.project_ids(field_ids)
                fields = tuple(map(self._whole, schema.fields))
                stored = schema if fields == schema.fields else LanceSchema(fields, schema.metadata)
                parts.insert(0, _Part(self.file(entry), schema, stored, (*self.bases.data_file(entry), self.bases)))
                ids -= field_ids
        if len(self._projected) >= _PROJECTIONS:
            self._projected = {}
        self._projected[id(projection)] = projection, parts
        return parts

    def _whole(self, field: Field) -> Field:
        """Return a field as it can be read: a packed struct with all its fields."""
        if field.is_packed:
            return self.schema.by_id(field.id) or field
        if not field.children or field.is_column:
            return field
        children = tuple(map(self._whole, field.children))
        return field if children == field.children else replace(field, children=children)

    def read_batches(
        self, projection: LanceSchema, start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read rows ``start`` up to ``stop``, including deleted ones, with one batch for each part."""
        stop = self.physical_rows if stop is None else stop
        parts = self._parts(projection)
        arrow = projection.read_schema()
        bounds = self.part_offsets(projection).tolist()
        whole = len(parts) == 1 and parts[0].schema.fields == projection.fields
        inside = bounds[bisect_right(bounds, start) : bisect_left(bounds, stop)]
        ranges = [(low, high) for low, high in pairwise([start, *inside, stop]) if low < high]
        read = [part.file.read_ranges(ranges, part.stored) for part in parts]
        for low, high in ranges:
            pieces = [part.finish(next(batches)) for part, batches in zip(parts, read, strict=True)]
            yield pieces[0] if whole else _combined(pieces, arrow, high - low)

    def read_range(self, projection: LanceSchema, start: int, stop: int) -> list[pa.RecordBatch]:
        """Read a range of rows, as at most one batch."""
        parts = self._parts(projection)
        if stop <= start:
            return []
        read = [part.finish(part.file.read_rows(start, stop, part.stored)) for part in parts]
        if len(parts) == 1 and parts[0].schema.fields == projection.fields:
            return read
        return [_combined(read, projection.read_schema(), stop - start)]

    def take(self, offsets: Rows, projection: LanceSchema) -> pa.Table:
        """Read the rows at these offsets, in this order; they may be deleted, and may repeat."""
        arrow = projection.read_schema()
        parts = self._parts(projection)
        if not parts:
            return pa.Table.from_batches([_combined([], arrow, len(offsets))])
        tables = [part.file.take(offsets, part.stored) for part in parts]
        if len(tables) == 1 and tables[0].schema.equals(arrow) and parts[0].schema.is_plain:
            return tables[0]
        pieces = [part.finish(one_batch(table)) for part, table in zip(parts, tables, strict=True)]
        return pa.Table.from_batches([_combined(pieces, arrow, len(offsets))])

    def blobs(self, offsets: Rows, field: Field) -> list[BlobLocation | None]:
        """Locate the blobs of a column at these offsets; ``None`` for a null."""
        for part in self._parts(self.schema.project_ids([field.id])):
            array, at = storage_array(one_array(part.file.take(offsets, part.stored).column(0))), part.stored.fields[0]
            while at.id != field.id:
                at = at.children[0]
                (array,) = array.flatten()
            return blob_bytes.locations(part.location, array)
        return [None] * len(offsets)

    def check_offsets(self, offsets: Rows) -> None:
        """Raise ``CorruptFileError`` unless all offsets are rows of the fragment."""
        if len(offsets) and (offsets.min() < 0 or offsets.max() >= self.physical_rows):
            raise CorruptFileError(
                f"row {offsets.max()} is outside a fragment of {self.physical_rows} rows",
                fragment=self.fragment.id,
                file=self.store.uri,
            )

    def missing(self, projection: LanceSchema) -> list[Field]:
        """The top-level columns of a projection that no file has."""
        have = {id for entry in self.fragment.files for id in entry.fields}
        return [f for f in projection.fields if not any(c.id in have for c in f.walk())]


def one_array(chunked: pa.ChunkedArray) -> pa.Array:
    """Join all chunks into one array."""
    return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Join all rows of a table into one batch."""
    if not table.num_columns:
        return no_columns(table.num_rows)
    return pa.RecordBatch.from_arrays([one_array(c) for c in table.columns], schema=table.schema)


def _combined(pieces: Sequence[pa.RecordBatch], arrow: pa.Schema, rows: int) -> pa.RecordBatch:
    """Combine the columns of batches, in the order of ``arrow``; missing columns are null."""
    if len(pieces) == 1 and pieces[0].schema.names == arrow.names and pieces[0].schema.types == arrow.types:
        return pieces[0]
    if not arrow.names:
        return no_columns(rows)
    arrays = []
    for one in arrow:
        columns = [p.column(i) for p in pieces if (i := p.schema.get_field_index(one.name)) >= 0]
        arrays.append(_joined(columns, one, rows))
    absent = [f.name for f, a in zip(arrow, arrays) if a.null_count and not f.nullable]
    if absent:
        raise CorruptFileError(
            "a fragment has no data file with this non-nullable column", help="read the other columns", column=absent[0]
        )
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _joined(columns: Sequence[pa.Array], one: pa.Field, rows: int) -> pa.Array:
    if not columns:
        width = fixed_width(one.type)
        if rows * width > MAX_NULL_BYTES:
            raise CorruptFileError(
                f"no data file has this column, and {rows} nulls of {width} bytes each are too many to create",
                help="read the other columns, or write the column",
                column=one.name,
            )
        return pa.nulls(rows, one.type)
    if len(columns) == 1 and columns[0].type == one.type:
        return columns[0]
    if (pa.types.is_list(one.type) or pa.types.is_large_list(one.type)) and one.type.id == columns[0].type.id:
        items = [column.flatten() for column in columns]
        if len({len(i) for i in items}) > 1:
            raise CorruptFileError("the files of a fragment have lists of different lengths", column=one.name)
        return with_items(columns[0], lambda first: _joined(items, one.type.value_field, len(first)), one.type)
    if not pa.types.is_struct(one.type):
        if len(columns) == 1:
            raise SchemaMismatchError(
                f"expected {one.type} as in the dataset, got {columns[0].type} in a file", column=one.name
            )
        raise SchemaMismatchError("several files of a fragment have the same column", column=one.name)
    # A field that was added later may have values where the struct was null, and then the struct is not null.
    parts = [(column.type, column.flatten()) for column in columns]
    children = []
    for child in one.type:
        below = [arrays[i] for kind, arrays in parts if (i := kind.get_field_index(child.name)) >= 0]
        children.append(_joined(below, child, rows))
    nulls = [column.is_null() for column in columns if column.null_count]
    mask = reduce(pc.and_, nulls) if len(nulls) == len(columns) else None
    return pa.StructArray.from_arrays(children, fields=list(one.type), mask=mask)
