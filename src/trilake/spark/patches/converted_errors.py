"""The functions that convert JVM errors to PySpark's, and the message of an error at that point."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

#: Modules with ``convert_exception``: for classic sessions and for Spark Connect.
_CONVERTERS = ("pyspark.errors.exceptions.captured", "pyspark.sql.connect.client.core")
#: Java's wrappers of errors from other threads, such as those of scalar subqueries.
_PASSED_ON = ("Exception thrown in awaitResult", "java.util.concurrent.ExecutionException")
#: Separates a message from the server's stack traces in Spark Connect.
_TRACES = "\n\nJVM stacktrace:"


def converters() -> Iterator[ModuleType]:
    """The modules of this PySpark that have a ``convert_exception``."""
    for name in _CONVERTERS:
        try:
            yield importlib.import_module(name)
        except ImportError:  # Spark Connect's dependencies are not installed
            continue


def error_message(convert: Callable[[], BaseException], error: Any) -> str:
    r"""The message of an error that ``convert`` is about to convert, without Java's stack traces.

    >>> error_message(lambda: OSError("[A] no\n\nJVM stacktrace:\nCaused by: java.io.IOException"), object())
    '[A] no'
    """
    if not hasattr(error, "toString"):
        return str(convert()).partition(_TRACES)[0]
    message = str(error.toString())
    while any(p in message.partition("\n")[0] for p in _PASSED_ON) and (cause := error.getCause()) is not None:
        error, message = cause, str(cause.toString())
    return message


def first_cause(convert: Callable[[], BaseException], error: Any) -> str:
    r"""The root cause of an error: its Java class and message.

    >>> raised = OSError("[A] no\n\nJVM stacktrace:\n...\nCaused by: java.io.IOException: full\n\tat x")
    >>> first_cause(lambda: raised, object())
    'java.io.IOException: full'
    """
    if not hasattr(error, "toString"):
        return str(convert()).rpartition("Caused by: ")[2].partition("\n")[0]
    while (cause := error.getCause()) is not None:
        error = cause
    return str(error.toString())
