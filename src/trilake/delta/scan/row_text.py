"""Format rows for messages."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

#: The most characters of a value.
_SHOWN = 100


def row_at(batch: pa.RecordBatch, at: int) -> dict[str, Any]:
    """One row as Python values."""
    row: dict[str, Any] = pa.Table.from_batches([batch.slice(at, 1)]).to_pylist()[0]
    return row


def describe_row(row: Mapping[str, Any], columns: Iterable[str] | None = None) -> str:
    """Format the values of a row: those of ``columns``, or the first twenty; long values are cut.

    >>> describe_row({"a": None, "b": "x" * 200}, ["a"])
    'a = null'
    """
    names = [name for name in row if columns is None or name in columns]
    values = [f"{name} = {shorten_string(_value(row[name]), _SHOWN)}" for name in names[:20]]
    return ", ".join(values) + (f" and {len(names) - 20} more columns" if len(names) > 20 else "") or "no columns"


def _value(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat(" ").replace("+00:00", "Z")
    return "null" if value is None else str(value) if isinstance(value, dt.date | Decimal | bool) else repr(value)


def shorten_string(string: str, length: int) -> str:
    """Cut a string to a length, with an ellipsis."""
    return string if len(string) <= length else string[: length - 3] + "..."
