"""BTREE: a scalar index of sorted values with their row ids.

``page_data.lance`` has the columns ``values`` and ``row_ids`` (``ids`` in files of 2.x), sorted by value, in pages of
4,096 rows.  ``page_lookup.lance`` has one row per page: ``min``, ``max``, ``null_count`` and ``page_idx``.  The lookup
is read completely; a page is read only if it may contain matching rows.

The legacy file format has no nulls: null strings and binaries are stored as empty values, other nulls are omitted.  In
2.x nulls come first, and the ``min`` of a page that begins with a null is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.lance.data_files import open_by_footer
from trilake.lance.file import types
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.storage_version import LEGACY, StorageVersion
from trilake.lance.index.files import ReadCache, read_whole, write_file
from trilake.lance.index.scalar import REMAKE, Bound, Mask, RowIds, ScalarIndex, between, mask_of, plain_values
from trilake.lance.v1.data_file import V1File
from trilake.lance.v1.data_file_writer import V1Writer
from trilake.lance.v1.encode import encode_flat
from trilake.lance.v2.file import V2File
from trilake.storage.base import Store

PAGE_ROWS = 4096
#: Maximum rows of a page.
_LARGEST_PAGE = 1 << 20
LOOKUP_COLUMNS = ["min", "max", "null_count", "page_idx"]
LOOKUP, DATA = "page_lookup.lance", "page_data.lance"
#: Key of the lookup's schema metadata: CRC-32 of the lookup and of each page, hexadecimal; an extension of trilake.
CHECKSUMS = b"trilake:crc32"
#: Key of the lookup's schema metadata in files of 2.x: rows per page.
BATCH_SIZE = b"batch_size"
#: Name of the row id column of the page file: in the legacy format, and in 2.x.
_IDS = {True: "row_ids", False: "ids"}


class BTreeIndex(ScalarIndex):
    """An open BTREE index."""

    kind = "BTree"

    def __init__(
        self, data: V1File | V2File, edges: Sequence[int], lookup: pa.RecordBatch, checksums: Sequence[int] = ()
    ) -> None:
        self._data = data
        #: First row of each page, and one at or after the last row.
        self._edges = edges
        self.cache = ReadCache()
        self.has_nulls = isinstance(data, V2File)
        #: Checksums of the pages; empty if the file has none.
        self._checksums = checksums
        self._checked: set[int] = set()
        self._min, self._max = lookup["min"], lookup["max"]
        self._nulls = lookup["null_count"].to_numpy()
        self._pages = lookup["page_idx"].to_numpy()
        self.value_type = self._min.type

    @classmethod
    def open(cls, store: Store, folder: str) -> BTreeIndex:
        """Open the index in a folder, ``_indices/<uuid>``.  Raises ``MissingFileError`` and ``CorruptFileError``."""
        lookup_file, data = open_by_footer(store, f"{folder}/{LOOKUP}"), open_by_footer(store, f"{folder}/{DATA}")
        lookup = read_whole(lookup_file)
        edges = data.batch_offsets.tolist() if isinstance(data, V1File) else _edges(data, lookup_file)
        names = lookup.schema.names, data.schema.names
        if names != (LOOKUP_COLUMNS, ["values", _IDS[isinstance(data, V1File)]]):
            raise CorruptFileError(f"the index files have unexpected columns: {names}", file=lookup_file.file)
        kinds = {lookup.schema.field(i).type for i in (0, 1)} | {data.schema.fields[0].arrow_type}
        if len(kinds) > 1 or lookup.schema.types[2:] != [pa.uint32()] * 2:
            raise CorruptFileError("the index files have different value types", file=lookup_file.file)
        pages = lookup["page_idx"].to_numpy(zero_copy_only=False)
        if data.schema.fields[1].arrow_type != pa.uint64() or not np.array_equal(pages, np.arange(len(edges) - 1)):
            raise CorruptFileError(
                "pages of the index are missing or duplicated, or have no row ids", file=data.file, help=REMAKE
            )
        if lookup["null_count"].null_count:
            raise CorruptFileError("a page of the index has no null count", file=lookup_file.file, help=REMAKE)
        low, high = lookup.column(0), lookup.column(1)
        turns = pa.array(np.arange(2 * len(low)).reshape(2, -1).T.ravel())  # interleave low and high
        if len(low) and not _ascends(_ordered(pa.concat_arrays([low, high]).take(turns))):
            raise CorruptFileError("the page bounds of the index are not sorted", file=lookup_file.file, help=REMAKE)
        return cls(data, edges, lookup, _checksums(lookup_file, lookup))

    @property
    def num_rows(self) -> int:
        return self._data.num_rows

    @property
    def num_pages(self) -> int:
        return len(self._pages)

    def statistics(self) -> dict[str, Any]:
        """Return ``index_type``, ``min`` and ``max`` as strings, ``num_pages``, ``num_rows`` and ``num_nulls``."""
        low, high = (self._min[0], self._max[-1]) if self.num_pages else (None, None)
        return {
            "index_type": self.kind,
            "min": str(low),
            "max": str(high),
            "num_pages": self.num_pages,
            "num_rows": self.num_rows,
            "num_nulls": int(self._nulls.sum()),
        }

    # --- searches: return sorted row ids ---

    def range(self, low: Bound | None, high: Bound | None) -> RowIds:
        """Find rows with values between two bounds, ``None`` for no bound; NaN is greater than all other values.

        The legacy file format stores null strings and binaries as empty values, so empty values also find nulls.
        Raises ``InvalidArgumentError`` for a bound of another type.
        """
        above, below = self.scalar(low), self.scalar(high)
        from_low, to_high = self._reaching(above, below)
        beside = np.concatenate([np.flatnonzero(~from_low)[-1:], np.flatnonzero(~to_high)[:1]])
        return self._search(from_low & to_high, lambda values: between(values, low, above, high, below), beside)

    def pages_of_range(self, low: Bound | None, high: Bound | None) -> Mask:
        from_low, to_high = self._reaching(self.scalar(low), self.scalar(high))
        return from_low & to_high

    def _reaching(self, above: pa.Scalar | None, below: pa.Scalar | None) -> tuple[Mask, Mask]:
        """Return masks of the pages with a maximum of at least ``above``, and with a minimum of at most ``below``."""
        from_low, to_high = np.ones(self.num_pages, bool), np.ones(self.num_pages, bool)
        if above is not None:
            from_low = _may(pc.greater_equal(self._max, above)) | _is_nan(self._max)
        if below is not None:
            # Some writers sort negative NaNs before all numbers.
            to_high = _may(pc.less_equal(self._min, below)) | _is_nan(self._min)
        valued = self._has_values
        return from_low & valued, to_high & valued

    @property
    def _has_values(self) -> Mask:
        """Return for each page whether it has values that are not null."""
        return mask_of(self._max.is_valid()) if self.has_nulls else np.ones(self.num_pages, bool)

    def is_in(self, values: Sequence[Any] | pa.Array) -> RowIds:
        choices = self.choices(values)
        if not len(choices):
            return np.empty(0, np.uint64)
        keep, beside = self._pages_of(choices)
        return self._search(keep, lambda values_of_page: pc.is_in(values_of_page, choices), beside)

    def pages_of(self, values: Sequence[Any] | pa.Array) -> Mask:
        choices = self.choices(values)
        return self._pages_of(choices)[0] if len(choices) else np.zeros(self.num_pages, bool)

    def _pages_of(self, choices: pa.Array) -> tuple[Mask, npt.NDArray[np.int64]]:
        """Return for each page whether it may have one of the values, and the pages next to each value."""
        # A page is needed if a value is in its range, so if more values are <= its max than < its min.
        # Pages with unknown bounds are needed as well.
        keep, beside, low, high = self._has_values, np.empty(0, np.int64), self._min, self._max
        if self.has_nulls:  # a null minimum is not a bound of the values; pages without values are excluded anyway
            low, high = low.fill_null(choices[0]), high.fill_null(choices[0])
        if self.num_pages and not low.null_count and not high.null_count and not pt.is_floating(low.type):
            ranks = pc.rank(pa.concat_arrays([choices, low, high]), tiebreaker="dense").to_numpy()
            of = np.split(ranks, [len(choices), len(choices) + self.num_pages])
            keep &= np.searchsorted(of[0], of[2], "right") > np.searchsorted(of[0], of[1], "left")
            before, behind = np.searchsorted(of[2], of[0], "left") - 1, np.searchsorted(of[1], of[0], "right")
            beside = np.unique(np.concatenate([before, behind]))
        return keep, beside

    def is_null(self) -> RowIds:
        """Find nulls; in the legacy file format also empty values, which are stored the same way.

        Raises ``InvalidArgumentError`` for types whose nulls the legacy file format does not store: all except strings
        and binaries.
        """
        if self.has_nulls:
            return self._search(self._nulls > 0, pc.is_null, np.empty(0, np.int64))
        empty = _empty(self.value_type)
        if empty is None:
            raise InvalidArgumentError(f"an index on {self.value_type} has no nulls", help="scan the column")
        pages = (self._nulls > 0) | _may(pc.equal(self._min, empty))
        return self._search(pages, lambda values: pc.equal(values, empty), np.empty(0, np.int64))

    def read(self) -> pa.Table:
        """Read all values with their row ids, sorted."""
        batches = [self._page(i) for i in range(len(self._edges) - 1)]
        return pa.Table.from_batches(batches, self._data.schema.to_arrow()).rename_columns(["values", "row_ids"])

    def _page(self, number: int) -> pa.RecordBatch:
        """Read a page and validate it as far as the files allow.  Raises ``CorruptFileError``."""
        cached: pa.RecordBatch | None = self.cache.get(self._data.file, number)
        if cached is not None:
            return cached
        start, stop = self._edges[number : number + 2]
        batch = self._data.read_rows(start, min(stop, self.num_rows), self._data.schema)
        if number not in self._checked:  # checked once, as files do not change
            if self._checksums:
                sound = page_checksum(self._data.schema, batch) == self._checksums[number]
            else:
                sound = self._is_sound(batch, number)
            if not sound:
                raise CorruptFileError(
                    f"page {number} of the index does not match its entry in the lookup",
                    help=REMAKE,
                    file=self._data.file,
                )
            self._checked.add(number)
        self.cache.keep(self._data.file, number, batch, batch.nbytes)
        return batch

    def _is_sound(self, batch: pa.RecordBatch, number: int) -> bool:
        """Whether the values of a page are sorted and within its bounds, and its row ids distinct."""
        values, ids = batch.column(0), batch.column(1).to_numpy(zero_copy_only=False)
        if len(np.unique(ids)) < len(ids):
            return False
        if self.has_nulls:
            has = len(values) > values.null_count
            if values.null_count != self._nulls[number] or (has and not self._max[number].is_valid):
                return False
            return batch.column(1).null_count == 0 and self._fits(values, number)
        nulls = 0 if types.is_variable(self.value_type) else int(self._nulls[number])
        if nulls > len(values):
            return False
        # Nulls are stored as zeros before or after all values.
        return self._fits(values[nulls:], number) or self._fits(values[: len(values) - nulls], number)

    def _fits(self, values: pa.Array, number: int) -> bool:
        ends = self._min.slice(number, 1), self._max.slice(number, 1)
        return _ascends(_ordered(pa.concat_arrays([ends[0], values, ends[1]])))

    def _search(self, keep: Mask, match: Any, beside: npt.NDArray[np.int64]) -> RowIds:
        """Find the matching rows of some pages.

        ``beside`` are the pages next to the searched values.  Without checksums, these are also read to verify the page
        bounds.  Bounds are sorted, so other pages cannot match.
        """
        if not self._checksums:
            for number in beside[(beside >= 0) & (beside < self.num_pages)].tolist():
                if number not in self._checked:
                    self._page(number)
        row_ids, empty = [], None if self.has_nulls else _empty(self.value_type)
        for page in self._pages[keep].tolist():
            batch = self._page(page)
            values = batch.column(0) if empty is None else batch.column(0).fill_null(empty)
            row_ids.append(batch.column(1).filter(pc.fill_null(match(values), False)).to_numpy(zero_copy_only=False))
        return np.sort(np.concatenate([np.empty(0, np.uint64), *row_ids]))


def _ordered(values: pa.Array) -> pa.Array:
    """Drop nulls and NaN, whose position depends on the writer."""
    values = values.drop_null()
    return values.filter(pc.invert(pc.is_nan(values))) if pt.is_floating(values.type) else values


def _ascends(values: pa.Array) -> bool:
    if len(values) < 2:
        return True
    return bool(pc.all(pc.less_equal(values[:-1], values[1:])).as_py())


def page_checksum(schema: LanceSchema, batch: pa.RecordBatch) -> int:
    """Return the CRC-32 of the encoded columns of a page."""
    checksum = 0
    for field, column in zip(schema.fields, batch.columns, strict=True):
        for part in encode_flat(field, column, 0)[0]:
            checksum = crc32(part, checksum)
    return checksum


def _edges(data: V2File, lookup_file: V1File | V2File) -> Sequence[int]:
    rows_per_page = lookup_file.schema.metadata.get(BATCH_SIZE, str(PAGE_ROWS).encode())
    size = int(rows_per_page[:10]) if rows_per_page.isdigit() else 0
    if not 1 <= size <= _LARGEST_PAGE:
        raise CorruptFileError(f"invalid page size of the index: {rows_per_page!r}", file=lookup_file.file, help=REMAKE)
    return range(0, data.num_rows + size, size)


def _checksums(lookup_file: V1File | V2File, lookup: pa.RecordBatch) -> list[int]:
    """Verify the checksum of the lookup and return those of the pages; empty if the file has none."""
    data = lookup_file.schema.metadata.get(CHECKSUMS)
    if data is None:
        return []
    try:
        lookup_checksum, *pages = [int(each, 16) for each in data.split()]
    except ValueError:
        lookup_checksum, pages = -1, []
    if lookup_checksum != page_checksum(lookup_file.schema, lookup) or len(pages) != len(lookup):
        raise CorruptFileError("the checksum of the index does not match", file=lookup_file.file, help=REMAKE)
    return pages


def _may(mask: pa.Array) -> Mask:
    return mask_of(mask, null=True)


def _is_nan(array: pa.Array) -> Mask:
    return _may(pc.is_nan(array)) if pt.is_floating(array.type) else np.zeros(len(array), bool)


def _empty(kind: pa.DataType) -> pa.Scalar | None:
    """Return the empty value that represents null in the file, or ``None`` for types without one."""
    return pa.scalar(b"", pa.binary()).cast(kind) if types.is_variable(kind) else None


def train(store: Store, folder: str, rows: pa.Table, version: StorageVersion = LEGACY) -> tuple[tuple[str, int], ...]:
    """Write a BTREE index from a table of column values and uint64 row ids; returns the names and sizes of its files.

    In the legacy file format, nulls of types other than strings and binaries are omitted.  Raises
    ``InvalidArgumentError`` for types without an order.
    """
    table = rows.rename_columns(["values", _IDS[version.is_legacy]])
    values = plain_values(table["values"])
    kind = values.type
    table = table.set_column(0, "values", values)
    if version.is_legacy:
        return _train_legacy(store, folder, table, kind)
    return _train(store, folder, table, kind, version)


def _train(
    store: Store, folder: str, table: pa.Table, kind: pa.DataType, version: StorageVersion
) -> tuple[tuple[str, int], ...]:
    nulls = table["values"].null_count
    order = pc.sort_indices(table, [("values", "ascending"), ("ids", "ascending")]).to_numpy()
    table = table.take(pa.array(np.roll(order, nulls)))  # Arrow sorts nulls last, the format first
    data = pa.schema([pa.field("values", kind), pa.field("ids", pa.uint64(), nullable=False)])
    pages = np.arange(-(-len(order) // PAGE_ROWS))
    first, behind = pages * PAGE_ROWS, np.minimum((pages + 1) * PAGE_ROWS, len(order))
    column = table["values"].combine_chunks()
    nulls_in_page = np.clip(nulls - first, 0, behind - first)
    lookup = _lookup(
        [column.take(pa.array(first)), column.take(pa.array(behind - 1)), nulls_in_page, pages], nulls=True
    )
    metadata = {BATCH_SIZE: str(PAGE_ROWS).encode(), b"range_partitioned": b"false"}
    rows = table.cast(data).combine_chunks().to_batches()
    batch = rows[0] if rows else pa.RecordBatch.from_pylist([], data)
    return (
        write_file(store, f"{folder}/{DATA}", batch, version),
        write_file(store, f"{folder}/{LOOKUP}", lookup, version, metadata),
    )


def _lookup(columns: Sequence[Any], *, nulls: bool) -> pa.RecordBatch:
    """Return the lookup from bounds, null counts and page numbers; with ``nulls``, bounds may be null."""
    arrays = [*columns[:2], *(pa.array(column, pa.uint32()) for column in columns[2:])]
    fields = [
        pa.field(n, a.type, nulls and n in LOOKUP_COLUMNS[:2]) for n, a in zip(LOOKUP_COLUMNS, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _train_legacy(store: Store, folder: str, table: pa.Table, kind: pa.DataType) -> tuple[tuple[str, int], ...]:
    empty = _empty(kind)
    if empty is None:
        table = table.filter(pc.is_valid(table["values"]))  # the file would store them as zeros
        # Null strings and binaries come first: the file stores them as empty values.
    ordered = table if empty is None else table.set_column(0, "values", table["values"].fill_null(empty))
    table = table.take(pc.sort_indices(ordered, [("values", "ascending"), ("row_ids", "ascending")])).combine_chunks()
    column = pa.field("values", kind)
    data_schema = pa.schema([column, pa.field("row_ids", pa.uint64())])
    lookup: list[tuple[pa.Scalar | None, pa.Scalar | None, int]] = []
    stored = LanceSchema.from_arrow(data_schema)
    checksums: list[int] = []
    with V1Writer(store, f"{folder}/{DATA}", stored, statistics=False) as writer:
        for batch in table.cast(data_schema).to_batches(max_chunksize=PAGE_ROWS):
            values = batch.column(0)
            valid = values.drop_null()
            # Rows read from an existing index have empty values in place of nulls.
            low = empty if values.null_count else valid[0]
            lookup.append((low, valid[-1] if len(valid) else empty, values.null_count))
            checksums.append(page_checksum(stored, batch))
            writer.write(batch)
    lows, highs, nulls = (list(part) for part in zip(*lookup, strict=True)) if lookup else ([], [], [])
    batch = _lookup([pa.array(lows, kind), pa.array(highs, kind), nulls, range(len(lookup))], nulls=False)
    lookup_checksum = page_checksum(LanceSchema.from_arrow(batch.schema), batch)
    digests = " ".join(f"{each:08x}" for each in (lookup_checksum, *checksums))
    schema = LanceSchema.from_arrow(batch.schema.with_metadata({CHECKSUMS: digests}))
    with V1Writer(store, f"{folder}/{LOOKUP}", schema, statistics=False) as writer:
        writer.write(batch)
    return ()
