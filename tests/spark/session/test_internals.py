"""Private names of PySpark and of the JVM stand in one module."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import trilake.spark
from trilake.spark.session import internals

ROOT = Path(trilake.spark.__file__).parent
#: Private attributes of PySpark's objects.
PRIVATE = re.compile(r"\._(?:jvm|jdf|jwrite|jreader|jsparkSession|jsc|jc|sc|gateway|plan|session|client|jconf)\b")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_private_names_stand_in_one_module(path: Path) -> None:
    if path.name in ("internals.py", "compat.py"):  # compat.py: what differs between releases
        return
    lines = [line for line in path.read_text().splitlines() if PRIVATE.search(line) and "self._" not in line]
    assert lines == []


def test_what_is_not_there_is_an_error_that_callers_know() -> None:
    nothing: Any = SimpleNamespace()
    for ask in (internals.jvm, internals.java_session, internals.query_execution, internals.java_column):
        with pytest.raises(Py4JError):
            ask(nothing)
    assert not internals.knows_class(nothing, "java.lang.String")


def test_the_driver_is_asked_for_classes(spark: SparkSession) -> None:
    assert internals.knows_class(spark, "java.lang.String")
    assert not internals.knows_class(spark, "org.example.Nothing")
