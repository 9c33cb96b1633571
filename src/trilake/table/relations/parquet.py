"""Parquet files as a DuckDB relation, where DuckDB reads them exactly as the table does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from trilake.common.arrow_types import types_in
from trilake.common.text import double_quoted, single_quoted
from trilake.parquet.old_calendar import old_values

if TYPE_CHECKING:
    import duckdb

#: Characters with a special meaning in DuckDB's paths.
_PATTERNS = frozenset("*?[]{}")


def parquet_relation(db: duckdb.DuckDBPyConnection, paths: Sequence[str], schema: pa.Schema) -> str | None:
    """The query for all rows of the files, with the columns of ``schema``; ``None`` if DuckDB would read other values.

    Each file must have every column under its exact name, in a type that DuckDB reads like Arrow, without times of
    Spark's old calendar.  Raises ``duckdb.Error`` for files that cannot be opened.
    """
    if not paths or any(_PATTERNS & set(path) for path in paths):
        return None
    expected = _types(db.from_arrow(schema.empty_table()))
    if any(not expected.items() <= _types(db.sql(f"FROM {_files([path])}")).items() for path in paths):
        return None
    inner = (t for kind in schema.types for t in types_in(kind))
    if any(pa.types.is_date(t) or pa.types.is_timestamp(t) for t in inner) and _any_old(paths):
        return None
    return f"SELECT {', '.join(map(double_quoted, expected))} FROM {_files(paths)}"


def _any_old(paths: Sequence[str]) -> bool:
    """Whether a file may hold values of Spark's old calendar, which DuckDB does not convert."""
    import pyarrow.parquet as pq  # late: opening a table does not need it

    try:
        return any(any(old_values(pq.read_metadata(path).metadata)) for path in paths)
    except (pa.ArrowException, OSError):  # the scan reports what is wrong
        return True


def _types(relation: duckdb.DuckDBPyRelation) -> dict[str, str]:
    return dict(zip(relation.columns, map(str, relation.types), strict=True))


def _files(paths: Iterable[str]) -> str:
    """The files as a DuckDB table; ``can_have_nan`` ignores bounds, since Parquet's exclude NaN."""
    return f"read_parquet([{', '.join(map(single_quoted, paths))}], can_have_nan = true)"
