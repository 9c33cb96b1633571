"""Statistics of a data file without a footer: computed while its rows are written.

Protocol: *Per-file Statistics*.  The results equal those of :mod:`trilake.delta.files.file_statistics` for a Parquet
file with the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.files.file_statistics import StatisticsPlan, bound_converter, put_at, type_at


@dataclass
class _Column:
    """The statistics of a leaf column so far."""

    type: pa.DataType
    nulls: int = 0
    low: Any = None
    high: Any = None
    #: Whether some value has no order or is outside Python's range: then there are no bounds.
    unknown: bool = False
    with_nan: bool = False

    def add(self, values: pa.ChunkedArray) -> None:
        self.nulls += values.null_count
        if self.unknown or values.null_count == len(values):
            return
        if pa.types.is_floating(self.type):
            nan = pc.is_nan(values)
            if pc.any(nan).as_py():
                self.with_nan = True
                values = values.filter(pc.invert(nan))
                if values.null_count == len(values):
                    return
        try:
            bounds = pc.min_max(values)
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
        except (pa.ArrowNotImplementedError, ValueError, OverflowError):  # such as the year 10000
            self.unknown = True
            return
        self.low = low if self.low is None else min(low, self.low)
        self.high = high if self.high is None else max(high, self.high)


@dataclass
class RowStatistics:
    """The statistics of one file.

    Parameters
    ----------
    schema: of the file's rows, under physical names.
    which: which columns get statistics.

    >>> statistics = RowStatistics(pa.schema({"n": pa.int64()}), StatisticsPlan())
    >>> statistics.add(pa.table({"n": [3, None, 1]}))
    >>> statistics.json()
    '{"numRecords":3,"minValues":{"n":1},"maxValues":{"n":3},"nullCount":{"n":1}}'
    """

    schema: pa.Schema
    which: StatisticsPlan
    rows: int = 0
    _columns: dict[tuple[str, ...], _Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        paths = [path for path in self.which.indexed(self.schema) if path is not None]
        for path in paths:
            type_ = type_at(self.schema, path)
            self._columns[path] = _Column(type_, unknown=bound_converter(type_) is None)

    def add(self, table: pa.Table) -> None:
        """Add rows, whose columns are in the order of the schema."""
        self.rows += table.num_rows
        for path, column in self._columns.items():
            values = table.column(self.schema.get_field_index(path[0]))
            for name in path[1:]:
                values = pc.struct_field(values, name)
            column.add(values)

    def json(self) -> str:
        """The ``stats`` JSON."""
        minimum: dict[str, Any] = {}
        maximum: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for path, column in self._columns.items():
            put_at(nulls, path, column.nulls)
            convert = bound_converter(column.type)
            if column.unknown or convert is None or column.low is None:
                continue
            low, high = convert(column.low, False), convert(column.high, True)
            if low is not None:
                put_at(minimum, path, low)
            if high is not None and not column.with_nan:
                put_at(maximum, path, high)
        stats = {"numRecords": self.rows, "minValues": minimum, "maxValues": maximum, "nullCount": nulls}
        return orjson.dumps(stats).decode()
