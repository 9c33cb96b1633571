"""Evaluate a predicate tree over Arrow data, with three-valued logic.

Leaves use Arrow kernels, opaque leaves DuckDB.  ``AND`` and ``OR`` evaluate opaque parts last, and only for undecided
rows: ``n <> 0 AND 100 / n > 5`` does not divide by zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import columns_help
from trilake.errors import FilterError
from trilake.expr.terms import datatypes as types
from trilake.expr.terms import engine
from trilake.expr.terms.datatypes import Path, normalise
from trilake.expr.terms.predicate import (
    NEGATED,
    And,
    Compare,
    Constant,
    In,
    IsNull,
    Known,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    duckdb_name,
)


class Rows:
    """Rows to evaluate, with columns in normal form, computed on demand."""

    def __init__(self, length: int, source: Callable[[Path], pa.ChunkedArray]) -> None:
        self._length = length
        self._source = source
        self._columns: dict[Path, pa.ChunkedArray] = {}

    @classmethod
    def of(cls, table: pa.Table) -> Rows:
        return cls(table.num_rows, partial(_column, table))

    def __len__(self) -> int:
        return self._length

    def column(self, path: Path) -> pa.ChunkedArray:
        """The column at ``path``; null where a parent struct is null."""
        if path not in self._columns:
            self._columns[path] = self._source(path)
        return self._columns[path]

    def where(self, mask: pa.ChunkedArray, count: int) -> Rows:
        """The ``count`` rows for which ``mask`` is true."""
        return Rows(count, lambda path: self.column(path).filter(mask))


def _column(table: pa.Table, path: Path) -> pa.ChunkedArray:
    index = table.schema.get_all_field_indices(path[0])
    if len(index) != 1:
        raise FilterError(
            f"column {path[0]!r} {f'occurs {len(index)} times' if index else 'not found'} in the rows",
            help=columns_help(path[0], table.schema.names),
            column=path[0],
        )
    values = table.column(index[0])
    try:
        for name in path[1:]:
            if isinstance(values.type, pa.BaseExtensionType):
                values = values.cast(values.type.storage_type)
            values = pc.struct_field(values, [name])
        return normalise(values)
    except pa.ArrowException as error:
        raise FilterError(
            f"the column does not have the schema's type: {error}",
            column=".".join(path),
            type=str(table.schema.field(index[0]).type),
        ) from error


def evaluate(predicate: Predicate, rows: Rows) -> pa.ChunkedArray:
    """The value of ``predicate`` for each row: true, false or null.

    Raises :class:`FilterError` for a value that cannot be computed, such as a division by zero.
    """
    match predicate:
        case Constant(value):
            return pa.chunked_array([pa.repeat(pa.scalar(value, pa.bool_()), len(rows))])
        case Known(path, value):
            valid = pc.is_valid(rows.column(path))
            return pc.if_else(valid, pa.scalar(value), pa.scalar(None, pa.bool_()))
        case Compare():
            return _compare(predicate, rows.column(predicate.path))
        case In():
            return _is_in(predicate, rows.column(predicate.path))
        case IsNull(path):
            return pc.is_null(rows.column(path))
        case StartsWith(path, prefix):
            return pc.starts_with(cast_for(rows.column(path), prefix.type), prefix.as_py())
        case Not(part):
            return pc.invert(evaluate(part, rows))
        case And(parts):
            return _connect(parts, rows, decided=False)
        case Or(parts):
            return _connect(parts, rows, decided=True)
        case Opaque(sql, columns):
            return _duckdb(sql, columns, rows)
    raise FilterError(f"a {type(predicate).__name__} predicate cannot be evaluated row by row")


def _connect(parts: tuple[Predicate, ...], rows: Rows, *, decided: bool) -> pa.ChunkedArray:
    join = pc.or_kleene if decided else pc.and_kleene
    result: pa.ChunkedArray | None = None
    for part in sorted(parts, key=_needs_duckdb):
        if result is None:
            result = evaluate(part, rows)
            continue
        if not _needs_duckdb(part):
            result = join(result, evaluate(part, rows))
            continue
        open_rows = pc.fill_null(pc.not_equal(result, decided), True)
        remaining = pc.sum(open_rows).as_py() or 0
        if remaining == 0:
            break
        if remaining == len(rows):
            result = join(result, evaluate(part, rows))
            continue
        values = evaluate(part, rows.where(open_rows, remaining)).combine_chunks()
        neutral = pa.repeat(pa.scalar(decided), len(rows))
        result = join(result, pc.replace_with_mask(neutral, open_rows.combine_chunks(), values))
    assert result is not None
    return result


def _needs_duckdb(predicate: Predicate) -> bool:
    return any(isinstance(node, Opaque) for node in predicate.walk())


KERNELS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def cast_for(values: pa.ChunkedArray | pa.Array, target: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Cast a column to the type of the literal in its comparison."""
    if values.type == target:
        return values
    if pa.types.is_decimal(values.type) and pa.types.is_floating(target):
        # Through a string, which gives the nearest double; Arrow's cast multiplies by an inexact 0.01.
        values = values.cast(pa.string())
    # As in Spark, large integers lose digits as doubles.
    try:
        return values.cast(target, safe=not pa.types.is_floating(target))
    except pa.ArrowException as error:
        raise FilterError(
            f"values of type {values.type} do not have the type in the filter's schema: {error}"
        ) from error


