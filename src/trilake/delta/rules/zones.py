"""Whether an expression of a table may have another value in a session of another time zone than UTC."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trilake.delta.protocol.schema import DataType, PrimitiveType, StructType

#: What is said of times: in names of types and functions, and in front of literals.
_OF_TIMES = re.compile(r"(?i)time|date|day|month|quarter|year|week|hour|minute|second|zone|unix|\bnow\b")


def may_depend_on_zone(text: str, schema: StructType, columns: Iterable[str], result: DataType | None = None) -> bool:
    """Whether a string over ``columns`` of a schema, stored as ``result``, reads or makes an instant in any way.

    >>> schema = StructType(())
    >>> may_depend_on_zone("a + 1", schema, []), may_depend_on_zone("CAST(a AS TIMESTAMP)", schema, [])
    (False, True)
    """
    if _OF_TIMES.search(text) or (result is not None and _holds_instants(result)):
        return True
    fields = (schema.find(name) for name in columns)
    return any(f is None or _holds_instants(f.type) for f in fields)


def _holds_instants(type_: DataType) -> bool:
    """Whether values are instants; those inside of nested ones are not looked for."""
    return not isinstance(type_, PrimitiveType) or type_.name == "timestamp"
