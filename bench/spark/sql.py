"""SQL compared with the Python API on the same tables, and the overhead for statements without trilake tables."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial

import trilake
from bench.harness import Benchmark, Contender
from bench.tables.delta import scratch, spark
from bench.tables.delta_merge import copied, source, table
from trilake import DeltaTable

_ROWS, _CHANGED = 2_000_000, 20_000
_ON = "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber"
_API, _SQL = "Python interface", "spark.sql"
#: Repetitions of a short statement in one measurement, and the allowed overhead of each in seconds.
_TIMES, _MORE = 20, 0.002

_LINES = """\
WITH bounds AS (
  SELECT min(l_shipdate) AS first, max(l_shipdate) AS last
  FROM bench_source
),
priced AS (
  SELECT l_orderkey, l_linenumber, l_returnflag, -- delta.`/no/table`
    l_extendedprice * (1 - l_discount) AS price,
    l_comment LIKE '%delta%' AS named
  FROM bench_source s
  WHERE l_quantity > 0 /* merge into nothing */
),
ranked AS (
  SELECT *, rank() OVER (PARTITION BY l_returnflag ORDER BY price DESC) AS place
  FROM priced JOIN bounds ON true
)
SELECT r.l_returnflag, count(*) AS n, sum(r.price) AS price,
  max(CASE WHEN r.named THEN r.price ELSE 0 END) AS most
FROM ranked r LEFT JOIN bench_source s ON r.l_orderkey = s.l_orderkey
WHERE r.place < 1000 AND s.l_linenumber IN (SELECT l_linenumber FROM bench_source)
GROUP BY r.l_returnflag"""


def _setup(rows: int, changed: int) -> None:
    table(rows, vectors=True)
    trilake.install(spark())
    spark().read.parquet(str(source(rows, changed))).createOrReplaceTempView("bench_source")


# --- a statement without trilake tables ------------------------------------------------------------------------------


def _analysed(more: float) -> None:
    for _ in range(_TIMES):
        spark().sql(_LINES)
        if more:
            time.sleep(more)


# --- SQL and Python API ----------------------------------------------------------------------------------------------


def _grouped_by_api(rows: int) -> object:
    frame = spark().read.format("delta").load(str(table(rows, vectors=True)))
    return sorted(tuple(r) for r in frame.groupBy("l_returnflag").count().collect())


def _grouped_by_sql(rows: int) -> object:
    text = f"SELECT l_returnflag, count(*) FROM delta.`{table(rows, vectors=True)}` GROUP BY l_returnflag"
    return sorted(tuple(r) for r in spark().sql(text).collect())


def _inserted_by_api() -> None:
    spark().table("bench_source").write.format("delta").mode("append").save(str(scratch("sql-insert-api")))


def _inserted_by_sql() -> None:
    spark().sql(f"INSERT INTO delta.`{scratch('sql-insert-sql')}` SELECT * FROM bench_source")


def _empty(name: str) -> Callable[[], None]:
    def prepare() -> None:
        shutil.rmtree(scratch(name), ignore_errors=True)
        spark().table("bench_source").limit(0).write.format("delta").save(str(scratch(name)))

    return prepare


def _merged_by_api() -> None:
    target = DeltaTable.forPath(spark(), str(scratch("sql-merge-api"))).alias("t")
    merge = target.merge(spark().table("bench_source").alias("s"), _ON)
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


def _merged_by_sql() -> None:
    spark().sql(
        f"MERGE INTO delta.`{scratch('sql-merge-sql')}` t USING bench_source s ON {_ON}"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def benchmarks(rows: int = _ROWS, changed: int = _CHANGED) -> Iterator[Benchmark]:
    """A Spark-only statement; a query, an INSERT and a MERGE by SQL and by the Python API."""
    waiting = f"without trilake, plus {_MORE * 1000:.0f} ms each"
    yield Benchmark(
        "idle",
        f"{_TIMES} statements of {_LINES.count(chr(10)) + 1} lines without a trilake table, planned by Spark",
        [
            Contender(waiting, partial(_analysed, _MORE), lambda: trilake.uninstall(spark())),
            Contender("installed", partial(_analysed, 0.0), lambda: trilake.install(spark())),
        ],
        baseline=waiting,
        targets={"installed": 1.0},
        setup=partial(_setup, rows, changed),
        rounds=15,
        warmups=3,
    )
    ways = {
        "select": (
            f"group-by over {rows:,} rows, read again",
            Contender(_API, partial(_grouped_by_api, rows)),
            Contender(_SQL, partial(_grouped_by_sql, rows)),
        ),
        "insert": (
            f"insert of {changed:,} rows into an empty table",
            Contender(_API, _inserted_by_api, _empty("sql-insert-api")),
            Contender(_SQL, _inserted_by_sql, _empty("sql-insert-sql")),
        ),
        "merge": (
            f"merge of {changed:,} rows (half update, half insert) into {rows:,}, with vectors",
            Contender(_API, _merged_by_api, copied(rows, "sql-merge-api", vectors=True)),
            Contender(_SQL, _merged_by_sql, copied(rows, "sql-merge-sql", vectors=True)),
        ),
    }
    for name, (title, api, sql) in ways.items():
        yield Benchmark(
            name,
            title,
            [api, sql],
            baseline=_API,
            targets={_SQL: 1.05},
            setup=partial(_setup, rows, changed),
            rounds=9,
            warmups=2,
        )
