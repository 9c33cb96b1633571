"""Private names of PySpark and the JVM are used in one module only."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import utils
from pyspark.sql import SparkSession

import trilake.spark
from trilake.spark.session import internals

ROOT = Path(trilake.spark.__file__).parent
#: Private attributes of PySpark's objects.
PRIVATE = re.compile(r"\._(?:jvm|jdf|jwrite|jreader|jsparkSession|jsc|jc|sc|gateway|plan|session|client|jconf)\b")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_private_names_are_used_in_one_module(path: Path) -> None:
    if path.name in ("internals.py", "compat.py"):  # compat.py: differences between releases
        return
    lines = [line for line in path.read_text().splitlines() if PRIVATE.search(line) and "self._" not in line]
    assert lines == []


def test_missing_internals_raise_py4j_errors() -> None:
    nothing: Any = SimpleNamespace()
    for ask in (internals.jvm, internals.java_session, internals.query_execution, internals.java_column):
        with pytest.raises(Py4JError):
            ask(nothing)
    assert not internals.knows_class(nothing, "java.lang.String")


def test_class_lookup_in_the_driver(spark: SparkSession) -> None:
    assert internals.knows_class(spark, "java.lang.String")
    assert not internals.knows_class(spark, "org.example.Nothing")


def test_columns_are_built_without_lines_only_in_the_block(spark: SparkSession) -> None:
    del spark  # PySpark notes lines only with a session
    before = utils.is_debugging_enabled()
    with internals.lines_unrecorded():
        with internals.lines_unrecorded():
            assert not utils.is_debugging_enabled()
        assert not utils.is_debugging_enabled()
    assert utils.is_debugging_enabled() is before


def test_releases_without_the_lines_of_columns_build_them_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(utils, "_enable_debugging_cache")
    with internals.lines_unrecorded():
        assert not hasattr(utils, "_enable_debugging_cache")
