"""What a failed job of Spark's means to a user: our own error where a task raised one, a short cause elsewhere.

A task's error comes back inside the text of Spark's, with the tracebacks of worker and JVM around it.
"""

from __future__ import annotations

import logging
import re

from pyspark.errors import PySparkException

from trilake.errors import MissingFileError, TrilakeError, WriteFailedError

_log = logging.getLogger("trilake.spark")

#: The line that ends a worker's traceback of one of our errors.  Spark's own class may be in front of it.
_OURS = re.compile(r"^\s*(?:[\w.]*\.)?(\w+Error): (\[[A-Z_]+\] .*)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception)|Arrow[A-Z]\w*): (.*)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
#: How py4j begins where Spark's error has no class in PySpark, and the errors that the JVM's stack traces name.
_CALLING = re.compile(r"An error occurred while calling \S+\n: ")
_CAUSED_BY = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)*([\w$]+)(?:: (.*))?$", re.MULTILINE)
#: What ``raise_error`` puts in front of a string that names a condition itself.
_RAISED = re.compile(r"^\[USER_RAISED_EXCEPTION\] (?=\[[A-Z0-9_.]+\] )")
_JVM = re.compile(r"\n\s*(?:at [\w.$]+\(|Driver stacktrace:|JVM stacktrace:|Caused by:)")
_MISSING = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST|FileNotFoundException|FILE_NOT_EXIST")
_FILE = re.compile(r"(?:file:|[a-z0-9]+://)[^\s'\"]+\.\w+")
#: What Spark says of a job whose query is stopped in the meantime: its thread was interrupted, or its jobs cancelled.
_INTERRUPTED = re.compile(
    r"java\.(?:lang|io|nio\.channels)\.(?:Interrupted|InterruptedIO|ClosedByInterrupt)Exception"
    r"|cancelled part of cancelled job group"
)
#: The words by which Spark knows, in the traceback of a batch's function, that it was interrupted.
_STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling the job: java.lang.InterruptedException"
#: Letters of a cause that are shown.
_MOST = 600


def error_of_task(cause: BaseException) -> TrilakeError | None:
    r"""The error of trilake that a task of a failed job raised; ``None`` where it was none.

    >>> text = "Traceback ...\ntrilake.errors.SchemaMismatchError: [SCHEMA_MISMATCH] no. Help: cast\n\n\tat x.y(z)"
    >>> error_of_task(RuntimeError(text))
    SchemaMismatchError('no')
    """
    if isinstance(cause, TrilakeError):
        return cause
    text = str(cause)
    ours = error_in(text)
    return _missing(text) if ours is None and _MISSING.search(text) else ours


def error_in(text: str) -> TrilakeError | None:
    r"""The error of trilake that ends a traceback in a string of Spark's, the last one; ``None`` where there is none.

    >>> error_in("Traceback ...\ntrilake.somewhere.SchemaMismatchError: [SCHEMA_MISMATCH] no. Help: cast\n more")
    SchemaMismatchError('no')
    """
    for name, shown in reversed(_OURS.findall(text)):
        kind = _class_of(name)
        if kind is not None:
            return _parsed(kind, shown)
    return None


def error_at_end(text: str) -> TrilakeError | None:
    r"""The error of trilake that a task ended with; ``None`` where a function of the user's made another of it.

    >>> text = "Traceback (most recent call last):\n  File ...\nerrors.TableNotFoundError: [TABLE_NOT_FOUND] no\n\tat x"
    >>> error_at_end(text)
    TableNotFoundError('no')
    >>> error_at_end(text.replace("\tat x", "Traceback (most recent call last):\nValueError: mine"))
    """
    ends = _PYTHON.search(text.rpartition(_TRACEBACK)[2]) if _TRACEBACK in text else None
    return None if ends is None else error_in(ends[0])


