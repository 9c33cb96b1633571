"""Errors that stop a streaming query, as trilake errors if trilake raised them.

Spark keeps only the string of a batch's error, with a prefix and the tracebacks of the workers.  After
:func:`patch_stream_errors`, ``query.awaitTermination()``, ``processAllAvailable()`` and ``query.exception()`` give
trilake's error with a one-line message, which is also a ``StreamingQueryException``.  Other errors stay Spark's.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Any

from trilake.errors import TrilakeError
from trilake.spark.patches.chains import classes, is_connect_class
from trilake.spark.patches.converted_errors import converters, error_message
from trilake.spark.patches.recorder import Action, patch
from trilake.spark.session.analysis_errors import stream_error
from trilake.spark.session.job_errors import error_in

_log = logging.getLogger("trilake.spark")

#: The prefixes of the message of a failed query: in the JVM, and in Spark Connect.
_STOPPED = ("org.apache.spark.sql.streaming.StreamingQueryException", "[STREAM_FAILED]")
_QUERY = re.compile(r"\[id = ([0-9a-f-]{36}), runId = ")


def patch_stream_errors() -> None:
    """Patch PySpark's conversion of errors and ``query.exception``.  Idempotent."""
    for module in converters():
        patch(module, "convert_exception", _converted)
    for cls in classes("query"):
        patch(cls, "exception", _exception_of_connect if is_connect_class(cls) else _exception)


def _converted(original: Any, error: Any, *args: Any, **kwargs: Any) -> Action | None:
    message = error_message(partial(original, *args, **kwargs), error)
    return _raise_stream_error(message, stopped_by(message)) if message.startswith(_STOPPED) else None


def _exception(original: Any, query: Any) -> Action | None:
    raised = query._jsq.exception()
    if raised.isEmpty():
        return None
    message = str(raised.get().toString())
    return _raise_stream_error(message, stopped_by(message))


def _exception_of_connect(original: Any, query: Any) -> Action | None:
    raised = original()
    message = str(raised)
    return None if raised is None else _raise_stream_error(message, stopped_by(message))


def _raise_stream_error(message: str, error: TrilakeError | None) -> Action | None:
    if error is None:
        return None
    _log.info("a query stopped: %s", message)
    return lambda: stream_error(error)


def stopped_by(message: str) -> TrilakeError | None:
    """The trilake error in the message of a failed query, with the query's ID."""
    error = error_in(message)
    query = _QUERY.search(message)
    if error is not None and query is not None:
        error.context["query"] = query[1]
    return error
