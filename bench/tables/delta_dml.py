"""DELETE and UPDATE of 1 % of a table of 16 lineitem-like columns: on Spark, and without Spark compared with deltalake.

On Spark the baseline is Spark's Parquet write of the same rows: the minimum cost of a rewrite.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import deltalake
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import trilake
from bench.harness import Benchmark, Contender, data
from bench.lineitem import lineitem_files
from bench.tables.delta import scratch, spark
from trilake import DeltaTable
from trilake.delta.table import ArrowDeltaTable

_ROWS, _MORE_ROWS = 2_000_000, 10_000_000
#: One row in a hundred, spread over all files and row groups.
_ONE_PERCENT = "l_partkey % 100 = 7"
#: The same rows for every table size: 10,000 of the first two million.
_FIXED = "l_orderkey < 4000000 AND l_partkey % 200 = 7"
_SET = {"l_quantity": "l_quantity + 1", "l_comment": "concat('changed ', l_comment)"}


def lineitem_delta(rows: int, vectors: bool) -> Path:
    """A table of lineitem rows, four files per two million rows; further rows have other order keys."""

    def build(folder: Path) -> None:
        properties = {"delta.enableDeletionVectors": "true"} if vectors else {}
        for number in range(rows // _ROWS):
            for file in sorted(lineitem_files(_ROWS).glob("*.parquet")):
                table = pq.read_table(file)
                keys = pc.add(table["l_orderkey"], number * 20_000_000)
                table = table.set_column(0, "l_orderkey", keys)
                trilake.write(table, folder, mode="append", properties=properties or None)
                properties = {}

    return data(f"lineitem-dml-{rows}-{'vectors' if vectors else 'plain'}", build)


def _copied(name: str, rows: int, vectors: bool) -> Callable[[], None]:
    """Put a fresh table at the contender's path."""

    def prepare() -> None:
        shutil.rmtree(scratch(name), ignore_errors=True)
        shutil.copytree(lineitem_delta(rows, vectors), scratch(name))

    return prepare


# --- on Spark --------------------------------------------------------------------------------------------------------


@cache
def _rows() -> DataFrame:
    return spark().read.parquet(str(lineitem_files()))


def _parquet() -> None:
    _rows().write.parquet(str(scratch("dml-parquet")))


def _on_spark(name: str) -> DeltaTable:
    return DeltaTable.forPath(spark(), str(scratch(name)))


def _spark_contenders(vectors: bool) -> list[Contender]:
    kind = "vectors" if vectors else "plain"
    return [
        Contender("spark parquet write", _parquet, lambda: shutil.rmtree(scratch("dml-parquet"), ignore_errors=True)),
        Contender(
            "delete",
            lambda: _on_spark(f"dml-delete-{kind}").delete(_ONE_PERCENT),
            _copied(f"dml-delete-{kind}", _ROWS, vectors),
        ),
        Contender(
            "update",
            lambda: _on_spark(f"dml-update-{kind}").update(_ONE_PERCENT, dict(_SET)),
            _copied(f"dml-update-{kind}", _ROWS, vectors),
        ),
    ]


def _growth_contenders(command: str, rows: dict[str, int]) -> list[Contender]:
    def run(name: str) -> None:
        if command == "delete":
            _on_spark(name).delete(_FIXED)
        else:
            _on_spark(name).update(_FIXED, dict(_SET))

    def contender(label: str, count: int) -> Contender:
        name = f"dml-{command}-{count}"
        return Contender(label, lambda: run(name), _copied(name, count, True))

    return [contender(label, count) for label, count in rows.items()]


# --- without Spark ---------------------------------------------------------------------------------------------------


def _ours(name: str) -> ArrowDeltaTable:
    table = trilake.open(scratch(name))
    assert isinstance(table, ArrowDeltaTable)
    return table


def _arrow_contenders(command: str) -> list[Contender]:
    """Each changes a separate table; deltalake does not write deletion vectors, and rewrites files."""

    def theirs() -> int:
        table = deltalake.DeltaTable(str(scratch(f"dml-{command}-theirs")))
        if command == "delete":
            return int(table.delete(_ONE_PERCENT)["num_deleted_rows"])
        return int(table.update(updates=dict(_SET), predicate=_ONE_PERCENT)["num_updated_rows"])

    def ours(name: str) -> int | None:
        table = _ours(name)
        return table.delete(_ONE_PERCENT).rows if command == "delete" else table.update(_SET, _ONE_PERCENT).rows

    def contender(label: str, name: str, vectors: bool) -> Contender:
        return Contender(label, lambda: ours(name), _copied(name, _ROWS, vectors))

    return [
        Contender("deltalake", theirs, _copied(f"dml-{command}-theirs", _ROWS, False)),
        contender("trilake, vectors", f"dml-{command}-ours-vectors", True),
        contender("trilake, copies", f"dml-{command}-ours-plain", False),
    ]


def benchmarks() -> Iterator[Benchmark]:
    yield Benchmark(
        "spark",
        "on Spark: DELETE and UPDATE of 1 % of 2,000,000 rows x 16 columns, with deletion vectors",
        _spark_contenders(True),
        baseline="spark parquet write",
        targets={"delete": 0.2, "update": 0.4},
        setup=_rows,
        rounds=5,
    )
    yield Benchmark(
        "spark-copies",
        "on Spark: the same without deletion vectors, where every file is written again",
        _spark_contenders(False),
        baseline="spark parquet write",
        setup=_rows,
        rounds=3,
    )
    for command in ("delete", "update"):
        yield Benchmark(
            f"spark-{command}-growth",
            f"on Spark: {command.upper()} of the same 10,000 rows of a table of 2 and of 10 million rows",
            _growth_contenders(command, {"2M rows": _ROWS, "10M rows": _MORE_ROWS}),
            baseline="2M rows",
            targets={"10M rows": 2.0},
            setup=_rows,
            rounds=3,
        )
        yield Benchmark(
            f"arrow-{command}",
            f"without Spark: {command.upper()} of 1 % of 2,000,000 rows x 16 columns",
            _arrow_contenders(command),
            baseline="deltalake",
            targets={"trilake, vectors": 0.5, "trilake, copies": 0.5},
            rounds=5,
        )
