"""Spark SQL expressions to DuckDB expressions of the same meaning.

Only what is known to mean the same is let through: an unknown function is an error, not a guess.
"""

from __future__ import annotations

import datetime as dt
from typing import cast

import pyarrow as pa
from sqlglot import exp

from trilake.errors import FilterError
from trilake.expr import bind, engine, literals
from trilake.expr import datatypes as types
from trilake.expr.bind import Column
from trilake.expr.datatypes import Path, spark_name
from trilake.expr.duckdb_sql import cast_text, literal_sql
from trilake.expr.evaluate import Rows, duckdb_table
from trilake.expr.literals import NULL, Kind, Literal
from trilake.expr.predicate import duckdb_name

#: Nodes that sqlglot writes for DuckDB with the meaning they have in Spark.
_SAME: tuple[type[exp.Expression], ...] = (
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Neg,
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Is,
    exp.In,
    exp.Between,
    exp.Like,
    exp.ILike,
    exp.RegexpLike,
    exp.StartsWith,
    exp.EndsWith,
    exp.Contains,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.Nullif,
    exp.Upper,
    exp.Lower,
    exp.Length,
    exp.Abs,
    exp.Year,
    exp.Month,
    exp.Day,
    exp.TsOrDsToDate,
    exp.ArrayContains,
    exp.Concat,
    exp.DPipe,
    exp.IsNan,
    exp.Interval,
    exp.Var,
    exp.Tuple,
    exp.Paren,
)

_CASTS = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": types.TIMESTAMP,
    "TIMESTAMP": types.TIMESTAMP,
    "TIMESTAMPNTZ": types.TIMESTAMP_NTZ,
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
}


def plain(node: exp.Expression) -> exp.Expression:
    """``node`` without the parentheses around it."""
    return cast(exp.Expression, node.unnest())


def operands(node: exp.Expression) -> list[exp.Expression]:
    """The operands of a chain of one associative operator."""
    return [cast(exp.Expression, part) for part in node.flatten()]


