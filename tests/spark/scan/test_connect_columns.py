"""The SQL of Spark Connect columns, for supported expressions only."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from trilake.expr import parse_filter
from trilake.spark.scan.connect_columns import connect_sql

#: No server is needed.
_SESSION: Any = SimpleNamespace(client=None)
_SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("p", pa.string()),
        ("a b", pa.string()),
        ("s", pa.struct([("x", pa.int32())])),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(5, 2)),
        ("f", pa.float64()),
        ("b", pa.binary()),
    ]
)


def _columns() -> list[tuple[Any, str | None]]:
    from pyspark.sql.connect import functions as F
    from pyspark.sql.connect import window as W

    n, p = F.col("n"), F.col("p")
    return [
        (p == "it's \\", r"(`p` = 'it\'s \\')"),
        (F.expr("p = 'a' -- b"), "(p = 'a' -- b\n)"),
        (F.lit(True), "TRUE"),
        (p.isin("a", None), "(`p` IN ('a', NULL))"),
        ((n > 1) & ~(p <= "b") | (n != 2), "(((`n` > 1) AND (NOT (`p` <= 'b'))) OR (NOT (`n` = 2)))"),
        (n.eqNullSafe(-(1 << 40)), f"(`n` <=> {-(1 << 40)}L)"),
        (n.between(1, 2), "((`n` >= 1) AND (`n` <= 2))"),
        (-n % 2 == n + 0.5, "(((- `n`) % 2) = (`n` + 0.5D))"),
        (F.col("`a b`").isNull(), "isNull(`a b`)"),
        (F.col("s.x").isNotNull(), "isNotNull(`s`.`x`)"),
        (p.like("a%") & p.startswith("a"), "((`p` LIKE 'a%') AND startsWith(`p`, 'a'))"),
        (F.upper(p) == p.cast("string"), "(upper(`p`) = CAST(`p` AS string))"),
        (F.col("day") == dt.date(1969, 12, 31), "(`day` = DATE'1969-12-31')"),
        (F.col("price") == Decimal("1.50"), "(`price` = CAST('1.50' AS DECIMAL(3, 2)))"),
        (F.col("f") == F.lit(math.nan), "(`f` = CAST('nan' AS DOUBLE))"),
        (F.col("b") == F.lit(bytearray(b"\x01")), "(`b` = X'01')"),
        (F.when(n == 1, True).otherwise(False), "(CASE WHEN (`n` = 1) THEN TRUE ELSE FALSE END)"),
        (F.when(n == 1, True), "(CASE WHEN (`n` = 1) THEN TRUE END)"),
        ((n == 1).alias("x"), "(`n` = 1)"),
        (F.col("n-1") == 1, "(`n-1` = 1)"),
        (F.sum(n).over(W.Window.partitionBy(p)) == 1, None),
        (F.count_distinct(n) == 1, None),
        (F.call_function("upper", p) == "A", None),
        (F.transform(F.array(n), lambda x: x + 1)[0] == 1, None),
    ]


def test_sql_of_columns(spark: SparkSession) -> None:
    for column, text in _columns():
        assert connect_sql(_SESSION, column) == text, column


def test_sql_is_equivalent_in_the_embedded_engine(spark: SparkSession) -> None:
    for _, text in _columns():
        if text is not None and "n-1" not in text:
            assert parse_filter(text, _SCHEMA) is not None


def test_timestamp_literal_is_the_one_in_the_message(spark: SparkSession) -> None:
    from pyspark.sql.connect import functions as F

    moment = dt.datetime(2024, 5, 1, 12, 30, tzinfo=dt.UTC)
    text = connect_sql(_SESSION, F.col("at") == moment)
    assert text == "(`at` = TIMESTAMP'2024-05-01 12:30:00Z')"
    assert parse_filter(text, _SCHEMA) is not None
