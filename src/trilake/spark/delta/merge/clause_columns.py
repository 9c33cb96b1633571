"""MERGE clauses as columns of Spark DataFrames: the clause that applies to each row, and each new value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.text import quote_name
from trilake.delta.commands.merge.clauses import FromExpression, FromSource, FromTarget, Parts, ResolvedClause
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import Path
from trilake.delta.rules.constraints import RowSession
from trilake.delta.rules.defaults import default_expression
from trilake.delta.rules.identity import identity_columns
from trilake.delta.rules.row_rules import RESERVED, RowRules, check_stages, sql_type
from trilake.delta.scan.generated import generation_expression
from trilake.delta.scan.scan import read_schema
from trilake.expr.terms.engine import Query
from trilake.spark.delta.merge.source import Expr
from trilake.spark.delta.merge.tasks import CLAUSE, SOURCE, TaskClause
from trilake.spark.delta.storing.computed import with_stages
from trilake.spark.delta.storing.store_assignment import AssignmentRules, needs_no_conversion, stored
from trilake.spark.scan.columns import as_column, select_named, select_terms
from trilake.spark.session.schemas import to_spark

#: Prefix of the columns with new values of matched rows.
_VALUE = "__trilake_value_"
#: Prefixes of second names of the target's and the source's columns, which no user's column has.
_TARGET, _SOURCE = "__trilake_target_", "__trilake_source_"


@dataclass(frozen=True)
class SparkClause:
    """A clause and its number; ``rules`` apply to its new rows, ``None`` for a delete."""

    number: int
    clause: ResolvedClause[Expr]
    rules: RowRules | None
    columns: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        number: int,
        clause: ResolvedClause[Expr],
        metadata: Metadata,
        *,
        uri: str,
        query: Query,
        now_ms: int,
        session: RowSession,
    ) -> SparkClause:
        if clause.action == "delete":
            return cls(number, clause, None)
        fields = tuple(
            f
            for f in metadata.schema.fields
            if f.name in clause.assigned
            or (isinstance(clause.values[f.name], FromTarget) and generation_expression(f) is None)
        )
        rules = RowRules.of(
            metadata,
            StructType(fields),
            uri=uri,
            query=query,
            now_ms=now_ms,
            session=session,
            rewrite=clause.action == "update",
            nulls=True,
        )
        return cls(number, clause, rules, tuple(f.name for f in fields))

    @property
    def task(self) -> TaskClause:
        return TaskClause(self.clause.kind, self.clause.action, self.columns, self.rules)

    @property
    def expressions(self) -> dict[Path, Expr]:
        """The expressions of its values, by path in the target."""
        out: dict[Path, Expr] = {}
        for name, value in self.clause.values.items():
            _collect(value, (name,), out)
        return out


def _collect(value: Any, path: Path, out: dict[Path, Expr]) -> None:
    if isinstance(value, FromExpression):
        out[path] = value.expression
    elif isinstance(value, Parts):
        for name, part in value.fields.items():
            _collect(part, (*path, name), out)


@dataclass(frozen=True)
class Sides:
    """The table's schemas before and after schema evolution, and that of the source.  With ``evolve``, structs may lack
    fields."""

    before: StructType
    after: StructType
    source_schema: T.StructType
    rules: AssignmentRules
    evolve: bool

    @cached_property
    def types_before(self) -> T.StructType:
        return to_spark(read_schema(self.before))

    @cached_property
    def types_after(self) -> T.StructType:
        return to_spark(read_schema(self.after))

    @cached_property
    def source_names(self) -> dict[str, str]:
        """Second names of the source's columns.  Clauses do not read columns that differ only in case from others."""
        names = Counter(name.lower() for name in self.source_schema.names)
        unique = [name for name in self.source_schema.names if names[name.lower()] == 1]
        return {name: f"{_SOURCE}{i}" for i, name in enumerate(unique)}

    @cached_property
    def target_names(self) -> dict[str, str]:
        """Second names of the target's columns."""
        return {name: f"{_TARGET}{i}" for i, name in enumerate(self.types_before.names)}

    def source_term(self, path: Path) -> str:
        """The SQL of a column or nested field of a source :func:`named_twice`."""
        return ".".join([self.source_names[path[0]], *map(quote_name, path[1:])])

    def target_term(self, path: Path) -> str:
        """The SQL of a column or nested field of a target :func:`named_twice`."""
        return ".".join([self.target_names[path[0]], *map(quote_name, path[1:])])