class Translator:
    """Translates the expressions of one filter over one schema."""

    def __init__(self, schema: pa.Schema, *, case_sensitive: bool, now: dt.datetime, text: str) -> None:
        self.schema = schema
        self.case_sensitive = case_sensitive
        self.now = now
        self.text = text

    # --- columns and constants ---------------------------------------------------------------------------------------

    def column(self, node: exp.Expression) -> Column | None:
        """The column that ``node`` is; ``None`` for anything else.  Raises :class:`FilterError` for unknown names."""
        if not isinstance(node, exp.Column | exp.Dot):
            return None
        column, rest = self._resolve(node)
        return None if rest else column

    def _resolve(self, node: exp.Expression) -> tuple[Column, tuple[str, ...]]:
        parts = node.parts if isinstance(node, exp.Column | exp.Dot) else []
        if not parts or not all(isinstance(p, exp.Identifier) for p in parts):
            raise FilterError(f"{node.sql()} is not a column", filter=self.text)
        meta = parts[0].meta
        return bind.resolve(
            tuple(p.name for p in parts),
            self.schema,
            case_sensitive=self.case_sensitive,
            line=meta.get("line"),
            position=meta.get("col"),
        )

    def constant(self, node: exp.Expression) -> Literal | None:
        """The value of an expression without columns; ``None`` for any other."""
        match node:
            case exp.Null():
                return NULL
            case exp.Boolean():
                return Literal(bool(node.this), Kind.BOOLEAN)
            case exp.Literal():
                return _literal(node)
            case exp.RawString():
                return Literal(node.name, Kind.STRING)
            case exp.HexString():
                digits = node.name
                return Literal(bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits), Kind.BINARY)
            case exp.Neg():
                inner = self.constant(plain(node.this))
                if inner is not None and inner.kind in (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE):
                    assert isinstance(inner.value, int | float) or hasattr(inner.value, "copy_negate")
                    return Literal(-inner.value, inner.kind)  # type: ignore[operator]
            case exp.Cast() if isinstance(node.this, exp.Literal):
                found = self._typed(node)
                if found is not None:
                    return found
        if next(node.find_all(exp.Column, exp.Dot, exp.Identifier), None) is not None:
            return None
        sql, _ = self.expression(node)
        return self._fold(sql)

    def _typed(self, node: exp.Cast) -> Literal | None:
        """A typed literal such as ``DATE '2020-01-01'`` or ``5L``."""
        target, text = node.to.sql("duckdb"), node.this.name
        value: int | None = None
        if target == "DATE":
            value, kind = literals.parse_date(text), Kind.DATE
        elif target in ("TIMESTAMPTZ", "TIMESTAMP"):
            aware = target == "TIMESTAMPTZ"
            kind = Kind.TIMESTAMP if aware else Kind.TIMESTAMP_NTZ
            value = literals.parse_timestamp(text, with_zone=aware)
        elif target in ("TINYINT", "SMALLINT", "INT", "BIGINT") and not node.this.is_string:
            value, kind = literals.parse_integer(text), Kind.INTEGER
        else:
            return None
        if value is None:
            raise FilterError(f"{text!r} is no {kind.value}", literal=node.sql("databricks"))
        return Literal(value, kind)

    def _fold(self, sql: str) -> Literal:
        try:
            scalar = engine.query(f"SELECT {sql} AS v")["v"][0]
        except engine.QueryError as error:
            raise FilterError(f"a constant of the filter cannot be computed: {error.message}") from error
        return _literal_of(scalar)

    # --- expressions -------------------------------------------------------------------------------------------------

    def condition(self, node: exp.Expression) -> tuple[str, tuple[Path, ...]]:
        """A boolean expression in DuckDB's SQL, and the columns it reads; checked against the schema's types."""
        sql, columns = self.expression(node)
        found = self.duckdb_type(sql, columns)
        if found not in ("BOOLEAN", '"NULL"', "NULL"):
            raise FilterError(
                f"{node.sql('databricks', comments=False)} is not a condition but of type {found.lower()}",
                help="compare it with something",
                filter=self.text,
            )
        return sql, columns

    def expression(self, node: exp.Expression) -> tuple[str, tuple[Path, ...]]:
        """Any expression in DuckDB's SQL, and the columns it reads."""
        columns: dict[Path, None] = {}
        return self._render(node, columns), tuple(columns)

    def duckdb_type(self, sql: str, columns: tuple[Path, ...]) -> str:
        """DuckDB's type of a translated expression."""
        rows = Rows(pa.table([pa.array([], f.type) for f in self.schema], schema=self.schema))
        try:
            return engine.result_types(f"SELECT {sql} FROM t", t=duckdb_table(rows, columns))[0]
        except engine.QueryError as error:
            raise FilterError(f"the filter is not valid: {error.message}", filter=self.text) from error

    def _render(self, node: exp.Expression, columns: dict[Path, None]) -> str:
        node = plain(node)
        if isinstance(node, exp.Column | exp.Dot):
            column, rest = self._resolve(node)
            columns[column.path] = None
            name = duckdb_name(column.path)
            for key in rest:
                if not pa.types.is_map(column.type):
                    raise FilterError(f"column {column.sql} has no fields: it is {spark_name(column.type)}")
                name = f"{name}['{key.replace(chr(39), chr(39) * 2)}']"
            return name
        simple = self._simple_constant(node)
        if simple is not None:
            return literal_sql(simple)
        if isinstance(node, exp.Cast):
            return self._cast(node, columns)
        if isinstance(node, exp.Div | exp.Mod | exp.IntDiv):
            operator = {exp.Div: "/", exp.Mod: "%", exp.IntDiv: "//"}[type(node)]
            left, right = self._render(node.this, columns), self._render(node.expression, columns)
            return f"(CASE WHEN {right} = 0 THEN error('division by zero') ELSE {left} {operator} {right} END)"
        if not isinstance(node, _SAME):
            raise FilterError(
                f"{node.sql('databricks', comments=False)} cannot be used in a filter here",
                filter=self.text,
            )
        return f"({self._copy(node, columns).sql(dialect='duckdb', comments=False)})"

    def _simple_constant(self, node: exp.Expression) -> Literal | None:
        if isinstance(node, exp.Null | exp.Boolean | exp.Literal | exp.RawString | exp.HexString):
            return self.constant(node)
        return self._typed(node) if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) else None

    def _copy(self, node: exp.Expression, columns: dict[Path, None]) -> exp.Expression:
        """``node`` with its operands replaced by their translations."""

        def convert(value: object) -> object:
            if isinstance(value, list):
                return [convert(item) for item in value]
            if isinstance(value, exp.If) and isinstance(node, exp.Case):
                return exp.If(this=convert(value.this), true=convert(value.args["true"]))
            if isinstance(value, exp.Var | exp.DataType) or not isinstance(value, exp.Expression):
                return value
            return exp.Paren(this=exp.Var(this=self._render(value, columns)))

        if isinstance(node, exp.Interval):
            return node.copy()
        return type(node)(**{key: convert(value) for key, value in node.args.items()})

    def _cast(self, node: exp.Cast, columns: dict[Path, None]) -> str:
        inner: dict[Path, None] = {}
        sql = self._render(node.this, inner)
        columns.update(inner)
        source = self.duckdb_type(sql, tuple(inner))
        target = node.to.sql("duckdb")
        name = {"INT": "INTEGER", "TIMESTAMPTZ": "TIMESTAMP", "TEXT": "VARCHAR", "REAL": "FLOAT"}.get(target, target)
        if source == "VARCHAR":
            return cast_text(sql, name)
        if name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT") and (source in ("FLOAT", "DOUBLE") or "DEC" in source):
            return f"CAST(trunc({sql}) AS {name})"
        return f"CAST({sql} AS {name})"


def _literal(node: exp.Literal) -> Literal:
    from decimal import Decimal

    if node.is_string:
        return Literal(node.name, Kind.STRING)
    text = node.name
    if "e" in text.lower():
        return Literal(float(text), Kind.DOUBLE)
    return Literal(Decimal(text), Kind.DECIMAL) if "." in text else Literal(int(text), Kind.INTEGER)


def _literal_of(scalar: pa.Scalar) -> Literal:
    """The literal of a value that DuckDB computed."""
    if not scalar.is_valid:
        return NULL
    if pa.types.is_timestamp(scalar.type):
        return Literal(scalar.cast(types.TIMESTAMP_NTZ).cast(pa.int64()).as_py(), Kind.TIMESTAMP)
    if pa.types.is_date32(scalar.type):
        return Literal(scalar.cast(pa.int32()).as_py(), Kind.DATE)
    return Literal.of(scalar.as_py())
