"""The pipeline that rows pass through on their way into a table: :class:`RowRules`.

For each batch, in this order: convert columns to the table's types; fill missing ones with their default, an identity
value or null; pad and check strings; compute missing generated columns and verify given ones; turn empty strings of
partition columns into null; verify NOT NULL, CHECK constraints and invariants.

Spark computes the expressions that only Spark can evaluate before rows reach the pipeline: see
:meth:`RowRules.spark_stages`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import nulls
from trilake.common.text import quote_name
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.char_varchar import Length, apply_length, length_rule
from trilake.delta.protocol.schema import DataType, PrimitiveType, StructField, StructType
from trilake.delta.protocol.sql_types import spelled
from trilake.delta.rules.constraints import (
    Check,
    RowSession,
    checks_in_session,
    may_depend_on_zone,
    reject_false,
    table_checks,
    verify_checks,
    verify_not_null,
)
from trilake.delta.rules.defaults import default_expression, parse_default
from trilake.delta.rules.identity import Allocator, IdentityColumn, identity_columns
from trilake.delta.rules.store_assignment import as_batch, assign_array, assign_batch, assign_columns, check_assignable
from trilake.delta.scan.generated import GeneratedColumn, generated_columns, generation_expression
from trilake.errors import ExpressionError, SchemaMismatchError, UnsupportedExpressionError
from trilake.expr import evaluate_all
from trilake.expr.terms.engine import Query

#: Prefix of the columns that Spark computes for the pipeline; no column of a table has it.
RESERVED = "__trilake_"
#: Small batches are joined up to this many rows and bytes, since a DuckDB query costs some milliseconds.
_JOINED_ROWS, _JOINED_BYTES = 1 << 17, 32 << 20
_STRINGS = (pa.string(), pa.binary())
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class SparkExpression:
    """An expression that only Spark can evaluate: ``sql``, its owner, and the column for its value."""

    name: str
    sql: str
    what: str

    def __post_init__(self) -> None:
        reject_foreign_calls(self.sql, self.what)


@dataclass(frozen=True)
class RowRules:
    """The rules of one table for rows of one schema; picklable, and without I/O.

    Create it with :meth:`of` on the driver and run it with :meth:`start` in any process.  ``present`` are the table's
    columns that the rows have, in the table's spelling; ``defaults`` are the values of the missing ones.
    """

    schema: StructType
    source: StructType
    query: Query
    present: frozenset[str] = frozenset()
    defaults: Mapping[str, pa.Scalar] = field(default_factory=dict)
    identities: tuple[IdentityColumn, ...] = ()
    lengths: Mapping[str, Length] = field(default_factory=dict)
    generated: tuple[GeneratedColumn, ...] = ()
    checks: tuple[Check, ...] = ()
    rewrite: bool = False
    #: Partition columns whose empty strings are null to the rules.
    emptied: tuple[str, ...] = ()
    #: What Spark must compute first; may be empty.
    needs_spark: tuple[SparkExpression, ...] = ()

    @classmethod
    def of(
        cls,
        metadata: Metadata,
        source: StructType,
        *,
        uri: str,
        query: Query,
        now_ms: int,
        session: RowSession | None = None,
        rewrite: bool = False,
        nulls: bool = False,
    ) -> RowRules:
        """The rules for rows of schema ``source``, matched by name, that are written to the table at ``uri``.

        Parameters
        ----------
        now_ms: ms since the epoch, for ``current_timestamp()`` in a default.
        session: the session of rows from Spark, which computes what DuckDB cannot (:meth:`spark_stages`).
        rewrite: whether existing rows are rewritten, as by an update: only nulls then get identity values.
        nulls: whether a column that is missing in ``source`` is null even if it must not be, so that only rows fail.

        Raises ``SchemaMismatchError`` for rows that do not fit or that have values of a GENERATED ALWAYS identity
        column, ``ExpressionError`` for an invalid rule, ``UnsupportedExpressionError`` for a rule that only Spark can
        evaluate if Spark is not available, and ``CorruptLogError`` for malformed metadata.
        """
        schema, now = metadata.schema, _EPOCH + dt.timedelta(milliseconds=now_ms)
        present = frozenset(f.name for f in schema.fields if source.find(f.name) is not None)
        identities, generated = identity_columns(schema), generated_columns(schema, now)
        absent = [f for f in schema.fields if f.name not in present]
        default_sql = {
            f.name: t for f in absent if (t := default_expression(f)) is not None and generation_expression(f) is None
        }
        optional = {*default_sql, *(c.name for c in identities), *(g.name for g in generated)}
        check_assignable(source, schema, uri=uri, filled=schema.names if nulls else optional)
        for c in identities:
            if c.name in present and not c.explicit and not rewrite:
                raise SchemaMismatchError(
                    f"column {c.name!r} is an identity column, whose values are generated",
                    help="leave the column out",
                    column=c.name,
                    file=uri,
                    condition="DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED",
                )
        checks = table_checks(metadata.configuration, schema, now)
        generated, checks = _in_session(generated, schema, session), checks_in_session(checks, schema, session)
        defaults: dict[str, pa.Scalar] = {}
        needs_spark: list[SparkExpression] = []
        for name, sql in default_sql.items():
            expression = parse_default(schema.field(name), sql, now)
            type_ = schema.field(name).type
            if expression is None or (session is not None and session.depends_on_zone(sql, schema, (), type_)):
                needs_spark.append(SparkExpression(name, sql, f"the default of column {name}"))
            else:
                assert expression.constant is not None
                defaults[name] = expression.constant
        for i, g in enumerate(generated):
            if g.expression is None:
                name = f"{RESERVED}generated_{i}" if g.name in present else g.name
                needs_spark.append(SparkExpression(name, g.sql, f"generated column {g.name}"))
        for i, check in enumerate(checks):
            if check.condition is None:
                needs_spark.append(SparkExpression(f"{RESERVED}check_{i}", check.sql, f"{check.kind} {check.name}"))
        if needs_spark and session is None:
            raise UnsupportedExpressionError(
                "only Spark can write to this table, which has expressions that the embedded engine cannot evaluate: "
                + "; ".join(f"{e.what} ({e.sql[:200]})" for e in needs_spark),
                help="write from Spark, or change these expressions",
                file=uri,
            )
        rules = {f.name: rule for f in schema.fields if (rule := length_rule(f)) is not None}
        partitions = (schema.field(name) for name in metadata.partition_columns)
        emptied = tuple(f.name for f in partitions if f.type.arrow in _STRINGS and (checks or not f.nullable))
        return cls(
            schema,
            source,
            query,
            present,
            defaults,
            identities,
            rules,
            generated,
            checks,
            rewrite,
            emptied,
            tuple(needs_spark),
        )

    @cached_property
    def plain(self) -> bool:
        """Whether rows need only the table's types and NOT NULL."""
        return not (self.defaults or self.identities or self.lengths or self.generated or self.checks or self.emptied)

    @cached_property
    def uses_engine(self) -> bool:
        """Whether batches go through DuckDB, where many small ones are slower than a few large ones."""
        return any(g.expression is not None for g in self.generated) or any(c.filter is None for c in self.checks)

    @property
    def generated_identities(self) -> tuple[str, ...]:
        """The identity columns whose values are all generated.

        They can be shifted after a concurrent write (:func:`trilake.delta.rules.identity.shifts`).
        """
        return tuple(c.name for c in self.identities if c.name not in self.present)

    def start(self, task: int = 0, *, tasks: int | None = None) -> RowPipeline:
        """The pipeline of one task; ``tasks`` is the number of tasks if known (1 leaves no gaps)."""
        return RowPipeline(self, task, tasks)

    def spark_columns(self) -> list[str]:
        """``DataFrame.selectExpr`` arguments for the table's columns, except missing generated columns.

        Empty if :attr:`needs_spark` is.  Spark evaluates in its session time zone, DuckDB in UTC.
        """
        if not self.needs_spark:
            return []
        computed = {g.name for g in self.generated} | {c.name for c in self.identities}
        columns = []
        for f in self.schema.fields:
            if f.name in self.present:
                columns.append(f"{_stored(self.source.field(f.name), f.type)} AS {quote_name(f.name)}")
            elif f.name not in computed:
                default = f"CAST({_inside(default_expression(f) or 'NULL')} AS {sql_type(f.type)})"
                columns.append(f"{default} AS {quote_name(f.name)}")
        return columns

    def spark_stages(self) -> list[dict[str, str]]:
        """The next steps in Spark before the pipeline: expressions by column name, each for one ``withColumns``.

        The first adds missing generated columns; others add what is verified, under names with the prefix
        :data:`RESERVED`, which the pipeline drops.  A condition that only Spark can evaluate must not read an identity
        column that the rows lack: Spark does not have its values yet, and reports an unknown column.
        """
        if not self.needs_spark:
            return []
        checks = {f"{RESERVED}check_{i}": c.sql for i, c in enumerate(self.checks) if c.condition is None}
        computed, verified = {}, {}
        for i, g in enumerate(self.generated):
            value = f"CAST({_inside(g.sql)} AS {sql_type(self.schema.field(g.name).type)})"
            if g.name not in self.present and (g.expression is None or checks):
                computed[g.name] = value
            elif g.name in self.present and g.expression is None:
                verified[f"{RESERVED}generated_{i}"] = value
        third, *more = check_stages(checks, self.emptied) or [{}]
        return [stage for stage in (computed, {**verified, **third}, *more) if stage]


