"""Compare ``char(n)`` by Spark's rules: pad the column with spaces to ``n``, then pad the shorter side of a comparison.

Stored values may be padded or not.  The stored string compares like the padded one unless it is a prefix of the
literal, so a comparison becomes conditions on the stored string that list these prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from trilake.common.text import single_quoted
from trilake.expr.terms.datatypes import Path
from trilake.expr.terms.duckdb_sql import Sql
from trilake.expr.terms.predicate import (
    Compare,
    In,
    Known,
    Not,
    Opaque,
    Predicate,
    StartsWith,
    all_of,
    any_of,
    duckdb_name,
)

#: Arrow field metadata for ``char(n)``, with ``n`` as its value.
CHAR = b"trilake.char"
#: DuckDB compares longer strings, which have too many prefixes.
_MOST = 1_000


def char_field(field: pa.Field, length: int) -> pa.Field:
    """Mark a field as ``char(length)``."""
    return field.with_metadata({**(field.metadata or {}), CHAR: str(length).encode()})


def char_length(field: pa.Field) -> int | None:
    """``n`` of a ``char(n)`` field.

    >>> char_length(char_field(pa.field("c", pa.string()), 3)), char_length(pa.field("c", pa.string()))
    (3, None)
    """
    string = (field.metadata or {}).get(CHAR)
    return None if string is None else int(string)


def without_chars(schema: pa.Schema) -> pa.Schema:
    """The schema with its ``char`` columns as plain strings."""
    return schema if all(f.metadata is None for f in schema) else pa.schema([f.remove_metadata() for f in schema])


# --- conditions on what is stored ------------------------------------------------------------------------------------


def compare_padded(path: Path, op: str, string: str, kind: pa.DataType, length: int) -> Predicate:
    """``column op string`` for a ``char(length)`` column, with the shorter side padded."""
    longest = max(length, len(string))
    return compare_value(path, op, string.ljust(longest), kind, longest)


def compare_value(path: Path, op: str, string: str, kind: pa.DataType, length: int) -> Predicate:
    """``rpad(column, length) op string``, without padding ``string``."""
    if max(length, len(string)) > _MOST:
        return Opaque(
            f"(rpad({duckdb_name(path)}, {length}, ' ') {'<>' if op == '!=' else op} {single_quoted(string)})", (path,)
        )
    if op == "!=":
        equal = compare_value(path, "=", string, kind, length)
        return Known(path, not equal.value) if isinstance(equal, Known) else Not(equal)
    prefixes = _beginnings(string)
    true = [t for t in prefixes if _holds(t.ljust(length), op, string)]
    if op == "=":
        return _is_in(path, true, kind)
    base = Compare(path, op, pa.scalar(string, kind))
    more = [t for t in true if not _holds(t, op, string)]
    less = sorted({t for t in prefixes if _holds(t, op, string)} - set(true))
    wider = any_of([base, _is_in(path, more, kind)]) if more else base
    return all_of([wider, Not(_is_in(path, less, kind))]) if less else wider


def starts_with_value(path: Path, prefix: str, kind: pa.DataType, length: int) -> Predicate:
    """``startswith(rpad(column, length), prefix)``."""
    whole = StartsWith(path, pa.scalar(prefix, kind))
    if len(prefix) > length:
        return whole
    shorter = [t for t in _beginnings(prefix)[:-1] if t.ljust(len(prefix)) == prefix]
    return any_of([whole, _is_in(path, shorter, kind)]) if shorter else whole


def _beginnings(string: str) -> list[str]:
    return [string[:i] for i in range(len(string) + 1)]


def _holds(left: str, op: str, right: str) -> bool:
    match op:
        case "=":
            return left == right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
    return left >= right


def _is_in(path: Path, strings: Sequence[str], kind: pa.DataType) -> Predicate:
    if not strings:
        return Known(path, False)
    if len(strings) == 1:
        return Compare(path, "=", pa.scalar(strings[0], kind))
    return In(path, pa.array(strings, kind))


# --- in DuckDB's SQL -------------------------------------------------------------------------------------------------


def padded_sides(parts: Sequence[Sql], strings: Sequence[str | None]) -> list[Sql] | None:
    """The padded operands of a comparison, or of IN; ``None`` if Spark pads none.

    ``strings`` are the constant operands.  Spark pads if the first operand is a ``char``, and the others are all
    constants or all ``char`` columns; for two operands the order does not matter.
    """
    if len(parts) == 2 and parts[0].char is None:
        turned = padded_sides(parts[::-1], strings[::-1])
        return None if turned is None or parts[1].char is None else turned[::-1]
    first, others = parts[0], list(zip(parts[1:], strings[1:], strict=True))
    if first.char is None:
        return None
    if all(string is not None or part.family == "void" for part, string in others):
        longest = max([first.char, *(len(string) for _, string in others if string is not None)])
        padded = [
            part if string is None else replace(part, code=single_quoted(string.ljust(longest)))
            for part, string in others
        ]
        return [filled_up(first, longest), *padded]
    if all(part.char is not None for part, _ in others):
        longest = max(part.char or 0 for part in parts)
        return [filled_up(part, longest) for part in parts]
    return None


def filled_up(value: Sql, length: int) -> Sql:
    """Pad a string with spaces, unless it has been padded to this length."""
    tail = f", {length}, ' ')"
    return Sql(value.code if value.code.endswith(tail) else f"rpad({value.code}{tail}", value.type)
