"""ZONEMAP: the bounds of the values in each zone, some thousand rows of a fragment.

``zonemap.lance`` has a row for each zone: ``min``, ``max``, ``null_count``, ``nan_count``, ``fragment_id``,
``zone_start`` and ``zone_length``.  A search finds whole zones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import CorruptFileError
from trilake.lance.index.bitmap import MOST_ROWS
from trilake.lance.index.files import read_whole
from trilake.lance.index.scalar import REMAKE, Bound, Mask, RowIds, WholePages
from trilake.lance.v2.file import V2File
from trilake.storage.base import Store

FILE = "zonemap.lance"
_COLUMNS = ["min", "max", "null_count", "nan_count", "fragment_id", "zone_start", "zone_length"]


class ZoneMapIndex(WholePages):
    """An open index."""

    kind = "ZoneMap"
    by_address = True

    def __init__(self, zones: pa.RecordBatch, rows_per_zone: int) -> None:
        self._low, self._high = zones["min"], zones["max"]
        numbers = [zones[name].to_numpy(zero_copy_only=False) for name in _COLUMNS[2:]]
        self._nulls, self._nans, self._fragments, self._starts, self._lengths = numbers
        self._rows_per_zone = rows_per_zone
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
            raise CorruptFileError(f"the file of the index has the columns {file.schema.names}", file=file.file)
        zones = read_whole(file)
        if any(column.null_count for column in zones.columns[2:]):
            raise CorruptFileError("a zone of the index does not say its rows", file=file.file, help=REMAKE)
        said = file.schema.metadata.get(b"rows_per_zone", b"0")
        index = cls(zones, int(said[:10]) if said.isdigit() else 0)
        ends = index._starts.astype(np.float64) + index._lengths
        if len(ends) and (ends.max() >= 2**32 or index._fragments.max() >= 2**32):
            raise CorruptFileError("a zone of the index lies beyond any fragment", file=file.file, help=REMAKE)
        return index

    @property
    def num_pages(self) -> int:
        """Zones."""
        return len(self._starts)

    def statistics(self) -> dict[str, Any]:
        """``index_type``, ``num_zones`` and ``rows_per_zone``."""
        return {"index_type": self.kind, "num_zones": self.num_pages, "rows_per_zone": self._rows_per_zone}

    def pages_of_range(self, low: Bound | None, high: Bound | None) -> Mask:
        """See :class:`ScalarIndex`."""
        above, below = self.scalar(low), self.scalar(high)
        keep = self._high.is_valid().to_numpy(zero_copy_only=False)
        if above is not None:
            keep = keep & pc.fill_null(pc.greater_equal(self._high, above), False).to_numpy(zero_copy_only=False)
        if below is not None:
            keep = keep & pc.fill_null(pc.less_equal(self._low, below), True).to_numpy(zero_copy_only=False)
        return self._with_nan(keep)

    def pages_of(self, values: Sequence[Any] | pa.Array) -> Mask:
        """See :class:`ScalarIndex`."""
        choices = self.choices(values)
        if not len(choices):
            return np.zeros(self.num_pages, bool)
        low, high = self._low.fill_null(choices[0]), self._high.fill_null(choices[0])
        ranks = pc.rank(pa.concat_arrays([choices, low, high]), tiebreaker="dense").to_numpy()
        of, lows, highs = np.split(ranks, [len(choices), len(choices) + self.num_pages])
        some = np.searchsorted(of, highs, "right") > np.searchsorted(of, lows, "left")
        return self._with_nan(some & self._high.is_valid().to_numpy(zero_copy_only=False))

    def is_null(self) -> RowIds | None:
        """The rows of all zones with a null."""
        return self.rows_of(self._nulls > 0)

    def _with_nan(self, keep: Mask) -> Mask:
        # Bounds say nothing of NaN, and where it is one of them, nothing at all.
        mask: Mask = keep | (self._nans > 0)
        return mask

    def rows_of(self, pages: Mask) -> RowIds | None:
        """See :class:`WholePages`."""
        lengths = self._lengths[pages].astype(np.int64)
        if lengths.sum() > MOST_ROWS:
            return None
        first = (self._fragments[pages] << np.uint64(32)) + self._starts[pages]
        before = np.cumsum(lengths) - lengths
        ids = np.repeat(first - before.astype(np.uint64), lengths) + np.arange(lengths.sum(), dtype=np.uint64)
        return np.sort(ids)
