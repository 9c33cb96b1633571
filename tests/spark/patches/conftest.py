"""The session of the run, with trilake registered."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import trilake


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    trilake.register(spark)
    return spark