def named_twice(frame: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Add columns under second names, which are unique in a join."""
    return select_terms(frame, ["*", *(f"{quote_name(name)} AS {second}" for name, second in names.items())])


class Values:
    """The columns of new rows for clauses that see the same DataFrame."""

    def __init__(self, sides: Sides, frame: DataFrame, clauses: Sequence[SparkClause]) -> None:
        """Resolve the clauses' expressions in ``frame``."""
        self.sides, self.clauses = sides, clauses
        columns: dict[tuple[int, Path | None], Column] = {}
        for c in clauses:
            if c.clause.condition is not None:
                columns[c.number, None] = as_column(c.clause.condition)
            columns |= {(c.number, path): as_column(e) for path, e in c.expressions.items()}
        fields = frame.select(*(e.alias(str(i)) for i, e in enumerate(columns.values()))).schema.fields
        self.expressions = {key: (e, f.dataType) for (key, e), f in zip(columns.items(), fields, strict=True)}

    def choice(self) -> Column:
        """The number of the first clause that applies to a row; null if none does."""
        column: Column | None = None
        for c in self.clauses:
            if c.clause.condition is None:
                return F.lit(c.number) if column is None else column.otherwise(c.number)
            condition = self.expressions[c.number, None][0]
            column = F.when(condition, c.number) if column is None else column.when(condition, c.number)
        return F.lit(None).cast("int") if column is None else column

    def columns_by_clause(self) -> ColumnsByClause:
        return [(c, {name: self.column(c, name) for name in c.columns}) for c in self.clauses]

    def column(self, clause: SparkClause, name: str) -> Term:
        """The new value of a column that a clause sets."""
        types, old = self.sides.types_before, None
        if name in types.names:
            old = types[name].dataType
        return self._value(clause, clause.clause.values[name], self.sides.types_after[name].dataType, old, (name,))

    def _value(self, clause: SparkClause, value: Any, type_: T.DataType, old: T.DataType | None, path: Path) -> Term:
        sides = self.sides
        match value:
            case FromExpression():
                value, source = self.expressions[clause.number, path]
                return self._stored(value, source, type_, path, fill=sides.evolve)
            case FromSource(at):
                return self._stored(
                    sides.source_term(at), _type_at(sides.source_schema, at), type_, path, fill=sides.evolve
                )
            case Parts(fields, null_with):
                assert isinstance(type_, T.StructType)
                parts = []
                for f in type_.fields:
                    inner = _type_at(old, (f.name,)) if isinstance(old, T.StructType) and f.name in old.names else None
                    part = self._value(clause, fields.get(f.name, FromTarget()), f.dataType, inner, (*path, f.name))
                    parts.append(as_column(part).alias(f.name))
                whole = F.struct(*parts)
                if null_with is None:
                    return whole
                is_set = f"{sides.source_term(null_with)} IS NOT NULL"
                if old is not None:
                    is_set += f" OR {sides.target_term(path)} IS NOT NULL"
                return F.when(F.expr(is_set), whole)
        if old is None:
            return F.lit(None).cast(type_)
        return self._stored(sides.target_term(path), old, type_, path, fill=True)

    def _stored(self, value: Term, source: T.DataType, type_: T.DataType, path: Path, *, fill: bool) -> Term:
        if needs_no_conversion(source, type_):
            return value
        return stored(as_column(value), source, type_, ".".join(path), rules=self.sides.rules, fill=fill)


def _type_at(type_: T.DataType, path: Path) -> T.DataType:
    for name in path:
        assert isinstance(type_, T.StructType)
        type_ = type_[name].dataType
    return type_


#: SQL, which takes no call of the JVM, or a column.
Term = str | Column
#: The new columns of each clause, by name.
ColumnsByClause = Sequence[tuple[SparkClause, Mapping[str, Term]]]


def with_unmatched(
    rows: DataFrame,
    sides: Sides,
    matched: ColumnsByClause,
    clauses: Sequence[SparkClause],
    *,
    alias: str | None,
    carried: Sequence[str],
) -> tuple[DataFrame, ColumnsByClause]:
    """Add to joined ``rows`` the clauses for rows without a match, whose expressions see only the target's columns: the
    rows with these and the ``carried`` columns, and all columns by clause."""
    names = dict.fromkeys(name for _, columns in matched for name in columns)
    computed = {name: f"{_VALUE}{i}" for i, name in enumerate(names)}
    new = {second: _by_clause(matched, name) for name, second in computed.items()}
    kept = [f"{second} AS {quote_name(name)}" for name, second in sides.target_names.items()]
    rows = select_named(rows, new, [*kept, *sides.target_names.values(), *carried])
    if alias is not None:
        rows = rows.alias(alias)
    values = Values(sides, rows, clauses)
    choice = F.when(F.col(SOURCE).isNotNull(), F.col(CLAUSE)).otherwise(values.choice())
    by_clause = [(c, {name: computed[name] for name in columns}) for c, columns in matched]
    return rows.withColumn(CLAUSE, choice), [*by_clause, *values.columns_by_clause()]


def new_rows(frame: DataFrame, metadata: Metadata, values: ColumnsByClause, carried: Sequence[str]) -> DataFrame:
    """The rows for tasks: the clauses' columns with their names in the table, then ``carried``, which must include
    :data:`CLAUSE`.  Evaluates rules of the table that only Spark can evaluate."""
    names = [f.name for f in metadata.schema.fields if any(f.name in columns for _, columns in values)]
    rows = select_named(frame, {name: _by_clause(values, name) for name in names}, carried)
    spark_names = {e.name for c, _ in values if c.rules is not None for e in c.rules.needs_spark}
    return _with_spark_rules(rows, metadata, [c for c, _ in values], spark_names) if spark_names else rows


def _by_clause(values: ColumnsByClause, name: str) -> Term:
    """The value of a column in each row's clause; no clause's expression is evaluated for another row, where it might
    fail."""
    terms = [(f"{CLAUSE} = {c.number}", columns[name]) for c, columns in values if name in columns]
    if all(isinstance(value, str) for _, value in terms):
        return f"CASE {' '.join(f'WHEN {condition} THEN {value}' for condition, value in terms)} END"
    (first, value), *others = terms
    column = F.when(F.expr(first), as_column(value))
    for condition, value in others:
        column = column.when(F.expr(condition), as_column(value))
    return column


def _with_spark_rules(
    rows: DataFrame, metadata: Metadata, clauses: Sequence[SparkClause], spark_names: set[str]
) -> DataFrame:
    """Add defaults, generated columns and constraints that the embedded engine does not support."""
    schema = metadata.schema
    first: dict[str, Column] = {}
    second: dict[str, Column] = {}
    third: dict[str, Column] = {}
    checks: dict[str, str] = {}
    emptied: tuple[str, ...] = ()
    identities = {c.name for c in identity_columns(schema)}  # the tasks give them values
    has_checks = any(name.startswith(f"{RESERVED}check_") for name in spark_names)
    for f in schema.fields:
        sql, kind = generation_expression(f), sql_type(f.type)
        lacking = [c.number for c in clauses if c.rules is not None and f.name not in c.columns]
        # Expressions may read every column, but only constraints read generated ones.
        is_read = f.name not in identities if sql is None else has_checks
        if lacking and (is_read or f.name in spark_names):
            value = F.expr(f"CAST(({sql or default_expression(f) or 'NULL'}\n) AS {kind})")
            existing = F.col(quote_name(f.name)) if f.name in rows.columns else F.lit(None).cast(kind)
            stage = first if sql is None else second
            stage[f.name] = F.when(F.col(CLAUSE).isin(lacking), value).otherwise(existing)
    for rules in (c.rules for c in clauses if c.rules is not None):
        for e in rules.needs_spark:
            if e.name.startswith(f"{RESERVED}generated_"):
                field = schema.field(rules.generated[int(e.name.rsplit("_", 1)[1])].name)
                third[e.name] = F.expr(f"CAST(({e.sql}\n) AS {sql_type(field.type)})")
            elif e.name.startswith(f"{RESERVED}check_"):
                checks[e.name] = e.sql
                emptied = rules.emptied  # of the table, so the same in all clauses
    for stage in (first, second, third):
        if stage:
            rows = rows.withColumns(stage)
    return with_stages(rows, check_stages(checks, emptied))
