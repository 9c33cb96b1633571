"""Errors of queries over trilake tables, which are raised long after trilake made the frame.

PySpark converts JVM errors in one function, Spark Connect in another.  After :func:`patch_read_errors`, these raise a
trilake error with a one-line message, which can also be caught as Spark's:

* a data file that a trilake frame reads is missing: :class:`~trilake.errors.MissingFileError`;
* such a file is damaged: :class:`~trilake.errors.CorruptFileError`;
* Spark cannot convert a column of such a file to the table's type: :class:`~trilake.errors.SchemaMismatchError`;
* a task failed with a trilake error: that error, without the traceback of the worker.

Other errors stay Spark's.  At level INFO, the log ``trilake.spark`` has Spark's full message.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Any

from trilake.errors import CorruptFileError, MissingFileError, SchemaMismatchError
from trilake.parquet.files import UNREADABLE_HELP
from trilake.spark.patches.converted_errors import converters, error_message, first_cause
from trilake.spark.patches.recorder import Action, patch
from trilake.spark.scan.roots import is_read
from trilake.spark.session.analysis_errors import job_error
from trilake.spark.session.job_errors import error_at_end

_log = logging.getLogger("trilake.spark")

_MISSING = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST|FileNotFoundException")
_UNREADABLE = re.compile(r"\[FAILED_READ_FILE(?:\.NO_HINT)?\]")
#: Spark's message about a column whose type differs in the file: from 4.0 on, and before.
_OTHER_TYPE = re.compile(
    r"Parquet column (?:"
    r"\[(?P<column>[^\]]*)\]\. Expected Spark type (?P<expected>.+?), actual Parquet type (?P<stored>\w+)"
    r"|cannot be converted in file \S+"
    r" Column: \[(?P<column_3>[^\]]*)\], Expected: (?P<expected_3>.+?), Found: (?P<stored_3>\w+))"
)
_FILE = re.compile(r"(?:file:/|[a-z0-9]+://)[^\s'\"]+\.\w+")
#: Messages of Parquet readers and codecs about damaged bytes, but not about stores or permissions.
_DAMAGE = re.compile(
    r"not a Parquet file|ParquetDecodingException|TProtocolException|can not read class|footer|EOFException|corrupt"
    r"|CRC|checksum|snappy|Zstd|ZipException|DataFormatException|IndexOutOfBounds|NegativeArraySize",
    re.IGNORECASE,
)
_JAVA_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")


def patch_read_errors() -> None:
    """Patch PySpark's conversion of errors.  Idempotent."""
    for module in converters():
        patch(module, "convert_exception", _converted)


def _converted(original: Any, error: Any, *args: Any, **kwargs: Any) -> Action | None:
    convert = partial(original, *args, **kwargs)
    message = error_message(convert, error)
    mapped = missing_file(message) or other_type(message) or error_at_end(message)
    if mapped is None and _UNREADABLE.search(message):
        mapped = damaged_file(message, first_cause(convert, error))
    if mapped is None:
        return None
    _log.info("a query failed: %s", message)
    return lambda: job_error(mapped)


def missing_file(message: str) -> MissingFileError | None:
    """The error for Spark's message that a file of a trilake table is missing; ``None`` for other messages."""
    if not _MISSING.search(message):
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
        help="read it without Spark, by trilake.open, which converts what fits, and write the rows again",
        file=file,
        column=column,
    )


def damaged_file(message: str, cause: str) -> CorruptFileError | None:
    """The error for Spark's message that it cannot read a file of a trilake table; ``None`` for other messages.

    ``cause`` must be about the file's bytes.
    """
    file = _trilake_file(message) if _DAMAGE.search(cause) else None
    if file is None:
        return None
    reason = _FILE.sub("it", _JAVA_CLASS.sub("", cause.splitlines()[0]))
    return CorruptFileError(
        f"the Parquet file cannot be read: {reason}",
        help=UNREADABLE_HELP,
        file=file,
    )


def _trilake_file(message: str) -> str | None:
    return next((f for f in _FILE.findall(message) if is_read(f)), None)
