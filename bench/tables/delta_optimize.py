"""OPTIMIZE of a Delta table: compaction of many small files, Z-order, clustering."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import deltalake
import pyarrow as pa

import trilake
from bench.harness import Benchmark, Contender, data
from bench.lineitem import lineitem
from bench.tables.delta import _emptied, _rows, scratch, spark
from trilake.delta.table import ArrowDeltaTable
from trilake.spark.delta.table import DeltaTable
from trilake.storage import open_store

_ROWS = 2_000_000
_FILES = 200
_ORDER = ["l_shipdate", "l_partkey"]


def small_files(rows: int = _ROWS, files: int = _FILES, *, clustered: bool = False) -> Path:
    """A table of ``rows`` rows in ``files`` files."""

    def build(folder: Path) -> None:
        batches = lineitem(rows)
        first = next(batches)
        columns = {f.name: f for f in first.schema}
        trilake.create(folder, pa.schema(list(columns.values())), cluster_by=_ORDER if clustered else None)
        transaction = trilake.Transaction(open_store(folder))
        each = -(-rows // files)
        for batch in (first, *batches):
            for start in range(0, batch.num_rows, each):
                transaction.write(pa.Table.from_batches([batch.slice(start, each)]))
        transaction.commit("WRITE")

    return data(f"lineitem-small-{rows}-{files}{'-clustered' if clustered else ''}", build)


def _copied(name: str, *, clustered: bool = False) -> Callable[[], None]:
    def prepare() -> None:
        target = scratch(name)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(small_files(clustered=clustered), target)

    return prepare


def _parquet() -> None:
    _rows().write.parquet(str(scratch("optimize-parquet")))


def _table(name: str) -> ArrowDeltaTable:
    table = trilake.open(scratch(name))
    assert isinstance(table, ArrowDeltaTable)
    return table


def _contenders(
    on_spark: Callable[[DeltaTable], object],
    here: Callable[[ArrowDeltaTable], object],
    theirs: Callable[[deltalake.DeltaTable], object] | None,
    *,
    clustered: bool = False,
) -> list[Contender]:
    def run_spark() -> None:
        on_spark(DeltaTable.forPath(spark(), str(scratch("optimize-spark"))))

    def run_here() -> None:
        here(_table("optimize-here"))

    found = [
        Contender("spark parquet", _parquet, _emptied("optimize-parquet")),
        Contender("trilake on Spark", run_spark, _copied("optimize-spark", clustered=clustered)),
        Contender("trilake", run_here, _copied("optimize-here", clustered=clustered)),
    ]
    if theirs is not None:

        def run_theirs() -> None:
            theirs(deltalake.DeltaTable(str(scratch("optimize-theirs"))))

        found.append(Contender("deltalake", run_theirs, _copied("optimize-theirs", clustered=clustered)))
    return found


def _setup() -> None:
    _rows()
    small_files()
    small_files(clustered=True)


def benchmarks() -> Iterator[Benchmark]:
    yield Benchmark(
        "compact",
        f"OPTIMIZE of {_ROWS:,} rows of 16 columns in {_FILES} files, and Spark's Parquet write of these rows",
        _contenders(
            lambda t: t.optimize().executeCompaction().collect(),
            lambda t: t.optimize(),
            lambda t: t.optimize.compact(),
        ),
        baseline="spark parquet",
        targets={"trilake on Spark": 1.6},
        setup=_setup,
        rounds=5,
    )
    yield Benchmark(
        "zorder",
        f"Z-order of the same by {' and '.join(_ORDER)}",
        _contenders(
            lambda t: t.optimize().executeZOrderBy(_ORDER).collect(),
            lambda t: t.optimize(zorder_by=_ORDER),
            lambda t: t.optimize.z_order(_ORDER),
        ),
        baseline="spark parquet",
        setup=_setup,
        rounds=5,
    )
    yield Benchmark(
        "cluster",
        f"clustering of the same by {' and '.join(_ORDER)}",
        _contenders(lambda t: t.optimize().executeCompaction().collect(), lambda t: t.optimize(), None, clustered=True),
        baseline="spark parquet",
        setup=_setup,
        rounds=5,
    )