def _class_of(name: str) -> type[TrilakeError] | None:
    kinds = [TrilakeError]
    for kind in kinds:
        if kind.__name__ == name:
            return kind
        kinds.extend(kind.__subclasses__())
    return None


def _parsed(kind: type[TrilakeError], shown: str) -> TrilakeError:
    body = shown.removeprefix(f"[{kind.code}] ")
    message, _, help = body.partition(". Help: ")
    return kind(message, help=help or None)


def _missing(text: str) -> MissingFileError:
    match = _FILE.search(text)
    return MissingFileError("a data file of the table is missing", file=None if match is None else match[0])


def short_cause(cause: BaseException) -> str:
    r"""Why a job failed, in a line or two: no traceback of a worker or of the JVM.

    >>> short_cause(ValueError("one\n\tat org.apache.X.y(X.scala:1)"))
    'one'
    >>> short_cause(ValueError("Traceback (most recent call last):\n  File ...\npyarrow.lib.ArrowInvalid: no\n more"))
    'ArrowInvalid: no'
    >>> trace = "Job aborted.\n\tat x.Y.z(Y.scala:1)\nCaused by: java.io.IOException: Disk full\n\tat x.Y.z(Y.scala:2)"
    >>> short_cause(ValueError(f"An error occurred while calling o7.parquet.\n: org.SparkException: {trace}"))
    'IOException: Disk full'
    >>> text = "[CAST_INVALID_INPUT] a value does not fit int"
    >>> short_cause(ValueError(f"An error occurred while calling o7.parquet.\n: java.lang.RuntimeException: {text}"))
    '[CAST_INVALID_INPUT] a value does not fit int'
    """
    text = str(cause)
    raised = _PYTHON.findall(text) if _TRACEBACK in text else []
    if raised:
        name, message = raised[-1]
        return _cut(f"{name}: {message}")
    causes = _CAUSED_BY.findall(text) if _CALLING.match(text) else []
    if causes:
        name, message = causes[-1]
        # The class says nothing of an error of Spark's that has a condition, or of ``raise_error``.
        return _cut(
            message if message.startswith("[") or (message and name == "RuntimeException") else f"{name}: {message}"
        )
    lines = [line.strip() for line in _JVM.split(text, maxsplit=1)[0].splitlines() if line.strip()]
    # Spark shows where in a query it happened; the first line says what.
    return _cut(_RAISED.sub("", lines[0]) if lines else type(cause).__name__)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else text[:_MOST] + " ..."


def job_error_of(
    cause: BaseException, what: str, *, again: str, left: str = "", file: str | None = None
) -> TrilakeError:
    """The error for a job that failed before its commit.

    Parameters
    ----------
    cause: what Spark raised.
    what: what is true now, such as "the write failed before its commit; the table is unchanged".
    again: what to repeat, where repeating can help: "repeat the write".
    left: what removes files that the job left behind; empty where it left none.
    file: the table.

    Where a task found rows that the table refuses, that error is returned instead.  Where the job was interrupted, as
    by ``query.stop()``, the error has a note for Spark, which then ends the query as stopped and not as failed.
    """
    _log.info("a job of Spark failed", exc_info=cause)
    ours = error_of_task(cause)
    if ours is not None:
        return ours
    help = f"correct what the query computes, then {again}" if _certain(cause) else again
    error = WriteFailedError(
        f"{what}. Cause: {short_cause(cause)}", help="; ".join(t for t in (help, left) if t), file=file
    )
    if _INTERRUPTED.search(str(cause)):
        error.add_note(_STOPPED)
    return error


def _certain(cause: BaseException) -> bool:
    """Whether the same job would fail again: Spark or a function of the user's refused the rows."""
    text = str(cause)
    if _TRACEBACK in text:
        return True
    known = isinstance(cause, PySparkException) or _CALLING.match(text)
    return bool(known) and bool(re.match(r"\[[A-Z0-9_.]+\]", short_cause(cause)))
