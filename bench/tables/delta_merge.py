"""MERGE into Delta tables: on Spark against Spark's write of such a table, without Spark against deltalake."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import trilake
from bench.harness import Benchmark, Contender, data
from bench.lineitem import lineitem
from bench.tables.delta import scratch, spark
from trilake import DeltaTable

_ON = "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber"


def _keyed(rows: int) -> Iterator[pa.RecordBatch]:
    """Rows like lineitem, with order and line number as the key."""
    start = 0
    for batch in lineitem(rows):
        orders = pa.array(np.arange(start, start + batch.num_rows) // 4 * 8)
        yield batch.set_column(0, "l_orderkey", orders)
        start += batch.num_rows


def table(rows: int, *, vectors: bool) -> Path:
    """A Delta table of four files (twenty, of ten million rows)."""

    def build(folder: Path) -> None:
        size = 500_000
        batches = list(_keyed(rows))
        whole = pa.Table.from_batches(batches)
        for lo in range(0, rows, size):
            properties = {"delta.enableDeletionVectors": "true"} if vectors and lo == 0 else None
            trilake.write(whole.slice(lo, size), folder, mode="append", properties=properties)

    return data(f"merge-{rows}-{'vectors' if vectors else 'plain'}", build)


def source(rows: int, changed: int) -> Path:
    """A Parquet file of rows to merge, half of them in the table."""

    def build(folder: Path) -> None:
        half = changed // 2
        random = np.random.default_rng(7)
        places = np.sort(random.choice(rows, half, replace=False))
        batch = pa.Table.from_batches(lineitem(changed, seed=11)).slice(0, changed)
        new = rows + np.arange(changed - half)
        number = np.concatenate([places, new])
        batch = batch.set_column(0, "l_orderkey", pa.array(number // 4 * 8))
        batch = batch.set_column(3, "l_linenumber", pa.array((number % 4 + 1).astype(np.int32)))
        pq.write_table(batch, folder / "source.parquet", store_schema=False)

    return data(f"merge-source-{rows}-{changed}", build) / "source.parquet"


def copied(rows: int, name: str, *, vectors: bool) -> Callable[[], None]:
    """Put a copy of the table into the scratch folder of that name."""

    def prepare() -> None:
        target = scratch(name)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(table(rows, vectors=vectors), target, copy_function=_linked)

    return prepare


def _linked(old: str, new: str) -> None:
    """Existing files are never modified, so both folders may share them."""
    os.link(old, new)


# --- without Spark ---------------------------------------------------------------------------------------------------


@cache
def _source_rows(rows: int, changed: int) -> pa.Table:
    return pq.read_table(source(rows, changed))


def _ours(rows: int, changed: int, name: str) -> None:
    merge = trilake.open(scratch(name), format="delta").merge(_source_rows(rows, changed), _ON, "s", "t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _theirs(rows: int, changed: int, name: str) -> None:
    merge = deltalake.DeltaTable(str(scratch(name))).merge(
        _source_rows(rows, changed), _ON, source_alias="s", target_alias="t"
    )
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


# --- on Spark --------------------------------------------------------------------------------------------------------


def _on_spark(rows: int, changed: int, name: str) -> None:
    frame = spark().read.parquet(str(source(rows, changed))).alias("s")
    merge = DeltaTable.forPath(spark(), str(scratch(name))).alias("t").merge(frame, _ON)
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


def _one_column(rows: int, changed: int, name: str) -> None:
    frame = spark().read.parquet(str(source(rows, changed))).alias("s")
    merge = DeltaTable.forPath(spark(), str(scratch(name))).alias("t").merge(frame, _ON)
    merge.whenMatchedUpdate(set={"l_quantity": "t.l_quantity + s.l_quantity"}).whenNotMatchedInsertAll().execute()


def _spark_write(rows: int) -> None:
    files = [str(p) for p in sorted(table(rows, vectors=True).glob("*.parquet"))]
    spark().read.parquet(*files).write.parquet(str(scratch("merge-parquet")))


def _emptied(name: str) -> Callable[[], None]:
    return lambda: shutil.rmtree(scratch(name), ignore_errors=True)


def _spark_setup(rows: int, changed: int) -> None:
    table(rows, vectors=True)
    source(rows, changed)
    spark()


def _growth_setup() -> None:
    for rows in (2_000_000, 10_000_000):
        _spark_setup(rows, 20_000)


def benchmarks() -> Iterator[Benchmark]:
    for vectors in (True, False):
        kind = "vectors" if vectors else "copies"
        yield Benchmark(
            f"arrow-{kind}",
            f"merge of 20,000 rows (half update, half insert) into 2M × 16, without Spark, by {kind}",
            [
                Contender(
                    "deltalake",
                    partial(_theirs, 2_000_000, 20_000, "merge-theirs"),
                    copied(2_000_000, "merge-theirs", vectors=False),  # it does not write deletion vectors
                ),
                Contender(
                    "trilake",
                    partial(_ours, 2_000_000, 20_000, "merge-ours"),
                    copied(2_000_000, "merge-ours", vectors=vectors),
                ),
            ],
            baseline="deltalake",
            targets={"trilake": 1.0},
            setup=partial(source, 2_000_000, 20_000),
            rounds=7,
        )
    for rows in (2_000_000, 10_000_000):
        changed = rows // 100
        yield Benchmark(
            f"spark-{rows // 1_000_000}m",
            f"merge of 1 % (half update, half insert) into {rows // 1_000_000}M × 16 on Spark, with vectors",
            [
                Contender("spark parquet", partial(_spark_write, rows), _emptied("merge-parquet")),
                Contender(
                    "merge, all columns",
                    partial(_on_spark, rows, changed, "merge-all"),
                    copied(rows, "merge-all", vectors=True),
                ),
                Contender(
                    "merge, one column",
                    partial(_one_column, rows, changed, "merge-one"),
                    copied(rows, "merge-one", vectors=True),
                ),
            ],
            baseline="spark parquet",
            targets={"merge, all columns": 0.6, "merge, one column": 0.6},
            setup=partial(_spark_setup, rows, changed),
            rounds=5,
        )
    yield Benchmark(
        "spark-growth",
        "merge of 20,000 rows on Spark, with vectors, into tables of two sizes",
        [
            Contender(
                f"{rows // 1_000_000}M rows",
                partial(_on_spark, rows, 20_000, f"merge-{rows}"),
                copied(rows, f"merge-{rows}", vectors=True),
            )
            for rows in (2_000_000, 10_000_000)
        ],
        baseline="2M rows",
        targets={"10M rows": 2.0},
        setup=_growth_setup,
        rounds=5,
    )
