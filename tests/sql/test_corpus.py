"""SQL scripts answer as delta-spark does: the shared corpus.  Over Spark Connect too, when soaking."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import trilake
from tests.connect_session import connect_session, run_apart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: A case as the corpus has it: a name, and steps.
Case = dict[str, Any]


def corpus_cases(shared: Path) -> list[Case]:
    """The cases of the corpus in the shared folder."""
    cases: list[Case] = json.loads((shared / "corpus" / "sql" / "cases.json").read_text(encoding="utf-8"))
    return cases


def corpus_runner(shared: Path) -> ModuleType:
    """The program of the corpus that runs a case and compares."""
    folder = shared / "corpus" / "sql"
    spec = importlib.util.spec_from_file_location("sql_corpus_runner", folder / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    for left in spark.catalog.listTables():  # SHOW TABLES would show the temporary views of other tests
        if left.isTemporary:
            spark.catalog.dropTempView(left.name)
    yield spark
    trilake.uninstall(spark)


@pytest.mark.timeout(900)  # 87 scripts
def test_cases_of_the_corpus_are_answered_as_delta_spark_answers_them(sql: SparkSession, shared: Path) -> None:
    tried, wrong, other = _answered(sql, shared)
    assert tried
    assert not wrong, wrong
    assert not other, other


def _answered(spark: SparkSession, shared: Path) -> tuple[list[str], dict[str, str], dict[str, int]]:
    """The cases that were tried, what is wrong with the answers of some, by the case and the number of its step, and
    how many refusals have another condition, by the case."""
    runner = corpus_runner(shared)
    cases = corpus_cases(shared)
    wrong, other = {}, {}
    for case in cases:
        run = runner.Case(case, SimpleNamespace(spark=spark))
        try:
            verdict, step, why = run.run()
        finally:
            run.clean()
        if verdict != "pass":
            wrong[f"{case['name']}, step {step + 1}"] = why
        if run.conditions[0] != run.conditions[1]:
            other[case["name"]] = run.conditions[1] - run.conditions[0]
    return [c["name"] for c in cases], wrong, other


@pytest.mark.soak
def test_cases_of_the_corpus_over_connect_are_answered_but_for_permanent_views(tmp_path: Path, shared: Path) -> None:
    """A Connect server gives no one the methods of its catalogue by which a permanent view gets its text."""
    script = "from tests.sql.test_corpus import main_over_connect; main_over_connect()"
    done = run_apart(script, str(shared), str(tmp_path), timeout=3_000)
    assert done.returncode == 0, done.stderr[-3000:]
    tried, wrong, _ = json.loads(done.stdout.splitlines()[-1])
    assert len(tried) > 80
    assert list(wrong) == ["show-tables-schema, step 3", "drop-table-external, step 5"], wrong
    assert all("UNSUPPORTED_SPARK" in why and "view" in why for why in wrong.values())


def main_over_connect() -> None:
    """Answer the cases of the shared folder that the command line names, in a Connect session; prints what is wrong."""
    shared, scratch = map(Path, sys.argv[1:])
    settings = {"warehouse.dir": (scratch / "warehouse").as_uri(), "session.timeZone": "UTC", "shuffle.partitions": "2"}
    spark = connect_session(**{f"spark.sql.{name}": value for name, value in settings.items()})
    trilake.install(spark)
    print(json.dumps(_answered(spark, shared)))
    spark.stop()
