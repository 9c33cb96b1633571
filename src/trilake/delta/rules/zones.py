"""Whether an expression may depend on the session time zone."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trilake.delta.protocol.schema import DataType, PrimitiveType, StructType

#: Names of types and functions related to time, and prefixes of literals.
_OF_TIMES = re.compile(r"(?i)time|date|day|month|quarter|year|week|hour|minute|second|zone|unix|\bnow\b")


def may_depend_on_zone(sql: str, schema: StructType, columns: Iterable[str], result: DataType | None = None) -> bool:
    """Whether an expression over ``columns``, stored as ``result``, may read or create an instant.

    >>> schema = StructType(())
    >>> may_depend_on_zone("a + 1", schema, []), may_depend_on_zone("CAST(a AS TIMESTAMP)", schema, [])
    (False, True)
    """
    if _OF_TIMES.search(sql) or (result is not None and _holds_instants(result)):
        return True
    fields = (schema.find(name) for name in columns)
    return any(f is None or _holds_instants(f.type) for f in fields)


def _holds_instants(type_: DataType) -> bool:
    """Whether a type is an instant; nested types are not searched."""
    return not isinstance(type_, PrimitiveType) or type_.name == "timestamp"
