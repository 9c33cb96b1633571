"""``Expression``: a SQL expression of any type, bound to the columns of one schema.

:class:`Derived` says how its values depend on a single column, for pruning.

>>> import pyarrow as pa
>>> rows = pa.table({"day": pa.array([0, 31, None], pa.date32()), "n": [1, 2, 3]})
>>> parse_expression("month(day) + N", rows.schema).evaluate(rows).to_pylist()
[2, 4, None]
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from trilake.common.arrow_types import mapped, nulls
from trilake.errors import ExpressionError, FilterError, UnsupportedExpressionError
from trilake.expr.terms import casts, engine
from trilake.expr.terms import datatypes as types
from trilake.expr.terms.datatypes import Path
from trilake.expr.terms.duckdb_sql import Sql, type_name
from trilake.expr.terms.evaluate import Rows, duckdb_table

if TYPE_CHECKING:
    from trilake.expr.sql.functions import Function


@dataclass(frozen=True)
class Expression:
    """A scalar expression of Spark SQL that DuckDB evaluates; created by :func:`parse_expression`.

    ``source`` is the user's SQL, ``type`` the Arrow type of the values and ``paths`` the columns and nested fields that
    it reads, in the schema's spelling.  ``constant`` is the value, if it reads no column.

    Results of type ``timestamp`` have the zone UTC; results of only ``timestamp_ntz`` columns have none.
    """

    source: str
    type: pa.DataType
    paths: tuple[Path, ...]
    sql: Sql = field(repr=False)
    constant: pa.Scalar | None = None
    #: Set if the expression is just a column.
    column: Path | None = field(default=None, repr=False)

    @property
    def columns(self) -> frozenset[str]:
        """The top-level columns that it reads, in the schema's spelling."""
        return frozenset(path[0] for path in self.paths)

    def evaluate(self, rows: pa.RecordBatch | pa.Table) -> pa.ChunkedArray:
        """Evaluate each row, in order; the rows only need :attr:`columns`.

        Raises :class:`~trilake.errors.ExpressionError` for a value that cannot be computed, such as a division by
        zero.
        """
        return evaluate_all([self], rows)[0]

    def of_values(self, values: pa.Array) -> pa.Array:
        """Evaluate an expression of exactly one column for ``values`` of that column, as :meth:`evaluate` does."""
        if len(self.paths) != 1:
            raise ExpressionError(f"{self.source} must reference exactly one column, but references {len(self.paths)}")
        rows = Rows(len(values), lambda path: types.normalise(pa.chunked_array([values])))
        result = _without_engine(self, rows)
        if result is None:
            result = _as_type(_query([self], rows)[0], self)
        return result.combine_chunks()

    def needs_cast(self, target: pa.DataType) -> bool:
        """Whether the values have another type than ``target``; precision and scale of decimals, which are not
        Spark's in results of arithmetic, do not count."""
        try:
            target_name = type_name(target)
        except FilterError:
            return False  # only Spark supports such a type
        family = Sql("", target_name).family
        return self.sql.type != target_name and not self.sql.family == family == "decimal"

    def of_type(self, target: pa.DataType) -> Expression:
        """Return the same values as another Arrow type.

        Values that Arrow cannot cast without loss raise :class:`~trilake.errors.ExpressionError`, constants at once.
        """
        if self.type == target:
            return self
        other = replace(self, type=target, column=None)
        if self.constant is None:
            return other
        constant = _as_type(pa.chunked_array([pa.array([self.constant.as_py()], self.type)]), other)[0]
        return replace(other, constant=constant)

    def cast(self, target: pa.DataType) -> Expression:
        """Cast the values for a column of type ``target``, by Spark's ANSI rules of store assignment.

        Numbers can be cast to any numeric type (fractions are truncated, decimals rounded half up), dates and
        timestamps to each other, and values with a string form to strings; a value out of range is an error when it is
        evaluated.  Raises :class:`~trilake.errors.ExpressionError` for other pairs of types, and
        :class:`~trilake.errors.UnsupportedExpressionError` for those that only Spark supports.
        """
        if self.type == target:
            return self
        source = self.sql
        try:
            target_name = type_name(target)
        except FilterError as error:
            raise UnsupportedExpressionError(
                f"only Spark can compute {self.source} as {types.spark_name(target)}"
            ) from error
        if source.type == target_name:
            return _make(self.source, source, self.paths, target, self.column)
        if not _storable(source.family, Sql("", target_name).family):
            raise ExpressionError(
                f"{self.source} is of type {source.spark_type} and cannot be stored as {types.spark_name(target)}",
                help=f"write CAST({self.source} AS {types.spark_name(target).upper()})",
            )
        try:
            return _make(self.source, casts.cast(source, target_name), self.paths, target)
        except FilterError as error:
            raise UnsupportedExpressionError(
                f"only Spark can store {self.source}, of type {source.spark_type}, as {types.spark_name(target)}"
            ) from error


