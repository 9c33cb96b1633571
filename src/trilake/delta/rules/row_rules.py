"""What happens to rows on their way into a table, put together: :class:`RowRules`.

The order, for each batch: columns that are there are brought to the table's types; those that are not get their
default, an identity value or null; strings are padded and measured; generated columns are computed, or verified where
they are given; empty strings of partition columns become null, as which the log holds them; NOT NULL, CHECK constraints
and invariants are verified.

Where only Spark can evaluate an expression, rows come from Spark, which computes it before they reach the pipeline:
see :meth:`RowRules.spark_stages`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import quote_name
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.char_varchar import Length, apply_length, length_rule
from trilake.delta.protocol.schema import DataType, PrimitiveType, StructField, StructType
from trilake.delta.protocol.sql_types import spelled
from trilake.delta.rules.constraints import (
    Check,
    checks_in_zone,
    refuse_false,
    table_checks,
    verify_checks,
    verify_not_null,
)
from trilake.delta.rules.defaults import default_text, parse_default
from trilake.delta.rules.foreign_calls import refuse_foreign_calls
from trilake.delta.rules.identity import Allocator, IdentityColumn, identity_columns, updated_schema
from trilake.delta.rules.store_assignment import as_batch, assign_array, assign_batch, assign_columns, check_assignable
from trilake.delta.rules.zones import may_depend_on_zone
from trilake.delta.scan.generated import GeneratedColumn, generated_columns, generation_text
from trilake.errors import SchemaMismatchError, UnsupportedExpressionError
from trilake.expr import evaluate_all

__all__ = ["RESERVED", "RowPipeline", "RowRules", "SparkExpression", "check_stages", "updated_schema"]

#: How the columns begin that Spark computes for the pipeline; no table has such a column.
RESERVED = "__trilake_"
#: Rows and bytes of small batches that go through the embedded engine at once: a query takes some milliseconds.
_JOINED_ROWS, _JOINED_BYTES = 1 << 17, 32 << 20
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class SparkExpression:
    """An expression of the table that only Spark can evaluate: ``text``, of what, and the column it comes in as."""

    name: str
    text: str
    what: str

    def __post_init__(self) -> None:
        refuse_foreign_calls(self.text, self.what)


@dataclass(frozen=True)
class RowRules:
    """The rules of one table for rows of one schema; picklable, and without I/O.

    Made by :meth:`of` on the driver, run by :meth:`start` wherever rows are.  ``present`` are the table's columns that
    the rows have, in the table's spelling; ``defaults`` the values of those that they leave out.
    """

    schema: StructType
    source: StructType
    present: frozenset[str] = frozenset()
    defaults: Mapping[str, pa.Scalar] = field(default_factory=dict)
    identities: tuple[IdentityColumn, ...] = ()
    lengths: Mapping[str, Length] = field(default_factory=dict)
    generated: tuple[GeneratedColumn, ...] = ()
    checks: tuple[Check, ...] = ()
    rewrite: bool = False
    #: Partition columns whose empty strings a rule must see as the nulls that they become.
    emptied: tuple[str, ...] = ()
    #: What Spark must compute before, empty where nothing.
    needs_spark: tuple[SparkExpression, ...] = ()

    @classmethod
    def of(
        cls,
        metadata: Metadata,
        source: StructType,
        *,
        uri: str,
        now_ms: int,
        spark: bool = False,
        zoned: bool = False,
        rewrite: bool = False,
    ) -> RowRules:
        """The rules for rows of schema ``source`` that go into the table.

        Parameters
        ----------
        metadata: the table's, with its schema and configuration.
        source: the schema of the rows; columns are matched by name without regard to case.
        uri: the table, for messages.
        now_ms: ms since the epoch, which ``current_timestamp()`` in a default means.
        spark: whether Spark can compute what the embedded engine cannot (:meth:`spark_stages`).
        zoned: whether Spark's session is in another zone than UTC: then it computes all that may depend on the zone.
        rewrite: whether rows of the table are written again, as an update does: identity values are then kept as they
            are, and made up only where they are null.

        Raises ``SchemaMismatchError`` for rows that do not fit or that hold values of an identity column which takes
        none, ``ExpressionError`` for a rule that cannot be understood, ``UnsupportedExpressionError`` for one that
        needs Spark where there is none, and ``CorruptLogError`` for metadata that is not what the protocol says.
        """
        schema, now = metadata.schema, _EPOCH + dt.timedelta(milliseconds=now_ms)
        present = frozenset(f.name for f in schema.fields if source.find(f.name) is not None)
        identities, generated = identity_columns(schema), generated_columns(schema, now)
        absent = [f for f in schema.fields if f.name not in present]
        texts = {f.name: t for f in absent if (t := default_text(f)) is not None and generation_text(f) is None}
        filled = {*texts, *(c.name for c in identities), *(g.name for g in generated)}
        check_assignable(source, schema, uri=uri, filled=filled)
        for c in identities:
            if c.name in present and not c.explicit and not rewrite:
                raise SchemaMismatchError(
                    f"column {c.name!r} is an identity column, whose values the table makes up",
                    help="leave the column out",
                    column=c.name,
                    file=uri,
                    condition="DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED",
                )
        checks = table_checks(metadata.configuration, schema, now)
        if zoned:
            generated, checks = _in_zone(generated, schema), checks_in_zone(checks, schema)
        defaults: dict[str, pa.Scalar] = {}
        needs_spark: list[SparkExpression] = []
        for name, text in texts.items():
            expression = parse_default(schema.field(name), text, now)
            if expression is None or (zoned and may_depend_on_zone(text, schema, (), schema.field(name).type)):
                needs_spark.append(SparkExpression(name, text, f"the default of column {name}"))
            else:
                assert expression.constant is not None
                defaults[name] = expression.constant
        for i, g in enumerate(generated):
            if g.expression is None:
                name = f"{RESERVED}generated_{i}" if g.name in present else g.name
                needs_spark.append(SparkExpression(name, g.text, f"generated column {g.name}"))
        for i, check in enumerate(checks):
            if check.condition is None:
                needs_spark.append(SparkExpression(f"{RESERVED}check_{i}", check.text, f"{check.kind} {check.name}"))
        if needs_spark and not spark:
            raise UnsupportedExpressionError(
                "only Spark can write to this table, which has expressions that the embedded engine cannot evaluate: "
                + "; ".join(f"{e.what} ({e.text[:200]})" for e in needs_spark),
                help="write it from Spark, or rewrite those expressions",
                file=uri,
            )
        rules = {f.name: rule for f in schema.fields if (rule := length_rule(f)) is not None}
        partitions = (schema.field(name) for name in metadata.partition_columns)
        emptied = tuple(f.name for f in partitions if _may_be_empty(f.type) and (checks or not f.nullable))
        return cls(
            schema,
            source,
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
        """Whether rows need nothing but the table's types and NOT NULL."""
        return not (self.defaults or self.identities or self.lengths or self.generated or self.checks or self.emptied)

    @cached_property
    def uses_engine(self) -> bool:
        """Whether batches go through the embedded engine, to which many small ones cost more than a few large ones."""
        return any(g.expression is not None for g in self.generated) or any(c.filter is None for c in self.checks)

    @property
    def generated_identities(self) -> tuple[str, ...]:
        """The identity columns of which every value is made up, and which can therefore be shifted when a concurrent
        write took the values first (:func:`trilake.delta.rules.identity.shifts`)."""
        return tuple(c.name for c in self.identities if c.name not in self.present)

    def start(self, task: int = 0, *, tasks: int | None = None) -> RowPipeline:
        """The pipeline of one task; ``tasks`` is how many there are, where that is known (1 leaves no gaps)."""
        return RowPipeline(self, task, tasks)

    def spark_columns(self) -> list[str]:
        """The arguments of the ``DataFrame.selectExpr`` by which Spark makes the table's columns of the given ones,
        without generated columns that the rows leave out.

        Empty where :attr:`needs_spark` is.  Spark evaluates in the zone of its session, the embedded engine in UTC.
        """
        texts = ((f, self._column_for_spark(f)) for f in (self.schema.fields if self.needs_spark else ()))
        return [f"{text} AS {quote_name(f.name)}" for f, text in texts if text is not None]

    def spark_stages(self) -> list[dict[str, str]]:
        """What Spark does behind that, before the pipeline: expressions by name of column, for one
        ``DataFrame.withColumns`` each.

        The first adds generated columns that the rows leave out, others what is verified, under names that begin with
        :data:`RESERVED`; the pipeline takes those away.

        A condition that only Spark can evaluate must not read an identity column that the rows leave out: Spark does
        not know its values yet, and says that there is no such column.
        """
        if not self.needs_spark:
            return []
        checks = {f"{RESERVED}check_{i}": c.text for i, c in enumerate(self.checks) if c.condition is None}
        computed, verified = {}, {}
        for i, g in enumerate(self.generated):
            value = f"CAST({_inside(g.text)} AS {sql_type(self.schema.field(g.name).type)})"
            if g.name not in self.present and (g.expression is None or checks):
                computed[g.name] = value
            elif g.name in self.present and g.expression is None:
                verified[f"{RESERVED}generated_{i}"] = value
        third, *more = check_stages(checks, self.emptied) or [{}]
        return [stage for stage in (computed, {**verified, **third}, *more) if stage]

    def _column_for_spark(self, f: StructField) -> str | None:
        """A column of the table over the incoming rows, as Spark SQL; ``None`` where it comes later."""
        if f.name in self.present:
            return _stored(self.source.field(f.name), f.type)
        if generation_text(f) is not None or any(c.name == f.name for c in self.identities):
            return None
        return f"CAST({_inside(default_text(f) or 'NULL')} AS {sql_type(f.type)})"


