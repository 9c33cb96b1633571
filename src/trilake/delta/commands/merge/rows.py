"""Apply the clauses of a MERGE to Arrow rows: choose the clause of each row, and compute the new row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import nulls, values_at
from trilake.common.text import quote_name
from trilake.delta.commands.merge.clauses import (
    VISIBLE,
    FromExpression,
    FromSource,
    FromTarget,
    Parts,
    ResolvedClause,
    Side,
)
from trilake.delta.commands.merge.scope import Scope
from trilake.delta.commands.write.assignments import stored
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import DataType, PrimitiveType, StructField, StructType, paired
from trilake.delta.protocol.schema_edit import Path, format_path
from trilake.delta.rules.row_rules import RowPipeline, RowRules
from trilake.delta.rules.store_assignment import assign_array, check_assignable, check_fields
from trilake.delta.scan.generated import generation_expression
from trilake.errors import ExpressionError, SchemaMismatchError, UnsupportedExpressionError
from trilake.expr import Expression, evaluate_all
from trilake.expr.terms.engine import Query

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Indexes = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Rows:
    """``count`` rows with the columns of each existing side."""

    count: int
    sides: Mapping[Side, pa.Table]

    def take(self, which: Indexes) -> Rows:
        if len(which) == self.count:
            return self
        at = pa.array(which)
        return Rows(len(which), {s: t.take(at) for s, t in self.sides.items()})

    def column(self, side: Side, path: Path) -> pa.ChunkedArray:
        """A column, or a nested field, of one side."""
        return values_at(self.sides[side], path)

    def view(self, scope: Scope, expressions: Sequence[Expression]) -> pa.Table:
        """The rows for expressions, with one struct column per side."""
        arrays, names = [], []
        for side in scope.schemas:
            alias = scope.aliases[side]
            column_names = sorted({p[1] for e in expressions for p in e.paths if p[0] == alias})
            if column_names:
                arrays.append(self.sides[side].select(column_names).to_struct_array())
                names.append(alias)
        if not arrays:
            return pa.table({"": pa.nulls(self.count)})
        return pa.table(arrays, names=names)


@dataclass(frozen=True)
class RowClause:
    """A clause whose expressions are bound to ``scope``.

    ``fields`` are the columns that it sets, ``rules`` those for its new rows; a delete has neither.
    """

    clause: ResolvedClause[str]
    scope: Scope
    condition: Expression | None
    expressions: Mapping[Path, Expression]
    fields: tuple[StructField, ...]
    rules: RowRules | None

    @classmethod
    def of(
        cls,
        clause: ResolvedClause[str],
        scope: Scope,
        metadata: Metadata,
        source: StructType,
        *,
        uri: str,
        query: Query,
        now: dt.datetime,
        evolve: bool,
    ) -> RowClause:
        """Bind a clause; if the schema evolves, structs may lack fields.

        Raises ``ExpressionError`` for invalid expressions, ``UnsupportedExpressionError`` for expressions that only
        Spark can evaluate, and ``SchemaMismatchError`` for values that columns cannot store.
        """
        sides = VISIBLE[clause.kind]
        scope = scope.only(sides[0]) if len(sides) == 1 else scope
        condition = None
        if clause.condition is not None:
            condition = scope.condition(clause.condition, "the condition of a clause")
        if clause.action == "delete":
            return cls(clause, scope, condition, {}, (), rules=None)
        schema = metadata.schema
        binder = _Binder(scope, source, uri, evolve)
        expressions = dict(e for f in schema.fields for e in binder.bind(clause.values[f.name], f.type, (f.name,)))
        # Unassigned columns are kept, filled or generated; generated columns are recomputed.
        kept = {f.name for f in schema.fields if isinstance(clause.values[f.name], FromTarget)}
        kept -= {f.name for f in schema.fields if generation_expression(f) is not None}
        kept |= clause.assigned
        fields = tuple(f for f in schema.fields if f.name in kept)
        rules = RowRules.of(
            metadata,
            StructType(fields),
            uri=uri,
            query=query,
            now_ms=int(now.timestamp() * 1000),
            rewrite=clause.action == "update",
            nulls=True,
        )
        return cls(clause, scope, condition, expressions, fields, rules)

    @property
    def deletes(self) -> bool:
        return self.clause.action == "delete"

    def pipeline(self, task: int = 0, *, tasks: int | None = None) -> RowPipeline:
        """The rules for the new rows of one task; not for a delete."""
        assert self.rules is not None
        return self.rules.start(task, tasks=tasks)

    def _read(self, side: Side) -> set[str]:
        """The columns of one side that expressions read."""
        alias = self.scope.aliases[side] if side in self.scope.schemas else None
        expressions = [*self.expressions.values(), *([self.condition] if self.condition is not None else [])]
        return {p[1] for e in expressions for p in e.paths if p[0] == alias}

    @cached_property
    def needs(self) -> frozenset[str]:
        if "target" not in self.scope.schemas:
            return frozenset()
        partly = {f.name for f in self.fields if isinstance(self.clause.values[f.name], FromTarget | Parts)}
        return frozenset(self._read("target") | partly.intersection(self.scope.schemas["target"].names))

    @cached_property
    def source_needs(self) -> frozenset[str]:
        values = (self.clause.values[f.name] for f in self.fields)
        return frozenset(self._read("source").union(*map(_source_columns, values)))

    def applies(self, rows: Rows) -> Mask | None:
        """The rows to which the clause applies; ``None`` for all."""
        if self.condition is None:
            return None
        truth = self.condition.evaluate(rows.view(self.scope, [self.condition]))
        mask: Mask = pc.fill_null(truth.cast(pa.bool_()), False).to_numpy()
        return mask

    def make(self, rows: Rows, pipeline: RowPipeline) -> pa.RecordBatch:
        """Compute the clause's new rows of the table, checked by its rules."""
        expressions = list(self.expressions.values())
        results = evaluate_all(expressions, rows.view(self.scope, expressions)) if expressions else []
        values = dict(zip(self.expressions, results, strict=True))
        arrays = [self._column(self.clause.values[f.name], f, (f.name,), rows, values) for f in self.fields]
        if not arrays:  # an insert of defaults only
            return pipeline.apply(pa.RecordBatch.from_arrays([pa.nulls(rows.count)], names=["__trilake_rows"]))
        return pipeline.apply(pa.RecordBatch.from_arrays(arrays, names=[f.name for f in self.fields]))

    def _column(
        self, value: Any, field: StructField, path: Path, rows: Rows, values: Mapping[Path, pa.ChunkedArray]
    ) -> pa.Array:
        match value:
            case FromExpression():
                return _flat(values[path])
            case FromSource(at):
                return _flat(values[path] if path in values else rows.column("source", at))
            case FromTarget():
                return self._from_target(field.type, path, rows)
            case Parts(fields, null_with):
                return self._struct(fields, null_with, field, path, rows, values)
        return nulls(rows.count, field.type.arrow)

    def _struct(
        self,
        parts: Mapping[str, Any],
        null_with: Path | None,
        field: StructField,
        path: Path,
        rows: Rows,
        values: Mapping[Path, pa.ChunkedArray],
    ) -> pa.Array:
        assert isinstance(field.type, StructType)
        children = []
        for f in field.type.fields:
            child = self._column(parts.get(f.name, FromTarget()), f, (*path, f.name), rows, values)
            children.append(assign_array(child, f.type, format_path((*path, f.name))))
        mask = None
        if null_with is not None:
            old = self._from_target(field.type, path, rows)
            mask = pc.and_(_flat(rows.column("source", null_with)).is_null(), old.is_null())
        return pa.StructArray.from_arrays(children, fields=list(field.type.arrow), mask=mask)

    def _from_target(self, type_: DataType, path: Path, rows: Rows) -> pa.Array:
        here: Any = self.scope.schemas["target"]
        for name in path:
            at = here.get_field_index(name) if isinstance(here, pa.Schema | pa.StructType) else -1
            if at < 0:
                return nulls(rows.count, type_.arrow)
            here = here.field(at).type
        return _flat(rows.column("target", path))


