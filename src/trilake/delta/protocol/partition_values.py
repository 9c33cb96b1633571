"""Values of partition columns as strings: parse those of the log, and format values for it, by type.

Protocol: *Partition Value Serialization*.  ``parse_...`` takes distinct strings and the Arrow type of the column, and
raises ``pa.ArrowException``, ``ValueError`` or ``OverflowError`` for a string that is not a value of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from trilake.common.compute import pc
from trilake.expr.terms.literals import format_date, format_timestamp, parse_date, parse_timestamp

#: Values of a partition column.
Values: TypeAlias = pa.Array | pa.ChunkedArray

#: Years before 0 and after 9999, which Arrow cannot parse; such strings are rare.
_FAR_YEAR = r"^(?:[+-]|\d{5,}-)"
_ESCAPED_BYTES = re.compile(r"(?:\\u[0-9A-Fa-f]{4})+")


def parse_strings(strings: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse values that are stored as they are, or that Arrow parses."""
    return strings.cast(target)


def parse_binaries(strings: pa.Array, target: pa.DataType) -> pa.Array:
    r"""Parse bytes: UTF-8, or escaped as ``\u0001``."""
    return pa.array([_binary(t) for t in strings.to_pylist()], target)


def parse_booleans(strings: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse booleans, which writers spell in several ways."""
    words = pc.replace_substring_regex(pc.utf8_lower(_trimmed(strings)), "^(?:t|y|yes)$", "true")
    return pc.replace_substring_regex(words, "^(?:f|n|no)$", "false").cast(target)


def parse_integers(strings: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse integers, which may have a plus sign."""
    return pc.replace_substring_regex(_trimmed(strings), r"^\+", "").cast(target)


def parse_decimals(strings: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse decimals."""
    # The string may have more trailing zeros than the scale allows.
    plain = pc.replace_substring_regex(_trimmed(strings), r"(\.[0-9]*?)0+$", r"\1")
    return plain.cast(pa.decimal128(38, target.scale)).cast(target)


def parse_floats(strings: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse numbers, among them ``Infinity`` and ``NaN``."""
    lower = pc.utf8_lower(_trimmed(strings))
    return pc.replace_substring_regex(lower, r"^([+-]?)infinity$", r"\1inf").cast(target)


def parse_dates(strings: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse dates in every form that Spark casts."""
    strings = _trimmed(strings)
    if not pc.any(pc.match_substring_regex(strings, _FAR_YEAR)).as_py():
        with suppress(pa.ArrowInvalid):
            return pc.utf8_slice_codeunits(strings, 0, 10).cast(target)
    days = [None if t is None else _known(parse_date(t), t) for t in strings.to_pylist()]
    return pa.array(days, pa.int32()).cast(target)


def parse_times(strings: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse timestamps of either type."""
    return parse_timestamps(_trimmed(strings), target.tz)


def parse_timestamps(strings: pa.Array, tz: str | None) -> pa.Array:
    """Parse timestamps in every form that Spark casts.

    A timestamp without a zone is in UTC; if ``tz`` is ``None``, zones are ignored.  Raises ``pa.ArrowInvalid`` or
    ``ValueError`` for an invalid string.
    """
    if not pc.any(pc.match_substring_regex(strings, _FAR_YEAR)).as_py():
        with suppress(pa.ArrowInvalid):
            return _plain_timestamps(strings, tz)
    encoded, zones = pc.dictionary_encode(strings), tz is not None
    distinct = encoded.dictionary.to_pylist()
    microseconds = [None if t is None else _known(parse_timestamp(t, with_zone=zones), t) for t in distinct]
    return pa.array(microseconds, pa.int64()).cast(pa.timestamp("us", tz)).take(encoded.indices)


def _plain_timestamps(strings: pa.Array, tz: str | None) -> pa.Array:
    zone = r"(?:[zZ]|[+-]\d{2}:?\d{2})$"
    if tz is None:
        return pc.replace_substring_regex(strings, zone, "").cast(pa.timestamp("us"))
    zoned = pc.match_substring_regex(strings, zone)
    plain = pc.if_else(zoned, None, strings).cast(pa.timestamp("us"))
    # Zoned strings are instants; Arrow's parser requires that all or none have a zone.
    instants = pc.if_else(zoned, strings, None).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    return pc.coalesce(plain, instants).cast(pa.timestamp("us", tz))


def _trimmed(strings: pa.Array) -> pa.Array:
    return pc.utf8_trim_whitespace(strings)


def _known(value: int | None, string: str) -> int:
    if value is None:
        raise ValueError(f"cannot parse {string!r:.80}")
    return value


def _binary(value: str | None) -> bytes | None:
    if value is None:
        return None
    if _ESCAPED_BYTES.fullmatch(value):
        units = [int(u, 16) for u in value.split("\\u")[1:]]
        return bytes(u & 0xFF for u in units)
    return value.encode()


def format_strings(values: Values, _: pa.DataType) -> list[str | None]:
    """Format values that Arrow casts to strings as the protocol has them."""
    return _each(values.cast(pa.string()), lambda t: t or None)


def format_binaries(values: Values, _: pa.DataType) -> list[str | None]:
    """Format bytes as UTF-8 if they are, otherwise escaped."""
    return _each(values, _binary_string)


def format_booleans(values: Values, _: pa.DataType) -> list[str | None]:
    """Format booleans."""
    return _each(values, lambda v: str(v).lower())


def format_floats(values: Values, target: pa.DataType) -> list[str | None]:
    """Format numbers as Java does."""
    number = np.float32 if pa.types.is_float32(target) else np.float64
    return _each(values, lambda v: _float_string(number(v)))


def format_dates(values: Values, _: pa.DataType) -> list[str | None]:
    """Format dates."""
    return _each(values.cast(pa.int32()), format_date)


def format_times(values: Values, target: pa.DataType) -> list[str | None]:
    """Format timestamps; as in delta-spark, microseconds are written only if they are not zero."""
    return _each(values.cast(target).cast(pa.int64()), format_timestamp)


def _each(values: Values, convert: Callable[[Any], str | None]) -> list[str | None]:
    return [None if v is None else convert(v) for v in values.to_pylist()]


def _float_string(v: np.floating[Any]) -> str:
    """Format a number as Java and Spark do."""
    if v != v:
        return "NaN"
    if np.isinf(v):
        return "Infinity" if v > 0 else "-Infinity"
    if v == 0 or 1e-3 <= abs(v) < 1e7:
        return np.format_float_positional(v, trim="0")
    digits, _, exponent = np.format_float_scientific(v, trim="0").partition("e")
    return f"{digits}E{int(exponent)}"


def _binary_string(v: bytes) -> str:
    with suppress(UnicodeDecodeError):
        if _ESCAPED_BYTES.fullmatch(string := v.decode()) is None:
            return string
    return "".join(f"\\u{b:04x}" for b in v)