class RowPipeline:
    """The rules at work on the batches of one task, in their order."""

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
        """By identity column the furthest value so far: made up, or given beyond the high-water mark."""
        marks = dict(self._explicit)
        for name, allocator in self._allocators.items():
            mark = allocator.column.further(allocator.mark, marks.get(name))
            if mark is not None:
                marks[name] = mark
        return marks

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:meth:`apply` for each of ``batches``, small ones joined first where that is faster."""
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
        """Incoming rows as rows of the table: its columns in its order and types, checked.

        Raises ``SchemaMismatchError`` for a value that does not fit, ``ConstraintViolatedError`` (which is one) for a
        row that breaks a rule, ``ExpressionError`` for one on which an expression fails, ``IdentityOverflowError``.
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
                columns[name] = _nulled(columns[name])
        rows = self._rows(columns, batch.num_rows)
        verify_not_null(rows, rules.schema)
        verify_checks(self._checks, rows)
        for name, check in self._spark_checks:
            refuse_false(batch.column(name), rows, check)
        return pa.RecordBatch.from_arrays(rows.columns, schema=self._wanted)

    def _rows(self, columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
        schema = self.rules.schema
        return as_batch([columns.get(f.name) for f in schema.fields], count, schema)

    def _columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        columns = assign_columns(batch, self.rules.schema)
        missing = self._promised - set(columns)
        if missing:
            raise SchemaMismatchError(
                f"a batch lacks the columns {', '.join(sorted(missing))}, which the rows were said to have",
                help=f"it has {', '.join(batch.schema.names)}",
            )
        for name, value in self.rules.defaults.items():
            if name not in columns:
                wanted = self.rules.schema.field(name).type.arrow
                columns[name] = pa.repeat(value, batch.num_rows) if value.is_valid else pa.nulls(batch.num_rows, wanted)
        return columns

    def _fill_identities(self, columns: dict[str, pa.Array], count: int) -> None:
        for name, allocator in self._allocators.items():
            values = columns.get(name)
            if values is None:
                columns[name] = allocator.take(count)
            elif self.rules.rewrite:
                if values.null_count:
                    mask = values.is_null()
                    columns[name] = replaced(values, mask, allocator.take(values.null_count))
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
                wanted = rules.schema.field(g.name).type
                computed[g.name] = assign_array(batch.column(f"{RESERVED}generated_{i}"), wanted, g.name)
            rule = rules.lengths.get(g.name)
            if rule is not None and g.name in computed:
                computed[g.name] = apply_length(computed[g.name], rule, g.name)
            if g.name not in columns:
                columns[g.name] = computed[g.name]
            elif g.name in rules.present:
                g.verify(columns[g.name], computed[g.name], rows)


def check_stages(checks: Mapping[str, str], emptied: Sequence[str]) -> list[dict[str, str]]:
    """Conditions by name of column as Spark evaluates them, in stages as those of :meth:`RowRules.spark_stages`.

    They see null in the ``emptied`` columns where a string is empty; what is behind them sees the text again.

    >>> check_stages({"c": "a = b"}, [])
    [{'c': 'coalesce((a = b), false)'}]
    >>> [list(stage) for stage in check_stages({"c": "a = b"}, ["a"])]
    [['__trilake_kept_0'], ['a'], ['c'], ['a']]
    """
    if not checks:
        return []
    kept = {f"{RESERVED}kept_{i}": quote_name(name) for i, name in enumerate(emptied)}
    nulled = {name: f"IF(octet_length({quote_name(name)}) = 0, NULL, {quote_name(name)})" for name in emptied}
    conditions = {name: f"coalesce({_inside(text)}, false)" for name, text in checks.items()}
    return [conditions] if not kept else [kept, nulled, conditions, dict(zip(emptied, kept, strict=True))]


def _may_be_empty(type_: DataType) -> bool:
    return type_.arrow in (pa.string(), pa.binary())


def _nulled(values: pa.Array) -> pa.Array:
    """Strings or bytes with null in place of empty ones."""
    empty = pc.equal(pc.binary_length(values), 0)
    return pc.if_else(empty, pa.scalar(None, values.type), values) if pc.any(empty).as_py() else values


def _in_zone(generated: tuple[GeneratedColumn, ...], schema: StructType) -> tuple[GeneratedColumn, ...]:
    """The generated columns, of which Spark computes those whose values may depend on its session's zone."""
    return tuple(
        replace(g, expression=None)
        if g.expression is not None
        and may_depend_on_zone(g.text, schema, g.expression.columns, schema.field(g.name).type)
        else g
        for g in generated
    )


def depending_on_zone(metadata: Metadata, source: StructType, now: dt.datetime) -> tuple[str, ...]:
    """What may come out otherwise in another zone than UTC, where rows of schema ``source`` go into the table.

    Raises what :meth:`RowRules.of` raises for rules that cannot be understood.
    """
    schema = metadata.schema
    checks, generated = table_checks(metadata.configuration, schema, now), generated_columns(schema, now)
    found = [
        f"{c.kind} {c.name}" for c, there in zip(checks, checks_in_zone(checks, schema), strict=True) if c != there
    ]
    pairs = zip(generated, _in_zone(generated, schema), strict=True)
    found += [f"generated column {g.name}" for g, there in pairs if g != there]
    for f in schema.fields:
        given, text = source.find(f.name), default_text(f)
        if given is not None and _is_instant(given.type) != _is_instant(f.type):
            found.append(f"column {f.name} of type {given.type} as {f.type}")
        elif given is None and text is not None and may_depend_on_zone(text, schema, (), f.type):
            found.append(f"the default of column {f.name}")
    return tuple(found)


def _is_instant(type_: DataType) -> bool:
    return isinstance(type_, PrimitiveType) and type_.name == "timestamp"


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def replaced(values: pa.Array, mask: pa.Array, others: pa.Array) -> pa.Array:
    """``values`` with ``others``, in their order, where ``mask`` is true."""
    out: pa.Array = pc.replace_with_mask(values, mask, others)
    return out


def _stored(column: StructField, type_: DataType) -> str:
    """A given column as one of the table's type, in Spark SQL."""
    name, source = quote_name(column.name), column.type
    if source == type_ or not isinstance(source, PrimitiveType) or not isinstance(type_, PrimitiveType):
        return name  # nested values are brought to the table's types by the pipeline
    cast = f"CAST({name} AS {sql_type(type_)})"
    if source.name in ("void", "date") or source.arrow == type_.arrow:
        return cast
    # Where the session is not in ANSI mode, a cast turns what does not fit into something else without a word.
    message = f"a value of column {column.name} does not fit {type_}".replace("\\", "\\\\").replace("'", "\\'")
    fail = f"raise_error('{message}')"
    return f"IF(CAST({cast} AS {sql_type(source)}) <=> {name}, {cast}, {fail})"


def _inside(text: str) -> str:
    """An expression in parentheses, which a comment at its end must not hide."""
    return f"({text}\n)" if "--" in text else f"({text})"


def sql_type(type_: DataType) -> str:
    """A type as Spark SQL spells it.

    >>> from trilake.delta.protocol.schema import ArrayType, PrimitiveType
    >>> sql_type(ArrayType(StructType((StructField("a b", PrimitiveType("long")),))))
    'ARRAY<STRUCT<`a b`: BIGINT>>'
    """
    return spelled(type_, lambda f, inner: f"{quote_name(f.name)}: {inner}", upper=True)
