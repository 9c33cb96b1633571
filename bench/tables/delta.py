"""Delta tables: loading snapshots, small appends, and writes from Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch

import deltalake
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import trilake
from bench.harness import ROOT, Benchmark, Contender, data
from bench.lineitem import lineitem_files
from bench.logs.delta_logs import long_table, young_table
from trilake.spark.session.local import local_session
from trilake.table.table import Table

# --- snapshots -------------------------------------------------------------------------------------------------------


def million() -> Path:
    return data("delta-log-1m", lambda folder: long_table(folder, files=1_000_000, commits=100, added=10))


def thousand() -> Path:
    return data("delta-log-1000", lambda folder: young_table(folder, commits=1000, added=3))


def _snapshot_contenders(log: Callable[[], Path]) -> list[Contender]:
    return [
        Contender("deltalake", lambda: deltalake.DeltaTable(str(log())).version()),
        Contender("trilake", lambda: _loaded(log())),
    ]


def _listing_contenders(log: Callable[[], Path]) -> list[Contender]:
    def theirs() -> int:
        return int(pa.table(deltalake.DeltaTable(str(log())).get_add_actions()).num_rows)

    return [
        Contender("deltalake", theirs),
        Contender("trilake", lambda: _open(log()).files().num_rows),
    ]


def _open(path: Path) -> Table:
    return trilake.open(path, format="delta")


def _loaded(path: Path) -> int:
    """The version and its files, which large tables load lazily."""
    return trilake.open(path, format="delta").snapshot.version


# --- small appends ---------------------------------------------------------------------------------------------------

_SMALL = pa.table({"id": range(10), "name": [f"name {i}" for i in range(10)], "value": [i / 10 for i in range(10)]})
_APPENDS = 10


def scratch(name: str) -> Path:
    """A folder for the output of a contender, next to the cached data."""
    return Path(os.environ.get("TRILAKE_BENCH_DATA") or ROOT / "bench-data") / ".scratch" / name


def _small_table(name: str) -> Callable[[], None]:
    """Create the table for appends: five commits of one file each, by deltalake."""

    def prepare() -> None:
        target = scratch(name)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(data("delta-small", _five_commits), target)

    return prepare


def _five_commits(folder: Path) -> None:
    for _ in range(5):
        deltalake.write_deltalake(str(folder), _SMALL, mode="append")


def _append_contenders() -> list[Contender]:
    def theirs() -> None:
        for _ in range(_APPENDS):
            deltalake.write_deltalake(str(scratch("append-theirs")), _SMALL, mode="append")

    def ours(name: str) -> None:
        for _ in range(_APPENDS):
            trilake.write(_SMALL, scratch(name), mode="append")

    def volatile() -> None:
        with patch("os.fsync", lambda _: None):
            ours("append-volatile")

    return [
        Contender("deltalake", theirs, _small_table("append-theirs")),
        Contender("trilake", lambda: ours("append-ours"), _small_table("append-ours")),
        Contender("trilake, fsync off", volatile, _small_table("append-volatile")),
    ]


# --- Spark -----------------------------------------------------------------------------------------------------------


@cache
def spark() -> SparkSession:
    """The session for all benchmarks of the process, with trilake's data sources."""
    session = local_session("trilake-bench")
    trilake.register(session)
    return session


@cache
def _rows() -> DataFrame:
    return spark().read.parquet(str(lineitem_files()))


@cache
def _few_rows() -> DataFrame:
    return spark().createDataFrame(_SMALL.to_pandas())


def _emptied(name: str) -> Callable[[], None]:
    return lambda: shutil.rmtree(scratch(name), ignore_errors=True)


def _spark_write_contenders(partition: str | None) -> list[Contender]:
    """Each writes the rows to a new folder; ``partition`` is a column name or empty."""

    def parquet() -> None:
        writer = _rows().write
        (writer.partitionBy(partition) if partition else writer).parquet(str(scratch("write-parquet")))

    def source() -> None:
        writer = _rows().write.format("delta").mode("append")
        (writer.option("partitionBy", partition) if partition else writer).save(str(scratch("write-source")))

    return [
        Contender("spark parquet", parquet, _emptied("write-parquet")),
        Contender(
            "trilake.write",
            lambda: _ignore(trilake.write(_rows(), scratch("write-call"), partition_by=partition)),
            _emptied("write-call"),
        ),
        Contender('format("delta")', source, _emptied("write-source")),
    ]


def _spark_append_contenders() -> list[Contender]:
    def parquet() -> None:
        _few_rows().write.mode("append").parquet(str(scratch("few-parquet")))

    def source() -> None:
        _few_rows().write.format("delta").mode("append").save(str(scratch("few-source")))

    return [
        Contender("spark parquet", parquet),
        Contender(
            "trilake.write",
            lambda: _ignore(trilake.write(_few_rows(), scratch("few-call"), mode="append")),
            _small_table("few-call"),
        ),
        Contender('format("delta")', source, _small_table("few-source")),
    ]


def _ignore(_: object) -> None:
    """Ignore a result that differs between contenders by nature."""


def _setup_rows() -> None:
    _rows()


def _setup_few() -> None:
    _emptied("few-parquet")()
    _few_rows().count()


def benchmarks() -> Iterator[Benchmark]:
    yield Benchmark(
        "snapshot",
        "snapshot of a log with 1,000,000 files: a checkpoint and 100 commits",
        _snapshot_contenders(million),
        baseline="deltalake",
        targets={"trilake": 1.0},
        memory_targets={"trilake": 2.0},
        setup=million,
        rounds=5,
        memory=True,
    )
    yield Benchmark(
        "files",
        "the same snapshot and the table of its files",
        _listing_contenders(million),
        baseline="deltalake",
        setup=million,
        rounds=3,
        warmups=0,
        memory=True,
    )
    yield Benchmark(
        "snapshot-commits",
        "snapshot of 1,000 commits of 3 files each without a checkpoint",
        _snapshot_contenders(thousand),
        baseline="deltalake",
        targets={"trilake": 1.0},
        setup=thousand,
        rounds=9,
        memory=True,
    )
    yield Benchmark(
        "append",
        f"{_APPENDS} appends of 10 rows × 3 columns to a table of 5 small files, each by the table's path",
        _append_contenders(),
        baseline="deltalake",
        targets={"trilake": 1.0},
        rounds=15,
    )
    for name, partition in (("spark-write", None), ("spark-write-partitioned", "l_shipmode")):
        yield Benchmark(
            name,
            "2M rows like lineitem × 16 columns from Parquet files"
            + (f" into partitions by {partition} (7 values)" if partition else ""),
            _spark_write_contenders(partition),
            baseline="spark parquet",
            targets={"trilake.write": 1.1, 'format("delta")': 1.1},
            setup=_setup_rows,
            rounds=5,
        )
    yield Benchmark(
        "spark-append",
        "an append of 10 rows × 3 columns with Spark",
        _spark_append_contenders(),
        baseline="spark parquet",
        setup=_setup_few,
        rounds=15,
        warmups=3,
    )
