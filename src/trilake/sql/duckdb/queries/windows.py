"""Functions that only windows have, and the frames of windows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from trilake.errors import FilterError
from trilake.expr.sql.calls import Call
from trilake.expr.sql.dialect import spark_text
from trilake.expr.terms.casts import cast
from trilake.expr.terms.duckdb_sql import Sql, counted

_COUNTED = ("row_number", "rank", "dense_rank", "ntile")
_SHARES = ("percent_rank", "cume_dist")
_SHIFTS = ("lag", "lead")
#: By lower-case name.
RANKINGS = frozenset((*_COUNTED, *_SHARES, *_SHIFTS, "nth_value"))
#: What ends, begins or hides the arguments of a call that raises.
_PIECES = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\berror\(|[()]""")


def ranking(name: str, call: Call, over: str, ignore_nulls: bool) -> Sql:
    """One of :data:`RANKINGS` over a window.  Raises ``FilterError`` for arguments that are not known."""
    nulls = " IGNORE NULLS" if ignore_nulls else ""
    if name == "ntile":
        return counted(f"ntile({call.integer(0) if call.args else 1}){over}")
    if name in _COUNTED + _SHARES:
        if call.args:
            raise FilterError(f"{name} takes no arguments")
        return counted(f"{name}(){over}") if name in _COUNTED else Sql(f"{name}(){over}", "DOUBLE")
    if not 1 <= len(call.args) <= 3:
        raise FilterError(f"{name} takes 1 to 3 arguments, not {len(call.args)}")
    value = call.args[0]
    texts = [value.text]
    if len(call.args) > 1:
        texts.append(call.integer(1))
    if len(call.args) > 2:
        if name == "nth_value":
            nulls = " IGNORE NULLS" if call.constant(2) is True else nulls
        else:
            texts.append(call.args[2].text if call.args[2].family == "void" else cast(call.args[2], value.type).text)
    return Sql(f"{name}({', '.join(texts)}{nulls}){over}", value.type)


def without_errors(key: str) -> str:
    """A key of a window with null in the place of errors: DuckDB 2.0 takes no key that may raise one.

    >>> without_errors("CASE WHEN b = 0 THEN error('division (by zero) ' || a) ELSE a / b END")
    'CASE WHEN b = 0 THEN NULL ELSE a / b END'
    """
    texts = []
    kept, depth = 0, 0
    for piece in _PIECES.finditer(key):
        if piece.group() == "error(" and not depth:
            texts += [key[kept : piece.start()], "NULL"]
            depth = 1
        elif depth and piece.group().endswith("("):
            depth += 1
        elif depth and piece.group() == ")":
            depth -= 1
            kept = piece.end()
    return "".join([*texts, key[kept:]])


def checked(value: Sql, keys: Sequence[str]) -> Sql:
    """What a window gives, where none of its ``keys`` raises an error; :func:`without_errors` took these away."""
    if not keys:
        return value
    asked = ", ".join(f"({key}) IS NULL" for key in keys)  # unlike AND, greatest computes all of them
    return replace(value, text=f"CASE WHEN greatest({asked}) THEN {value.text} ELSE {value.text} END")


def frame(spec: exp.Expression | None) -> str:
    """The frame of a window in DuckDB's words.  Raises ``FilterError`` for one that is not known."""
    if spec is None:
        return ""
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        raise FilterError(f"the frame {spark_text(spec)} is not known here", help="use ROWS or RANGE BETWEEN")
    start = _bound(spec.args.get("start"), spec.args.get("start_side"))
    end = _bound(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"))
    return f"{kind} BETWEEN {start} AND {end}"


def _bound(value: object, side: object) -> str:
    if isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit():
        return f"{value.name} {side}"
    if isinstance(value, exp.Interval) and isinstance(value.this, exp.Literal) and value.this.name.isdigit():
        unit = value.text("unit").upper()
        if unit.isalpha():
            return f"INTERVAL {value.this.name} {unit} {side}"
    word = str(value).upper()
    if word == "CURRENT ROW":
        return word
    if word == "UNBOUNDED":
        return f"{word} {side}"
    raise FilterError(f"the bound {value} of a frame is not known here", help="use a number or an interval")
