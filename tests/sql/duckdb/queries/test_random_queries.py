"""Random queries: the rows and types are Spark's, or both sides refuse.

``TRILAKE_CASES`` says how many queries, ``TRILAKE_FIRST_SEED`` from which seed on.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException

import trilake
from tests.conftest import SOAK
from tests.sql.duckdb.queries.cases import T, U, shown
from tests.sql.duckdb.queries.random_queries import RandomQueries
from trilake.errors import TrilakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = int(os.environ.get("TRILAKE_FIRST_SEED", "0"))
CASES = int(os.environ.get("TRILAKE_CASES", "5000" if SOAK else "30"))
#: ``shown`` sorts the rows of queries that say so: no query here orders its rows.
_UNORDERED = "OVER"


def _known(rows: pa.Table) -> pa.Table:
    """The columns that both sides can be asked for: maps and the like are left out of the queries anyway."""
    return rows.select(["id", "i", "s", "f", "dec", "d", "b"]) if "dec" in rows.column_names else rows


def test_random_queries_give_what_spark_gives(spark: SparkSession) -> None:
    tables = {"t": _known(T), "u": U}
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        for name, rows in tables.items():
            spark.createDataFrame(rows).createOrReplaceTempView(name)
        answered = 0
        for seed in range(FIRST, FIRST + CASES):
            query = RandomQueries(seed).query().format(t="t", u="u")
            found, expected = _ours(query, tables), _sparks(spark, query)
            assert found == expected, f"seed {seed}: {query}"
            answered += found is not None
        assert answered > CASES * 0.8
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "2")
        for name in tables:
            spark.catalog.dropTempView(name)


def _ours(query: str, tables: dict[str, pa.Table]) -> dict[str, Any] | None:
    try:
        return shown(trilake.sql(query, **tables), _UNORDERED)
    except TrilakeError:
        return None


def _sparks(spark: SparkSession, query: str) -> dict[str, Any] | None:
    try:
        return shown(spark.sql(query).toArrow(), _UNORDERED)
    except PySparkException:
        return None
