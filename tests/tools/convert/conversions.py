"""Create and read tables of every format by path."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

import trilake
from trilake.storage import open_store
from trilake.tools.convert.run import open_source

FORMATS = ["delta", "lance", "trevni", "parquet"]
UTC = dt.UTC


def make(table: pa.Table, format: str, where: str, **more: Any) -> str:
    """Create a table of a format with these rows."""
    if format == "parquet":
        pads.write_dataset(table, where, format="parquet", **more)
    elif format == "lance":
        trilake.write(table, where, format="lance", properties={"nulls": "mask"}, **more)
    else:
        trilake.write(table, where, format=format, **more)
    return where


def read(where: str, format: str | None = None, **more: Any) -> pa.Table:
    """The rows at a path, as ``convert`` reads them."""
    arguments = {"format": format, "version": None, "timestamp": None, "columns": None, "filter": None, **more}
    source = open_source(open_store(where), **arguments)
    batches = [b for piece in source.whole for b in piece()]
    schema = pa.schema([f.with_nullable(True) for f in source.schema])
    return pa.Table.from_batches([b.cast(schema) for b in batches], schema=schema)


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    def rows(table: pa.Table) -> list[str]:
        names = sorted(table.column_names)
        return sorted(repr([(n, r[n]) for n in names]) for r in table.to_pylist())

    return rows(one) == rows(other)


ROWS = pa.table(
    {
        "n": pa.array([1, 2, 3, 4], pa.int64()),
        "b": pa.array([1, None, 3, 4], pa.int8()),
        "s": ["a", None, "x", "y"],
        "f": [1.5, None, -0.0, float("inf")],
        "e": pa.array([0.25, 1.0, None, 2.0], pa.float32()),
        "o": [True, False, None, True],
        "d": pa.array([Decimal("1.50"), None, Decimal("-2.25"), None], pa.decimal128(20, 2)),
        "t": pa.array([dt.datetime(2020, 1, 1, 1, 2, 3, 456789, UTC), None, None, None], pa.timestamp("us", "UTC")),
        "u": pa.array([dt.datetime(1960, 1, 1, 1, 2, 3, 4), None, None, None], pa.timestamp("us")),  # noqa: DTZ001
        "y": pa.array([dt.date(2024, 2, 29), None, dt.date(1, 1, 1), None]),
        "v": [b"q", None, b"a", b"\x00"],
        "l": [["x", "z"], None, [], ["z"]],
        "r": [{"a": 1, "c": "q"}, None, {"a": 2, "c": "p"}, {"a": 3, "c": "w"}],
        "p": ["x", "x", "q", "y"],
    }
)
