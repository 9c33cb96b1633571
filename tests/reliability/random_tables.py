"""Random rows of every type, with extreme values."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from random import Random
from typing import Any

import pyarrow as pa

from tests.reliability.conditions import Row

UTC = dt.UTC
TYPES: dict[str, pa.DataType] = {
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
    "boolean": pa.bool_(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    "decimal(38,10)": pa.decimal128(38, 10), "decimal(38,0)": pa.decimal128(38, 0), "decimal(9,2)": pa.decimal128(9, 2),
    "struct": pa.struct([("x", pa.int32()), ("y", pa.string())]),
    "list": pa.list_(pa.float64()), "map": pa.map_(pa.string(), pa.int64()),
}  # fmt: skip
NESTED = ("struct", "list", "map")
_TEXTS = (
    *("", "a", "A", "ab", "b", "é", "e\u0301", "ß", "日本", "𝔘", "\u202e", "\U0010ffff", "\uffff", "a%b", "a_b", "0"),
    *("it's", '"', "back\\slash", "tab\t", "line\nbreak", "null", "__HIVE_DEFAULT_PARTITION__", " ", "x" * 100),
)
_DAYS = (
    *((1, 1, 1), (1582, 10, 4), (1582, 10, 15), (1899, 12, 31), (1900, 1, 1), (1969, 12, 31), (1970, 1, 1)),
    *((2000, 2, 29), (2024, 5, 17), (9999, 12, 31)),
)
_FLOATS = (0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 5e-324, -5e-324, 1e-45, 3.4028234663852886e38,
           1.7976931348623157e308, 0.1, 1e16, -1e-300)  # fmt: skip


def random_value(kind: str, random: Random) -> Any:
    """Return a random value, null one time out of seven."""
    if random.random() < 0.15:
        return None
    if kind.startswith("int"):
        bits = int(kind[3:])
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        known = [v for v in (2**53, 2**53 + 1, low, low + 1, high, high - 1, -1, 0, 1, 7) if low <= v <= high]
        return random.choice(known) if random.random() < 0.6 else random.randrange(-100, 100)
    if kind == "float":
        value = random.choice(_FLOATS)
        return pa.scalar(value, pa.float32()).as_py() if random.random() < 0.7 else random.randrange(-64, 64) / 8
    if kind == "double":
        return random.choice(_FLOATS) if random.random() < 0.7 else random.randrange(-64, 64) / 8
    if kind == "string":
        return random.choice(_TEXTS) if random.random() < 0.7 else chr(random.randrange(0x20, 0xD800)) * 3
    if kind == "binary":
        return random.choice((b"", b"\0", b"\xff\xfe", b"abc", random.randbytes(3)))
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "date":
        return (
            dt.date(*random.choice(_DAYS))
            if random.random() < 0.6
            else dt.date.fromordinal(random.randrange(1, 3_652_060))
        )
    if kind.startswith("timestamp"):
        zone = UTC if kind == "timestamp" else None
        time = random.choice((dt.time(0, 0), dt.time(23, 59, 59, 999_999), dt.time(12, 30, 0, 1)))
        return dt.datetime.combine(dt.date(*random.choice(_DAYS)), time, tzinfo=zone)
    if kind.startswith("decimal"):
        return _decimal(kind, random)
    if kind == "struct":
        return {"x": random_value("int32", random), "y": random_value("string", random)}
    if kind == "list":
        return [random_value("double", random) for _ in range(random.randrange(3))]
    return list({random.choice("abcé"): random_value("int64", random) for _ in range(random.randrange(3))}.items())


def _decimal(kind: str, random: Random) -> Decimal:
    digits, scale = map(int, kind[8:-1].split(","))
    most = 10**digits - 1
    unscaled = random.choice((0, 1, -1, most, -most, most - 1, 15 * 10**scale // 10, random.randrange(-most, most + 1)))
    with localcontext() as context:
        context.prec = 60
        return Decimal(unscaled).scaleb(-scale)


def arrow(rows: Sequence[Row], kinds: dict[str, str]) -> pa.Table:
    """Convert rows to Arrow."""
    schema = pa.schema([(name, TYPES[kind]) for name, kind in kinds.items()])
    return pa.Table.from_pydict({name: [r[name] for r in rows] for name in kinds}, schema=schema)


def canonical(value: Any) -> Any:
    """Return a value that is equal for identical values only: NaN equals NaN, -0.0 differs from 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, dict):
        return tuple(canonical(v) for v in value.values())
    if isinstance(value, list | tuple):
        return tuple(canonical(v) for v in value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value


def rows_of(table: pa.Table) -> dict[int, tuple[Any, ...]]:
    """Return rows by id in any order; raise for duplicate ids."""
    result: dict[int, tuple[Any, ...]] = {}
    names = table.column_names
    for row in table.to_pylist():
        assert row["id"] not in result, f"id {row['id']} is there twice"
        result[row["id"]] = tuple(canonical(row[n]) for n in sorted(names))
    return result
