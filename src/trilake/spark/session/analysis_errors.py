"""Errors as code written for Spark expects them: ``except AnalysisException`` catches what analysis would find.

An error that leaves a public method of the Spark layer is of its own class and of Spark's: either can be caught.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

from pyspark.errors import (
    AnalysisException,
    ParseException,
    PySparkException,
    SparkRuntimeException,
    UnsupportedOperationException,
)

from trilake.errors import (
    FeatureInUseError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
    VersionNotFoundError,
)
from trilake.spark.session.compat import error_condition

C = TypeVar("C", bound=type)

#: What Spark would have found before a single row was read.
_ANALYSIS = (
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    VersionNotFoundError,
    FeatureInUseError,
)


def analysis_error(error: TrilakeError) -> TrilakeError:
    """The error as one that is an ``AnalysisException`` too, where Spark would have raised one; otherwise itself."""
    if isinstance(error, PySparkException) or not isinstance(error, _ANALYSIS):
        return error
    return _both(error, AnalysisException)


def analysed_error(error: TrilakeError, cause: AnalysisException) -> TrilakeError:
    """The error for what Spark's analysis refused; its condition and SQLSTATE, which handlers ask for, stay Spark's."""
    found = analysis_error(error)
    found._errorClass = error_condition(cause) or error.code  # type: ignore[attr-defined]
    found._state = cause.getSqlState()  # type: ignore[attr-defined]
    return found


def job_error(error: TrilakeError) -> TrilakeError:
    """The error of a write as Spark's: of its analysis where Spark would have found it then, of its run otherwise."""
    found = analysis_error(error)
    return found if isinstance(found, PySparkException) else _both(error, SparkRuntimeException)


def parse_error(error: TrilakeError) -> TrilakeError:
    """The error as a ``ParseException``: a text that is no SQL."""
    return _both(error, ParseException)


def unsupported_error(error: TrilakeError) -> TrilakeError:
    """The error as Spark's ``UnsupportedOperationException``."""
    return _both(error, UnsupportedOperationException)


def _both(error: TrilakeError, kind: type[PySparkException]) -> TrilakeError:
    found = _class(type(error), kind)(error.message, help=error.help, **error.context)
    found._message, found._errorClass = str(error), _condition(error)  # type: ignore[attr-defined]
    return found


#: The name of a condition that a message begins with.
_NAMED = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)?)\] ")


def _condition(error: TrilakeError) -> str:
    """The name that Spark or delta-spark has for what is wrong, where the error states one; otherwise its own code."""
    stated = error.context.get("condition")
    named = _NAMED.match(error.message)
    return str(stated) if stated else named[1] if named else error.code


_CLASSES: dict[tuple[type[TrilakeError], Any], type[TrilakeError]] = {}


def _class(ours: type[TrilakeError], spark: type[PySparkException]) -> type[TrilakeError]:
    known = _CLASSES.get((ours, spark))
    if known is not None:
        return known

    def __reduce__(self: TrilakeError) -> tuple[Any, ...]:
        return _rebuild, (ours, spark, self.message, self.help, self.context)

    def getSqlState(self: TrilakeError) -> str | None:
        return vars(self).get("_state")

    members = {
        "__doc__": ours.__doc__,
        "__module__": ours.__module__,
        "__reduce__": __reduce__,
        "getSqlState": getSqlState,
    }
    made = cast(type[TrilakeError], type(ours.__name__, (ours, spark), members))
    return _CLASSES.setdefault((ours, spark), made)


def _rebuild(
    ours: type[TrilakeError], spark: type[PySparkException], message: str, help: str | None, context: dict[str, Any]
) -> TrilakeError:
    return _both(ours(message, help=help, **context), spark)


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
            found = analysis_error(e)
            if found is e:
                raise
            raise found.with_traceback(e.__traceback__) from e.__cause__

    return call