def _source_columns(value: Any) -> set[str]:
    match value:
        case FromSource(at):
            return {at[0]}
        case Parts(fields, null_with):
            inside = set() if null_with is None else {null_with[0]}
            return inside.union(*map(_source_columns, fields.values()))
    return set()


@dataclass(frozen=True)
class _Binder:
    """Binds the values of a clause to ``scope`` and the ``source``; if the schema evolves, structs may lack fields."""

    scope: Scope
    source: StructType
    uri: str
    evolve: bool

    def bind(self, value: Any, type_: DataType, path: Path) -> Iterator[tuple[Path, Expression]]:
        """Yield the expressions that compute the value of a column, with the paths of its parts."""
        match value:
            case FromExpression(sql):
                yield path, self._expression(sql, type_, format_path(path))
            case FromSource(at):
                if (conversion := self._conversion(at, type_, format_path(path))) is not None:
                    yield path, conversion
            case Parts(fields):
                assert isinstance(type_, StructType)
                for name, part in fields.items():
                    yield from self.bind(part, type_.field(name).type, (*path, name))

    def _expression(self, sql: str, type_: DataType, name: str) -> Expression:
        expression = self.scope.parse(sql, f"the value of {name}")
        check_fields(expression.type, type_, name, fill=self.evolve)
        # Nested values are converted when they are stored.
        simple = isinstance(type_, PrimitiveType) and not pa.types.is_nested(expression.type)
        return stored(expression, sql, type_, self.scope.parse) if simple else expression

    def _conversion(self, at: Path, type_: DataType, name: str) -> Expression | None:
        """The conversion of a source column to a type; ``None`` if it needs no expression."""
        source_type: DataType = self.source
        for part in at:
            assert isinstance(source_type, StructType)
            source_type = source_type.field(part).type
        conversion = None
        field, target = StructField(name, source_type), StructField(name, type_)
        try:
            check_assignable(StructType((field,)), StructType((target,)), uri=self.uri)
        except SchemaMismatchError as mismatch:
            if not _alike(source_type, type_):
                raise
            if isinstance(type_, PrimitiveType):
                conversion = self._stored(at, type_, mismatch)
        check_fields(source_type.arrow, type_, name, fill=self.evolve)
        return conversion

    def _stored(self, at: Path, type_: PrimitiveType, mismatch: SchemaMismatchError) -> Expression:
        sql = ".".join(quote_name(name) for name in (self.scope.aliases["source"], *at))
        try:
            return stored(self.scope.parse(sql, "a column of the source"), sql, type_, self.scope.parse)
        except UnsupportedExpressionError:
            raise
        except ExpressionError:
            raise mismatch from None


def _alike(source: DataType, target: DataType) -> bool:
    if isinstance(source, StructType) and isinstance(target, StructType):
        both = ((f, target.find(f.name)) for f in source.fields)
        return all(t is not None and _alike(f.type, t.type) for f, t in both)
    inside = paired(source, target)
    if inside is not None:
        return all(_alike(a, b) for _, a, b in inside)
    return isinstance(source, PrimitiveType) and isinstance(target, PrimitiveType)


def _flat(values: pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def choose(clauses: Sequence[RowClause], rows: Rows) -> Indexes:
    """The index of the first clause that applies to each row; -1 if none does."""
    clause_numbers = np.full(rows.count, -1, np.int64)
    open_rows = np.arange(rows.count)
    for number, clause in enumerate(clauses):
        if not len(open_rows):
            break
        mask = clause.applies(rows.take(open_rows))
        if mask is None:
            clause_numbers[open_rows] = number
            break
        clause_numbers[open_rows[mask]] = number
        open_rows = open_rows[~mask]
    return clause_numbers
