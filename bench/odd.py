"""Wide and odd tables: thousands of columns, 100,000 partitions, huge strings, deep structs, tiny files, one huge file.

The tables are written by deltalake, so that trilake does not read its own output, and deltalake is the baseline, with
pyarrow and Spark on the same Parquet files for comparison.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import trilake
from bench.harness import Benchmark, Contender, data
from bench.logs.delta_logs import long_table
from bench.tables.delta import scratch, spark

#: If this is set, a file of 4 GB is written and read as well.
_HUGE = "TRILAKE_BENCH_HUGE"
_PARTITIONS, _WRITTEN_PARTITIONS = 100_000, 500
_TARGET = 1.2


@dataclass(frozen=True)
class Shape:
    """A table with one unusual property.

    ``part`` creates the rows of one of its ``files``; ``column`` is the projected column, and one row has the ``id``.
    """

    name: str
    title: str
    part: Callable[[int], pa.Table]
    files: int
    column: str
    id: int = 77
    spark: bool = False

    def path(self) -> Path:
        """The table's folder."""

        def build(folder: Path) -> None:
            for i in range(self.files):
                deltalake.write_deltalake(str(folder), self.part(i), mode="append")

        return data(f"odd-{self.name}", build)

    def parquet(self) -> list[str]:
        """The table's data files."""
        return sorted(str(p) for p in self.path().glob("*.parquet"))


# --- rows ------------------------------------------------------------------------------------------------------------


def _wide(columns: int, rows: int, number: int) -> pa.Table:
    """An ascending ``id``, and integers, floats and strings in turn."""
    random = np.random.default_rng(number)
    kinds: Sequence[Callable[[], pa.Array]] = (
        lambda: pa.array(random.integers(0, 1 << 40, rows)),
        lambda: pa.array(random.random(rows)),
        lambda: pa.array(random.integers(0, 1000, rows)).cast(pa.string()),
    )
    return pa.table({"id": _ids(rows, number), **{f"c{i}": kinds[i % 3]() for i in range(1, columns)}})


def _strings(length: int, rows: int, number: int) -> pa.Table:
    """Random strings."""
    random = np.random.default_rng(number)
    texts = [random.integers(97, 123, length, dtype=np.uint8).tobytes().decode() for _ in range(rows)]
    return pa.table({"id": _ids(rows, number), "text": texts})


def _deep(depth: int, rows: int, number: int) -> pa.Table:
    """Nested structs, each with a number next to the inner struct."""
    ids = _ids(rows, number)
    inner = pa.StructArray.from_arrays([pa.array(ids)], ["n"])
    for level in range(1, depth):
        inner = pa.StructArray.from_arrays([pa.array(ids + level), inner], ["n", "s"])
    return pa.table({"id": ids, "s": inner})


def _tiny(rows: int, number: int) -> pa.Table:
    ids = _ids(rows, number)
    return pa.table({"id": ids, "x": ids / 7, "s": pa.array(ids).cast(pa.string()), "k": ids % 5})


