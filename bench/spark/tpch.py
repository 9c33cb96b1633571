"""TPC-H over Delta tables, through Spark and without it, compared with the same engine over the same Parquet files.

``TRILAKE_TPCH_SCALE`` is the scale factor, by default 1: 1 GB of text.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import trilake
from bench.harness import Benchmark, Contender, data
from bench.spark.tpch_queries import QUERIES
from bench.tables.delta import spark

_SCALE = os.environ.get("TRILAKE_TPCH_SCALE", "1")
_PARTS = 4
_TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
_SPARK, _DUCKDB = "Spark's Parquet", "DuckDB's Parquet"
_OURS, _ALONE = "spark.sql over Delta", "trilake.sql over Delta"


def tables() -> Path:
    """A folder per table, each with Parquet files and a Delta log that lists them."""

    def build(folder: Path) -> None:
        generator = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(generator), "parquet", f"--scale-factor={_SCALE}", f"--parts={_PARTS}", f"--output-dir={folder}"]
        subprocess.run([*command, "--quiet"], check=True)
        for name in _TABLES:
            trilake.convert_to_delta(str(folder / name))

    return data(f"tpch-{_SCALE}", build)


@cache
def _places(form: str) -> dict[str, str]:
    return {name: form.format(tables() / name) for name in _TABLES}


def _text(number: int, form: str) -> str:
    return QUERIES[number].format(**_places(form))


def _of_spark(format: str) -> Callable[[int], Sequence[Any]]:
    return lambda number: spark().sql(_text(number, f"{format}.`{{}}`")).collect()


def _of_duckdb(number: int) -> Sequence[Any]:
    # On DuckDB's default connection: a new one takes 15 ms.
    rows = duckdb.sql(_text(number, "read_parquet('{}/*.parquet')"))
    assert rows is not None  # it is of a query
    return _rows(rows.to_arrow_table())


def _alone(number: int) -> Sequence[Any]:
    return _rows(trilake.sql(_text(number, "delta.`{}`")))


def _rows(answer: pa.Table) -> Sequence[Any]:
    return [tuple(row.values()) for row in answer.to_pylist()]


def _run(query: Callable[[int], Sequence[Any]], numbers: Sequence[int]) -> Callable[[], object]:
    """Run queries; the result is their rows with rounded numbers, because sums of floats depend on their order."""
    return lambda: [[tuple(_plain(v) for v in row) for row in query(number)] for number in numbers]


def _plain(value: Any) -> Any:
    # Spark rounds a decimal quotient to six digits; the smallest result has five of them.
    return value if value is None or isinstance(value, str) or hasattr(value, "year") else float(f"{float(value):.5g}")


def _prepare() -> None:
    tables()
    trilake.install(spark())


def benchmarks() -> Iterator[Benchmark]:
    """Each query alone, and all of them."""
    engines = (
        ("spark", {_SPARK: _of_spark("parquet"), _OURS: _of_spark("delta")}, 1.03, 1.15),
        ("duckdb", {_DUCKDB: _of_duckdb, _ALONE: _alone}, 1.1, 1.1),
    )
    for engine, ways, of_all, of_one in engines:
        baseline, ours = ways
        for name, numbers in {"all": list(QUERIES), **{f"{n:02d}": [n] for n in QUERIES}}.items():
            yield Benchmark(
                f"{engine}-{name}",
                f"{'the 22 queries' if len(numbers) > 1 else f'query {numbers[0]}'} of TPC-H at scale factor {_SCALE}",
                [Contender(way, _run(query, numbers)) for way, query in ways.items()],
                baseline=baseline,
                targets={ours: of_all if len(numbers) > 1 else of_one},
                setup=_prepare if engine == "spark" else tables,
                rounds=3 if len(numbers) > 1 else 5 if engine == "spark" else 9,
            )
