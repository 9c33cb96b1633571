"""Convert Arrow columns to JSON values, and values and actions of a log to strings.

Names, values and messages come from untrusted files, so strings are escaped before they are printed:
:func:`trilake.common.text.hides` decides which characters.

JSON has no timestamps, decimals, bytes or NaN, so these become strings: timestamps and intervals in ISO format (UTC
with a ``Z``), decimals as digits, bytes in base64, ``NaN``, ``Infinity`` and ``-Infinity``.  A map is a list of
``{"key", "value"}``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import is_binary, is_list
from trilake.common.text import format_size, hides, plural, printable


def python_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as JSON values.

    >>> python_values(pa.array([1.5, float("nan"), None]))
    [1.5, 'NaN', None]
    >>> python_values(pa.array([0, None], pa.timestamp("us", "Europe/Berlin")))
    ['1970-01-01T00:00:00.000000Z', None]
    """
    if isinstance(array, pa.ChunkedArray):
        return [v for chunk in array.chunks for v in python_values(chunk)]
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return python_values(array.storage)
    if pa.types.is_dictionary(kind):
        return python_values(array.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return python_values(pc.run_end_decode(array))
    if pa.types.is_floating(kind):
        return _floats(array)
    if is_binary(kind):
        return [None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()]
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return _as_text(array)
    if pa.types.is_struct(kind):
        names = [f.name for f in kind]
        columns = [python_values(child) for child in array.flatten()]
        rows = list(zip(*columns, strict=True)) if columns else [()] * len(array)
        return [
            dict(zip(names, row, strict=True)) if valid else None
            for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_map(kind):
        entries = python_values(pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"]))
        spans = zip(array.offsets.to_pylist(), array.offsets[1:].to_pylist(), array.is_valid().to_pylist())
        return [entries[start:end] if valid else None for start, end, valid in spans]
    if is_list(kind):
        elements = iter(python_values(array.flatten()))
        return [None if n is None else list(islice(elements, n)) for n in pc.list_value_length(array).to_pylist()]
    values: list[Any] = array.to_pylist()
    return values


def _floats(array: pa.Array) -> list[Any]:
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    if pa.types.is_float32(array.type):
        # 0.1, not the exact digits of the nearest double.
        array = array.cast(pa.string()).cast(pa.float64()) if len(array) else array.cast(pa.float64())
    values: list[Any] = array.to_pylist()
    return [v if v is None or math.isfinite(v) else _NOT_FINITE.get(v, "NaN") for v in values]


_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def _as_text(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_timestamp(kind):
        zone = "Z" if kind.tz is not None else ""
        # In UTC, as the zone may be unknown here.
        plain = array.cast(pa.timestamp(kind.unit)).cast(pa.string())
        # Arrow formats years out of range as "<value out of range: ...>".
        return [t if t is None or t[0] == "<" else t.replace(" ", "T", 1) + zone for t in plain.to_pylist()]
    if pa.types.is_date64(kind):
        array = array.cast(pa.date32())
    if pa.types.is_duration(kind):
        return [None if n is None else f"{n} {kind.unit}" for n in array.cast(pa.int64()).to_pylist()]
    if pa.types.is_interval(kind):
        return [None if v is None else _interval(v) for v in array.to_pylist()]
    strings: list[Any] = array.cast(pa.string()).to_pylist()
    return strings


def _interval(value: Any) -> str:
    """Format months, days and nanoseconds in ISO format, such as ``P14M-3DT1.5S``."""
    whole, part = divmod(abs(value.nanoseconds), 10**9)
    seconds = f"{'-' if value.nanoseconds < 0 else ''}{whole}" + (f".{part:09d}".rstrip("0") if part else "")
    return f"P{value.months}M{value.days}DT{seconds}S"


def distinct_names(names: list[str]) -> list[str]:
    """Make names unique: a second ``a`` becomes ``a_1``.

    >>> distinct_names(["a", "b", "a", "a_1"])
    ['a', 'b', 'a_2', 'a_1']
    """
    out: list[str] = []
    originals = set(names)
    for name in names:
        unique, number = name, 0
        while unique in out or (number and unique in originals):
            number += 1
            unique = f"{name}_{number}"
        out.append(unique)
    return out


def objects(batch: pa.RecordBatch | pa.Table) -> Iterator[dict[str, Any]]:
    """The rows as objects of JSON values."""
    names = distinct_names(list(batch.schema.names))
    columns = [python_values(column) for column in batch.columns]
    if not columns:
        yield from ({} for _ in range(batch.num_rows))
        return
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def to_json_string(value: Any, *, indent: int | None = None) -> str:
    """Format a value as JSON that is safe to print.

    >>> to_json_string({"a": float("inf"), "b": b"x"})
    '{"a": "Infinity", "b": "eA=="}'
    """
    try:
        string = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, default=_as_json)
    except ValueError:
        string = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, indent=indent, default=_as_json)
    return printable_json(string)


def printable_json(string: str) -> str:
    r"""Escape JSON for a terminal; its value stays the same.

    >>> printable_json('{"a": "x\u202e\x9b"}')
    '{"a": "x\\u202e\\u009b"}'
    """
    return "\n".join(
        line if line.isprintable() else "".join(_json_escape(c) if hides(c) else c for c in line)
        for line in string.split("\n")
    )


def _json_escape(character: str) -> str:
    if character in "\t\r":  # layout: inside strings, JSON escapes them
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _as_json(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return _NOT_FINITE.get(value, "NaN")
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def cell(value: Any) -> str:
    r"""Format a value as a cell, on one line.

    >>> cell(None), cell(True), cell("a\nb"), cell({"k": [1, "x"]})
    ('null', 'true', 'a\\nb', '{"k": [1, "x"]}')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list | tuple):
        return printable(json.dumps(value, ensure_ascii=False, default=str))
    return printable(str(value))


def log_lines(entries: Iterable[dict[str, Any]], most: int) -> Iterator[str]:
    """Format log entries: a line per version, followed by at most ``most`` actions; 0 for all."""
    for entry in entries:
        yield f"version {entry['version']}  {printable(entry['file'])}"
        actions = entry["actions"]
        for name, content in (pair for action in actions[: most or None] for pair in action.items()):
            yield f"  {printable(name):<14} {_action(name, content)}"
        if most and len(actions) > most:
            yield f"  ... and {plural(len(actions) - most, 'more action')} (--actions 0 shows all)"


def _action(name: str, content: Any) -> str:
    if not isinstance(content, dict):
        return cell(content)
    if name in ("add", "remove", "cdc"):
        return "  ".join(_file_facts(content))
    facts = ((printable(str(k)), cell(v)) for k, v in content.items() if v not in (None, {}, []))
    return "  ".join(
        f"{k}={v}" if len(v) <= 300 else f"{k}={v[:300]}... ({len(v):,} characters; --json shows all)" for k, v in facts
    )


def _file_facts(action: dict[str, Any]) -> Iterator[str]:
    yield cell(action.get("path"))
    if isinstance(size := action.get("size"), int):
        yield format_size(size)
    try:
        rows = orjson.loads(action["stats"]).get("numRecords") if isinstance(action.get("stats"), str) else None
    except (orjson.JSONDecodeError, AttributeError):
        rows = None
    if rows is not None:
        yield f"{cell(rows)} rows"
    if vector := action.get("deletionVector"):
        yield f"{cell(vector.get('cardinality') if isinstance(vector, dict) else vector)} rows deleted"
    if action.get("dataChange") is False:
        yield "no data change"
