"""What stopped a query, as a trilake error where one of trilake did.

Spark keeps the text alone of what a batch raised: below its own name for it, and with the tracebacks of the worker that
planned, wrote or committed.  After :func:`take_over_stream_errors`, ``query.awaitTermination()``,
``processAllAvailable()`` and ``query.exception()`` give our error in a line; it is a ``StreamingQueryException`` too.
What others raised stays as Spark tells it.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Any

from trilake.errors import TrilakeError
from trilake.spark.patches.chains import classes, is_connect_class
from trilake.spark.patches.converted_errors import converters, error_text
from trilake.spark.patches.recorder import Action, patch
from trilake.spark.session.analysis_errors import stream_error
from trilake.spark.session.job_errors import error_in

_log = logging.getLogger("trilake.spark")

#: How a string about a query that stopped begins: by the JVM, and over Spark Connect.
_STOPPED = ("org.apache.spark.sql.streaming.StreamingQueryException", "[STREAM_FAILED]")
_QUERY = re.compile(r"\[id = ([0-9a-f-]{36}), runId = ")


def take_over_stream_errors() -> None:
    """Teach PySpark our errors of queries; doing it again changes nothing."""
    for module in converters():
        patch(module, "convert_exception", _converted)
    for cls in classes("query"):
        patch(cls, "exception", _exception_of_connect if is_connect_class(cls) else _exception)


def _converted(own: Any, error: Any, *args: Any, **kwargs: Any) -> Action | None:
    text = error_text(partial(own, *args, **kwargs), error)
    return _given(text, stopped_by(text)) if text.startswith(_STOPPED) else None


def _exception(own: Any, query: Any) -> Action | None:
    raised = query._jsq.exception()
    if raised.isEmpty():
        return None
    text = str(raised.get().toString())
    return _given(text, stopped_by(text))


def _exception_of_connect(own: Any, query: Any) -> Action | None:
    raised = own()
    text = str(raised)
    return None if raised is None else _given(text, stopped_by(text))


def _given(text: str, error: TrilakeError | None) -> Action | None:
    if error is None:
        return None
    _log.info("a query stopped: %s", text)
    return lambda: stream_error(error)


def stopped_by(text: str) -> TrilakeError | None:
    """The error of trilake that stopped a query, by what Spark says of it, and which query that was."""
    error = error_in(text)
    query = _QUERY.search(text)
    if error is not None and query is not None:
        error.context["query"] = query[1]
    return error
