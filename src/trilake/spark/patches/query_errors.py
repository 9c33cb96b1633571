"""Errors of queries over trilake tables, which are raised long after trilake created the DataFrame.

PySpark converts JVM errors in one function, Spark Connect in another.  After :func:`patch_query_errors`, these raise a
trilake error with a one-line message, which can also be caught as Spark's:

* a data file of a trilake table is missing: :class:`~trilake.errors.MissingFileError`;
* such a file is damaged: :class:`~trilake.errors.CorruptFileError`;
* Spark cannot convert a column of such a file to the table's type: :class:`~trilake.errors.SchemaMismatchError`;
* a task failed with a trilake error: that error, without the traceback of the worker;
* a streaming query failed with a trilake error: that error, with the query's ID, also from ``query.exception()``.

Other errors stay Spark's.  The logger ``trilake.spark`` logs Spark's full message at level INFO.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from trilake.errors import CorruptFileError, MissingFileError, SchemaMismatchError, TrilakeError
from trilake.parquet.files import UNREADABLE_HELP
from trilake.spark.patches.chains import classes, is_connect_class
from trilake.spark.patches.recorder import Action, patch
from trilake.spark.scan.frame_tables import is_read
from trilake.spark.session.analysis_errors import job_error, stream_error
from trilake.spark.session.job_errors import FILE, MISSING, error_at_end, error_in

#: Modules with ``convert_exception``: for classic sessions and for Spark Connect.
_CONVERTERS = ("pyspark.errors.exceptions.captured", "pyspark.sql.connect.client.core")
#: Java's wrappers of errors from other threads, such as those of scalar subqueries.
_PASSED_ON = ("Exception thrown in awaitResult", "java.util.concurrent.ExecutionException")
#: Separates a message from the server's stack traces in Spark Connect.
_TRACES = "\n\nJVM stacktrace:"


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


_log = logging.getLogger("trilake.spark")

_UNREADABLE = re.compile(r"\[FAILED_READ_FILE(?:\.NO_HINT)?\]")
#: Spark's message about a column whose type differs in the file: from 4.0 on, and before.
_OTHER_TYPE = re.compile(
    r"Parquet column (?:"
    r"\[(?P<column>[^\]]*)\]\. Expected Spark type (?P<expected>.+?), actual Parquet type (?P<stored>\w+)"
    r"|cannot be converted in file \S+"
    r" Column: \[(?P<column_3>[^\]]*)\], Expected: (?P<expected_3>.+?), Found: (?P<stored_3>\w+))"
)
#: Messages of Parquet readers and codecs about damaged bytes, but not about stores or permissions.
_DAMAGE = re.compile(
    r"not a Parquet file|ParquetDecodingException|TProtocolException|can not read class|footer|EOFException|corrupt"
    r"|CRC|checksum|snappy|Zstd|ZipException|DataFormatException|IndexOutOfBounds|NegativeArraySize",
    re.IGNORECASE,
)
_JAVA_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")


def patch_query_errors() -> None:
    """Patch PySpark's conversion of errors and ``query.exception``.  Idempotent."""
    for name in _CONVERTERS:
        with suppress(ImportError):  # Spark Connect's dependencies are not installed
            patch(importlib.import_module(name), "convert_exception", _converted)
    for cls in classes("query"):
        patch(cls, "exception", _exception_of_connect if is_connect_class(cls) else _exception)


def _converted(original: Any, error: Any, *args: Any, **kwargs: Any) -> Action | None:
    convert = partial(original, *args, **kwargs)
    message = error_message(convert, error)
    if message.startswith(_STOPPED) and (action := _stream_error(message)) is not None:
        return action
    mapped = missing_file(message) or other_type(message) or error_at_end(message)
    if mapped is None and _UNREADABLE.search(message):
        mapped = damaged_file(message, first_cause(convert, error))
    if mapped is None:
        return None
    _log.info("a query failed: %s", message)
    return lambda: job_error(mapped)


def missing_file(message: str) -> MissingFileError | None:
    """The error for Spark's message that a file of a trilake table is missing; ``None`` for other messages."""
    if not MISSING.search(message):
        return None
    file = _trilake_file(message)
    return None if file is None else MissingFileError("a data file of the table is missing", file=file)


def other_type(message: str) -> SchemaMismatchError | None:
    """The error for Spark's message that it cannot convert a column of a trilake table; ``None`` for other messages."""
    match, file = _OTHER_TYPE.search(message), _trilake_file(message)
    if match is None or file is None:
        return None
    column, expected, stored = (match[name] or match[f"{name}_3"] for name in ("column", "expected", "stored"))
    return SchemaMismatchError(
        f"Spark cannot read {stored} in a data file as {expected}",
        help="read the table with trilake.open, which converts values that fit, and write the rows again",
        file=file,
        column=column,
    )


def damaged_file(message: str, cause: str) -> CorruptFileError | None:
    """The error for Spark's message that it cannot read a file of a trilake table; ``None`` for other messages.
    ``cause`` must be about the file's bytes."""
    file = _trilake_file(message) if _DAMAGE.search(cause) else None
    if file is None:
        return None
    reason = FILE.sub("it", _JAVA_CLASS.sub("", cause.splitlines()[0]))
    return CorruptFileError(f"the Parquet file cannot be read: {reason}", help=UNREADABLE_HELP, file=file)


def _trilake_file(message: str) -> str | None:
    return next((f for f in FILE.findall(message) if is_read(f)), None)


#: The prefixes of the message of a failed query: in the JVM, and in Spark Connect.
_STOPPED = ("org.apache.spark.sql.streaming.StreamingQueryException", "[STREAM_FAILED]")
_QUERY = re.compile(r"\[id = ([0-9a-f-]{36}), runId = ")


def _exception(original: Any, query: Any) -> Action | None:
    raised = query._jsq.exception()
    return None if raised.isEmpty() else _stream_error(str(raised.get().toString()))


def _exception_of_connect(original: Any, query: Any) -> Action | None:
    raised = original()
    return None if raised is None else _stream_error(str(raised))


def _stream_error(message: str) -> Action | None:
    """The conversion of the error of a query; ``None`` if it is not one of trilake's."""
    error = stopped_by(message)
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
