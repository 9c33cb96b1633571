"""Errors of failed Spark jobs."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException

from trilake.spark.session.job_errors import job_error_of

_WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "pyspark/serializers.py", line 483, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named '{}'
"""


@pytest.mark.parametrize("package", ["trilake", "trilake.parquet", "pyarrow"])
def test_help_for_executors_without_the_package(package: str) -> None:
    cause = PythonException(_WORKER.format(package))
    error = job_error_of(cause, "the merge failed", again="repeat the merge")
    assert f"Cause: ModuleNotFoundError: No module named '{package}'" in error.message
    assert error.help == (
        "install trilake[spark], in the driver's release, for the Python of the executors, then repeat the merge"
    )


def test_help_for_other_missing_modules() -> None:
    error = job_error_of(PythonException(_WORKER.format("trilakes")), "the merge failed", again="repeat the merge")
    assert error.help == "fix the query or its data, then repeat the merge"
