"""Generated columns: computed where a write leaves them out, verified where it does not.

Protocol: *Generated Columns*.  The field metadata ``delta.generationExpression`` is an expression over other columns,
and every row must satisfy ``(value <=> expression) IS TRUE``.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.scan.row_text import describe_row, row_at
from trilake.errors import ConstraintViolatedError, ExpressionError, UnsupportedExpressionError
from trilake.expr import Expression, parse_expression
from trilake.expr.terms import datatypes as types
from trilake.expr.terms import engine

#: delta-spark's condition for an invalid generation expression.
_CONDITIONS = {
    None: "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH",
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "DELTA_INVALID_GENERATED_COLUMN_REFERENCES",
    "INVALID_WHERE_CONDITION": "DELTA_AGGREGATE_IN_GENERATED_COLUMN",
    "INVALID_NON_DETERMINISTIC_EXPRESSIONS": "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_GENERATED_COLUMN",
}

GENERATION_EXPRESSION = "delta.generationExpression"

#: Strings and quoted names, which contain no calls.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""", re.DOTALL)
#: Keywords whose value depends on the time or the session, with or without parentheses.
STATEMENT_WORDS = r"current_(?:date|time|timestamp|timezone|user|catalog|database|schema)|localtimestamp"
#: Functions whose value depends on the statement, not on the row.
_OF_STATEMENT = re.compile(
    rf"\b(?:{STATEMENT_WORDS}|session_user)\b"
    r"|\b(?:now|curdate|user|unix_timestamp|input_file_name)\s*\(\s*\)",
    re.IGNORECASE,
)


def refuse_of_statement(column: str, text: str) -> None:
    """Raise ``ExpressionError`` for a generation expression that depends on the time or the session.

    >>> refuse_of_statement("g", "concat(`now()`, 'current_date')")
    """
    match = _OF_STATEMENT.search(_QUOTED.sub("''", text))
    if match is not None:
        raise ExpressionError(
            f"generated column {column} ({text[:200]}) reads {match[0]}, which is not deterministic",
            help="write the value as a plain column, or give the column a default",
            column=column,
            condition="DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
        )


@dataclass(frozen=True)
class GeneratedColumn:
    """A generated column; ``expression`` is ``None`` where only Spark can evaluate ``text``."""

    name: str
    text: str
    expression: Expression | None

    def verify(self, stored: pa.Array, computed: pa.ChunkedArray | pa.Array, batch: pa.RecordBatch) -> None:
        """Raise ``ConstraintViolatedError`` where a given value is not the computed one; null equals null."""
        same = null_safe_equal(stored, computed)
        if pc.all(same).as_py() in (True, None):
            return
        at = pc.index(same, pa.scalar(False)).as_py()
        row = row_at(batch, at)
        columns = None if self.expression is None else {self.name, *self.expression.columns}
        right = describe_row({"the expression": computed[at].as_py()})
        raise ConstraintViolatedError(
            f"generated column {self.name} must be {self.text}, but differs in a row with"
            f" {describe_row(row, columns)}: {right}",
            help="omit the column, and it is computed; nothing was committed",
            constraint=f"{self.name} <=> {self.text}",
            column=self.name,
            condition="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
        )


def generation_text(field: StructField) -> str | None:
    """The expression of a generated column, ``None`` for other columns."""
    text = field.metadata.get(GENERATION_EXPRESSION)
    return None if text is None else str(text)


def generated_columns(schema: StructType, now: dt.datetime) -> tuple[GeneratedColumn, ...]:
    """The generated columns of a table, bound to the others.

    Raises ``ExpressionError`` for an expression that names unknown or generated columns, or whose value the column
    cannot store.
    """
    texts = [(f, text) for f in schema.fields if (text := generation_text(f)) is not None]
    return tuple(parse_generated(f, text, schema, now) for f, text in texts)


def parse_generated(field: StructField, text: str, schema: StructType, now: dt.datetime) -> GeneratedColumn:
    """Parse one generated column of a table, with values of the column's type.

    Raises ``ExpressionError`` like :func:`generated_columns`.
    """
    try:
        expression = parse_expression(text, schema.to_arrow_schema(), now=now).cast(field.type.arrow)
    except UnsupportedExpressionError:
        return GeneratedColumn(field.name, text, None)
    except ExpressionError as e:
        raise ExpressionError(
            f"generated column {field.name} ({text}) cannot be computed: {e.message}",
            help=e.help,
            condition=_CONDITIONS.get(e.condition),
        ) from e
    depends = [c for c in sorted(expression.columns) if generation_text(schema.field(c)) is not None]
    if depends:
        raise ExpressionError(
            f"generated column {field.name} reads {', '.join(depends)}, which is generated itself",
            help="repeat the expression of that column",
            column=field.name,
            condition="DELTA_INVALID_GENERATED_COLUMN_REFERENCES",
        )
    return GeneratedColumn(field.name, text, expression)


def null_safe_equal(a: pa.Array | pa.ChunkedArray, b: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """``a <=> b`` for each row, by Spark's rules: null equals null, NaN equals NaN, -0.0 equals 0.0."""
    a, b = _chunked(a), _chunked(b)
    if types.is_ordered(types.normal_type(a.type)):
        same = pc.equal(a, b)
        if types.is_float(a.type):
            same = pc.or_(same, pc.and_(pc.is_nan(a), pc.is_nan(b)))
        return pc.if_else(pc.is_valid(same), same, pc.and_(pc.is_null(a), pc.is_null(b)))
    naive = types.naive_type(a.type)
    pairs = pa.table({"a": a.cast(naive), "b": b.cast(naive)})
    return engine.query("SELECT a IS NOT DISTINCT FROM b AS same FROM t", t=pairs)["same"]


def _chunked(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
