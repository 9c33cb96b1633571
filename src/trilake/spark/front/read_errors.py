"""Errors of Spark's own scans of our tables, when a query runs long after we gave its frame away.

PySpark makes one of its errors of each of the JVM's in one function.  After :func:`take_over_errors` that function is
watched: where a data file of a table that was read by a frame of ours is gone, the error is a
:class:`~trilake.errors.MissingFileError`, and Spark's ``SparkRuntimeException`` too, in a line.  Others are Spark's.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from trilake.errors import MissingFileError
from trilake.spark.front.recorder import Action, patch
from trilake.spark.native.roots import is_read
from trilake.spark.session.analysis_errors import job_error

_MISSING = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST|FileNotFoundException")
_FILE = re.compile(r"(?:file:/|[a-z0-9]+://)[^\s'\"]+\.\w+")


def take_over_errors() -> None:
    """Teach PySpark our error for a data file that is gone; doing it again changes nothing."""
    patch(importlib.import_module("pyspark.errors.exceptions.captured"), "convert_exception", _converted)


def _converted(own: Any, error: Any, *args: Any) -> Action | None:
    missing = missing_file(str(error.toString()))
    return None if missing is None else lambda: job_error(missing)


def missing_file(text: str) -> MissingFileError | None:
    """Our error for a text of Spark's that says that a file of a table of ours is gone; ``None`` for any other text."""
    if not _MISSING.search(text):
        return None
    file = next((f for f in _FILE.findall(text) if is_read(f)), None)
    return None if file is None else MissingFileError("a data file that the table names is not there", file=file)
