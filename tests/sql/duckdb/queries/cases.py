"""Two tables, and queries over them of which Spark's answers are recorded."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

_N = 12
_TEXTS = ["apple", "Banana", " cherry ", "a,b,c", "", "ÄÖ", "x%y_z"]
_FLOATS = [float("nan"), -0.0, 0.0, 1.5, -2.25, None, float("inf"), 1e300, 3.0, 2.5, -float("inf"), 0.1]
_START = dt.datetime(2024, 2, 29, 23, 59, 58, 123456, tzinfo=dt.UTC)


def _list(k: int) -> list[int | None] | None:
    return {1: None, 2: [], 3: [k, None, k + 1]}.get(k, list(range(k % 4)))


#: The table ``{t}``: each type, with nulls.
T = pa.table(
    {
        "id": pa.array(range(_N), pa.int64()),
        "i": pa.array([None if k % 5 == 4 else k * 3 - 7 for k in range(_N)], pa.int32()),
        "s": [None if k % 4 == 3 else _TEXTS[k % 7] for k in range(_N)],
        "f": pa.array(_FLOATS),
        "dec": pa.array([None if k == 3 else decimal.Decimal(k * 111) / 100 for k in range(_N)], pa.decimal128(10, 2)),
        "d": pa.array([None if k == 2 else dt.date(2024, 1, 31) + dt.timedelta(days=37 * k) for k in range(_N)]),
        "ts": pa.array(
            [None if k == 1 else _START + dt.timedelta(hours=7 * k) for k in range(_N)], pa.timestamp("us", "UTC")
        ),
        "b": [None if k % 3 == 2 else k % 2 == 0 for k in range(_N)],
        "l": pa.array([_list(k) for k in range(_N)], pa.list_(pa.int64())),
        "m": pa.array(
            [{1: None, 2: []}.get(k, [("a", k), ("b", None)]) for k in range(_N)], pa.map_(pa.string(), pa.int64())
        ),
        "st": [None if k == 4 else {"x": k, "y": f"v{k}"} for k in range(_N)],
    }
)
#: The table ``{u}``.
U = T.slice(0, 6).select(["id", "i", "s"]).append_column("w", pa.array([10, 20, 30, None, 50, 60], pa.int64()))

_FOLDER = Path(__file__).parent
ANSWERS = _FOLDER / "answers.json"
_WHOLE = re.compile(r"GROUP BY|ORDER BY|DISTINCT|LATERAL|UNION|VALUES|JOIN|OVER|PIVOT|SELECT.*SELECT")
_SEVERAL = re.compile(r"SELECT (.*?)( FROM \{t\}(?: WHERE .*)?)?")


def queries() -> Iterator[str]:
    """All queries, each once."""
    lines = (_FOLDER / "queries.sql").read_text().splitlines()
    yield from dict.fromkeys(q for line in lines if not line.startswith("--") for q in _split(line))


def _split(line: str) -> list[str]:
    found = _SEVERAL.fullmatch(line)
    if found is None or _WHOLE.search(line):
        return [line]
    items, depth, start, quote = [], 0, 0, ""
    text = found[1]
    skipped = False
    for at, char in enumerate(text):
        if skipped:
            skipped = False
        elif quote:
            skipped = char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and not depth:
            items.append(text[start:at].strip())
            start = at + 1
    return [f"SELECT {item}{found[2] or ''}" for item in (*items, text[start:].strip())]


def shown(rows: pa.Table, query: str) -> dict[str, Any]:
    """An answer as it is recorded: types, and rows as texts, sorted where the query does not order them."""
    named = rows.rename_columns([str(i) for i in range(rows.num_columns)])
    texts = [repr([_plain(v) for v in row.values()]) for row in named.to_pylist()]
    ordered = "ORDER BY" in query and "OVER" not in query and "WITHIN" not in query
    return {"types": [_type(t) for t in rows.schema.types], "rows": texts if ordered else sorted(texts)}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.12g}")
    if isinstance(value, dt.datetime):
        return value.isoformat() if value.tzinfo is None else value.astimezone(dt.UTC).isoformat()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return bytes(value).hex() if isinstance(value, bytes | bytearray) else value


def _type(t: pa.DataType) -> str:
    if pa.types.is_list(t):
        return f"array<{_type(t.value_type)}>"
    if pa.types.is_map(t):
        return f"map<{_type(t.key_type)},{_type(t.item_type)}>"
    if pa.types.is_struct(t):
        return f"struct<{','.join(f'{f.name}:{_type(f.type)}' for f in t)}>"
    return str(t).replace("large_", "").replace("_view", "")
