"""What the parts of one statement share while it is translated."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from trilake.sql.duckdb.queries.scope import Idents, Output, Scope


@dataclass(frozen=True)
class Query:
    """A query in DuckDB's SQL, and the columns that it has."""

    text: str
    columns: tuple[Output, ...]


@dataclass
class Around:
    """What all expressions of a statement share.

    Parameters
    ----------
    idents: names that are not given away yet.
    query: makes a query inside of an expression one of DuckDB.
    now: what ``current_timestamp()`` means.
    wide: whether decimals are computed in 128 bits from the start.
    subqueries: DuckDB's texts of queries inside of expressions, with their types.
    texts: those of all queries inside of expressions.
    timed: whether anything asked what ``now`` is.
    """

    idents: Idents
    query: Callable[[exp.Expression, Scope], Query]
    now: dt.datetime
    wide: bool
    subqueries: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    timed: bool = False
