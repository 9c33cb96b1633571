# ruff: noqa: DTZ001 - times without a zone are a distinct type here
"""Partition values in the spellings of any writer, for an oracle that compares values."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import numpy as np

#: Types of partition columns, with values of which some are close and some are equal.
VALUES: dict[str, list[Any]] = {
    "string": ["a", "A", "a ", "null", "1", "ä", "a/b"],
    "integer": [0, 1, -1, 7, 10],
    "long": [0, 1, -(2**63), 2**63 - 1],
    "boolean": [True, False],
    "double": [0.0, -0.0, 1e-7, 2.5e-9, 1e16, 0.1, math.nan, math.inf, -math.inf],
    "float": [0.0, -0.0, *(float(np.float32(v)) for v in (0.1, 1e12)), math.nan, math.inf],
    "decimal(20,10)": [Decimal(0), Decimal(5), Decimal("0.0000001"), Decimal("-5.5")],
    "date": [dt.date(2024, 5, 1), dt.date(2024, 5, 2), dt.date(1, 1, 1)],
    "timestamp": [
        dt.datetime(2024, 5, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 5, 1, 0, 0, 0, 500000, dt.UTC),
        dt.datetime(1900, 1, 1, 12, tzinfo=dt.UTC),
    ],
    "timestamp_ntz": [dt.datetime(2024, 5, 1), dt.datetime(2024, 5, 1, 12, 30, 0, 90000), dt.datetime(1900, 1, 1)],
    "binary": [b"a", b"\x01\xfe", b"A"],
}


def key(value: Any) -> Any:
    """Return a key that is equal for values of one partition: null, NaN and zero are one value each, as in Spark."""
    if isinstance(value, float) and (value != value or value == 0):
        return "NaN" if value != value else 0.0
    return value


def spell(type_: str, value: Any, rng: random.Random) -> str | None:
    """Return a random spelling of a value."""
    if value is None:
        return rng.choice([None, ""])
    if type_ == "string":
        return str(value)
    if type_ == "boolean":
        return rng.choice([str(value), str(value).lower(), str(value).upper()])
    if type_ in ("integer", "long"):
        digits = rng.choice(["", "0", "00"]) + str(abs(value))
        return ("-" if value < 0 else rng.choice(["", "+"])) + digits
    if type_ in ("double", "float"):
        return _float(value, rng)
    if type_.startswith("decimal"):
        plain = f"{value:f}"
        point = "" if "." in plain else "."
        return rng.choice([plain, f"{value:.10f}", f"{plain}{point}00", f"{value:E}", f"{value}"])
    if type_ == "date":
        return rng.choice([value.isoformat(), f"{value.year:04d}-{value.month}-{value.day}"])
    if type_ == "binary":
        escaped = "".join(rng.choice([f"\\u{b:04x}", f"\\u{b:04X}"]) for b in value)
        try:
            return rng.choice([escaped, value.decode()])
        except UnicodeDecodeError:
            return escaped
    return _time(value, rng)


def _float(value: float, rng: random.Random) -> str:
    if value != value:
        return rng.choice(["NaN", "nan"])
    if math.isinf(value):
        return ("-" if value < 0 else "") + rng.choice(["Infinity", "inf", "INF"])
    return rng.choice([repr(value), f"{value:E}", f"{value:.12f}" if 1e-12 < abs(value) < 1e6 else repr(value)])


def _time(value: dt.datetime, rng: random.Random) -> str:
    hours = 0
    if value.tzinfo is not None and value.year > 1:
        hours = rng.choice([0, 0, 2, -8])
    local = (value + dt.timedelta(hours=hours)).replace(tzinfo=None)
    text = local.isoformat(rng.choice([" ", "T"]), timespec="microseconds")
    whole = text.rstrip("0").rstrip(".") if "." in text else text
    text = rng.choice([text, whole, text + "000"])
    if hours:
        return text + rng.choice([f"{hours:+03d}:00", f"{hours:+03d}00"])
    return text + (rng.choice(["", "Z", "+00:00"]) if value.tzinfo is not None else "")