def _storable(source: str, target: str) -> bool:
    """Spark's store assignment rule, by type family."""
    numbers, times = ("integer", "decimal", "float", "double"), ("date", "timestamp")
    nested = ("array", "map", "struct")
    return (
        source in ("void", target)
        or (source in numbers and target in numbers)
        or (source in times and target in times)
        or (target == "string" and source not in (*nested, "other"))
    )


def parse_expression(
    sql: str,
    schema: pa.Schema,
    *,
    now: dt.datetime | None = None,
    written: str | None = None,
    functions: Mapping[str, Function] | None = None,
) -> Expression:
    """Bind a Spark SQL expression to the columns of ``schema``.

    Parameters
    ----------
    sql: an expression over one row: no aggregate, window, subquery or non-deterministic function.
    schema: the available columns.
    now: the value of ``current_timestamp()``; the clock's, by default.
    written: the user's SQL, if ``sql`` wraps it; by default ``sql``.
    functions: those that may be called; Spark's by default.

    Raises :class:`~trilake.errors.ExpressionError` for an invalid expression (an unknown column, an aggregate), and
    :class:`~trilake.errors.UnsupportedExpressionError` for one that only Spark can evaluate.
    """
    # late: importing sqlglot takes a third of a second
    from trilake.expr.sql.parse import translate_scalar

    when = now if now is not None else dt.datetime.now(dt.UTC)
    translation = translate_scalar(sql, schema, now=when, functions=functions)
    source = sql if written is None else written
    if translation.column is not None:
        kind = _column_type(translation.column, schema)
    else:
        kind = _bind_type(translation.sql, translation.paths, schema, source)
        if translation.instants and pa.types.is_timestamp(kind):
            kind = types.TIMESTAMP
    return _make(source, translation.sql, translation.paths, kind, translation.column)


def _make(
    source: str, sql: Sql, paths: tuple[Path, ...], target: pa.DataType, column: Path | None = None
) -> Expression:
    expression = Expression(source, target, paths, sql, column=column)
    if paths:
        return expression
    return replace(expression, constant=expression.evaluate(pa.table({"c": pa.nulls(1, pa.int8())}))[0])


def _bind_type(sql: Sql, paths: tuple[Path, ...], schema: pa.Schema, source: str) -> pa.DataType:
    """The Arrow type of a translated expression, from a DuckDB query over no rows."""
    columns = tuple((path, _column_type(path, schema)) for path in paths)
    # Nested types are equal whatever the metadata of their fields.
    plain = not any(pa.types.is_nested(kind) for _, kind in columns)
    try:
        bound = (_bound_once if plain else _bound)(sql.code, columns)
    except engine.QueryError as error:
        raise UnsupportedExpressionError(f"only Spark can evaluate {source}: {error.message}") from error
    if sql.family == "void":
        return pa.null()
    stamps = [t for _, t in columns if pa.types.is_timestamp(t)]
    if pa.types.is_timestamp(bound):
        return types.TIMESTAMP_NTZ if stamps and all(t.tz is None for t in stamps) else types.TIMESTAMP
    return bound


