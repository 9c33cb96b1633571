"""SQL scripts answer as delta-spark's do: the shared corpus, a sixth of it in CI, all of it when soaking."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import trilake
from tests.conftest import SOAK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _runner(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("sql_corpus_runner", folder / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    yield spark
    trilake.uninstall(spark)


def _chosen(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return cases if SOAK else [c for i, c in enumerate(cases) if i % 6 == 0]


@pytest.mark.timeout(900)
def test_cases_of_the_corpus_are_answered_as_delta_spark_answers_them(sql: SparkSession, shared: Path) -> None:
    folder = shared / "corpus" / "sql"
    runner = _runner(folder)
    cases = _chosen(json.loads((folder / "cases.json").read_text(encoding="utf-8")))
    wrong = []
    for case in cases:
        run = runner.Case(case, SimpleNamespace(spark=sql))
        try:
            verdict, step, why = run.run()
        finally:
            run.clean()
        if verdict != "pass":
            wrong.append(f"{case['name']}, step {step + 1}: {why}")
    assert cases
    assert not wrong, "\n".join(wrong)
