"""The functions by which PySpark makes its errors of the JVM's, and what is known of an error when one is called."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

#: Where ``convert_exception`` is: of classic sessions, and of Spark Connect.
_CONVERTERS = ("pyspark.errors.exceptions.captured", "pyspark.sql.connect.client.core")
#: What Java says of an error that another thread had, such as that of a scalar subquery, and nothing else.
_PASSED_ON = ("Exception thrown in awaitResult", "java.util.concurrent.ExecutionException")
#: What Spark Connect has between an error's message and the traces of the server.
_TRACES = "\n\nJVM stacktrace:"


def converters() -> Iterator[ModuleType]:
    """The modules of this PySpark that have a ``convert_exception``."""
    for name in _CONVERTERS:
        try:
            yield importlib.import_module(name)
        except ImportError:  # Spark Connect's own requirements are not installed
            continue


def error_text(own: Callable[[], BaseException], error: Any) -> str:
    r"""What Spark says of an error that it is about to convert, which ``own`` does; no traces of Java's.

    >>> error_text(lambda: OSError("[A] no\n\nJVM stacktrace:\nCaused by: java.io.IOException"), object())
    '[A] no'
    """
    if not hasattr(error, "toString"):
        return str(own()).partition(_TRACES)[0]
    text = str(error.toString())
    while any(p in text.partition("\n")[0] for p in _PASSED_ON) and (cause := error.getCause()) is not None:
        error, text = cause, str(cause.toString())
    return text


def first_cause(own: Callable[[], BaseException], error: Any) -> str:
    r"""What came first of all that led to an error of Spark's: the class of Java's, and what it says.

    >>> raised = OSError("[A] no\n\nJVM stacktrace:\n...\nCaused by: java.io.IOException: full\n\tat x")
    >>> first_cause(lambda: raised, object())
    'java.io.IOException: full'
    """
    if not hasattr(error, "toString"):
        return str(own()).rpartition("Caused by: ")[2].partition("\n")[0]
    while (cause := error.getCause()) is not None:
        error = cause
    return str(error.toString())
