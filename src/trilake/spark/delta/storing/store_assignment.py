"""Spark's store assignment: convert values to a column's type, as Spark expressions.

With the ANSI policy, the default, a value that does not fit is an error in every session.  Without ANSI mode, a plain
cast would change it silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.text import plural, quote_name
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.type_widening import NO_WIDENING, AutomaticWidening
from trilake.delta.rules.store_assignment import needs_no_cast
from trilake.errors import SchemaMismatchError, TrilakeError, WriteFailedError
from trilake.expr.nested import fields_problem
from trilake.spark.delta.settings import CAST_AS_SESSION
from trilake.spark.session.compat import legacy_cast, try_cast
from trilake.spark.session.schemas import from_spark, to_spark
from trilake.spark.session.settings import is_ansi, session_choice, session_flag
from trilake.spark.session.type_tree import paired, with_parts, without_lengths

Policy = Literal["ANSI", "LEGACY", "STRICT"]

_POLICY = "spark.sql.storeAssignmentPolicy"
_CASE_SENSITIVE = "spark.sql.caseSensitive"
#: Numeric types; each of them can hold all values of the earlier ones.
_NUMBERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType)
#: The digits of the decimals to which Spark casts integers.
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 20}
_TIMES = (T.TimestampType, T.TimestampNTZType)


@dataclass(frozen=True)
class AssignmentRules:
    """How a column stores a value of another type.  The policy ``ANSI`` casts and fails for a value that does not fit,
    ``LEGACY`` casts as without ANSI mode, ``STRICT`` allows only types whose values all fit; ``ansi`` is the session's
    mode."""

    policy: Policy = "ANSI"
    ansi: bool = True
    case_sensitive: bool = False

    @classmethod
    def of(cls, spark: SparkSession) -> AssignmentRules:
        """The rules of INSERT.  Raises ``InvalidArgumentError`` for an invalid setting."""
        policy = cast(Policy, session_choice(spark, _POLICY, get_args(Policy)))
        return cls(policy, is_ansi(spark), is_case_sensitive(spark))

    @classmethod
    def of_changes(cls, spark: SparkSession) -> AssignmentRules:
        """The rules of UPDATE and MERGE; a setting of delta-spark makes them follow the session's ANSI mode."""
        rules = cls.of(spark)
        if not session_flag(spark, CAST_AS_SESSION, False):
            return rules
        return replace(rules, policy="ANSI" if rules.ansi else "LEGACY")

    def key(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether names are case-sensitive in the session."""
    return session_flag(spark, _CASE_SENSITIVE, False)


def named_columns(spark: SparkSession, schema: StructType) -> StructType:
    """The columns of a table, with the session's comparison of names."""
    return schema.exact() if is_case_sensitive(spark) else schema


def holds_all(target: T.DataType, source: T.DataType) -> bool:
    """Whether a type holds every value of another, neither being nested or user-defined: Spark's up-cast.

    >>> holds_all(T.LongType(), T.IntegerType()), holds_all(T.IntegerType(), T.LongType())
    (True, False)
    >>> holds_all(T.DecimalType(12, 2), T.IntegerType()), holds_all(T.StringType(), T.DateType())
    (True, True)
    """
    if source == target or isinstance(source, T.NullType):
        return True
    if isinstance(target, T.StringType):
        return isinstance(source, T.AtomicType | T.CalendarIntervalType)
    if isinstance(target, T.DecimalType):
        if isinstance(source, T.DecimalType):
            return target.precision - target.scale >= source.precision - source.scale and target.scale >= source.scale
        digits = _DIGITS.get(type(source))
        return digits is not None and target.precision - target.scale >= digits
    if isinstance(source, T.DecimalType):
        return source.scale == 0 and source.precision < _DIGITS.get(type(target), 0)
    if isinstance(source, _NUMBERS) and isinstance(target, _NUMBERS):
        return _NUMBERS.index(type(source)) <= _NUMBERS.index(type(target))
    if isinstance(source, (T.DateType, *_TIMES)):
        return isinstance(target, _TIMES) or (isinstance(source, T.TimestampType) and isinstance(target, T.LongType))
    return isinstance(source, T.LongType) and isinstance(target, T.TimestampType)


#: Spark's errors for a cast to a smaller numeric type.
_OVERFLOW = re.compile(r"\[(CAST_OVERFLOW|CAST_OVERFLOW_IN_TABLE_INSERT|NUMERIC_VALUE_OUT_OF_RANGE)\b")
#: The error conditions for a struct with fewer fields than its column, and for values that need schema evolution.
_FEWER, _NEEDS_EVOLUTION = "DELTA_INSERT_COLUMN_ARITY_MISMATCH", "DELTA_METADATA_MISMATCH"
#: The error conditions for a value that does not fit its column: Spark's for INSERT, delta-spark's for changes.
OF_INSERT, OF_CHANGES = "CAST_OVERFLOW_IN_TABLE_INSERT", "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"


def stored(
    value: Column,
    source: T.DataType,
    target: T.DataType,
    name: str,
    *,
    rules: AssignmentRules,
    by_name: bool = True,
    fill: bool = False,
) -> Column:
    """``value``, of type ``source``, as a value of type ``target`` for the column ``name``.  Fields of structs match by
    name at any depth, or by position; with ``fill``, fields that a struct lacks become null.  Raises
    ``SchemaMismatchError`` for other fields, and in a strict session for a type with values that do not fit;
    ``UnsupportedSparkError`` on Spark Connect for a cast that differs from the session's own."""
    return _Assignment(rules, by_name, fill).value(value, without_lengths(source), target, name)


def needs_no_conversion(source: T.DataType, target: T.DataType) -> bool:
    """Whether :func:`stored` returns values of type ``source`` unchanged."""
    return _same(without_lengths(source), target)


def stored_columns(
    frame: DataFrame,
    schema: StructType,
    *,
    by_name: bool,
    evolve: bool = False,
    widening: AutomaticWidening = NO_WIDENING,
    fill_null_structs: bool = False,
) -> DataFrame:
    """The DataFrame with the types of the table's columns; a value that does not fit fails.  With ``evolve``, structs
    keep new fields, and values of types that ``widening`` allows stay unchanged.  With ``fill_null_structs``, a null
    struct of another type, matched by position, becomes a struct of nulls.  Values of a user-defined type are left to
    the writer."""
    rules = AssignmentRules.of(frame.sparkSession)
    column_types = {f.name: f.dataType for f in to_spark(schema).fields}
    changed: dict[str, Column] = {}
    for f in frame.schema.fields:
        kind = None if isinstance(f.dataType, T.UserDefinedType) else column_types.get(f.name)
        source = without_lengths(f.dataType)
        if kind is not None and evolve:
            kind = evolved(source, kind, by_name=by_name, widening=widening)
        if kind is not None and source != kind:
            value = F.col(quote_name(f.name))
            if fill_null_structs and not by_name:
                value = _filled(value, source, kind, f.name, rules)
            else:
                value = stored(value, source, kind, f.name, rules=rules, by_name=by_name, fill=True)
            # Nullability inside the value is that of the column.
            nested = isinstance(kind, T.StructType | T.ArrayType | T.MapType)
            changed[f.name] = (value.cast(kind) if nested else value).alias(f.name)
    if not changed:
        return frame
    return frame.select(*(changed.get(name, quote_name(name)) for name in frame.columns))


def _filled(value: Column, source: T.DataType, target: T.DataType, name: str, rules: AssignmentRules) -> Column:
    """A value matched by position, with structs of nulls for null structs of another type."""
    if not isinstance(source, T.StructType) or not isinstance(target, T.StructType) or len(source) != len(target):
        return stored(value, source, target, name, rules=rules, by_name=False, fill=True)
    fields = []
    for s, t in zip(source.fields, target.fields, strict=True):
        part = value.getField(s.name)
        if s.dataType != t.dataType:
            part = _filled(part, s.dataType, t.dataType, f"{name}.{t.name}", rules)
        fields.append(part.alias(t.name))
    return F.struct(*fields)


def as_they_are(
    rows: T.StructType, names: Sequence[str], schema: StructType, *, evolve: bool = False, ordered: bool = False
) -> bool:
    """Apply :func:`~trilake.delta.rules.store_assignment.needs_no_cast` to rows of a DataFrame."""
    try:
        row_schema = from_spark(T.StructType(rows.fields[: len(names)]))
    except TrilakeError:  # the cast or the write rejects an unsupported type
        return False
    return needs_no_cast(row_schema, names, schema, evolve=evolve, ordered=ordered)


@contextmanager
def overflows_named(*, narrowed: bool, condition: str = OF_INSERT) -> Iterator[None]:
    """In the block, give errors about values that do not fit this condition, if values were ``narrowed``."""
    try:
        yield
    except WriteFailedError as e:
        if not narrowed or not _OVERFLOW.search(e.message):
            raise
        context = {**e.context, "condition": condition}
        raise WriteFailedError(e.message, help=e.help, **context) from e.__cause__


def evolved(
    source: T.DataType, target: T.DataType, *, by_name: bool, widening: AutomaticWidening = NO_WIDENING
) -> T.DataType:
    """The type ``target`` with the additional fields of structs in ``source``, the types of its values for void, and
    the wider types that ``widening`` allows.
    """
    if isinstance(target, T.NullType):
        return source
    if isinstance(source, T.StructType) and isinstance(target, T.StructType):
        if by_name:
            existing = {f.name.lower() for f in target.fields}
            by_lower = {f.name.lower(): f for f in source.fields}
            pairs = [(by_lower.get(f.name.lower()), f) for f in target.fields]
            new = [f for f in source.fields if f.name.lower() not in existing]
        else:
            pairs = [(s, f) for s, f in zip(source.fields, target.fields)]
            pairs += [(None, f) for f in target.fields[len(pairs) :]]
            new = source.fields[len(target) :]
        fields = []
        for s, f in pairs:
            type_ = f.dataType
            if s is not None:
                type_ = evolved(s.dataType, f.dataType, by_name=by_name, widening=widening)
            fields.append(T.StructField(f.name, type_, f.nullable, f.metadata))
        return T.StructType([*fields, *(T.StructField(f.name, f.dataType) for f in new)])
    inside = paired(source, target)
    if inside is not None:
        return with_parts(target, [evolved(s, t, by_name=by_name, widening=widening) for s, t in inside])
    return source if _widens(source, target, widening) else target


def _widens(source: T.DataType, target: T.DataType, widening: AutomaticWidening) -> bool:
    if not isinstance(source, T.NumericType | T.TimestampNTZType):
        return False
    new, old = (from_spark(T.StructType([T.StructField("it", t)])).fields[0].type for t in (source, target))
    return widening.allows(old, new)


@dataclass(frozen=True)
class _Assignment:
    rules: AssignmentRules
    by_name: bool
    fill: bool

    def value(self, value: Column, source: T.DataType, target: T.DataType, name: str) -> Column:
        if _same(source, target):
            return value
        if isinstance(target, T.NullType):
            raise SchemaMismatchError(
                f"column {name} has the type void, which {source.simpleString()} values do not fit",
                help="write with schema evolution, which gives the column a type",
                column=name,
                condition=_NEEDS_EVOLUTION,
            )
        if isinstance(source, T.NullType):
            return value.cast(target)
        if isinstance(source, T.StructType) and isinstance(target, T.StructType):
            return self._struct(value, source, target, name)
        if isinstance(source, T.ArrayType) and isinstance(target, T.ArrayType):
            return self._array(value, source, target, name)
        if isinstance(source, T.MapType) and isinstance(target, T.MapType):
            return self._map(value, source, target, name)
        self._check(source, target, name)
        if self.rules.ansi or self.rules.policy == "LEGACY" or not isinstance(target, T.AtomicType):
            return self._cast(value, target)
        fitting = try_cast(value, target)
        number = isinstance(source, T.NumericType) and isinstance(target, T.NumericType)
        condition = "CAST_OVERFLOW_IN_TABLE_INSERT" if number else "CAST_INVALID_INPUT"
        obstacle = f"[{condition}] a value of column {name} does not fit {target.simpleString()}: "
        message = F.concat(F.lit(obstacle), value.cast("string"))
        return F.when(value.isNull() | fitting.isNotNull(), fitting).otherwise(F.raise_error(message).cast(target))

    def _check(self, source: T.DataType, target: T.DataType, name: str) -> None:
        if self.rules.policy == "STRICT" and not holds_all(target, source):
            raise SchemaMismatchError(
                f"cannot up cast the value of column {name} from {source.simpleString()} to {target.simpleString()}:"
                " spark.sql.storeAssignmentPolicy is STRICT, and some values might not fit",
                help=f"cast the value to {target.simpleString()} yourself, or set the policy to ANSI",
                column=name,
                condition="CANNOT_UP_CAST_DATATYPE",
            )

    def _cast(self, value: Column, target: T.DataType) -> Column:
        legacy = self.rules.policy == "LEGACY" and self.rules.ansi
        return legacy_cast(value, target) if legacy else value.cast(target)

    def _struct(self, value: Column, source: T.StructType, target: T.StructType, name: str) -> Column:
        pairs = self._by_name(source, target, name) if self.by_name else _by_position(source, target, name)
        parts = []
        for s, f in pairs:
            if s is None:
                part = F.lit(None).cast(f.dataType)
            else:
                part = self.value(value.getField(s.name), s.dataType, f.dataType, f"{name}.{f.name}")
            parts.append(part.alias(f.name))
        return F.when(value.isNotNull(), F.struct(*parts))

    def _by_name(
        self, source: T.StructType, target: T.StructType, name: str
    ) -> list[tuple[T.StructField | None, T.StructField]]:
        ignores = not self.rules.case_sensitive
        problem = fields_problem(source.names, target.names, name, ignore_case=ignores, fill=self.fill)
        if problem is not None:
            raise SchemaMismatchError(
                problem,
                help=f"the column's fields are {', '.join(target.names)}: give a value for each (NULL if it"
                " has none), or use schema evolution",
                column=name,
                condition=_NEEDS_EVOLUTION if self.fill else "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
            )
        by_key = {self.rules.key(f.name): f for f in source.fields}
        return [(by_key.get(self.rules.key(f.name)), f) for f in target.fields]

    def _array(self, value: Column, source: T.ArrayType, target: T.ArrayType, name: str) -> Column:
        of, to = source.elementType, target.elementType
        if self._casts(of, to, f"{name}.element"):
            return self._cast(value, target)
        return F.transform(value, lambda x: self.value(x, of, to, f"{name}.element"))

    def _map(self, value: Column, source: T.MapType, target: T.MapType, name: str) -> Column:
        same = _same(source.keyType, target.keyType)
        if same and self._casts(source.valueType, target.valueType, f"{name}.value"):
            return self._cast(value, target)
        if not same:
            value = F.transform_keys(value, lambda k, _: self.value(k, source.keyType, target.keyType, f"{name}.key"))
        if not _same(source.valueType, target.valueType):
            value = F.transform_values(
                value, lambda _, v: self.value(v, source.valueType, target.valueType, f"{name}.value")
            )
        return value

    def _casts(self, source: T.DataType, target: T.DataType, name: str) -> bool:
        """Whether casting the array or map as a whole gives the same result."""
        if isinstance(source, T.NullType) or _same(source, target):
            return True
        if not isinstance(source, T.AtomicType):
            return False
        self._check(source, target, name)
        return self.rules.ansi or self.rules.policy == "LEGACY"


def _by_position(
    source: T.StructType, target: T.StructType, name: str
) -> list[tuple[T.StructField | None, T.StructField]]:
    if len(source) != len(target):
        raise SchemaMismatchError(
            f"the struct for column {name} has {plural(len(source), 'field')} ({', '.join(source.names)}), but the"
            f" column has {len(target)} ({', '.join(target.names)})",
            help="give a value for each field, or write BY NAME",
            column=name,
            condition=_FEWER if len(source) < len(target) else _NEEDS_EVOLUTION,
        )
    return list(zip(source.fields, target.fields, strict=True))


def _same(a: T.DataType, b: T.DataType) -> bool:
    """Whether two types are equal except for nullability and metadata."""
    if isinstance(a, T.StructType) and isinstance(b, T.StructType):
        return a.names == b.names and all(_same(x.dataType, y.dataType) for x, y in zip(a.fields, b.fields))
    inside = paired(a, b)
    return a == b if inside is None else all(_same(x, y) for x, y in inside)
