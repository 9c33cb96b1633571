"""Weak scaling: processor time per row with 1, 2 and 4 executors of one core, and the same number of rows for each.

``python -m bench.spark.scaling`` prints a table.  Wall time says little on a machine with fewer cores than executors,
so it measures the CPU time of driver, executors and their Python workers.  With ``--tasks`` it measures the driver
alone, for jobs of up to thousands of tasks with ten rows each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from bench.tables.delta import scratch

_EXECUTORS = (1, 2, 4)
_ROWS = 2_000_000
#: Measured runs of each job, after one warm-up.
_RUNS = 3
#: Numbers of tasks for the work of the driver, and rows of each task.
_TASKS, _TASK_ROWS = (500, 1_000, 2_000), 10


def _used() -> tuple[float, float]:
    """CPU seconds of this process and its descendants."""
    own = psutil.Process()
    mine = own.cpu_times()
    total = mine.children_user + mine.children_system
    for process in own.children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return mine.user + mine.system, total


def _rows(spark: SparkSession, rows: int, parts: int) -> DataFrame:
    return spark.range(0, rows, 1, parts).select(
        "id",
        (F.xxhash64("id") % 1000).alias("k"),
        (F.rand(1) * 100).alias("x"),
        F.concat(F.lit("name of row "), F.col("id")).alias("s"),
    )


def _jobs(spark: SparkSession, place: str, rows: int, parts: int) -> dict[str, Callable[[], object]]:
    """The jobs, each on a new copy of the table."""
    changed = _rows(spark, rows, parts).where("id % 10 = 3").withColumn("x", F.lit(0.5))

    def merge() -> None:
        table = trilake.DeltaTable.forPath(spark, place).alias("t")
        table.merge(changed.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return {
        "write": lambda: _rows(spark, rows, parts).write.format("delta").mode("overwrite").save(place),
        "group-by": lambda: spark.read.format("delta").load(place).groupBy("k").agg(F.sum("x")).collect(),
        "DELETE of 1 %": lambda: trilake.DeltaTable.forPath(spark, place).delete("id % 100 = 7"),
        "UPDATE of 1 %": lambda: trilake.DeltaTable.forPath(spark, place).update("id % 100 = 8", {"x": "x + 1"}),
        "MERGE of 10 %": merge,
    }


def _measure(executors: int, rows: int) -> dict[str, tuple[float, float]]:
    """Microseconds per row of each job: of all processes, and of the driver's Python."""
    place = scratch(f"scaling-{executors}")
    shutil.rmtree(place, ignore_errors=True)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local-cluster[{executors},1,1536]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", 2 * executors).getOrCreate()
    trilake.register(spark)
    total = rows * executors
    jobs = _jobs(spark, str(place), total, 2 * executors)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    for run in range(_RUNS + 1):
        for name, job in jobs.items():
            before = _used()
            job()
            after = _used()
            if run:
                driver, others = (1e6 * (b - a) / total for a, b in zip(before, after, strict=True))
                times[name].append((driver + others, driver))
    spark.stop()
    shutil.rmtree(place, ignore_errors=True)
    return {
        name: (statistics.median(t[0] for t in found), statistics.median(t[1] for t in found))
        for name, found in times.items()
    }


# --- the driver ------------------------------------------------------------------------------------------------------


def _driver() -> tuple[float, float]:
    """CPU seconds of the driver's Python and of its JVM."""
    own = psutil.Process()
    times = [p.cpu_times() for p in (own, *(c for c in own.children() if "java" in c.name()))]
    python, *others = (t.user + t.system for t in times)
    return python, sum(others)


def _driver_jobs(spark: SparkSession, rows: DataFrame, place: Path) -> dict[str, Callable[[], object]]:
    plain, delta = str(place / "parquet"), str(place / "delta")
    return {
        "Spark's Parquet, write": lambda: rows.write.parquet(plain),
        "Spark's Parquet, group-by": lambda: spark.read.parquet(plain).groupBy().sum("x").collect(),
        "write": lambda: rows.write.format("delta").save(delta),
        "group-by": lambda: spark.read.format("delta").load(delta).groupBy().sum("x").collect(),
        "DELETE from each file": lambda: trilake.DeltaTable.forPath(spark, delta).delete("id % 10 = 3"),
    }


def _measure_driver() -> Iterator[tuple[str, int, float, float]]:
    """Yield job, number of tasks, and milliseconds of the driver's Python and JVM per task."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local-cluster[1,1,1536]").config("spark.ui.enabled", "false")
    # One task for each file.
    spark = builder.config("spark.sql.files.openCostInBytes", 128 << 20).getOrCreate()
    trilake.register(spark)
    place = scratch("scaling-driver")
    for tasks in (100, *_TASKS):  # the first is a warm-up
        shutil.rmtree(place, ignore_errors=True)
        jobs = _driver_jobs(spark, _rows(spark, tasks * _TASK_ROWS, tasks), place)
        for name, job in jobs.items():
            before = _driver()
            job()
            after = _driver()
            if tasks in _TASKS:
                python, java = (1e3 * (b - a) / tasks for a, b in zip(before, after, strict=True))
                yield name, tasks, python, java
    spark.stop()
    shutil.rmtree(place, ignore_errors=True)


def _print_driver() -> None:
    print("ms of processor time per task")
    print("| job | tasks | driver's Python | driver's JVM |")
    print("|---|---|---|---|")
    for name, tasks, python, java in _measure_driver():
        print(f"| {name} | {tasks:,} | {python:.3f} | {java:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", action="store_true", help="measure the driver's work per task")
    parser.add_argument("--executors", type=int, help="measure this number only, and print JSON")
    parser.add_argument("--rows", type=int, default=_ROWS, help="rows for each executor")
    arguments = parser.parse_args()
    if arguments.tasks:
        _print_driver()
        return
    if arguments.executors:
        print(json.dumps(_measure(arguments.executors, arguments.rows)))
        return
    found: list[dict[str, tuple[float, float]]] = []
    for executors in _EXECUTORS:
        command = [
            sys.executable,
            "-m",
            "bench.spark.scaling",
            "--executors",
            str(executors),
            "--rows",
            str(arguments.rows),
        ]
        done = subprocess.run(command, cwd=Path(__file__).parents[2], check=True, stdout=subprocess.PIPE, text=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    print(f"µs of processor time per row, {arguments.rows:,} rows for each executor; in brackets the driver's Python")
    print("| job | " + " | ".join(f"{n} executors" for n in _EXECUTORS) + " |")
    print("|---" * (len(_EXECUTORS) + 1) + "|")
    for job in found[0]:
        print(f"| {job} | " + " | ".join(f"{f[job][0]:.2f} ({f[job][1]:.3f})" for f in found) + " |")


if __name__ == "__main__":
    main()
