"""The local session of the Spark tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from trilake.spark.session.local import local_session


def test_local_session_has_its_settings(spark: SparkSession) -> None:
    expected = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    assert {key: spark.conf.get(key) for key in expected} == expected
    assert spark.sparkContext.uiWebUrl is None


def test_workers_are_this_interpreter(spark: SparkSession) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"executable": [sys.executable], "prefix": [sys.prefix]})

    rows = spark.range(1).mapInArrow(where, "executable string, prefix string").collect()
    assert {row["prefix"] for row in rows} == {sys.prefix}


def test_java_is_the_selected_one(spark: SparkSession) -> None:
    from trilake.spark.session.java import find_java

    system: Any = spark.sparkContext._jvm
    assert system is not None
    assert system.java.lang.System.getProperty("java.version") == find_java().version
    assert os.environ["JAVA_HOME"]


def test_running_session_gets_new_runtime_settings(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    try:
        again = local_session(**{"spark.sql.ansi.enabled": before != "true"})
        assert again.sparkContext is spark.sparkContext
        assert spark.conf.get("spark.sql.ansi.enabled") == ("false" if before == "true" else "true")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before or "true")
