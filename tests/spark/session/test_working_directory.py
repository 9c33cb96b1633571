"""Relative paths start at the working directory of the driver, also in Spark's tasks, which have another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import trilake


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_tasks_use_the_folder_of_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """A replacement in a Delta table committed files that its tasks had written to another folder."""
    trilake.register(spark)
    monkeypatch.chdir(tmp_path)
    rows = spark.range(0, 4, 1, 2)
    rows.write.format(format).save("relative")
    if format == "delta":
        rows.write.format(format).mode("overwrite").option("replaceWhere", "id >= 0").save("relative")
    assert spark.read.format(format).load("relative").count() == 4
    assert trilake.open(tmp_path / "relative", format=format).count() == 4
