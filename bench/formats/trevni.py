"""Trevni files against Parquet files without dictionaries: reading and writing, by codec, in one thread, and in Spark.

The scans in Spark go through Spark's Python data sources on both sides: Parquet is read by pyarrow.

``python -m bench trevni`` compares seconds; ``python -m bench.formats.trevni`` prints MB of values per CPU second,
with the required speeds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import trilake
from bench import harness
from bench.harness import Benchmark, Contender, data, data_root
from bench.spark.parquet_source import ParquetSource
from bench.tables.delta import spark
from trilake.trevni import TrevniFile, write

ROWS = 5_000_000
#: A long, a double and a string of 20 characters.
MEGABYTES = ROWS * (8 + 8 + 20) / 1e6
PARQUET = {"null": "none", "snappy": "snappy", "deflate": "gzip"}
#: Required MB per second of CPU time.
GOALS = {
    ("read", "null"): 550,
    ("read", "snappy"): 350,
    ("read", "deflate"): 180,
    ("write", "null"): 500,
    ("write", "snappy"): 280,
}


@cache
def rows() -> pa.Table:
    """Sequential longs, random doubles, and strings of ten zeros and ten random digits."""
    rng = np.random.default_rng(1)
    digits = np.full((ROWS, 20), ord("0"), np.uint8)
    digits[:, 10:] = rng.integers(ord("0"), ord("9") + 1, (ROWS, 10), np.uint8)
    offsets = np.arange(ROWS + 1, dtype=np.int32) * 20
    text = pa.Array.from_buffers(pa.string(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(digits)])
    return pa.table({"id": np.arange(ROWS), "x": rng.random(ROWS), "s": text})


def files(codec: str) -> Path:
    """The folder with both files of a codec."""

    def build(folder: Path) -> None:
        _write_trevni(folder / "t.trv", codec)
        _write_parquet(folder / "t.parquet", codec)

    return data(f"trevni-{codec}", build)


def _write_trevni(path: Path, codec: str) -> int:
    return write(rows(), path, codec=codec)


def _write_parquet(path: Path, codec: str) -> int:
    pq.write_table(rows(), path, compression=PARQUET[codec], use_dictionary=False)
    return ROWS


def _read_trevni(codec: str) -> int:
    return int(TrevniFile(files(codec) / "t.trv").read().num_rows)


def _read_parquet(codec: str) -> int:
    return int(pq.read_table(files(codec) / "t.parquet", use_threads=False).num_rows)


def _scratch(codec: str, name: str) -> Path:
    return data_root() / f".trevni-{codec}-{name}"


# --- in Spark --------------------------------------------------------------------------------------------------------


_FILES, _BATCH = 4, 1 << 17


def scan_files(codec: str) -> Path:
    """A folder with the rows in some Parquet files and another with them in as many Trevni files."""

    def build(folder: Path) -> None:
        step = -(-ROWS // _FILES)
        for kind in ("trevni", "parquet"):
            (folder / kind).mkdir()
        for i in range(_FILES):
            part = rows().slice(i * step, step)
            write(part, folder / "trevni" / f"{i}.trv", codec=codec)
            path = folder / "parquet" / f"{i}.parquet"
            pq.write_table(part, path, compression=PARQUET[codec], use_dictionary=False)

    return data(f"trevni-scan-{codec}", build)


def _scan(format: str, codec: str, columns: tuple[str, ...]) -> None:
    session = spark()
    trilake.register(session)
    session.dataSource.register(ParquetSource)
    name = ParquetSource.name() if format == "parquet" else "trilake-trevni"
    options = {"batch": str(_BATCH)} if format == "parquet" else {}
    df = session.read.format(name).options(**options).load(str(scan_files(codec) / format)).select(*columns)
    df.write.format("noop").mode("overwrite").save()


def _scans() -> Iterator[Benchmark]:
    for codec in PARQUET:
        for columns in (("id", "x", "s"), ("id", "x")):
            contenders = [Contender(f, partial(_scan, f, codec, columns)) for f in ("parquet", "trevni")]
            yield Benchmark(
                f"scan-{codec}-{len(columns)}",
                f"scan 5M rows in Spark, {len(columns)} of 3 columns, {codec}",
                contenders,
                "parquet",
                targets={"trevni": 1.5},
                setup=partial(scan_files, codec),
                rounds=5,
            )


def benchmarks() -> Iterator[Benchmark]:
    """Reading, writing, and scanning in Spark, for each codec."""
    yield from _files_alone()
    yield from _scans()


def _files_alone() -> Iterator[Benchmark]:
    """Reading and writing, a benchmark for each codec."""
    for codec in PARQUET:
        setup = partial(files, codec)
        read = [Contender("parquet", partial(_read_parquet, codec)), Contender("trevni", partial(_read_trevni, codec))]
        yield Benchmark(f"read-{codec}", f"read 5M rows, {codec}", read, "parquet", setup=setup, rounds=5)
        written = []
        for name, job in (("parquet", _write_parquet), ("trevni", _write_trevni)):
            target = _scratch(codec, name)
            # Freeing a replaced file would count as writing time.
            prepare = partial(target.unlink, missing_ok=True)
            written.append(Contender(name, partial(job, target, codec), prepare))
        # Deflate takes half a minute; one round is enough.
        rounds = 1 if codec == "deflate" else 5
        yield Benchmark(
            f"write-{codec}",
            f"write 5M rows, {codec}",
            written,
            "parquet",
            setup=setup,
            rounds=rounds,
            warmups=0 if codec == "deflate" else 1,
        )


def main() -> int:
    """Print the table of speeds; fail if one is below its requirement."""
    pa.set_cpu_count(1)
    shown = Table(title=f"{MEGABYTES:.0f} MB of values, MB a second of CPU time, one thread")
    for column in "job", "codec", "trevni", "asked for", "parquet", "trevni / parquet":
        shown.add_column(column, justify="left" if column in ("job", "codec") else "right")
    missed = 0
    for benchmark in _files_alone():
        job, _, codec = benchmark.name.partition("-")
        report = harness.run(benchmark.name, benchmark, clock=time.process_time)
        best = {r.contender: MEGABYTES / min(r.seconds) for r in report.results}
        goal = GOALS.get((job, codec))
        missed += goal is not None and best["trevni"] < goal
        speeds = f"{best['trevni']:.0f}", str(goal or ""), f"{best['parquet']:.0f}"
        shown.add_row(job, codec, *speeds, f"{best['trevni'] / best['parquet']:.2f}")
        for contender in ("parquet", "trevni"):
            _scratch(codec, contender).unlink(missing_ok=True)
    Console().print(shown)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
