"""Statistics of a data file whose format has no footer to take them from: noted as its rows go by.

Protocol: *Per-file Statistics*.  What is stated is what :mod:`trilake.delta.files.file_statistics` states of a Parquet
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
    """What was seen of a leaf column."""

    type: pa.DataType
    nulls: int = 0
    low: Any = None
    high: Any = None
    #: Whether some value has no order, or none that Python can hold: then nothing is said of bounds.
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

    >>> found = RowStatistics(pa.schema({"n": pa.int64()}), StatisticsPlan())
    >>> found.add(pa.table({"n": [3, None, 1]}))
    >>> found.json()
    '{"numRecords":3,"minValues":{"n":1},"maxValues":{"n":3},"nullCount":{"n":1}}'
    """

    schema: pa.Schema
    which: StatisticsPlan
    rows: int = 0
    _columns: dict[tuple[str, ...], _Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wanted = [path for path in self.which.wanted(self.schema) if path is not None]
        for path in wanted:
            type_ = type_at(self.schema, path)
            self._columns[path] = _Column(type_, unknown=bound_converter(type_) is None)

    def add(self, table: pa.Table) -> None:
        """Note rows, whose columns are in the order of the schema."""
        self.rows += table.num_rows
        for path, column in self._columns.items():
            values = table.column(self.schema.get_field_index(path[0]))
            for name in path[1:]:
                values = pc.struct_field(values, name)
            column.add(values)

    def json(self) -> str:
        """The text of the ``stats`` field."""
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
