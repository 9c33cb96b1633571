"""Reading one fragment: its data files side by side, without its deleted rows.

Rows are named by their offset within the fragment, deleted ones counted.  All data files of a fragment are cut into the
same batches, so a batch of the fragment is one batch of each file that has columns of the projection.  A column that no
file has is null.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from trilake.errors import CorruptFileError, MissingFileError, ObjectNotFoundError, SchemaMismatchError
from trilake.expr import ColumnStats
from trilake.expr.terms.datatypes import Path
from trilake.lance.file.data_file import DataFile
from trilake.lance.file.decode import MAX_UNBACKED
from trilake.lance.file.pages_source import Source
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.statistics import Masked, trusted
from trilake.lance.versions import deletions
from trilake.lance.versions.manifest import DataFile as Entry
from trilake.lance.versions.manifest import Fragment
from trilake.storage.base import Store

Rows = npt.NDArray[np.int64]

#: Bytes that the nulls of a column which no file has may take in one batch.
MAX_NULL_BYTES = 1 << 31

#: Names of the columns that say where rows are: ids and addresses are one number, as rows of the format do not move.
ROW_ID, ROW_ADDRESS = "_rowid", "_rowaddr"


def row_ids(fragment_id: int, offsets: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """The row ids of offsets in a fragment.

    >>> row_ids(1, np.array([2])).tolist()
    [4294967298]
    """
    return offsets.astype(np.uint64) | np.uint64(fragment_id << 32)


@dataclass(frozen=True)
class _Part:
    """The columns of a projection that one file has, and where each of its columns goes."""

    file: DataFile
    schema: LanceSchema


class FragmentReader:
    """The rows of one fragment.  May be used by several threads.

    Parameters
    ----------
    store: of the dataset.
    fragment: its entry.
    schema: of the dataset, with the values of its dictionaries; projections are parts of it.
    """

    def __init__(self, store: Store, fragment: Fragment, schema: LanceSchema) -> None:
        self.store, self.fragment, self.schema = store, fragment, schema
        self._files: dict[str, DataFile] = {}
        self._lock = threading.Lock()
        self._statistics: Mapping[Path, ColumnStats] | None = None

    def __repr__(self) -> str:
        return f"FragmentReader({self.fragment.id}, {self.store.uri!r})"

    @cached_property
    def is_local(self) -> bool:
        """Whether the files are on this machine."""
        return all(self.store.local_path(f.key) is not None for f in self.fragment.files)

    # --- what there is -----------------------------------------------------------------------------------------------

    def file(self, entry: Entry) -> DataFile:
        """An open data file.  Raises ``MissingFileError`` and ``CorruptFileError``."""
        with self._lock:
            file = self._files.get(entry.path)
        if file is None:
            try:
                file = DataFile.open(self.store, entry.key, self.schema, entry.fields)
            except (ObjectNotFoundError, MissingFileError) as e:
                raise MissingFileError(
                    "a data file is not there",
                    help="it was removed by a clean-up or by hand; read a newer version, or restore the file",
                    file=f"{self.store.uri}/{entry.key}",
                ) from e
            self._check(file, entry)
            with self._lock:
                file = self._files.setdefault(entry.path, file)
        return file

    def _check(self, file: DataFile, entry: Entry) -> None:
        known = self.fragment.physical_rows
        if known and file.num_rows != known:
            raise CorruptFileError(
                f"the data file has {file.num_rows} rows and its fragment {known}",
                file=f"{self.store.uri}/{entry.key}",
                fragment=self.fragment.id,
            )

    @cached_property
    def batch_offsets(self) -> Rows:
        """The first row of each batch, and the number of rows at the end."""
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
        """Rows in the files, deleted ones included."""
        return self.fragment.physical_rows or int(self.batch_offsets[-1])

    @cached_property
    def deleted_set(self) -> BitMap:
        """The deleted rows: no more than the data files have, whatever the manifest says."""
        if self.fragment.deletion_file is None:
            return BitMap()
        return deletions.read(self.store, self.fragment, int(self.batch_offsets[-1]))

    @cached_property
    def deleted(self) -> deletions.Offsets:
        """The deleted rows, ascending."""
        return deletions.offsets_of(self.deleted_set)

    @property
    def num_deleted(self) -> int:
        """Number of deleted rows, from the manifest where it says."""
        entry = self.fragment.deletion_file
        return 0 if entry is None else entry.num_deleted_rows or len(self.deleted)

    @property
    def num_rows(self) -> int:
        """Number of rows that live."""
        return self.physical_rows - self.num_deleted

    def live_mask(self, start: int, stop: int) -> npt.NDArray[np.bool_] | None:
        """For each row of a range whether it lives; ``None`` where all do."""
        if self.fragment.deletion_file is None:
            return None
        a, b = np.searchsorted(self.deleted, [start, stop])
        if a == b:
            return None
        mask = np.ones(stop - start, bool)
        mask[self.deleted[a:b].astype(np.int64) - start] = False
        return mask

    def offsets_of_live(self, ranks: Rows) -> Rows:
        """The offset of the n-th live row for each n of ``ranks``."""
        if self.fragment.deletion_file is None:
            return ranks
        return deletions.live_offsets(self.deleted, ranks)

    def is_live(self, offsets: Rows) -> npt.NDArray[np.bool_]:
        """Whether each offset is a row that is there and lives."""
        inside = (offsets >= 0) & (offsets < self.physical_rows)
        if self.fragment.deletion_file is None:
            return inside
        at = np.searchsorted(self.deleted, offsets)
        deleted = np.zeros(len(offsets), bool)
        within = at < len(self.deleted)
        deleted[within] = self.deleted[at[within]] == offsets[within]
        return inside & ~deleted

    def statistics(self, masked: Sequence[Masked] = ()) -> Mapping[Path, ColumnStats]:
        """What the files' statistics say of each row group, by the path of the column."""
        if self._statistics is None:
            rows = np.diff(self.batch_offsets).tolist()
            statistics: dict[Path, ColumnStats] = {}
            for entry in self.fragment.files:
                file = self.file(entry)
                if file.num_batches == len(rows):
                    statistics |= trusted(file.statistics(), file.schema, rows, masked)
            self._statistics = statistics
        return self._statistics

    @cached_property
    def bytes_per_row(self) -> float:
        """About how many bytes a row has in its files."""
        return sum(self.file(f).size for f in self.fragment.files) / max(self.physical_rows, 1)

    # --- rows --------------------------------------------------------------------------------------------------------

    def _parts(self, projection: LanceSchema) -> list[_Part]:
        ids = frozenset(projection.field_ids)
        parts = []
        for entry in self.fragment.files:
            field_ids = ids.intersection(entry.fields)
            if field_ids:
                schema = projection.project_ids(field_ids)
                if schema.fields:
                    parts.append(_Part(self.file(entry), schema))
        for part in parts[1:]:
            if not np.array_equal(part.file.batch_offsets, parts[0].file.batch_offsets):
                raise CorruptFileError(
                    "the data files of a fragment are cut into different batches",
                    fragment=self.fragment.id,
                    file=self.store.uri,
                )
        return parts

    def read_batches(
        self, projection: LanceSchema, start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows from ``start`` to ``stop``, deleted ones included, as one batch for each batch of the files."""
        stop = self.physical_rows if stop is None else stop
        parts = self._parts(projection)
        arrow = projection.to_arrow()
        bounds = self.batch_offsets.tolist()
        whole = len(parts) == 1 and parts[0].schema.fields == projection.fields
        last = min(bisect_left(bounds, stop), len(bounds) - 1)
        ends = [0] * len(parts)
        fetched: list[Source | None] = [None] * len(parts)
        for i in range(max(bisect_right(bounds, start) - 1, 0), len(bounds) - 1):
            base, end = bounds[i], bounds[i + 1]
            if base >= stop:
                return
            low, high = max(start, base), min(stop, end)
            if low >= high:
                continue
            for n, part in enumerate(parts):
                if i >= ends[n]:
                    ends[n], fetched[n] = part.file.ahead(i, last, part.schema)
            read = [p.file.read_batch(i, p.schema, fetched=f) for p, f in zip(parts, fetched, strict=True)]
            batch = read[0] if whole else _combined(read, arrow, end - base)
            yield batch if high - low == end - base else batch.slice(low - base, high - low)

    def read_range(self, projection: LanceSchema, start: int, stop: int) -> list[pa.RecordBatch]:
        """The rows of a range in as few batches as are read fastest."""
        parts = self._parts(projection)
        if len(parts) == 1 and parts[0].schema.fields == projection.fields and stop > start:
            bounds = self.batch_offsets.tolist()
            first, last = bisect_right(bounds, start) - 1, bisect_left(bounds, stop)
            joined = parts[0].file.read_joined(first, last, parts[0].schema) if last - first > 1 else None
            if joined is not None:
                return [joined.slice(start - bounds[first], stop - start)]
        return list(self.read_batches(projection, start, stop))

    def take(self, offsets: Rows, projection: LanceSchema) -> pa.Table:
        """The rows at some offsets, in the order asked for; they may be deleted, and may come several times."""
        arrow = projection.to_arrow()
        parts = self._parts(projection)
        if not parts:
            return pa.Table.from_batches([_combined([], arrow, len(offsets))])
        tables = [part.file.take(offsets, part.schema) for part in parts]
        if len(tables) == 1 and tables[0].schema.equals(arrow):
            return tables[0]
        batches = [t.combine_chunks().to_batches() for t in tables]
        pieces = [b[0] if b else _combined([], t.schema, 0) for b, t in zip(batches, tables)]
        return pa.Table.from_batches([_combined(pieces, arrow, len(offsets))])

    def check_offsets(self, offsets: Rows) -> None:
        """Raise ``CorruptFileError`` unless all offsets are rows of the fragment."""
        if len(offsets) and (offsets.min() < 0 or offsets.max() >= self.physical_rows):
            raise CorruptFileError(
                f"row {offsets.max()} is asked of a fragment with {self.physical_rows} rows",
                fragment=self.fragment.id,
                file=self.store.uri,
            )

    def missing(self, projection: LanceSchema) -> list[Field]:
        """The top-level columns of a projection that no file has."""
        have = {id for entry in self.fragment.files for id in entry.fields}
        return [f for f in projection.fields if not any(c.id in have for c in f.walk())]


def fixed_width(kind: pa.DataType) -> int:
    """The bytes of a value without what its length decides."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * fixed_width(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(fixed_width(child.type) for child in kind)
    return int(kind.bit_width) // 8 if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind) else 8


def no_columns(rows: int) -> pa.RecordBatch:
    """Rows without columns: Arrow keeps their number."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["rows"]).select([])


def _combined(pieces: Sequence[pa.RecordBatch], arrow: pa.Schema, rows: int) -> pa.RecordBatch:
    """The columns of batches that stand side by side, in the order of ``arrow``; what none has is null."""
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
            "no file of a fragment has a column that must not be null", help="read the other columns", column=absent[0]
        )
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _joined(columns: Sequence[pa.Array], one: pa.Field, rows: int) -> pa.Array:
    if not columns:
        width = fixed_width(one.type)
        if rows * width > MAX_NULL_BYTES:
            raise CorruptFileError(
                f"{rows} nulls of {width} bytes each are asked for in place of a column that no file has",
                help="read the other columns, or write the column",
                column=one.name,
            )
        return pa.nulls(rows, one.type)
    if len(columns) == 1 and columns[0].type == one.type:
        return columns[0]
    if not pa.types.is_struct(one.type):
        if len(columns) == 1:
            raise SchemaMismatchError(f"a file has {columns[0].type} where the dataset has {one.type}", column=one.name)
        raise SchemaMismatchError("several files of a fragment have the same column", column=one.name)
    children = []
    for child in one.type:
        below = [a.field(i) for a in columns if (i := a.type.get_field_index(child.name)) >= 0]
        children.append(_joined(below, child, rows))
    return pa.StructArray.from_arrays(children, fields=list(one.type))
