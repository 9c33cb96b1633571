"""The corpus of reference tables, through both Spark read paths."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

import trilake
from tests.conftest import SOAK

#: Comparing them row by row in Python takes a minute each; tests/delta compares columns.
_LARGE = "parquet-decimal-dictionaries"


@pytest.fixture(scope="module")
def runner(shared: Path) -> ModuleType:
    path = shared / "corpus" / "delta" / "corpus.py"
    spec = importlib.util.spec_from_file_location("delta_corpus", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.set_mtimes = lambda: None  # the tables are read-only
    return module


def adapters() -> ModuleType:
    path = Path(__file__).with_name("corpus_adapter.py")
    spec = importlib.util.spec_from_file_location("spark_corpus_adapter", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["source", "native"])
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
def test_every_corpus_case(spark: SparkSession, runner: ModuleType, way: str, zone: str) -> None:
    trilake.register(spark)
    # Partition values must not depend on the session time zone; a sample in another zone is enough.
    # Spark starts a process per step of a source read, so CI reads only a part of the corpus through the source.
    whole = zone == "UTC" and (SOAK or way == "native")
    only = f"^(?!{_LARGE})" if whole else "timestamp|date|partition-values"
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        results: list[dict[str, Any]] = runner.run(**getattr(adapters(), way)(spark), only=only, timeout=120)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    bad = [f"{r['id']}: {r['verdict']} {r.get('detail', '')[:300]}" for r in results if r["verdict"] not in GOOD]
    assert not bad, "\n".join(bad)
    assert len([r for r in results if r["verdict"] != "n/a"]) > (190 if whole else 20)


GOOD = ("pass", "refused", "n/a")
