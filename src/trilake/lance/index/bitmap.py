"""BITMAP and LABEL_LIST: for each distinct value or list item, a bitmap of its rows.

``bitmap_page_lookup.lance`` has one row per value: ``keys``, sorted with null first, and ``bitmaps``.  A bitmap maps
fragment ids to Roaring bitmaps: first the number of fragments, then for each fragment its id, the size, and the Roaring
bitmap.  Keys are read when the index is opened, bitmaps on demand.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from trilake.errors import CorruptFileError
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.index.files import ReadCache, check_rows, write_file
from trilake.lance.index.scalar import REMAKE, Bound, Mask, RowIds, WholePages, between, mask_of, plain_values
from trilake.lance.v2.file import V2File
from trilake.storage.base import Store

FILE = "bitmap_page_lookup.lance"
STATISTICS, LIST_NULLS = b"lance:index_stats", b"lance:label_list_nulls"
#: Maximum number of rows that a search returns; for more rows a full scan is cheaper.
MOST_ROWS = 1 << 24
_SCHEMA_NAMES = ["keys", "bitmaps"]


class BitmapIndex(WholePages):
    """An open BITMAP index."""

    kind = "Bitmap"

    def __init__(self, file: V2File, keys: pa.Array) -> None:
        self._file, self._keys = file, keys
        self.cache = ReadCache()
        self.value_type = keys.type

    @classmethod
    def open(cls, store: Store, folder: str) -> Self:
        """Open the index in a folder, ``_indices/<uuid>``.  Raises ``MissingFileError`` and ``CorruptFileError``."""
        file = V2File.open(store, f"{folder}/{FILE}")
        if file.schema.names != _SCHEMA_NAMES or file.schema.fields[1].arrow_type != pa.binary():
            raise CorruptFileError(f"the index file has unexpected columns: {file.schema.names}", file=file.file)
        check_rows(file)
        return cls(file, file.read_rows(0, file.num_rows, file.schema.project(["keys"])).column(0))

    @property
    def num_pages(self) -> int:
        return len(self._keys)

    def statistics(self) -> dict[str, Any]:
        """Return ``index_type`` and ``num_bitmaps``."""
        return {"index_type": self.kind, "num_bitmaps": self.num_pages}

    def pages_of_range(self, low: Bound | None, high: Bound | None) -> Mask:
        return mask_of(between(self._keys, low, self.scalar(low), high, self.scalar(high)))

    def pages_of(self, values: Sequence[Any] | pa.Array) -> Mask:
        return mask_of(pc.is_in(self._keys, self.choices(values).drop_null()))

    def is_null(self) -> RowIds | None:
        return self.rows_of(mask_of(pc.is_null(self._keys)))

    def read(self) -> pa.Table:
        """Read all ``values`` with their ``row_ids``.  Raises ``CorruptFileError``."""
        counts, ids = [], [np.empty(0, np.uint64)]
        for data in self._bitmaps(np.arange(self.num_pages)):
            rows = row_ids(parse_map(data.as_py() or b"", self._file.file))
            if rows is None:
                raise CorruptFileError(
                    f"a bitmap of the index has more than {MOST_ROWS} rows", file=self._file.file, help=REMAKE
                )
            counts.append(len(rows))
            ids.append(rows)
        values = self._keys.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        return pa.table({"values": values, "row_ids": np.concatenate(ids)})

    def _bitmaps(self, keys: npt.NDArray[np.int64]) -> pa.ChunkedArray:
        return self._file.take(keys, self._file.schema.project(["bitmaps"])).column(0)

    def rows_of(self, pages: Mask) -> RowIds | None:
        file, numbers = self._file.file, np.flatnonzero(pages).tolist()
        maps: dict[int, RowMap | None] = {number: self.cache.get(file, number) for number in numbers}
        missing = [number for number, cached in maps.items() if cached is None]
        if missing:
            for number, data in zip(missing, self._bitmaps(np.array(missing)), strict=True):
                maps[number] = rows = parse_map(data.as_py() or b"", file)
                self.cache.keep(file, number, rows, len(data.as_py() or b""))
        return row_ids(_joined(rows for rows in maps.values() if rows is not None))


class LabelListIndex(BitmapIndex):
    """An index of list items: each item maps to the rows whose lists contain it."""

    kind = "LabelList"
    answers_items = True


def train(
    store: Store, folder: str, rows: pa.Table, version: StorageVersion, buffers: Mapping[bytes, bytes] | None = None
) -> tuple[tuple[str, int], ...]:
    """Write an index from a table of column values and uint64 row ids; returns the names and sizes of its files.

    ``buffers`` are additional global buffers of the file.  Raises ``InvalidArgumentError`` for lists and structs.
    """
    values, ids = plain_values(rows.column(0).combine_chunks()), rows.column(1).to_numpy().astype(np.uint64)
    encoded = values.dictionary_encode("encode")
    keys = encoded.dictionary
    order = np.roll(pc.sort_indices(keys).to_numpy(), keys.null_count)  # Arrow sorts nulls last, the format first
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys))
    of = rank[encoded.indices.to_numpy(zero_copy_only=False)] if len(keys) else np.empty(0, np.int64)
    by_key = np.lexsort((ids, of))
    cuts = np.searchsorted(of[by_key], np.arange(1, len(keys)))
    bitmaps = [serialized(part) for part in np.split(ids[by_key], cuts)] if len(keys) else []
    schema = pa.schema([pa.field("keys", keys.type), pa.field("bitmaps", pa.binary())])
    batch = pa.RecordBatch.from_arrays([keys.take(pa.array(order)), pa.array(bitmaps, pa.binary())], schema=schema)
    metadata = {STATISTICS: f'{{"num_bitmaps":{len(keys)}}}'.encode()}
    return (write_file(store, f"{folder}/{FILE}", batch, version, metadata, buffers),)


def train_lists(store: Store, folder: str, rows: pa.Table, version: StorageVersion) -> tuple[tuple[str, int], ...]:
    """Write a LABEL_LIST index from a table of lists and uint64 row ids.

    Returns the names and sizes of its files.
    """
    lists, ids = rows.column(0).combine_chunks(), rows.column(1).to_numpy().astype(np.uint64)
    parents = pc.list_parent_indices(lists).to_numpy()
    items = pa.table({"values": pc.list_flatten(lists), "row_ids": ids[parents]})
    nulls = np.sort(ids[lists.is_null().to_numpy(zero_copy_only=False)])
    return train(store, folder, items, version, {LIST_NULLS: serialized(nulls)})


def serialized(ids: RowIds) -> bytes:
    """Serialize sorted row ids as a bitmap."""
    of = (ids >> np.uint64(32)).astype(np.int64)
    fragments, starts = np.unique(of, return_index=True)
    out = bytearray(struct.pack("<I", len(fragments)))
    for fragment, part in zip(fragments.tolist(), np.split(ids, starts[1:])):
        data = BitMap((part & np.uint64(0xFFFFFFFF)).astype(np.uint32)).serialize()
        out += struct.pack("<II", fragment, len(data)) + data
    return bytes(out)


#: Row offsets by fragment id; ``None`` means all rows of the fragment.
RowMap = dict[int, "BitMap | None"]


def parse_map(data: bytes, file: str) -> RowMap:
    """Parse a bitmap.  Raises ``CorruptFileError``."""
    try:
        (count,) = struct.unpack_from("<I", data)
        at, parsed = 4, {}
        for _ in range(count):
            fragment, size = struct.unpack_from("<II", data, at)
            at += 8 + size
            if at > len(data) or fragment in parsed:
                raise ValueError("a bitmap is truncated or duplicated")
            parsed[fragment] = BitMap.deserialize(data[at - size : at]) if size else None
    except (struct.error, ValueError, MemoryError) as e:
        raise CorruptFileError(f"a bitmap of the index is corrupt: {e}", file=file, help=REMAKE) from e
    return parsed


def _joined(maps: Iterable[RowMap]) -> RowMap:
    joined: RowMap = {}
    for each in maps:
        for fragment, rows in each.items():
            other = joined.get(fragment, rows)
            joined[fragment] = None if rows is None or other is None else other | rows
    return joined


def row_ids(rows: RowMap) -> RowIds | None:
    """Return the sorted row ids of a bitmap; ``None`` if there are too many, or if it has all rows of a fragment."""
    bitmaps = {fragment: bitmap for fragment, bitmap in sorted(rows.items()) if bitmap is not None}
    if len(bitmaps) < len(rows) or sum(map(len, bitmaps.values())) > MOST_ROWS:
        return None
    parts = [np.asarray(b.to_array(), np.uint64) | np.uint64(fragment << 32) for fragment, b in bitmaps.items()]
    return np.concatenate([np.empty(0, np.uint64), *parts])
