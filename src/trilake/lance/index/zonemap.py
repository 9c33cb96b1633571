"""ZONEMAP: minimum and maximum of each zone of several thousand rows of a fragment.

``zonemap.lance`` has one row per zone: ``min``, ``max``, ``null_count``, ``nan_count``, ``fragment_id``, ``zone_start``
and ``zone_length``.  A search returns whole zones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from trilake.errors import CorruptFileError
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.index.bitmap import MOST_ROWS, serialized
from trilake.lance.index.files import read_whole, write_file
from trilake.lance.index.scalar import REMAKE, Bound, Mask, RowIds, WholePages, mask_of, plain_values
from trilake.lance.proto import varint
from trilake.lance.v2.file import V2File
from trilake.lance.versions.manifest import ZONE_MAP_DETAILS, IndexDetails
from trilake.storage.base import Store

FILE = "zonemap.lance"
#: Default number of rows in a zone, as in pylance.
ROWS_PER_ZONE = 8192
_COLUMNS = ["min", "max", "null_count", "nan_count", "fragment_id", "zone_start", "zone_length"]


class ZoneMapIndex(WholePages):
    """An open ZONEMAP index."""

    kind = "ZoneMap"
    is_exact = False

    def __init__(self, zones: pa.RecordBatch, rows_per_zone: int) -> None:
        self._low, self._high = zones["min"], zones["max"]
        numbers = [zones[name].to_numpy(zero_copy_only=False) for name in _COLUMNS[2:]]
        self._nulls, self._nans, self._fragments, self._starts, self._lengths = numbers
        self.rows_per_zone = rows_per_zone
        self.value_type = self._low.type

    @classmethod
    def open(cls, store: Store, folder: str) -> ZoneMapIndex:
        """Open the index in a folder, ``_indices/<uuid>``.  Raises ``MissingFileError`` and ``CorruptFileError``."""
        file = V2File.open(store, f"{folder}/{FILE}")
        types = [field.arrow_type for field in file.schema.fields]
        if (
            file.schema.names != _COLUMNS
            or types[0] != types[1]
            or types[2:] != [*[pa.uint32()] * 2, *[pa.uint64()] * 3]
        ):
            raise CorruptFileError(f"the index file has unexpected columns: {file.schema.names}", file=file.file)
        zones = read_whole(file)
        if any(column.null_count for column in zones.columns[2:]):
            raise CorruptFileError("a zone of the index has no row range", file=file.file, help=REMAKE)
        rows_per_zone = file.schema.metadata.get(b"rows_per_zone", b"0")
        index = cls(zones, int(rows_per_zone[:10]) if rows_per_zone.isdigit() else 0)
        ends = index._starts.astype(np.float64) + index._lengths
        if len(ends) and (ends.max() >= 2**32 or index._fragments.max() >= 2**32):
            raise CorruptFileError("a zone of the index is out of range", file=file.file, help=REMAKE)
        return index

    @property
    def num_pages(self) -> int:
        return len(self._starts)

    def statistics(self) -> dict[str, Any]:
        """Return ``index_type``, ``num_zones`` and ``rows_per_zone``."""
        return {"index_type": self.kind, "num_zones": self.num_pages, "rows_per_zone": self.rows_per_zone}

    def pages_of_range(self, low: Bound | None, high: Bound | None) -> Mask:
        above, below = self.scalar(low), self.scalar(high)
        keep = mask_of(self._high.is_valid())
        if above is not None:
            keep = keep & mask_of(pc.greater_equal(self._high, above))
        if below is not None:
            keep = keep & mask_of(pc.less_equal(self._low, below), null=True)
        return self._with_nan(keep)

    def pages_of(self, values: Sequence[Any] | pa.Array) -> Mask:
        choices = self.choices(values)
        if not len(choices):
            return np.zeros(self.num_pages, bool)
        low, high = self._low.fill_null(choices[0]), self._high.fill_null(choices[0])
        ranks = pc.rank(pa.concat_arrays([choices, low, high]), tiebreaker="dense").to_numpy()
        of, lows, highs = np.split(ranks, [len(choices), len(choices) + self.num_pages])
        some = np.searchsorted(of, highs, "right") > np.searchsorted(of, lows, "left")
        return self._with_nan(some & mask_of(self._high.is_valid()))

    def is_null(self) -> RowIds | None:
        """Find the rows of all zones with nulls."""
        return self.rows_of(self._nulls > 0)

    def _with_nan(self, keep: Mask) -> Mask:
        # Bounds ignore NaN values, and NaN bounds are useless.
        mask: Mask = keep | (self._nans > 0)
        return mask

    def rows_of(self, pages: Mask) -> RowIds | None:
        lengths = self._lengths[pages].astype(np.int64)
        if lengths.sum() > MOST_ROWS:
            return None
        first = (self._fragments[pages] << np.uint64(32)) + self._starts[pages]
        before = np.cumsum(lengths) - lengths
        ids = np.repeat(first - before.astype(np.uint64), lengths) + np.arange(lengths.sum(), dtype=np.uint64)
        return np.sort(ids)


def details(rows_per_zone: int) -> IndexDetails:
    """Return the index details for the manifest: rows per zone, and that null counts are stored."""
    return replace(ZONE_MAP_DETAILS, value=b"\x08" + bytes(varint(rows_per_zone)) + b"\x10\x00\x18\x01")


#: The details of an index with the default number of rows per zone.
DETAILS = details(ROWS_PER_ZONE)


def train(
    store: Store, folder: str, rows: pa.Table, version: StorageVersion, rows_per_zone: int = ROWS_PER_ZONE
) -> tuple[tuple[str, int], ...]:
    """Write an index from a table of column values and uint64 row addresses.

    Returns the names and sizes of its files.
    """
    values, addresses = plain_values(rows.column(0).combine_chunks()), rows.column(1).to_numpy().astype(np.uint64)
    zone_of = (addresses & ~np.uint64(0xFFFFFFFF)) | (addresses & np.uint64(0xFFFFFFFF)) // np.uint64(rows_per_zone)
    ranked = pc.sort_indices(values).to_numpy()  # values, NaN, null
    order = ranked[np.argsort(zone_of[ranked], kind="stable")]
    _, starts, sizes = np.unique(zone_of[order], return_index=True, return_counts=True)
    is_null = mask_of(values.is_null())
    is_nan = mask_of(pc.is_nan(values)) if pt.is_floating(values.type) else np.zeros(len(values), bool)

    def counted(mask: Mask) -> npt.NDArray[np.int64]:
        return np.add.reduceat(mask[order], starts, dtype=np.int64) if len(starts) else np.empty(0, np.int64)

    nulls, nans = counted(is_null), counted(is_nan)
    in_order = addresses[order]
    first, last = (of.reduceat(in_order, starts) if len(starts) else in_order for of in (np.minimum, np.maximum))
    lowest = values.take(pa.array(order[starts]))
    highest = values.take(pa.array(order[np.maximum(starts + sizes - nulls - 1, starts)]))
    columns = [
        lowest,
        highest,
        pa.array(nulls, pa.uint32()),
        pa.array(nans, pa.uint32()),
        pa.array(first >> np.uint64(32)),
        pa.array(first & np.uint64(0xFFFFFFFF)),
        pa.array(last - first + np.uint64(1)),
    ]
    schema = pa.schema([pa.field(n, c.type, nullable=n in _COLUMNS[:2]) for n, c in zip(_COLUMNS, columns)])
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    metadata = {b"rows_per_zone": str(rows_per_zone).encode()}
    buffers = {b"null_bitmap": serialized(np.sort(addresses[is_null]))}
    return (write_file(store, f"{folder}/{FILE}", batch, version, metadata, buffers),)