def _ids(rows: int, number: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(number * rows, (number + 1) * rows)


_SHAPES = [
    Shape("columns-1000", "1,000 columns, 4 files of 2,500 rows", partial(_wide, 1000, 2500), 4, "c500", spark=True),
    Shape("columns-5000", "5,000 columns, 2 files of 500 rows", partial(_wide, 5000, 500), 2, "c2500"),
    Shape("texts", "30 texts of 10 MB in 3 files", partial(_strings, 10_000_000, 10), 3, "text", id=7),
    Shape("deep", "structs 30 deep, 2 files of 50,000 rows", partial(_deep, 30, 50_000), 2, "s", spark=True),
    Shape("tiny-files", "1,000 files of 100 rows", partial(_tiny, 100), 1000, "x", spark=True),
]
#: 100M rows of 40 bytes.
_HUGE_SHAPE = Shape("huge", "a file of 4 GB", lambda _: _numbers(), 1, "x1")


def _numbers() -> pa.Table:
    random = np.random.default_rng(0)
    rows = 100_000_000
    return pa.table({"id": np.arange(rows), **{f"x{i}": random.random(rows) for i in range(4)}})


# --- without Spark ---------------------------------------------------------------------------------------------------


def _contenders(
    theirs: Callable[[], object], ours: Callable[[], object], **more: Callable[[], object]
) -> list[Contender]:
    return [
        Contender("deltalake", theirs),
        Contender("trilake", ours),
        *(Contender(name, run) for name, run in more.items()),
    ]


def _opening(shape: Shape) -> list[Contender]:
    return _contenders(
        lambda: len(deltalake.DeltaTable(str(shape.path())).schema().fields),
        lambda: len(trilake.open(shape.path(), format="delta").schema),
    )


def _reading(shape: Shape, columns: list[str] | None = None, id: int | None = None) -> list[Contender]:
    """Read everything, one column, or the rows of one id."""
    filter = None if id is None else pc.field("id") == id

    def ours() -> tuple[int, int]:
        where = None if id is None else f"id = {id}"
        rows = trilake.open(shape.path(), format="delta").to_arrow(columns, where)
        return rows.shape  # type: ignore[no-any-return]

    def theirs() -> tuple[int, int]:
        dataset = deltalake.DeltaTable(str(shape.path())).to_pyarrow_dataset()
        return dataset.to_table(columns=columns, filter=filter).shape  # type: ignore[no-any-return]

    def parquet() -> tuple[int, int]:
        return ds.dataset(shape.parquet()).to_table(columns=columns, filter=filter).shape  # type: ignore[no-any-return]

    return _contenders(theirs, ours, pyarrow=parquet)


def _writing(name: str, rows: Callable[[], pa.Table], partition: str | None = None) -> list[Contender]:
    """Write a new table; the result is the number of rows."""
    places = {who: scratch(f"odd-{name}-{who}") for who in ("deltalake", "trilake", "pyarrow")}

    def theirs() -> None:
        deltalake.write_deltalake(str(places["deltalake"]), rows(), partition_by=[partition] if partition else None)

    def ours() -> None:
        trilake.write(rows(), places["trilake"], partition_by=partition)

    def parquet() -> None:
        if partition:
            pq.write_to_dataset(rows(), places["pyarrow"], [partition], max_partitions=_WRITTEN_PARTITIONS)
        else:
            places["pyarrow"].mkdir(parents=True)
            pq.write_table(rows(), places["pyarrow"] / "part.parquet")

    runs = {"deltalake": theirs, "trilake": ours, "pyarrow": parquet}
    return [Contender(who, runs[who], partial(_emptied, places[who])) for who in runs]


def _emptied(place: Path) -> None:
    """Remove the output and sync the disk, so that pending writes of other contenders are not timed."""
    shutil.rmtree(place, ignore_errors=True)
    os.sync()


def _without_spark(shape: Shape) -> Iterator[Benchmark]:
    rows = cache(partial(shape.part, 0))
    jobs = {
        "open": ("open, schema", _opening(shape)),
        "read": ("open and read all", _reading(shape)),
        "column": (f"open and read {shape.column}", _reading(shape, [shape.column])),
        "filter": ("open and read the row of one id", _reading(shape, None, shape.id)),
        "write": ("write the rows of one file into a new table", _writing(shape.name, rows)),
    }
    for job, (title, contenders) in jobs.items():
        yield _benchmark(f"{shape.name}-{job}", f"{shape.title}: {title}", contenders, setup=shape.path)


def _benchmark(
    name: str,
    title: str,
    contenders: list[Contender],
    *,
    setup: Callable[[], object],
    baseline: str = "deltalake",
    rounds: int = 5,
    warmups: int = 1,
) -> Benchmark:
    return Benchmark(
        name,
        title,
        contenders,
        baseline,
        targets={"trilake": _TARGET},
        setup=setup,
        rounds=rounds,
        warmups=warmups,
    )


# --- partitions ------------------------------------------------------------------------------------------------------


def _partitions() -> Path:
    """A log of that many partitions with one nonexistent file each."""
    build = partial(long_table, files=_PARTITIONS, commits=5, added=10, months=_PARTITIONS)
    return data(f"odd-partitions-{_PARTITIONS}", build)


def _lookup() -> list[Contender]:
    def theirs() -> int:
        return len(deltalake.DeltaTable(str(_partitions())).file_uris([("month", "=", "77777")]))

    return _contenders(theirs, lambda: trilake.open(_partitions(), format="delta").files("month = 77777").num_rows)


def _of_partitions() -> Iterator[Benchmark]:
    title = f"{_PARTITIONS:,} partitions of one file"
    opening = _contenders(
        lambda: deltalake.DeltaTable(str(_partitions())).version(),
        lambda: trilake.open(_partitions(), format="delta").version,
    )
    yield _benchmark("partitions-open", f"{title}: open, version", opening, setup=_partitions)
    yield _benchmark("partitions-lookup", f"{title}: open, the file of one partition", _lookup(), setup=_partitions)

    rows = cache(lambda: pa.table({"p": np.repeat(np.arange(_WRITTEN_PARTITIONS), 20)[::-1], "x": np.arange(10_000)}))
    yield _benchmark(
        "partitions-write",
        f"write 10,000 rows into {_WRITTEN_PARTITIONS} partitions of a new table",
        _writing("partitions", rows, "p"),
        setup=rows,
    )


# --- Spark -----------------------------------------------------------------------------------------------------------


def _delta(shape: Shape) -> DataFrame:
    return spark().read.format("delta").load(str(shape.path()))


def _parquet(shape: Shape) -> DataFrame:
    return spark().read.parquet(*shape.parquet())


def _of_column(shape: Shape, rows: Callable[[Shape], DataFrame]) -> Callable[[], object]:
    return lambda: rows(shape).select(F.bit_xor(F.xxhash64(shape.column))).collect()[0][0]


def _of_all(shape: Shape, rows: Callable[[Shape], DataFrame]) -> Callable[[], None]:
    return lambda: rows(shape).write.format("noop").mode("overwrite").save()


def _copy(shape: Shape, format: str) -> Contender:
    place = scratch(f"odd-{shape.name}-spark-{format}")

    def run() -> None:
        _parquet(shape).write.format(format).save(str(place))

    name = "trilake" if format == "delta" else "spark parquet"
    return Contender(name, run, partial(shutil.rmtree, place, ignore_errors=True))


def _with_spark(shape: Shape) -> Iterator[Benchmark]:
    jobs: dict[str, tuple[str, list[Contender]]] = {
        job: (title, [Contender("spark parquet", how(shape, _parquet)), Contender("trilake", how(shape, _delta))])
        for job, title, how in (
            ("column", f"load, hash of {shape.column}", _of_column),
            ("read", "load, all rows", _of_all),
        )
    } | {"write": ("write them into a new table", [_copy(shape, "parquet"), _copy(shape, "delta")])}
    for job, (title, contenders) in jobs.items():
        yield _benchmark(
            f"spark-{shape.name}-{job}",
            f"{shape.title}: {title}, with Spark",
            contenders,
            setup=lambda: (shape.path(), spark()),
            baseline="spark parquet",
            rounds=3,
            warmups=3,  # with 1,000 columns, Java compiles code for the first queries
        )


def benchmarks() -> Iterator[Benchmark]:
    for shape in [*_SHAPES, *([_HUGE_SHAPE] if os.environ.get(_HUGE) else [])]:
        yield from _without_spark(shape)
        if shape.spark:
            yield from _with_spark(shape)
    yield from _of_partitions()
