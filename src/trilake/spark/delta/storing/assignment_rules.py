"""Session settings for store assignment: casts, and case sensitivity of names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.delta.protocol.schema import StructType
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.settings import CAST_AS_SESSION, is_ansi, session_flag

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
    """How a column stores a value of another type.

    ``policy`` is Spark's: ``ANSI`` casts and fails for a value that does not fit, ``LEGACY`` casts as without ANSI
    mode, ``STRICT`` allows only types whose values all fit.  ``ansi`` says whether casts in the session fail.
    """

    policy: Policy = "ANSI"
    ansi: bool = True
    case_sensitive: bool = False

    @classmethod
    def of(cls, spark: SparkSession) -> AssignmentRules:
        """The rules of INSERT.  Raises ``InvalidArgumentError`` for an invalid setting."""
        policy = str(spark.conf.get(_POLICY, "ANSI")).upper()
        if policy not in ("ANSI", "LEGACY", "STRICT"):
            raise InvalidArgumentError(f"{_POLICY} must be ANSI, LEGACY or STRICT, got {policy!r}")
        return cls(cast(Policy, policy), is_ansi(spark), is_case_sensitive(spark))

    @classmethod
    def of_changes(cls, spark: SparkSession) -> AssignmentRules:
        """The rules of UPDATE and MERGE; a setting of delta-spark makes them follow the session's ANSI mode."""
        rules = cls.of(spark)
        if not session_flag(spark, CAST_AS_SESSION, False):
            return rules
        return replace(rules, policy="ANSI" if rules.ansi else "LEGACY")

    def key(self, name: str) -> str:
        """A name in the form in which names are compared."""
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
        return _decimal_holds(target, source)
    if isinstance(source, T.DecimalType):
        return source.scale == 0 and source.precision < _DIGITS.get(type(target), 0)
    if isinstance(source, _NUMBERS) and isinstance(target, _NUMBERS):
        return _NUMBERS.index(type(source)) <= _NUMBERS.index(type(target))
    if isinstance(source, (T.DateType, *_TIMES)):
        return isinstance(target, _TIMES) or (isinstance(source, T.TimestampType) and isinstance(target, T.LongType))
    return isinstance(source, T.LongType) and isinstance(target, T.TimestampType)


def _decimal_holds(target: T.DecimalType, source: T.DataType) -> bool:
    if isinstance(source, T.DecimalType):
        return target.precision - target.scale >= source.precision - source.scale and target.scale >= source.scale
    digits = _DIGITS.get(type(source))
    return digits is not None and target.precision - target.scale >= digits
