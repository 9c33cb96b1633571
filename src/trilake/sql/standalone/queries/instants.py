"""Columns of instants: DuckDB has them with a zone, and expressions compute with times of UTC without one."""

from __future__ import annotations

import re

from trilake.expr.terms.duckdb_sql import Sql

#: An instant's column as a time of UTC, as :func:`instant_column` writes it.
_INSTANT = re.compile(r'make_timestamp\(epoch_us\(("(?:[^"]|"")*")\)\)')


def instant_column(ident: str) -> Sql:
    """A column that DuckDB has with its zone, as the time in UTC that expressions compute with."""
    return Sql(f"make_timestamp(epoch_us({ident}))", "TIMESTAMP")


def compared(left: str, right: str) -> tuple[str, str]:
    """A comparison of an instant's column with a constant as one of the column itself, which DuckDB can look up."""
    for x, y, swapped in ((left, right, False), (right, left, True)):
        column = _INSTANT.fullmatch(x)
        if column is not None and '"' not in y:
            pair = column[1], f"CAST({y} AS TIMESTAMPTZ)"
            return (pair[1], pair[0]) if swapped else pair
    return left, right
