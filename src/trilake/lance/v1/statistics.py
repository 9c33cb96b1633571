"""Batch statistics: null count, minimum and maximum of each column, written with a data file.

In the file they are struct columns, named by field id in decimal, with one entry per batch; their pages and page table
are like those of data with a single batch.  Numbers, booleans, dates, decimals of 128 bits, strings and binaries have
statistics, at the top level and in structs.

Statistics of other writers need care, because the format stores no nulls: see :func:`trusted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as part
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from trilake.errors import CorruptFileError
from trilake.expr.pushdown import successor
from trilake.expr.skip import ColumnStats
from trilake.expr.terms.datatypes import Path
from trilake.lance.file import types
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.sources import Source
from trilake.lance.proto import format_pb2
from trilake.lance.v1.decode import Decoder
from trilake.lance.v1.pages import PageKind, PageTable, layout_of, outside_lists

#: Maximum bytes of a string in bounds.
PREFIX = 64

#: Rows to collect before their statistics are computed.
_PENDING_ROWS = 1 << 16


def has_statistics(each: Field) -> bool:
    """Whether a field gets statistics."""
    arrow = each.arrow_type
    return layout_of(each).kind is PageKind.VARIABLE or bool(
        pt.is_boolean(arrow)
        or pt.is_integer(arrow)
        or pt.is_float32(arrow)
        or pt.is_float64(arrow)
        or pt.is_date(arrow)
        or (pt.is_decimal128(arrow) and arrow.scale >= 0)  # Arrow does not compare decimals of negative scale
    )


@dataclass
class Collector:
    """The statistics of one field, batch by batch."""

    field: Field
    nulls: list[int] = part(default_factory=list)
    least: list[Any] = part(default_factory=list)
    greatest: list[Any] = part(default_factory=list)
    _pending: list[pa.Array] = part(default_factory=list)
    _rows: int = 0

    def add(self, array: pa.Array) -> None:
        """Add the next batch; numbers without nulls wait for others, as one numpy call for all takes less time."""
        arrow = self.field.arrow_type
        if not array.null_count and (pt.is_integer(arrow) or pt.is_floating(arrow)) and len(array):
            self._pending.append(array)
            self._rows += len(array)
            if self._rows >= _PENDING_ROWS:
                self._note_pending()
            return
        self._note_pending()
        self._add(array)

    def _note_pending(self) -> None:
        pending, self._pending, self._rows = self._pending, [], 0
        if not pending:
            return
        values = np.concatenate([a.to_numpy() for a in pending])
        starts = np.cumsum([0, *map(len, pending[:-1])])
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        if values.dtype.kind == "f" and np.isnan(low).any():
            for array in pending:
                self._add(array)
            return
        self.nulls += [0] * len(pending)
        if values.dtype.kind == "f":
            # -0.0 equals 0.0: the bounds must include both.
            low, high = np.where(low == 0, -0.0, low), np.where(high == 0, 0.0, high)
        self.least += low.tolist()
        self.greatest += high.tolist()

    def _add(self, array: pa.Array) -> None:
        arrow = self.field.arrow_type
        self.nulls.append(array.null_count)
        if layout_of(self.field).kind is PageKind.VARIABLE:
            low, high = _text_bounds(array, is_text=types.is_text(arrow))
        elif pt.is_floating(arrow):
            low, high = _float_bounds(array)
        elif pt.is_integer(arrow) and not array.null_count:
            values = array.to_numpy()
            low, high = int(values.min()), int(values.max())
        else:
            bounds = pc.min_max(array)
            low, high = bounds["min"], bounds["max"]
            # Arrow's dates have a wider range than Python's.
            low, high = (b.value if pt.is_date(arrow) else b.as_py() for b in (low, high))
            if low is None:
                low, high = _widest(arrow)
        self.least.append(low)
        self.greatest.append(high)

    def arrays(self) -> pa.StructArray:
        """Build the statistics of all batches."""
        self._note_pending()
        arrow = self.field.arrow_type
        nullable = self.field.nullable or None in self.least or None in self.greatest
        fields = [pa.field(name, arrow, nullable) for name in ("min_value", "max_value")]
        fields.insert(0, pa.field("null_count", pa.int64(), nullable=False))
        values = [pa.array(self.nulls, pa.int64()), pa.array(self.least, arrow), pa.array(self.greatest, arrow)]
        return pa.StructArray.from_arrays(values, fields=fields)


def _widest(arrow: pa.DataType) -> tuple[Any, Any]:
    """The bounds of a batch without values: the range of the type."""
    if pt.is_boolean(arrow):
        return False, True
    if not pt.is_integer(arrow):
        return None, None
    range_ = np.iinfo(arrow.to_pandas_dtype())
    return int(range_.min), int(range_.max)


def _float_bounds(array: pa.Array) -> tuple[float, float]:
    values = (array.drop_null() if array.null_count else array).to_numpy()
    if len(values) and np.isnan(values.min()):
        values = values[~np.isnan(values)]
    low, high = (values.min(), values.max()) if len(values) else (-np.inf, np.inf)
    # -0.0 equals 0.0: the bounds must include both.
    return float(low) if low else -0.0, float(high) if high else 0.0


def _text_bounds(array: pa.Array, *, is_text: bool) -> tuple[Any, Any]:
    bounds = pc.min_max(array)
    if not bounds["min"].is_valid:
        return None, None
    cut = [_cut(bounds[name].as_buffer().to_pybytes(), is_text) for name in ("min", "max")]
    low, high = (value.decode() for value in cut) if is_text else cut
    return low, successor(high) if _longest(array) > PREFIX else high


def _longest(array: pa.Array) -> int:
    """Bytes of the longest value; without nulls, numpy computes this faster than Arrow."""
    if array.null_count:
        return int(pc.max(pc.binary_length(array)).as_py())
    dtype: Any = np.int64 if types.is_large(array.type) else np.int32
    offsets = np.frombuffer(array.buffers()[1], dtype, len(array) + 1, array.offset * np.dtype(dtype).itemsize)
    return int(np.diff(offsets).max())


def _cut(value: bytes, is_text: bool) -> bytes:
    """Cut a value to at most 64 bytes, without splitting a character."""
    if len(value) <= PREFIX:
        return value
    end = PREFIX
    while is_text and value[end] & 0xC0 == 0x80:
        end -= 1
    return value[:end]


# --- reading ---------------------------------------------------------------------------------------------------------


def read_statistics(source: Source, metadata: format_pb2.Metadata.StatisticsMetadata, batches: int) -> pa.Table | None:
    """Read the statistics, one row per batch; see :meth:`trilake.lance.v1.data_file.V1File.statistics`."""
    if not metadata.schema or not metadata.fields:
        return None
    schema = LanceSchema.from_proto(metadata.schema, damaged=CorruptFileError, file=source.file)
    first, last = min(metadata.fields), max(metadata.fields)
    pages = PageTable.read(source, metadata.page_table_position, first, last, 1)
    if not all(pages.has(f.id) for f in schema.walk()):
        raise CorruptFileError("the page table of the statistics is incomplete", file=source.file)
    decoder = Decoder(source, pages, {})
    columns = {}
    for each in schema.fields:
        names = [c.name for c in each.children]
        if each.name.isdecimal() and names == ["null_count", "min_value", "max_value"]:
            decoder.check(each)
            columns[each.name] = decoder.column(each, 0, 0, batches, batches)
    return pa.table(columns) if columns else None


def trusted(
    statistics: pa.Table | None, schema: LanceSchema, rows: Sequence[int], mask_ids: Mapping[int, int] = {}
) -> Mapping[Path, ColumnStats]:
    """Derive statistics of the values as they are read, by column path.

    ``statistics`` have one row per batch, of one data file or several; ``rows`` are the rows of each batch;
    ``mask_ids`` are the field ids of companions by those of their columns.  A lost null reads as zero, which the bounds
    do not include; an empty string reads as null, which the null count does not include.
    """
    if statistics is None:
        return {}
    by_path: dict[Path, ColumnStats] = {}
    for path, each in outside_lists(schema):
        if str(each.id) not in statistics.column_names or not has_statistics(each):
            continue
        column = statistics[str(each.id)].combine_chunks()
        nulls, low, high = (column.field(i) for i in range(3))
        if nulls.type != pa.int64() or low.type != each.arrow_type or high.type != each.arrow_type:
            continue
        count: pa.Array | None
        if layout_of(each).kind is PageKind.VARIABLE:
            empty = pa.scalar("" if types.is_text(each.arrow_type) else b"", each.arrow_type)
            # Writers store an unknown maximum as an empty value, because the format has no nulls.
            high = pc.if_else(pc.equal(high, empty), pa.scalar(None, high.type), high)
            count = pa.array(np.zeros(len(nulls), np.int64))
            if each.nullable:
                exact = pc.or_(pc.fill_null(pc.greater(low, empty), False), pc.equal(nulls, pa.array(rows, pa.int64())))
                count = pc.if_else(exact, nulls, pa.scalar(None, pa.int64()))
        else:
            lost = pc.greater(nulls, 0)
            low, high = (pc.if_else(lost, pa.scalar(None, b.type), b) for b in (low, high))
            count = pa.array(np.zeros(len(nulls), np.int64))
        if each.id in mask_ids:
            if layout_of(each).kind is PageKind.VARIABLE:
                # A compaction copies stored values, and counts empty ones as nulls.
                low = pc.if_else(pc.greater(nulls, 0), pa.scalar(None, low.type), low)
            count = _masked_count(statistics, mask_ids[each.id], rows)
        by_path[path] = ColumnStats(min=low, max=high, null_count=count)
    return by_path


def _masked_count(statistics: pa.Table, mask_id: int, rows: Sequence[int]) -> pa.Array | None:
    """Null counts from the bounds of a companion: 0 if it is always false, all rows if it is always true."""
    if str(mask_id) not in statistics.column_names:
        return None
    column = statistics[str(mask_id)].combine_chunks()
    if not pt.is_boolean(column.type.field("min_value").type) or pc.max(column.field(0)).as_py():
        return None
    total = pa.array(rows, pa.int64())
    none = pa.scalar(None, pa.int64())
    return pc.if_else(column.field(2), pc.if_else(column.field(1), total, none), pa.scalar(0, pa.int64()))
