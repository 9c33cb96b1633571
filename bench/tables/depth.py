"""Extreme cases of DELETE, UPDATE, MERGE and OPTIMIZE: few rows and all rows, many repetitions, very many files.

Without Spark compared with deltalake; on Spark compared with Spark's Parquet write of the same rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa

import trilake
from bench.harness import Benchmark, Contender, data
from bench.lineitem import lineitem_files
from bench.tables.delta import scratch, spark
from bench.tables.delta_dml import lineitem_delta
from bench.tables.delta_merge import _linked, _on_spark, _spark_setup, copied
from bench.tables.delta_optimize import small_files
from trilake import DeltaTable
from trilake.delta.table import ArrowDeltaTable

_ROWS = 2_000_000
#: Conditions by their share of rows, spread over all files and row groups.
_SHARES = {"few": "l_partkey % 10000 = 7", "half": "l_partkey % 2 = 0", "all": "l_partkey >= 0"}
_SET = {"l_quantity": "l_quantity + 1"}
#: Files for OPTIMIZE, and consecutive merges.
_FILES, _MERGES = 50_000, 50


def _copied(name: str, table: Callable[[], Path]) -> Callable[[], None]:
    """Put a fresh table at the contender's path."""

    def prepare() -> None:
        shutil.rmtree(scratch(name), ignore_errors=True)
        shutil.copytree(table(), scratch(name), copy_function=_linked)

    return prepare


def _ours(name: str) -> ArrowDeltaTable:
    table = trilake.open(scratch(name))
    assert isinstance(table, ArrowDeltaTable)
    return table


def _theirs(name: str) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(str(scratch(name)))


# --- shares of the rows ----------------------------------------------------------------------------------------------


def _delete(name: str, condition: str) -> int | None:
    return _ours(name).delete(condition).rows


def _update(name: str, condition: str) -> int | None:
    return _ours(name).update(_SET, condition).rows


def _their_delete(name: str, condition: str) -> int:
    return int(_theirs(name).delete(condition)["num_deleted_rows"])


def _their_update(name: str, condition: str) -> int:
    return int(_theirs(name).update(updates=dict(_SET), predicate=condition)["num_updated_rows"])


def _shares(command: str, share: str) -> Benchmark:
    """One command on a share of the rows; deltalake does not write deletion vectors."""
    condition = _SHARES[share]
    ours, theirs = {"delete": (_delete, _their_delete), "update": (_update, _their_update)}[command]
    plain, vectors = (partial(lineitem_delta, _ROWS, v) for v in (False, True))
    name = f"depth-{command}-{share}"
    return Benchmark(
        f"{command}-{share}",
        f"without Spark: {command.upper()} WHERE {condition} of {_ROWS:,} rows x 16 columns",
        [
            Contender("deltalake", partial(theirs, f"{name}-theirs", condition), _copied(f"{name}-theirs", plain)),
            Contender("trilake, vectors", partial(ours, f"{name}-v", condition), _copied(f"{name}-v", vectors)),
            Contender("trilake, copies", partial(ours, f"{name}-c", condition), _copied(f"{name}-c", plain)),
        ],
        baseline="deltalake",
        targets={"trilake, vectors": 1.0, "trilake, copies": 1.0},
        rounds=3,
    )


def _spark_write() -> None:
    spark().read.parquet(str(lineitem_files())).write.parquet(str(scratch("depth-parquet")))


def _spark_update(name: str) -> None:
    DeltaTable.forPath(spark(), str(scratch(name))).update(_SHARES["half"], dict(_SET))


# --- merges ----------------------------------------------------------------------------------------------------------