def _compare(leaf: Compare, values: pa.ChunkedArray) -> pa.ChunkedArray:
    literal, op = leaf.literal, leaf.op
    values = cast_for(values, literal.type)
    if leaf.ieee or not types.is_float(literal.type):
        return KERNELS[op](values, literal)
    if literal.as_py() != literal.as_py():
        # All values except NaN are less than NaN.
        nan = pc.is_nan(values)
        match op:
            case "=" | ">=":
                return nan
            case "!=" | "<":
                return pc.invert(nan)
        return pc.if_else(pc.is_valid(values), pa.scalar(op == "<="), pa.scalar(None, pa.bool_()))
    if op in (">", ">="):  # NaN is greater than the literal: negate Arrow's "less than"
        return pc.invert(KERNELS[NEGATED[op]](values, literal))
    return KERNELS[op](values, literal)


def _is_in(leaf: In, values: pa.ChunkedArray) -> pa.ChunkedArray:
    values, choices = cast_for(values, leaf.values.type), leaf.values
    if types.is_float(choices.type):
        # Hashing distinguishes -0.0 from 0.0; adding 0.0 makes them equal.
        zero = pa.scalar(0.0, choices.type)
        values, choices = pc.add(values, zero), pc.add(choices, zero)
    member = pc.is_in(values, value_set=choices)
    unknown = pc.is_null(values)
    if leaf.has_null:
        unknown = pc.or_(unknown, pc.invert(member))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), member)


def duckdb_table(rows: Rows, columns: tuple[Path, ...]) -> pa.Table:
    """The columns of an opaque expression, under the names that it uses."""
    arrays, names = [], []
    for path in columns:
        values = rows.column(path)
        # Truncates nanoseconds in lists and maps, and drops time zones.
        target = types.naive_type(values.type)
        arrays.append(values if values.type == target else values.cast(target, safe=False))
        names.append(duckdb_name(path))
    if not arrays:  # DuckDB needs a column to know the number of rows
        return pa.table({"c": pa.nulls(len(rows), pa.int8())})
    return pa.table(arrays, names=names)


def _duckdb(sql: str, columns: tuple[Path, ...], rows: Rows) -> pa.ChunkedArray:
    try:
        result = engine.query(f"SELECT {sql} AS m FROM t", t=duckdb_table(rows, columns))["m"]
    except engine.QueryError as error:
        raise FilterError(
            f"the filter fails on a row: {error.message}",
            help="fix the row, or use CASE or a try_ function",
            column=", ".join(".".join(path) for path in columns) or None,
        ) from error
    return result.cast(pa.bool_())
