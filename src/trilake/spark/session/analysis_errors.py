"""Errors as code written for Spark expects them: ``except AnalysisException`` catches what analysis would find.

An error that leaves a public method of the Spark layer is of its own class and of Spark's: either can be caught.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

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


class AskedAsSparkError:
    """What handlers of Spark's errors ask, with an answer on every release; beside a ``TrilakeError``, which has no
    more than its text and its condition.  Spark's own methods look for fields, whose names differ between releases."""

    _errorClass: str | None
    _state: str | None = None

    def getCondition(self) -> str | None:
        """The name of the condition."""
        return self._errorClass

    def getErrorClass(self) -> str | None:
        """The same, by the name that it had before 4.0."""
        return self._errorClass

    def getMessageParameters(self) -> dict[str, str]:
        """The parameters of Spark's own strings: none."""
        return {}

    def getQueryContext(self) -> list[Any]:
        """The parts of a query that Spark itself found at fault: none."""
        return []

    def getSqlState(self) -> str | None:
        """The SQLSTATE of the condition, where it is one of Spark's or of delta-spark's."""
        return self._state


#: What Spark would have found before a single row was read.
_ANALYSIS = (
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    VersionNotFoundError,
    FeatureInUseError,
)


class _IllegalAnalysis(AnalysisException, IllegalArgumentException):
    """What our callers catch as an error of analysis, and delta-spark's as that of an argument."""


def analysis_error(error: TrilakeError) -> TrilakeError:
    """The error as one of Spark's too: an ``AnalysisException`` where Spark would have raised one, and in addition, or
    instead, an ``IllegalArgumentException`` where delta-spark does."""
    if isinstance(error, PySparkException | AskedAsSparkError):
        return error
    illegal = isinstance(error, IllegalArgumentError) or _condition(error) in ILLEGAL_ARGUMENTS
    if isinstance(error, _ANALYSIS):
        return _both(error, _IllegalAnalysis if illegal else AnalysisException)
    return _both(error, IllegalArgumentException if illegal else PySparkException)


def analysed_error(error: TrilakeError, cause: AnalysisException) -> TrilakeError:
    """The error for what Spark's analysis refused; its condition and SQLSTATE, which handlers ask for, stay Spark's.

    Where the error states the condition of delta-spark, that one is its own.
    """
    spark_error = analysis_error(error)
    if "condition" not in error.context:
        spark_error._errorClass = error_condition(cause) or error.code  # type: ignore[attr-defined]
        spark_error._state = cause.getSqlState()  # type: ignore[attr-defined]
    return spark_error


def job_error(error: TrilakeError) -> TrilakeError:
    """The error of a write as Spark's: of its analysis where Spark would have found it then, of its run otherwise."""
    if isinstance(error, (PySparkException, *_ANALYSIS)):
        return analysis_error(error)
    return _both(error, SparkRuntimeException)


def parse_error(error: TrilakeError) -> TrilakeError:
    """The error as a ``ParseException``: a string that is not SQL."""
    return _both(error, ParseException)


def unsupported_error(error: TrilakeError) -> TrilakeError:
    """The error as Spark's ``UnsupportedOperationException``."""
    return _both(error, UnsupportedOperationException)


def stream_error(error: TrilakeError) -> TrilakeError:
    """The error as Spark's ``StreamingQueryException``, whose condition it keeps: what stopped a query."""
    stopped = _both(error, StreamingQueryException)
    stopped._errorClass = "STREAM_FAILED"  # type: ignore[attr-defined]
    stopped._state = sql_state("STREAM_FAILED")  # type: ignore[attr-defined]
    return stopped


class _OfJava(Py4JJavaError):  # type: ignore[misc]  # py4j has no types
    """An error of Java's as py4j raises it, with no object of Java's behind it."""

    exception_cmd: str | None = None
    java_exception: Any = None
    _message: str

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)

    @property
    def errmsg(self) -> str:
        return self._message


def java_error(error: TrilakeError) -> TrilakeError:
    """The error as py4j's ``Py4JJavaError``, which PySpark raises for delta-spark's errors that it has no class for.

    Its ``java_exception`` is ``None``.
    """
    return _both(error, _OfJava)


def _both(error: TrilakeError, kind: type[Exception]) -> TrilakeError:
    both = _class(type(error), kind)(error.message, help=error.help, **error.context)
    condition = _condition(error)
    both._message, both._errorClass = str(error), condition  # type: ignore[attr-defined]
    both._state = sql_state(condition)  # type: ignore[attr-defined]
    for note in getattr(error, "__notes__", ()):
        both.add_note(note)
    return both


_NAME = r"([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)?)"
#: The name of a condition in a message: at its beginning, as that of a cause, or in the words that a task's error has
#: brought along.
_NAMED = (
    re.compile(rf"^\[{_NAME}\] "),
    re.compile(rf" Cause: \[{_NAME}\] "),
    re.compile(rf"[(,] ?condition: {_NAME}[,)]"),
)


def _condition(error: TrilakeError) -> str:
    """The name that Spark or delta-spark has for what is wrong, where the error states one; otherwise its own code."""
    stated = error.context.get("condition")
    named = next((m for m in (pattern.search(error.message) for pattern in _NAMED) if m is not None), None)
    return str(stated) if stated else named[1] if named else error.default_condition or error.code


_CLASSES: dict[tuple[type[TrilakeError], Any], type[TrilakeError]] = {}


def _class(ours: type[TrilakeError], spark: type[Exception]) -> type[TrilakeError]:
    known = _CLASSES.get((ours, spark))
    if known is not None:
        return known

    def __reduce__(self: TrilakeError) -> tuple[Any, ...]:
        return _rebuild, (ours, spark, self.message, self.help, self.context)

    members = {
        "__doc__": ours.__doc__,
        "__module__": ours.__module__,
        "__reduce__": __reduce__,
    }
    cls = cast(type[TrilakeError], type(ours.__name__, (ours, AskedAsSparkError, spark), members))
    return _CLASSES.setdefault((ours, spark), cls)


def _rebuild(
    ours: type[TrilakeError], spark: type[Exception], message: str, help: str | None, context: dict[str, Any]
) -> TrilakeError:
    return _both(ours(message, help=help, **context), spark)


def raise_for_spark(error: TrilakeError, spark_error: TrilakeError) -> NoReturn:
    """Raise an error that was caught as the one that it is for Spark's callers, with the traceback that it has."""
    if spark_error is error:
        raise error
    raise spark_error.with_traceback(error.__traceback__) from error.__cause__


def raises_for_spark(cls: C) -> C:
    """A class decorator: errors that leave public methods can be caught as Spark's too."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod | staticmethod):
            setattr(cls, name, type(member)(_translated(member.__func__)))
        elif callable(member) and not isinstance(member, type):
            setattr(cls, name, _translated(member))
    return cls


def _translated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TrilakeError as e:
            raise_for_spark(e, analysis_error(e))

    return call
