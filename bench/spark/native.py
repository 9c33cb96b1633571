"""Spark's native scan of Delta tables, compared with Spark's scan of the same Parquet files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import deltalake
import numpy as np
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import trilake
from bench.harness import Benchmark, Contender, data
from bench.lineitem import lineitem_files
from bench.logs.delta_logs import long_table
from bench.tables.delta import spark
from trilake.delta.protocol.deletion_vectors import file_bytes, serialize, z85_encode
from trilake.delta.protocol.schema import from_arrow
from trilake.spark.scan import manifest as native_manifest

_FILES = 8
_ROWS = 2_000_000
_DV_UUID = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"


def _files() -> Path:
    return lineitem_files(_ROWS, files=_FILES)


def table(*, deleted: float) -> Path:
    """A Delta table over those files by absolute path, with a random share of deleted rows."""
    return data(f"lineitem-delta-{_ROWS}-{deleted}", lambda folder: _write_log(folder, deleted))


def _write_log(folder: Path, deleted: float) -> None:
    files = sorted(_files().glob("*.parquet"))
    counts = [pq.ParquetFile(f).metadata.num_rows for f in files]
    random = np.random.default_rng(7)
    vectors = [BitMap64(np.flatnonzero(random.random(n) < deleted).tolist()) for n in counts]
    content, offsets = file_bytes([serialize(v) for v in vectors])
    (folder / f"deletion_vector_{_DV_UUID}.bin").write_bytes(content)
    name = z85_encode(bytes.fromhex(_DV_UUID.replace("-", "")))
    features = ["deletionVectors"]
    schema = from_arrow(pq.read_schema(files[0])).json()
    actions: list[dict[str, object]] = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {
            "metaData": {
                "id": _DV_UUID,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 0,
            }
        },
    ]
    for file, count, vector, offset in zip(files, counts, vectors, offsets, strict=True):
        add: dict[str, object] = {
            "path": file.as_uri(),
            "partitionValues": {},
            "size": file.stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": count, "tightBounds": False}),
        }
        if len(vector):
            add["deletionVector"] = {
                "storageType": "u",
                "pathOrInlineDv": name,
                "offset": offset,
                "sizeInBytes": len(serialize(vector)),
                "cardinality": len(vector),
            }
        actions.append({"add": add})
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_text("".join(json.dumps(a) + "\n" for a in actions))


def _group(df: DataFrame) -> None:
    df.groupBy("l_returnflag").agg(F.sum("l_extendedprice")).collect()


def _hash(df: DataFrame) -> None:
    df.select(F.bit_xor(F.xxhash64(*df.columns))).collect()


@cache
def _frames() -> dict[str, DataFrame]:
    """Planned once: only the scan is timed."""
    return {
        "spark parquet": spark().read.parquet(str(_files())),
        "trilake": trilake.read(spark(), table(deleted=0.0)),
        "trilake, 1 % deleted": trilake.read(spark(), table(deleted=0.01)),
    }


def _contenders(query: Callable[[DataFrame], None]) -> list[Contender]:
    def contender(name: str) -> Contender:
        return Contender(name, lambda: query(_frames()[name]))

    # Deleted rows differ, so the results are not compared; the tests compare rows.
    return [contender(n) for n in ("spark parquet", "trilake", _DELETED)]


_DELETED = "trilake, 1 % deleted"


def _prepare() -> None:
    table(deleted=0.0)
    table(deleted=0.01)
    _frames()


def _many() -> Path:
    return data("delta-log-100k", lambda folder: long_table(folder, files=100_000, commits=10, added=3))


def _load() -> None:
    deltalake.DeltaTable(str(_many()))


def _plan() -> None:
    """Spark keeps its view of the file list while the table's files are unchanged."""
    df = trilake.read(spark(), _many()).where("month = 3 AND a > 5").select("s")
    df._jdf.queryExecution().executedPlan()


def benchmarks() -> Iterator[Benchmark]:
    """Scans of 2M rows, and a plan over 100,000 files."""
    targets = {"trilake": 1.05, _DELETED: 1.15}
    for name, query, what in (
        ("groupby", _group, "group-by on 2 of 16 columns"),
        ("hash", _hash, "hash of all 16 columns"),
    ):
        yield Benchmark(
            name,
            f"{what}, {_ROWS:,} rows in {_FILES} files, native scan",
            _contenders(query),
            baseline="spark parquet",
            targets=targets,
            setup=_prepare,
            rounds=15,
            warmups=3,
        )
    yield Benchmark(
        "plan",
        "a native plan over 100,000 files, filtered, against loading the same log",
        [
            Contender("deltalake", lambda: deltalake.DeltaTable(str(_many())).version() and None),
            Contender("trilake, again", _plan),
            Contender("trilake, first", _plan, native_manifest._recent.values.clear),
        ],
        baseline="deltalake",
        targets={"trilake, again": 1.5},
        setup=lambda: (_many(), spark()),
        rounds=15,
        warmups=2,
    )
