"""BTREE: a scalar index, the values of a column in order, with the ids of their rows.

``page_data.lance`` has the columns ``values`` and ``row_ids``, sorted by value, in pages (batches) of 4,096 rows.
``page_lookup.lance`` has one row a page: ``min``, ``max``, ``null_count`` and ``page_idx``.  It is read whole; of the
pages, only those are read that a search can find something in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.lance import types
from trilake.lance.data_file import DataFile
from trilake.lance.data_file_writer import DataFileWriter
from trilake.lance.schema import LanceSchema
from trilake.storage.base import Store

RowIds = npt.NDArray[np.uint64]
PAGE_ROWS = 4096
LOOKUP_COLUMNS = ["min", "max", "null_count", "page_idx"]
LOOKUP, DATA = "page_lookup.lance", "page_data.lance"


@dataclass(frozen=True)
class Bound:
    """An end of a range of values; ``value`` is a Python value or Arrow scalar that fits the column's type."""

    value: Any
    inclusive: bool = True


class ScalarIndex:
    """An open index.

    >>> from trilake.storage.memory import MemoryStore
    >>> store = MemoryStore("memory://btree")
    >>> rows = pa.table({"values": [5, 3, 5], "row_ids": pa.array([0, 1, 2], pa.uint64())})
    >>> train(store, "_indices/x", rows)
    3
    >>> index = ScalarIndex.open(store, "_indices/x")
    >>> index.equal(5).tolist(), index.range(None, Bound(5, inclusive=False)).tolist()
    ([0, 2], [1])
    """

    def __init__(self, data: DataFile, lookup: pa.RecordBatch) -> None:
        self._data = data
        self._min, self._max = lookup["min"], lookup["max"]
        self._nulls = lookup["null_count"].to_numpy()
        self._pages = lookup["page_idx"].to_numpy()
        #: Type of the column.
        self.value_type: pa.DataType = self._min.type

    @classmethod
    def open(cls, store: Store, folder: str) -> ScalarIndex:
        """Open the index in a folder, ``_indices/<uuid>``.  Raises ``MissingFileError`` and ``CorruptFileError``."""
        lookup_file = DataFile.open(store, f"{folder}/{LOOKUP}")
        data = DataFile.open(store, f"{folder}/{DATA}")
        batches = [lookup_file.read_batch(i) for i in range(lookup_file.num_batches)]
        lookup = pa.Table.from_batches(batches, lookup_file.schema.to_arrow()).combine_chunks()
        names = lookup.column_names, data.schema.names
        if names != (LOOKUP_COLUMNS, ["values", "row_ids"]):
            raise CorruptFileError(f"the files of the index have the columns {names}", file=lookup_file.file)
        kinds = {lookup.schema.field(i).type for i in (0, 1)} | {data.schema.fields[0].arrow_type}
        if len(kinds) > 1 or lookup.schema.types[2:] != [pa.uint32()] * 2:
            raise CorruptFileError("the files of the index disagree about the column's type", file=lookup_file.file)
        pages = lookup["page_idx"].to_numpy()
        if data.schema.fields[1].arrow_type != pa.uint64() or (len(pages) and pages.max() >= data.num_batches):
            raise CorruptFileError("a page of the index is missing, or its row ids are", file=data.file)
        if len(np.unique(pages)) < len(pages):
            raise CorruptFileError("the index has a page twice", file=lookup_file.file)
        whole = lookup.to_batches()
        return cls(data, whole[0] if whole else pa.RecordBatch.from_pylist([], lookup.schema))

    @property
    def num_rows(self) -> int:
        """Rows in the index."""
        return self._data.num_rows

    @property
    def num_pages(self) -> int:
        """Pages of the index."""
        return len(self._pages)

    def statistics(self) -> dict[str, Any]:
        """``index_type``, ``min`` and ``max`` as text, ``num_pages``, ``num_rows`` and ``num_nulls``."""
        low, high = (self._min[0], self._max[-1]) if self.num_pages else (None, None)
        return {
            "index_type": "BTree",
            "min": str(low),
            "max": str(high),
            "num_pages": self.num_pages,
            "num_rows": self.num_rows,
            "num_nulls": int(self._nulls.sum()),
        }

    # --- searching: sorted ids of the rows ---

    def equal(self, value: Any) -> RowIds:
        """Rows with this value; none for null."""
        if value is None:
            return np.empty(0, np.uint64)
        return self.range(Bound(value), Bound(value))

    def range(self, low: Bound | None, high: Bound | None) -> RowIds:
        """Rows with values between two bounds, ``None`` for no bound; NaN is greater than all else, null is nowhere.

        Raises ``InvalidArgumentError`` for a bound that does not fit the type.
        """
        above, below = self._scalar(low), self._scalar(high)
        keep = self.pages_of_range(low, high)
        return self._search(keep, lambda values: _between(values, low, above, high, below))

    def pages_of_range(self, low: Bound | None, high: Bound | None) -> npt.NDArray[np.bool_]:
        """For each page whether it can hold a value between two bounds; errors as :meth:`range`."""
        above, below = self._scalar(low), self._scalar(high)
        keep = np.ones(self.num_pages, bool)
        if above is not None:
            keep &= _may(pc.greater_equal(self._max, above)) | _is_nan(self._max)
        if below is not None:
            # Some writers put NaNs with a sign in front of all numbers.
            keep &= _may(pc.less_equal(self._min, below)) | _is_nan(self._min)
        return keep

    def is_in(self, values: Sequence[Any] | pa.Array) -> RowIds:
        """Rows with one of these values; null among them finds nothing."""
        asked = self._choices(values)
        if not len(asked):
            return np.empty(0, np.uint64)
        return self._search(self._pages_of(asked), lambda found: pc.is_in(found, asked))

    def pages_of(self, values: Sequence[Any] | pa.Array) -> npt.NDArray[np.bool_]:
        """For each page whether it can hold one of these values; errors as :meth:`is_in`."""
        asked = self._choices(values)
        return self._pages_of(asked) if len(asked) else np.zeros(self.num_pages, bool)

    def _choices(self, values: Sequence[Any] | pa.Array) -> pa.Array:
        asked = values if isinstance(values, pa.Array) else self._array(values)
        try:
            asked = asked.cast(self.value_type).drop_null().unique()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise InvalidArgumentError(f"a value does not fit the index's type {self.value_type}: {e}") from e
        return asked.take(pc.sort_indices(asked))

    def _pages_of(self, asked: pa.Array) -> npt.NDArray[np.bool_]:
        # A page is needed if its range has one of them: as many are below its max as, strictly, below its min, if not.
        # Bounds that are unknown keep a page.
        keep = np.ones(self.num_pages, bool)
        if (
            self.num_pages
            and not self._min.null_count
            and not self._max.null_count
            and not pt.is_floating(self._min.type)
        ):
            ranks = pc.rank(pa.concat_arrays([asked, self._min, self._max]), tiebreaker="dense").to_numpy()
            of = np.split(ranks, [len(asked), len(asked) + self.num_pages])
            keep = np.searchsorted(of[0], of[2], "right") > np.searchsorted(of[0], of[1], "left")
        return keep

    def is_null(self) -> RowIds:
        """Rows without a value, or with an empty one, which the format takes for the same.

        Raises ``InvalidArgumentError`` for types of which an index cannot keep nulls: all but texts and bytes.
        """
        if not types.is_variable(self.value_type):
            raise InvalidArgumentError(f"an index of {self.value_type} does not know nulls", help="read the column")
        return self._search(self._nulls > 0, pc.is_null)

    def read(self) -> pa.Table:
        """All values with their row ids, in order: what an index that takes in more rows begins with."""
        batches = [self._data.read_batch(i) for i in range(self._data.num_batches)]
        return pa.Table.from_batches(batches, self._data.schema.to_arrow())

    def _search(self, keep: npt.NDArray[np.bool_], match: Any) -> RowIds:
        found = []
        for page in self._pages[keep].tolist():
            batch = self._data.read_batch(page)
            found.append(batch.column(1).filter(pc.fill_null(match(batch.column(0)), False)).to_numpy())
        return np.sort(np.concatenate([np.empty(0, np.uint64), *found]))

    def _scalar(self, bound: Bound | None) -> pa.Scalar | None:
        if bound is None:
            return None
        return self._array([bound.value])[0]

    def _array(self, values: Sequence[Any]) -> pa.Array:
        plain = [v.as_py() if isinstance(v, pa.Scalar) else v for v in values]
        try:
            return pa.array(plain, self.value_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as e:
            raise InvalidArgumentError(f"a value does not fit the index's type {self.value_type}: {e}") from e


def _may(mask: pa.Array) -> npt.NDArray[np.bool_]:
    result: npt.NDArray[np.bool_] = pc.fill_null(mask, True).to_numpy(zero_copy_only=False)
    return result


def _is_nan(array: pa.Array) -> npt.NDArray[np.bool_]:
    if not pt.is_floating(array.type):
        return np.zeros(len(array), bool)
    result: npt.NDArray[np.bool_] = pc.fill_null(pc.is_nan(array), True).to_numpy(zero_copy_only=False)
    return result


def _between(
    values: pa.Array, low: Bound | None, above: pa.Scalar | None, high: Bound | None, below: pa.Scalar | None
) -> pa.Array:
    keep = pc.is_valid(values)
    if low is not None:
        after = (pc.greater_equal if low.inclusive else pc.greater)(values, above)
        keep = pc.and_(keep, pc.or_(after, pc.is_nan(values)) if pt.is_floating(values.type) else after)
    if high is not None:
        keep = pc.and_(keep, (pc.less_equal if high.inclusive else pc.less)(values, below))
    return keep


def train(store: Store, folder: str, rows: pa.Table) -> int:
    """Write an index of some rows.

    Parameters
    ----------
    store, folder: where its files will be, ``_indices/<uuid>``.
    rows: two columns: values of the column, and uint64 row ids.

    Nulls of types other than texts and bytes are left out.  Returns the number of rows.  Raises
    ``InvalidArgumentError`` for types that have no order.
    """
    table = rows.rename_columns(["values", "row_ids"])
    kind = table.schema.field(0).type
    if pt.is_dictionary(kind):
        kind = kind.value_type
        table = table.set_column(0, "values", table["values"].cast(kind))
    if pt.is_nested(kind) or pt.is_null(kind):
        raise InvalidArgumentError(f"values of type {kind} have no order", help="index a column of single values")
    if not types.is_variable(kind):
        table = table.filter(pc.is_valid(table["values"]))  # in the index's file they would be zeros
    order = pc.sort_indices(table, [("values", "ascending"), ("row_ids", "ascending")])
    table = table.take(order).combine_chunks()
    column = pa.field("values", kind)
    data_schema = pa.schema([column, pa.field("row_ids", pa.uint64())])
    lookup: list[tuple[pa.Scalar, pa.Scalar, int]] = []
    empty = pa.scalar(b"", pa.binary()).cast(kind) if types.is_variable(kind) else None
    with DataFileWriter(store, f"{folder}/{DATA}", LanceSchema.from_arrow(data_schema), statistics=False) as writer:
        for batch in table.cast(data_schema).to_batches(max_chunksize=PAGE_ROWS):
            values = batch.column(0)
            valid = values.drop_null()
            # A page of nothing but nulls: texts that are empty, in front of all others.
            ends = (valid[0], valid[-1]) if len(valid) else (empty, empty)
            lookup.append((*ends, values.null_count))
            writer.write(batch)
    lows, highs, nulls = (list(part) for part in zip(*lookup, strict=True)) if lookup else ([], [], [])
    lookup_schema = pa.schema(
        [
            pa.field(n, t, nullable=False)
            for n, t in zip(LOOKUP_COLUMNS, (kind, kind, pa.uint32(), pa.uint32()), strict=True)
        ]
    )
    pages = [
        pa.array(lows, kind),
        pa.array(highs, kind),
        pa.array(nulls, pa.uint32()),
        pa.array(range(len(lookup)), pa.uint32()),
    ]
    schema = LanceSchema.from_arrow(lookup_schema)
    with DataFileWriter(store, f"{folder}/{LOOKUP}", schema, statistics=False) as writer:
        writer.write(pa.RecordBatch.from_arrays(pages, schema=lookup_schema))
    return int(table.num_rows)