def _bound(sql: str, columns: tuple[tuple[Path, pa.DataType], ...]) -> pa.DataType:
    kinds = dict(columns)
    none = Rows(0, lambda path: pa.chunked_array([], kinds[path]))
    found = engine.query(f"SELECT {sql} AS v FROM t", t=duckdb_table(none, tuple(kinds))).schema.field("v").type
    # Arrow calls the items of a list "item", DuckDB "l".
    return mapped(found, lambda t: pa.list_(t.value_type) if pa.types.is_list(t) else t)


#: Cached, as the DuckDB query takes milliseconds and streams repeat their statements.
_bound_once = lru_cache(maxsize=256)(_bound)


def _column_type(path: Path, schema: pa.Schema) -> pa.DataType:
    kind: pa.DataType = schema.field(path[0]).type
    for name in path[1:]:
        kind = types.storage_type(kind).field(name).type
    return types.normal_type(kind)


def evaluate_all(expressions: Sequence[Expression], rows: pa.RecordBatch | pa.Table) -> list[pa.ChunkedArray]:
    """Evaluate several expressions for each row, in one pass over the rows.

    Raises the errors of :meth:`Expression.evaluate`.
    """
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    view = Rows.of(table)
    out: list[pa.ChunkedArray | None] = [_without_engine(e, view) for e in expressions]
    for_engine = [i for i, values in enumerate(out) if values is None]
    if for_engine:
        results = _query([expressions[i] for i in for_engine], view)
        for i, values in zip(for_engine, results, strict=True):
            out[i] = _as_type(values, expressions[i])
    return [values for values in out if values is not None]


def _without_engine(expression: Expression, rows: Rows) -> pa.ChunkedArray | None:
    if expression.constant is not None:
        value = expression.constant
        array = pa.repeat(value, len(rows)) if value.is_valid else nulls(len(rows), expression.type)
        return pa.chunked_array([array], expression.type)
    if expression.column is not None:
        return _as_type(rows.column(expression.column), expression)
    return None


def _query(expressions: Sequence[Expression], rows: Rows) -> list[pa.ChunkedArray]:
    paths = tuple(dict.fromkeys(path for e in expressions for path in e.paths))
    select = ", ".join(f"{e.sql.code} AS v{i}" for i, e in enumerate(expressions))
    try:
        return list(engine.query(f"SELECT {select} FROM t", t=duckdb_table(rows, paths)).columns)
    except engine.QueryError as error:
        if len(expressions) > 1:
            # DuckDB does not say which expression failed.
            return [values for e in expressions for values in _query([e], rows)]
        raise ExpressionError(
            f"{expressions[0].source} fails on a row: {error.message}",
            help="fix the row, or use CASE or a try_ function",
            column=", ".join(sorted(".".join(path) for path in expressions[0].paths)) or None,
        ) from error


def _as_type(values: pa.ChunkedArray, expression: Expression) -> pa.ChunkedArray:
    if values.type == expression.type:
        return values
    if values.null_count == len(values):
        return pa.chunked_array([nulls(len(values), expression.type)])
    try:
        return values.cast(expression.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ExpressionError(f"{expression.source} cannot be cast to {expression.type}: {error}") from error


# --- conditions on an expression, implied by conditions on its column -------------------------------------------------


class Form(Enum):
    """How an expression depends on its column.  Except for ``OTHER``, it is null exactly if the column is.

    So a condition on a column implies one on an expression: a filter on ``t`` can prune partitions by
    ``CAST(t AS DATE)``.
    """

    #: The column itself.
    SAME = "same"
    #: A non-decreasing function.
    STEPS = "steps"
    #: The year; with ``PART`` of the same column it sorts like the column.
    YEAR = "year"
    #: The month, day of the month or hour.
    PART = "part"
    #: The first characters of a string.
    PREFIX = "prefix"
    #: Equal values give equal values.
    OTHER = "other"


@dataclass(frozen=True)
class Derived:
    """An expression of one column: the column's ``path`` and ``type``, and the form.

    ``level`` orders year, month, day and hour (0 to 3); ``length`` is the length of a prefix in characters.
    """

    expression: Expression
    form: Form
    path: Path
    type: pa.DataType
    level: int = 0
    length: int = 0
