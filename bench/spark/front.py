"""``spark.read.format("delta")``, the first line of most jobs, compared with Spark's read of the same Parquet files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import trilake
from bench.harness import Benchmark, Contender, data
from bench.lineitem import lineitem_files
from bench.spark.native import table
from bench.spark.parquet_source import ParquetSource
from bench.tables.delta import spark
from trilake.delta.protocol.schema import from_arrow

_FILES, _ROWS = 8, 2_000_000
#: Files of the pruning benchmark, and rows of each.
_MANY, _EACH = 10_000, 100
#: Formats that Spark reads with a Python data source, and a Parquet source for comparison.
_OTHERS, _SOURCE = ("lance", "trevni"), "parquet through a Python source"
_PLAIN, _DELETED = 'spark.read.format("delta")', 'spark.read.format("delta"), 1 % deleted'
_ID = "b6d3b7c2-4a0e-4c39-9c1f-0e6d7a1f2b55"


def _parquet() -> DataFrame:
    return spark().read.parquet(str(lineitem_files(_ROWS, files=_FILES)))


def _delta(deleted: float) -> DataFrame:
    return spark().read.format("delta").load(str(table(deleted=deleted)))


def _group(df: DataFrame) -> None:
    df.groupBy("l_returnflag").agg(F.sum("l_extendedprice")).collect()


def _hash(df: DataFrame) -> None:
    df.select(F.bit_xor(F.xxhash64(*df.columns))).collect()


def _point(df: DataFrame) -> None:
    df.where("l_orderkey = 1234567").collect()


def _count(df: DataFrame) -> None:
    df.count()


_QUERIES: dict[str, tuple[Callable[[DataFrame], None], str]] = {
    "groupby": (_group, "group-by on 2 of 16 columns"),
    "hash": (_hash, "hash of all 16 columns"),
    "point": (_point, "one key"),
    "count": (_count, "count of all rows"),
}


def _through_a_source() -> DataFrame:
    spark().dataSource.register(ParquetSource)
    return spark().read.format(ParquetSource.name()).load(str(lineitem_files(_ROWS, files=_FILES)))


def _other(format: str) -> Path:
    """The same rows in another format."""

    def build(folder: Path) -> None:
        rows = [pq.read_table(path) for path in sorted(lineitem_files(_ROWS, files=_FILES).glob("*.parquet"))]
        for i, part in enumerate(rows):
            trilake.write(part, folder / "t", format=format, mode="append" if i else "error")

    return data(f"front-{format}-{_ROWS}", build) / "t"


def _prepare_other(format: str) -> None:
    _other(format)
    trilake.register(spark())


def _prepare() -> None:
    table(deleted=0.0)
    table(deleted=0.01)
    trilake.register(spark())


def many_files(folder: Path, files: int, each: int) -> None:
    """A Delta table of small files with consecutive ids and bounds in the log."""
    actions: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": _ID,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": from_arrow(pa.schema({"id": pa.int64(), "s": pa.string()})).json(),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 0,
            }
        },
    ]
    for i in range(files):
        ids = range(i * each, (i + 1) * each)
        name = f"part-{i:05d}.parquet"
        pq.write_table(pa.table({"id": ids, "s": [f"value {j}" for j in ids]}), folder / name)
        stats = {
            "numRecords": each,
            "minValues": {"id": ids[0]},
            "maxValues": {"id": ids[-1]},
            "nullCount": {"id": 0, "s": 0},
        }
        size = (folder / name).stat().st_size
        add = {"path": name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
        actions.append({"add": {**add, "stats": json.dumps(stats)}})
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_text("".join(json.dumps(a) + "\n" for a in actions))


def _many() -> Path:
    return data(f"many-files-{_MANY}-{_EACH}", lambda folder: many_files(folder, _MANY, _EACH))


def _one_of_many() -> object:
    """Read the matching file directly."""
    return spark().read.parquet(str(_many() / "part-00000.parquet")).where("id = 5").collect()


def _pruned() -> object:
    return spark().read.format("delta").load(str(_many())).where("id = 5").collect()


def _planned_before(frames: list[DataFrame]) -> object:
    if not frames:
        frames.append(spark().read.format("delta").load(str(_many())))
    return frames[0].where("id = 5").collect()


def benchmarks() -> Iterator[Benchmark]:
    """Queries of 2M rows, with a new read each time, in all formats, and a point lookup in 10,000 files."""
    for name, (query, what) in _QUERIES.items():
        yield Benchmark(
            name,
            f"{what}, {_ROWS:,} rows in {_FILES} files, read and queried",
            [
                Contender("spark parquet", lambda q=query: q(_parquet())),  # type: ignore[misc]
                Contender(_PLAIN, lambda q=query: q(_delta(0.0))),  # type: ignore[misc]
                Contender(_DELETED, lambda q=query: q(_delta(0.01))),  # type: ignore[misc]
            ],
            baseline="spark parquet",
            targets={_PLAIN: 1.05, _DELETED: 1.15},
            setup=_prepare,
            rounds=15,
            warmups=3,
        )
    for format in _OTHERS:
        for name, (query, what) in _QUERIES.items():
            way = f'spark.read.format("{format}")'
            yield Benchmark(
                f"{format}-{name}",
                f"{what}, {_ROWS:,} rows in {_FILES} files, read and queried",
                [
                    Contender(_SOURCE, lambda q=query: q(_through_a_source())),  # type: ignore[misc]
                    Contender(way, lambda q=query, f=format: q(spark().read.format(f).load(str(_other(f))))),  # type: ignore[misc]
                ],
                baseline=_SOURCE,
                targets={way: 1.0},
                setup=lambda f=format: _prepare_other(f),  # type: ignore[misc]
                rounds=5,
            )
    frames: list[DataFrame] = []
    yield Benchmark(
        "prune",
        f"one id in {_MANY:,} files, which Spark's plan leaves out all but one of",
        [
            Contender("spark parquet, that file only", _one_of_many),
            Contender("load and where", _pruned),
            Contender("where on a frame", lambda: _planned_before(frames)),
        ],
        baseline="spark parquet, that file only",
        setup=lambda: (_many(), trilake.register(spark())),
        rounds=5,
        warmups=2,
    )
