"""SQL scripts of the shared corpus give the results of delta-spark; over Spark Connect in soak runs."""

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


#: A case of the corpus: a name and steps.
Case = dict[str, Any]


def corpus_cases(shared: Path) -> list[Case]:
    """The corpus cases in the shared folder."""
    cases: list[Case] = json.loads((shared / "corpus" / "sql" / "cases.json").read_text(encoding="utf-8"))
    return cases


def corpus_runner(shared: Path) -> ModuleType:
    """The corpus runner, which runs a case and compares results."""
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
def test_corpus_results_match_delta_spark(sql: SparkSession, shared: Path) -> None:
    tried, wrong, other = _answered(sql, shared)
    assert tried
    assert not wrong, wrong
    assert not other, other


def _answered(spark: SparkSession, shared: Path) -> tuple[list[str], dict[str, str], dict[str, int]]:
    """The cases that ran, the wrong results by case and step number, and
    the number of errors with another condition by case."""
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
def test_corpus_over_connect_except_permanent_views(tmp_path: Path, shared: Path) -> None:
    """A Connect server does not expose the catalog methods that set the SQL of a permanent view."""
    script = "from tests.sql.test_corpus import main_over_connect; main_over_connect()"
    done = run_apart(script, str(shared), str(tmp_path), timeout=3_000)
    assert done.returncode == 0, done.stderr[-3000:]
    tried, wrong, _ = json.loads(done.stdout.splitlines()[-1])
    assert len(tried) > 80
    assert list(wrong) == ["show-tables-schema, step 3", "drop-table-external, step 5"], wrong
    assert all("UNSUPPORTED_SPARK" in why and "view" in why for why in wrong.values())


def main_over_connect() -> None:
    """Run the named cases of the shared folder in a Connect session; prints failures."""
    shared, scratch = map(Path, sys.argv[1:])
    settings = {"warehouse.dir": (scratch / "warehouse").as_uri(), "session.timeZone": "UTC", "shuffle.partitions": "2"}
    spark = connect_session(**{f"spark.sql.{name}": value for name, value in settings.items()})
    trilake.install(spark)
    print(json.dumps(_answered(spark, shared)))
    spark.stop()
