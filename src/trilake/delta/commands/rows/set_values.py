"""Explain conditions and values that are written in the style of other libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from trilake.common.text import string_literal
from trilake.errors import ExpressionError, InvalidArgumentError


@contextmanager
def strings_are_sql(values: Iterable[object]) -> Iterator[None]:
    """Let errors about SQL values explain how to write a string."""
    try:
        yield
    except ExpressionError as e:
        strings = (v for v in values if isinstance(v, str) and v.strip())
        value = next((v for v in strings if v == e.context.get("expression") or v in e.message), None)
        if value is not None and value.lstrip()[0] not in "'\"":
            literal = string_literal(value)
            rest = f"; {e.help}" if e.help else ""
            e.help = f"{value!r} is a SQL expression; for the string, write {literal!r}{rest}"
        raise


def check_merge_condition(on: object, columns: Sequence[str], source: str, target: str) -> None:
    """Refuse column names instead of a condition.  Raises ``InvalidArgumentError``."""
    names = [on] if isinstance(on, str) else list(on) if isinstance(on, Iterable) else []
    plain = all(isinstance(n, str) and re.fullmatch(r"\w+|`[^`]+`", n.strip()) for n in names)
    lower = {c.lower() for c in columns}
    if names and plain and (not isinstance(on, str) or on.strip("` ").lower() in lower):
        condition = " AND ".join(f"{target}.{n.strip()} = {source}.{n.strip()}" for n in map(str, names))
        raise InvalidArgumentError(
            f"the condition of a merge is SQL, got {on!r:.80}", help=f"write on={condition!r}", column=str(names[0])
        )
    if not isinstance(on, str):
        raise InvalidArgumentError(f"the condition of a merge must be a string of SQL, got a {type(on).__name__}")
