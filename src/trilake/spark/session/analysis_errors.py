"""trilake errors that are also Spark errors: ``except AnalysisException`` catches what Spark's analysis would reject.

An error that a public method of the Spark layer raises is an instance of two classes: trilake's and Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    SparkRuntimeException,
    StreamingQueryException,
    UnsupportedOperationException,
)

from trilake.errors import (
    FeatureInUseError,
    IllegalArgumentError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
    VersionNotFoundError,
)
from trilake.spark.session.compat import error_condition
from trilake.spark.session.sql_states import ILLEGAL_ARGUMENTS, sql_state

C = TypeVar("C", bound=type)


class SparkErrorMethods:
    """The methods of Spark's errors, whose own fields differ by release."""

    _errorClass: str | None
    _state: str | None = None

    def getCondition(self) -> str | None:
        return self._errorClass

    def getErrorClass(self) -> str | None:
        return self._errorClass

    def getMessageParameters(self) -> dict[str, str]:
        return {}

    def getQueryContext(self) -> list[Any]:
        return []

    def getSqlState(self) -> str | None:
        """The SQLSTATE of the condition, if it is a condition of Spark or delta-spark."""
        return self._state


#: Errors that Spark raises during analysis.
_ANALYSIS = (
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    VersionNotFoundError,
    FeatureInUseError,
)


class _IllegalAnalysis(AnalysisException, IllegalArgumentException):
    """An error that is an analysis error in Spark and an argument error in delta-spark."""


def analysis_error(error: TrilakeError) -> TrilakeError:
    """The error, also as Spark's.  It is an ``AnalysisException`` if Spark raises one, an ``IllegalArgumentException``
    if delta-spark does, or both."""
    if isinstance(error, PySparkException | SparkErrorMethods):
        return error
    illegal = isinstance(error, IllegalArgumentError) or _condition(error) in ILLEGAL_ARGUMENTS
    if isinstance(error, _ANALYSIS):
        return _both(error, _IllegalAnalysis if illegal else AnalysisException)
    return _both(error, IllegalArgumentException if illegal else PySparkException)


def analysed_error(error: TrilakeError, cause: AnalysisException) -> TrilakeError:
    """The error, also as the error that Spark's analysis raised, with Spark's condition and SQLSTATE.  If the error
    states a condition of delta-spark, it keeps that condition."""
    spark_error = analysis_error(error)
    if "condition" not in error.context and isinstance(spark_error, SparkErrorMethods):
        spark_error._errorClass, spark_error._state = error_condition(cause) or error.code, cause.getSqlState()
    return spark_error


def job_error(error: TrilakeError) -> TrilakeError:
    """The error of a write, also as Spark's: an analysis error if Spark raises one, otherwise a runtime error."""
    if isinstance(error, (PySparkException, *_ANALYSIS)):
        return analysis_error(error)
    return _both(error, SparkRuntimeException)


def parse_error(error: TrilakeError) -> TrilakeError:
    """The error, also as a ``ParseException``."""
    return _both(error, ParseException)


def unsupported_error(error: TrilakeError) -> TrilakeError:
    """The error, also as Spark's ``UnsupportedOperationException``."""
    return _both(error, UnsupportedOperationException)


def stream_error(error: TrilakeError) -> TrilakeError:
    """The error that stopped a query, also as Spark's ``StreamingQueryException``, with its condition."""
    stopped = _both(error, StreamingQueryException)
    stopped._errorClass, stopped._state = "STREAM_FAILED", sql_state("STREAM_FAILED")
    return stopped


class _OfJava(Py4JJavaError):  # type: ignore[misc]  # py4j has no types
    """A Java error as py4j raises it, without a Java object."""

    exception_cmd: str | None = None
    java_exception: Any = None
    _message: str

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)

    @property
    def errmsg(self) -> str:
        return self._message


def java_error(error: TrilakeError) -> TrilakeError:
    """The error, also as ``Py4JJavaError``, which PySpark raises for errors of delta-spark that have no Python
    class."""
    return _both(error, _OfJava)


if TYPE_CHECKING:

    class _Both(TrilakeError, SparkErrorMethods):
        """An error of trilake and of Spark."""

        _message: str | None


def _both(error: TrilakeError, kind: type[Exception]) -> _Both:
    both = _class(type(error), kind)(error.message, help=error.help, **error.context)
    condition = _condition(error)
    both._message, both._errorClass, both._state = str(error), condition, sql_state(condition)
    for note in getattr(error, "__notes__", ()):
        both.add_note(note)
    return both


_NAME = r"([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)?)"
#: Patterns of a condition in a message: at the beginning, in a cause, or in the context of a task's error.
_NAME_PATTERNS = (
    re.compile(rf"^\[{_NAME}\] "),
    re.compile(rf" Cause: \[{_NAME}\] "),
    re.compile(rf"[(,] ?condition: {_NAME}[,)]"),
)


def _condition(error: TrilakeError) -> str:
    condition = error.context.get("condition")
    match = next((m for m in (pattern.search(error.message) for pattern in _NAME_PATTERNS) if m is not None), None)
    return str(condition) if condition else match[1] if match else error.default_condition or error.code


_CLASSES: dict[tuple[type[TrilakeError], Any], type[_Both]] = {}


def _class(error_class: type[TrilakeError], spark: type[Exception]) -> type[_Both]:
    cls = _CLASSES.get((error_class, spark))
    if cls is not None:
        return cls

    def __reduce__(self: TrilakeError) -> tuple[Any, ...]:
        return _rebuild, (error_class, spark, self.message, self.help, self.context)

    members = {"__doc__": error_class.__doc__, "__module__": error_class.__module__, "__reduce__": __reduce__}
    cls = cast("type[_Both]", type(error_class.__name__, (error_class, SparkErrorMethods, spark), members))
    return _CLASSES.setdefault((error_class, spark), cls)


def _rebuild(
    error_class: type[TrilakeError], spark: type[Exception], message: str, help: str | None, context: dict[str, Any]
) -> TrilakeError:
    return _both(error_class(message, help=help, **context), spark)


def raise_for_spark(error: TrilakeError, spark_error: TrilakeError) -> NoReturn:
    """Raise a caught error as Spark's, with its traceback."""
    if spark_error is error:
        raise error
    raise spark_error.with_traceback(error.__traceback__) from error.__cause__


@contextmanager
def as_spark_errors(convert: Callable[[TrilakeError], TrilakeError] = analysis_error) -> Iterator[None]:
    """In the block, raise trilake's errors as Spark's; also a decorator."""
    try:
        yield
    except TrilakeError as e:
        raise_for_spark(e, convert(e))


def raises_for_spark(cls: C) -> C:
    """A class decorator: makes errors from public methods Spark's errors, too."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod | staticmethod):
            setattr(cls, name, type(member)(as_spark_errors()(member.__func__)))
        elif callable(member) and not isinstance(member, type):
            setattr(cls, name, as_spark_errors()(member))
    return cls