def _keys(rows: int, skewed: bool) -> Path:
    """A table of ``id, v, text`` in four files; with skew, half of the rows have one id."""

    def build(folder: Path) -> None:
        ids = np.arange(rows)
        if skewed:
            ids[::2] = 0
        table = pa.table({"id": ids, "v": np.zeros(rows), "text": np.char.mod("row %d", ids)})
        for lo in range(0, rows, rows // 4):
            trilake.write(table.slice(lo, rows // 4), folder, mode="append")

    return data(f"depth-keys-{rows}{'-skewed' if skewed else ''}", build)


@cache
def _source(first: int, rows: int) -> pa.Table:
    ids = np.arange(first, first + rows)
    return pa.table({"id": ids, "v": np.ones(rows), "text": np.char.mod("new %d", ids)})


def merge_of(folder: Path, source: pa.Table) -> None:
    """Merge rows into a table by their ``id``."""
    table = trilake.open(folder)
    assert isinstance(table, ArrowDeltaTable)
    merge = table.merge(source, "t.id = s.id", "s", "t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def their_merge_of(folder: Path, source: pa.Table) -> None:
    """The same with deltalake."""
    merge = deltalake.DeltaTable(str(folder)).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _repeated(merge: Callable[[Path, pa.Table], None], name: str, first: int, rows: int, times: int) -> None:
    for number in range(times):
        merge(scratch(name), _source(first + number * rows, rows))


def _merges(name: str, title: str, table: Callable[[], Path], first: int, rows: int, times: int) -> Benchmark:
    ours, theirs = f"depth-{name}-ours", f"depth-{name}-theirs"
    return Benchmark(
        name,
        f"without Spark: {title}",
        [
            Contender(
                "deltalake", partial(_repeated, their_merge_of, theirs, first, rows, times), _copied(theirs, table)
            ),
            Contender("trilake", partial(_repeated, merge_of, ours, first, rows, times), _copied(ours, table)),
        ],
        baseline="deltalake",
        targets={"trilake": 1.0},
        rounds=3,
    )


# --- very many files -------------------------------------------------------------------------------------------------


def _optimize(name: str) -> int:
    _ours(name).optimize()
    return len(_ours(name).files())


def _optimize_theirs(name: str) -> None:
    _theirs(name).optimize.compact()


def benchmarks() -> Iterator[Benchmark]:
    for command in ("delete", "update"):
        for share in _SHARES:
            yield _shares(command, share)
    yield Benchmark(
        "spark-half",
        f"on Spark, with vectors: UPDATE of half of {_ROWS:,} rows x 16 columns, MERGE of as many (half are there)",
        [
            Contender("spark parquet", _spark_write, lambda: shutil.rmtree(scratch("depth-parquet"), True)),
            Contender(
                "update",
                partial(_spark_update, "depth-spark-update"),
                _copied("depth-spark-update", partial(lineitem_delta, _ROWS, True)),
            ),
            Contender(
                "merge",
                partial(_on_spark, _ROWS, _ROWS, "depth-spark-merge"),
                copied(_ROWS, "depth-spark-merge", vectors=True),
            ),
        ],
        baseline="spark parquet",
        targets={"update": 0.8, "merge": 1.5},
        setup=partial(_spark_setup, _ROWS, _ROWS),
        rounds=3,
    )
    small, large = partial(_keys, 200_000, False), partial(_keys, 2_000_000, True)
    yield _merges("merge-larger", "MERGE of 2,000,000 rows into 200,000", small, 100_000, 2_000_000, 1)
    yield _merges("merge-skewed", "MERGE of 1,000 ids, one of which half of 2,000,000 rows have", large, 0, 1_000, 1)
    yield _merges("merge-again", f"{_MERGES} MERGEs of 20 rows in a row", small, 100_000, 20, _MERGES)
    files = partial(small_files, 10 * _FILES, _FILES)
    yield Benchmark(
        "optimize-small",
        f"without Spark: OPTIMIZE of {_FILES:,} files of ten rows",
        [
            Contender("deltalake", partial(_optimize_theirs, "depth-opt-theirs"), _copied("depth-opt-theirs", files)),
            Contender("trilake", partial(_optimize, "depth-opt-ours"), _copied("depth-opt-ours", files)),
        ],
        baseline="deltalake",
        targets={"trilake": 1.0},
        rounds=3,
    )
