"""Errors of queries over our tables, when they run long after we gave their frame away.

PySpark makes one of its errors of each of the JVM's in one function, Spark Connect in another.  After
:func:`take_over_errors` they are watched, and give a trilake error, which is one of Spark's too, in a line:

* where a data file of a table that was read by a trilake frame is gone, a :class:`~trilake.errors.MissingFileError`;
* where Spark's scan finds such a file damaged, a :class:`~trilake.errors.CorruptFileError`;
* where it cannot make the table's type of a column of such a file, a :class:`~trilake.errors.SchemaMismatchError`;
* where a task ended with a trilake error, that one, without the traceback of the task's process.

Others are Spark's.  The log ``trilake.spark`` has all that Spark said at level INFO.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Any

from trilake.errors import CorruptFileError, MissingFileError, SchemaMismatchError
from trilake.parquet.files import UNREADABLE_HELP
from trilake.spark.patches.converted_errors import converters, error_text, first_cause
from trilake.spark.patches.recorder import Action, patch
from trilake.spark.scan.roots import is_read
from trilake.spark.session.analysis_errors import job_error
from trilake.spark.session.job_errors import error_at_end

_log = logging.getLogger("trilake.spark")

_MISSING = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST|FileNotFoundException")
_UNREADABLE = re.compile(r"\[FAILED_READ_FILE(?:\.NO_HINT)?\]")
#: What Spark says of a column of a file that has another type than the table: from 4.0 on, and before.
_OTHER_TYPE = re.compile(
    r"Parquet column (?:"
    r"\[(?P<column>[^\]]*)\]\. Expected Spark type (?P<wanted>.+?), actual Parquet type (?P<stored>\w+)"
    r"|cannot be converted in file \S+"
    r" Column: \[(?P<column_3>[^\]]*)\], Expected: (?P<wanted_3>.+?), Found: (?P<stored_3>\w+))"
)
_FILE = re.compile(r"(?:file:/|[a-z0-9]+://)[^\s'\"]+\.\w+")
#: What readers of Parquet and codecs say of bytes that are not theirs; errors of stores and of rights are not among it.
_DAMAGE = re.compile(
    r"not a Parquet file|ParquetDecodingException|TProtocolException|can not read class|footer|EOFException|corrupt"
    r"|CRC|checksum|snappy|Zstd|ZipException|DataFormatException|IndexOutOfBounds|NegativeArraySize",
    re.IGNORECASE,
)
_JAVA_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")


def take_over_errors() -> None:
    """Teach PySpark our errors of queries; doing it again changes nothing."""
    for module in converters():
        patch(module, "convert_exception", _converted)


def _converted(own: Any, error: Any, *args: Any, **kwargs: Any) -> Action | None:
    convert = partial(own, *args, **kwargs)
    text = error_text(convert, error)
    found = missing_file(text) or other_type(text) or error_at_end(text)
    if found is None and _UNREADABLE.search(text):
        found = damaged_file(text, first_cause(convert, error))
    if found is None:
        return None
    _log.info("a query failed: %s", text)
    return lambda: job_error(found)


def missing_file(text: str) -> MissingFileError | None:
    """Our error for a string of Spark's that says that a file of a trilake table is gone; ``None`` for any other
    text."""
    if not _MISSING.search(text):
        return None
    file = _file_of_ours(text)
    return None if file is None else MissingFileError("a data file of the table is missing", file=file)


def other_type(text: str) -> SchemaMismatchError | None:
    """Our error for a string of Spark's that says that it cannot make the table's type of a column of one of our files,
    such as one of half floats; ``None`` for any other text."""
    said, file = _OTHER_TYPE.search(text), _file_of_ours(text)
    if said is None or file is None:
        return None
    column, wanted, stored = (said[name] or said[f"{name}_3"] for name in ("column", "wanted", "stored"))
    return SchemaMismatchError(
        f"Spark makes no {wanted} of the {stored} that is stored in a data file",
        help="read it without Spark, by trilake.open, which converts what fits, and write the rows again",
        file=file,
        column=column,
    )


def damaged_file(text: str, cause: str) -> CorruptFileError | None:
    """Our error for a string of Spark's that says that a file of a trilake table cannot be read, where its first cause
    is in the file's bytes; ``None`` for any other."""
    file = _file_of_ours(text) if _DAMAGE.search(cause) else None
    if file is None:
        return None
    said = _FILE.sub("it", _JAVA_CLASS.sub("", cause.splitlines()[0]))
    return CorruptFileError(
        f"the parquet file cannot be read: {said}",
        help=UNREADABLE_HELP,
        file=file,
    )


def _file_of_ours(text: str) -> str | None:
    return next((f for f in _FILE.findall(text) if is_read(f)), None)
