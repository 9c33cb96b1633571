"""One statement over a thousand columns of a hundred rows, to measure the cost per column."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import deltalake
import lance as pylance
import numpy as np
import pyarrow as pa

import trilake
from bench.harness import Benchmark, Contender, data
from bench.tables.delta import scratch, spark
from bench.tables.many_fragments import contenders
from trilake import lance
from trilake.delta.table import ArrowDeltaTable

_COLUMNS, _ROWS = 1000, 100


@cache
def _rows() -> pa.Table:
    """An ``id``, then integers, floats, strings, and floats with nulls in turn."""
    random = np.random.default_rng(0)
    kinds: tuple[Callable[[], pa.Array], ...] = (
        lambda: pa.array(random.integers(0, 10**6, _ROWS)),
        lambda: pa.array(random.random(_ROWS)),
        lambda: pa.array(random.integers(0, 1000, _ROWS)).cast(pa.string()),
        lambda: pa.array(random.random(_ROWS), mask=random.random(_ROWS) < 0.1),
    )
    return pa.table({"id": np.arange(_ROWS), **{f"c{i}": kinds[i % 4]() for i in range(_COLUMNS - 1)}})


def _dataset() -> Path:
    return data("many-columns-lance", lambda folder: pylance.write_dataset(_rows(), folder))


def _table() -> Path:
    return data("many-columns-delta", lambda folder: deltalake.write_deltalake(str(folder), _rows()))


#: By verb: the call on a Lance dataset, of either library; the result is compared.
_VERBS: dict[str, Callable[[Any], Any]] = {
    "read": lambda dataset: dataset.to_table().num_rows,
    "take": lambda dataset: dataset.take([3, 50, 77]).num_rows,
    "filter": lambda dataset: dataset.to_table(filter="c0 > 500000").num_rows,
    "append": lambda dataset: dataset.insert(_rows()) and None,
    "update": lambda dataset: dataset.update({"c1": "c1 + 1"}, where="id < 10")["num_rows_updated"],
    "merge": lambda dataset: (
        dataset.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(_rows().slice(0, 10))["num_updated_rows"]
    ),
}


def _written(label: str, library: Any) -> Contender:
    place = scratch(f"columns-write-{label}")

    def run() -> None:
        library.write_dataset(_rows(), str(place))

    return Contender(label, run, lambda: shutil.rmtree(place, ignore_errors=True))


def _merged(label: str, open: Callable[[Path], Any]) -> Contender:
    place = scratch(f"columns-merge-{label}")

    def prepare() -> None:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(_table(), place)

    def run() -> None:
        merge = open(place).merge(_rows().slice(0, 10), "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    return Contender(label, run, prepare)


def _opened(place: Path) -> ArrowDeltaTable:
    table = trilake.open(place)
    assert isinstance(table, ArrowDeltaTable)
    return table


def _merged_with_spark() -> Contender:
    place = scratch("columns-merge-spark")

    def prepare() -> None:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(_table(), place)

    def run() -> None:
        source = spark().read.format("delta").load(str(_table())).where("id < 10")
        merge = trilake.DeltaTable.forPath(spark(), str(place)).alias("t").merge(source.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return Contender("trilake", run, prepare)


def _parquet_write() -> Contender:
    place = scratch("columns-parquet")

    def run() -> None:
        spark().read.parquet(*map(str, _table().glob("*.parquet"))).write.parquet(str(place))

    return Contender("spark parquet", run, lambda: shutil.rmtree(place, ignore_errors=True))


def benchmarks() -> Iterator[Benchmark]:
    title = f"{_COLUMNS:,} columns of {_ROWS} rows"
    calls = {verb: contenders(f"columns-{verb}", _dataset, call) for verb, call in _VERBS.items()}
    calls["write"] = [_written("pylance", pylance), _written("trilake", lance)]
    for verb, each in calls.items():
        yield Benchmark(
            f"lance-{verb}", f"{title}: {verb}", each, baseline="pylance", targets={"trilake": 1.0}, rounds=5
        )
    yield Benchmark(
        "merge",
        f"{title}: MERGE of ten rows",
        [_merged("deltalake", lambda place: deltalake.DeltaTable(str(place))), _merged("trilake", _opened)],
        baseline="deltalake",
        targets={"trilake": 1.0},
        rounds=3,
    )
    yield Benchmark(
        "spark-merge",
        f"{title}: MERGE of ten rows with Spark, compared with writing all rows",
        [_parquet_write(), _merged_with_spark()],
        baseline="spark parquet",
        setup=spark,
        rounds=3,
        warmups=3,
    )
