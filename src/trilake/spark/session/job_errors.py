"""Errors of failed Spark jobs: trilake's own error if a task raised one, otherwise a short cause.

A task's error arrives as a string inside Spark's message, between tracebacks of the worker and the JVM.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from trilake.errors import MissingFileError, TrilakeError, WriteFailedError

_log = logging.getLogger("trilake.spark")

#: The last line of a worker's traceback for a trilake error; Spark's class may precede it.
_TRILAKE_ERROR = re.compile(r"^\s*(?:[\w.]*\.)?(\w+Error): (\[[A-Z_]+\] .*)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception)|Arrow[A-Z]\w*): (.*)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
#: py4j's prefix for errors that have no class in PySpark, and the errors in a JVM stack trace.
_CALLING = re.compile(r"An error occurred while calling \S+\n: ")
_CAUSED_BY = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)*([\w$]+)(?:: (.*))?$", re.MULTILINE)
#: The prefix from ``raise_error`` of a message that has a condition.
_RAISED = re.compile(r"^\[USER_RAISED_EXCEPTION\] (?=\[[A-Z0-9_.]+\] )")
_JVM = re.compile(r"\n\s*(?:at [\w.$]+\(|Driver stacktrace:|JVM stacktrace:|Caused by:)")
#: Messages about missing files, and the file in a message.
MISSING = re.compile(r"FileNotFoundException|FILE_NOT_EXIST")
FILE = re.compile(r"(?:file:/|[a-z0-9]+://)[^\s'\"]+\.\w+")
#: Messages of jobs whose query was stopped: the thread was interrupted, or the jobs were cancelled.
_INTERRUPTED = re.compile(
    r"java\.(?:lang|io|nio\.channels)\.(?:Interrupted|InterruptedIO|ClosedByInterrupt)Exception"
    r"|cancelled part of cancelled job group"
)
#: The string in a traceback by which Spark recognises an interrupted batch function.
_STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling the job: java.lang.InterruptedException"
#: The error of a worker that cannot import trilake, or what its Spark extra requires.
_NOT_INSTALLED = re.compile(r"^ModuleNotFoundError: No module named '(?:trilake|pyarrow)\b")
#: The maximum length of a cause in a message.
_MOST = 600


def error_of_task(cause: BaseException) -> TrilakeError | None:
    r"""The trilake error that a task of a failed job raised; ``None`` if there is none.

    >>> message = "Traceback ...\ntrilake.errors.SchemaMismatchError: [SCHEMA_MISMATCH] no. Help: cast\n\n\tat x.y(z)"
    >>> error_of_task(RuntimeError(message))
    SchemaMismatchError('no')
    """
    if isinstance(cause, TrilakeError):
        return cause
    message = str(cause)
    error = error_in(message)
    if error is None and MISSING.search(message):
        file = FILE.search(message)
        return MissingFileError("a data file of the table is missing", file=None if file is None else file[0])
    return error


def error_in(message: str) -> TrilakeError | None:
    r"""The last trilake error that ends a traceback in a message from Spark; ``None`` if there is none.

    >>> error_in("Traceback ...\ntrilake.somewhere.SchemaMismatchError: [SCHEMA_MISMATCH] no. Help: cast\n more")
    SchemaMismatchError('no')
    """
    for name, body in reversed(_TRILAKE_ERROR.findall(message)):
        kind = _class_of(name)
        if kind is not None:
            message, _, help = body.removeprefix(f"[{kind.code}] ").partition(". Help: ")
            return kind(message, help=help or None)
    return None


def error_at_end(message: str) -> TrilakeError | None:
    r"""The trilake error with which a task failed; ``None`` if user code replaced it.

    >>> log = "Traceback (most recent call last):\n  File ...\nerrors.TableNotFoundError: [TABLE_NOT_FOUND] no\n\tat x"
    >>> error_at_end(log)
    TableNotFoundError('no')
    >>> error_at_end(log.replace("\tat x", "Traceback (most recent call last):\nValueError: mine"))
    """
    ends = _PYTHON.search(message.rpartition(_TRACEBACK)[2]) if _TRACEBACK in message else None
    return None if ends is None else error_in(ends[0])


def _class_of(name: str) -> type[TrilakeError] | None:
    kinds = [TrilakeError]
    for kind in kinds:
        if kind.__name__ == name:
            return kind
        kinds.extend(kind.__subclasses__())
    return None


def short_cause(cause: BaseException) -> str:
    r"""Why a job failed, in a line or two, without tracebacks.

    >>> short_cause(ValueError("one\n\tat org.apache.X.y(X.scala:1)"))
    'one'
    >>> short_cause(ValueError("Traceback (most recent call last):\n  File ...\npyarrow.lib.ArrowInvalid: no\n more"))
    'ArrowInvalid: no'
    >>> trace = "Job aborted.\n\tat x.Y.z(Y.scala:1)\nCaused by: java.io.IOException: Disk full\n\tat x.Y.z(Y.scala:2)"
    >>> short_cause(ValueError(f"An error occurred while calling o7.parquet.\n: org.SparkException: {trace}"))
    'IOException: Disk full'
    >>> message = "[CAST_INVALID_INPUT] a value does not fit int"
    >>> short_cause(ValueError(f"An error occurred while calling o7.parquet.\n: java.lang.RuntimeException: {message}"))
    '[CAST_INVALID_INPUT] a value does not fit int'
    """
    message = str(cause)
    raised = _PYTHON.findall(message) if _TRACEBACK in message else []
    if raised:
        name, message = raised[-1]
        return _cut(f"{name}: {message}")
    causes = _CAUSED_BY.findall(message) if _CALLING.match(message) else []
    if causes:
        name, message = causes[-1]
        # Omit the class if the message has a condition, or comes from ``raise_error``.
        return _cut(
            message if message.startswith("[") or (message and name == "RuntimeException") else f"{name}: {message}"
        )
    lines = [line.strip() for line in _JVM.split(message, maxsplit=1)[0].splitlines() if line.strip()]
    # The first line says what happened, the others say where.
    return _cut(_RAISED.sub("", lines[0]) if lines else type(cause).__name__)


def _cut(message: str) -> str:
    return message if len(message) <= _MOST else message[:_MOST] + " ..."


@contextmanager
def failing_as(failed: Callable[[Exception], Exception], *unchanged: type[Exception]) -> Iterator[None]:
    """Raise ``failed(e)`` for an error ``e`` of the job in the block, without Spark's traceback; errors of the classes
    ``unchanged`` are raised as they are."""
    try:
        yield
    except unchanged:
        raise
    except Exception as e:  # noqa: BLE001 - any error of a failed job
        raise failed(e) from None


def job_error_of(
    cause: BaseException, what: str, *, again: str, cleanup: str = "", file: str | None = None
) -> TrilakeError:
    """The error for a job that failed before its commit, with the current state (``what``), what to repeat (``again``)
    and how to remove remaining files (``cleanup``).  If a task rejected rows, its error is returned instead.  An
    interrupted job's error has a note by which Spark ends the query as stopped, not as failed."""
    _log.info("a Spark job failed", exc_info=cause)
    error_of_trilake = error_of_task(cause)
    if error_of_trilake is not None:
        return error_of_trilake
    short = short_cause(cause)
    if _NOT_INSTALLED.match(short):
        help = f"install trilake[spark], in the driver's release, for the Python of the executors, then {again}"
    else:
        help = f"fix the query or its data, then {again}" if _would_fail_again(cause) else again
    error = WriteFailedError(f"{what}. Cause: {short}", help="; ".join(t for t in (help, cleanup) if t), file=file)
    if _INTERRUPTED.search(str(cause)):
        error.add_note(_STOPPED)
    return error


def _would_fail_again(cause: BaseException) -> bool:
    """Whether Spark or a UDF rejected the rows, and not, say, a lost executor."""
    message = str(cause)
    if _TRACEBACK in message:
        return True
    has_class = isinstance(cause, PySparkException) or _CALLING.match(message)
    return bool(has_class) and bool(re.match(r"\[[A-Z0-9_.]+\]", short_cause(cause)))