class RowPipeline:
    """Applies the rules to the batches of one task."""

    def __init__(self, rules: RowRules, task: int, tasks: int | None) -> None:
        self.rules = rules
        self._wanted = rules.schema.to_arrow_schema()
        self._allocators = {c.name: Allocator(c, task, tasks) for c in rules.identities}
        self._explicit: dict[str, int] = {}
        spark = {e.name for e in rules.needs_spark}
        self._spark_checks = [(f"{RESERVED}check_{i}", c) for i, c in enumerate(rules.checks) if c.condition is None]
        self._checks = [c for c in rules.checks if c.condition is not None]
        self._promised = rules.present | {f.name for f in rules.schema.fields if f.name in spark}

    @property
    def marks(self) -> dict[str, int]:
        """The furthest value so far by identity column: a generated value, or a given one beyond the high-water
        mark.
        """
        marks = dict(self._explicit)
        for name, allocator in self._allocators.items():
            mark = allocator.column.further(allocator.mark, marks.get(name))
            if mark is not None:
                marks[name] = mark
        return marks

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Call :meth:`apply` for each of ``batches``, joining small ones if that is faster."""
        if not self.rules.uses_engine:
            yield from map(self.apply, batches)
            return
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            if waiting and batch.schema != waiting[0].schema:
                yield self.apply(_joined(waiting))
                waiting = []
            waiting.append(batch)
            if sum(b.num_rows for b in waiting) >= _JOINED_ROWS or sum(b.nbytes for b in waiting) >= _JOINED_BYTES:
                yield self.apply(_joined(waiting))
                waiting = []
        if waiting:
            yield self.apply(_joined(waiting))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Turn incoming rows into verified rows of the table.

        Raises ``SchemaMismatchError`` for a value that does not fit, its subclass ``ConstraintViolatedError`` for a row
        that violates a rule, ``ExpressionError`` if an expression fails, ``IdentityOverflowError``.
        """
        rules = self.rules
        if rules.plain:
            return assign_batch(batch, rules.schema)
        if not batch.num_rows:
            return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in self._wanted], schema=self._wanted)
        columns = self._columns(batch)
        self._fill_identities(columns, batch.num_rows)
        for name, rule in rules.lengths.items():
            if name in columns:
                columns[name] = apply_length(columns[name], rule, name)
        self._generate(columns, batch)
        for name in rules.emptied:
            if name in columns:
                values = columns[name]
                empty = pc.equal(pc.binary_length(values), 0)
                if pc.any(empty).as_py():
                    columns[name] = pc.if_else(empty, pa.scalar(None, values.type), values)
        rows = self._rows(columns, batch.num_rows)
        verify_not_null(rows, rules.schema)
        verify_checks(self._checks, rows)
        for name, check in self._spark_checks:
            reject_false(batch.column(name), rows, check)
        return pa.RecordBatch.from_arrays(rows.columns, schema=self._wanted)

    def _rows(self, columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
        schema = self.rules.schema
        return as_batch([columns.get(f.name) for f in schema.fields], count, schema)

    def _columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        columns = assign_columns(batch, self.rules.schema)
        missing = self._promised - set(columns)
        if missing:
            raise SchemaMismatchError(
                f"a batch lacks the columns {', '.join(sorted(missing))}, which the schema of the rows has",
                help=f"the columns of the batch are {', '.join(batch.schema.names)}",
            )
        for name, value in self.rules.defaults.items():
            if name not in columns:
                target = self.rules.schema.field(name).type.arrow
                columns[name] = pa.repeat(value, batch.num_rows) if value.is_valid else nulls(batch.num_rows, target)
        return columns

    def _fill_identities(self, columns: dict[str, pa.Array], count: int) -> None:
        for name, allocator in self._allocators.items():
            values = columns.get(name)
            if values is None:
                columns[name] = allocator.take(count)
            elif self.rules.rewrite:
                if values.null_count:
                    new = allocator.take(values.null_count)
                    columns[name] = pc.replace_with_mask(values, values.is_null(), new)
            else:
                reached = allocator.column.further(allocator.column.reach(values), self._explicit.get(name))
                if reached is not None:
                    self._explicit[name] = reached

    def _generate(self, columns: dict[str, pa.Array], batch: pa.RecordBatch) -> None:
        rules = self.rules
        if not rules.generated:
            return
        rows = self._rows(columns, batch.num_rows)
        evaluated = [(g, g.expression) for g in rules.generated if g.expression is not None]
        results = evaluate_all([e for _, e in evaluated], rows)
        computed = {g.name: values.combine_chunks() for (g, _), values in zip(evaluated, results, strict=True)}
        for i, g in enumerate(rules.generated):
            if g.expression is None and g.name in rules.present:
                target = rules.schema.field(g.name).type
                computed[g.name] = assign_array(batch.column(f"{RESERVED}generated_{i}"), target, g.name)
            rule = rules.lengths.get(g.name)
            if rule is not None and g.name in computed:
                computed[g.name] = apply_length(computed[g.name], rule, g.name)
            if g.name not in columns:
                columns[g.name] = computed[g.name]
            elif g.name in rules.present:
                g.verify(columns[g.name], computed[g.name], rows, rules.query)


def check_stages(checks: Mapping[str, str], emptied: Sequence[str]) -> list[dict[str, str]]:
    """Conditions for Spark by column name, in stages like those of :meth:`RowRules.spark_stages`.

    Conditions see null for empty strings in the ``emptied`` columns; later stages restore the strings.

    >>> check_stages({"c": "a = b"}, [])
    [{'c': 'coalesce((a = b), false)'}]
    >>> [list(stage) for stage in check_stages({"c": "a = b"}, ["a"])]
    [['__trilake_kept_0'], ['a'], ['c'], ['a']]
    """
    if not checks:
        return []
    renamed = {f"{RESERVED}kept_{i}": quote_name(name) for i, name in enumerate(emptied)}
    nulled = {name: f"IF(octet_length({quote_name(name)}) = 0, NULL, {quote_name(name)})" for name in emptied}
    conditions = {name: f"coalesce({_inside(sql)}, false)" for name, sql in checks.items()}
    return [conditions] if not renamed else [renamed, nulled, conditions, dict(zip(emptied, renamed, strict=True))]


def _in_session(
    generated: tuple[GeneratedColumn, ...], schema: StructType, session: RowSession | None
) -> tuple[GeneratedColumn, ...]:
    """The generated columns; those without an expression are for the session."""
    if session is None:
        return generated

    def differs(g: GeneratedColumn) -> bool:
        if g.expression is None:
            return False
        type_ = schema.field(g.name).type
        return session.lenient or session.depends_on_zone(g.sql, schema, g.expression.columns, type_)

    return tuple(replace(g, expression=None) if differs(g) else g for g in generated)


def depending_on_zone(metadata: Metadata, source: StructType, now: dt.datetime) -> tuple[str, ...]:
    """Rules that may give other results in a time zone other than UTC, for rows of schema ``source``."""
    schema = metadata.schema
    checks, generated = table_checks(metadata.configuration, schema, now), generated_columns(schema, now)
    zoned = RowSession(zoned=True)
    affected = [
        f"{c.kind} {c.name}"
        for c, there in zip(checks, checks_in_session(checks, schema, zoned), strict=True)
        if c != there
    ]
    pairs = zip(generated, _in_session(generated, schema, zoned), strict=True)
    affected += [f"generated column {g.name}" for g, there in pairs if g != there]
    for f in schema.fields:
        source_field, sql = source.find(f.name), default_expression(f)
        if source_field is not None and _is_instant(source_field.type) != _is_instant(f.type):
            affected.append(f"column {f.name} of type {source_field.type} as {f.type}")
        elif source_field is None and sql is not None and may_depend_on_zone(sql, schema, (), f.type):
            affected.append(f"the default of column {f.name}")
    return tuple(affected)


def _is_instant(type_: DataType) -> bool:
    return isinstance(type_, PrimitiveType) and type_.name == "timestamp"


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _stored(column: StructField, type_: DataType) -> str:
    name, source = quote_name(column.name), column.type
    if source == type_ or not isinstance(source, PrimitiveType) or not isinstance(type_, PrimitiveType):
        return name  # the pipeline converts nested values
    cast = f"CAST({name} AS {sql_type(type_)})"
    if source.name in ("void", "date") or source.arrow == type_.arrow:
        return cast
    # Outside ANSI mode, a cast silently changes values that do not fit.
    message = f"a value of column {column.name} does not fit {type_}".replace("\\", "\\\\").replace("'", "\\'")
    fail = f"raise_error('{message}')"
    return f"IF(CAST({cast} AS {sql_type(source)}) <=> {name}, {cast}, {fail})"


def _inside(sql: str) -> str:
    """An expression in parentheses, safe against a comment at its end."""
    return f"({sql}\n)" if "--" in sql else f"({sql})"


def sql_type(type_: DataType) -> str:
    """A type in Spark SQL.

    >>> from trilake.delta.protocol.schema import ArrayType, PrimitiveType
    >>> sql_type(ArrayType(StructType((StructField("a b", PrimitiveType("long")),))))
    'ARRAY<STRUCT<`a b`: BIGINT>>'
    """
    return spelled(type_, lambda f, inner: f"{quote_name(f.name)}: {inner}", upper=True)


# --- Expressions stored in a table must not run arbitrary code --------------------------------------------------------
# The creator of a table decides its constraints, defaults and generated columns, and Spark evaluates those that
# DuckDB cannot.  Spark has functions that call any Java method, and `IDENTIFIER`, which turns a string into a
# function name.

#: A call of one of them, with any quotes around its name; also inside strings, since session settings decide what
#: starts a string.  Comments nest, so the search stops at the start of one.
_CALL = re.compile(r"(?<!\w)(reflect|try_reflect|java_method|identifier)[`\"\s]*(?:\(|/\*|--)", re.IGNORECASE)


def reject_foreign_calls(sql: str, what: str) -> None:
    """Raise ``ExpressionError`` for an expression that calls Java methods; ``what`` names its owner.

    >>> reject_foreign_calls("abs(a) > 0 and reflected", "constraint c")
    """
    match = _CALL.search(sql)
    if match is not None:
        raise ExpressionError(
            f"the {what} calls {match[1].lower()}, which runs Java code: this is not allowed in the rules of a table",
            help="drop the rule first; write to this table only if you trust its author",
        )
