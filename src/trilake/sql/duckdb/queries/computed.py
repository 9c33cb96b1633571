"""What DuckDB says of a text of its SQL: the type of an expression, and the value of one that reads no column."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from trilake.errors import FilterError
from trilake.expr.terms import engine


@lru_cache(8192)
def type_of(text: str, columns: str) -> str:
    """DuckDB's type of an expression over columns.  Raises ``FilterError`` where it refuses it."""
    try:
        return engine.result_types(f"SELECT {text}{f' FROM (SELECT {columns})' if columns else ''}")[0]
    except engine.QueryError as error:
        raise FilterError(f"the query is not valid: {error.message}") from error


@lru_cache(4096)
def value_of(text: str) -> pa.Scalar:
    """The value of a constant expression.  Raises ``QueryError`` where it has none."""
    return engine.query(f"SELECT {text} AS v")["v"][0]
