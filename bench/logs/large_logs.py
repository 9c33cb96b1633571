"""Delta logs of ten thousand to ten million files: opening, point lookups, listing and appends.

``python -m bench.logs.large_logs`` prints seconds, memory and the exponent of each curve, every job in a separate
process; ``python -m bench large_logs`` runs sizes up to a million as regular benchmarks.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

import trilake
from bench import harness
from bench.harness import ROOT, Benchmark, Contender, data
from bench.logs.delta_logs import long_table

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
#: The largest size for deltalake, which keeps all files in memory.
PEER_SIZE = 1_000_000
_COMMITS, _ADDED, _STEP = 5, 10, 1000
_ROW = pa.table({"a": pa.array([1], pa.int64()), "s": ["x"], "month": pa.array([1], pa.int32())})


def log_of(files: int, *, parsed: bool = False) -> Path:
    """A table of ``files`` nonexistent files: a checkpoint at version 0 and five commits.

    With ``parsed`` the checkpoint has typed statistics in addition to JSON.
    """
    build = partial(long_table, files=files, commits=_COMMITS, added=_ADDED, step=_STEP, parsed=parsed)
    return data(f"delta-log-{'typed' if parsed else 'clustered'}-{files}", build)


def _value(files: int) -> int:
    """A value in one file."""
    return (files // 2) * _STEP + 7


def _open(files: int) -> int | None:
    return trilake.open(log_of(files), format="delta").version


def _lookup(files: int) -> int:
    return int(trilake.open(log_of(files), format="delta").files(f"a = {_value(files)}").num_rows)


def _typed_lookup(files: int) -> int:
    return int(trilake.open(log_of(files, parsed=True), format="delta").files(f"a = {_value(files)}").num_rows)


def _files(files: int) -> int:
    return int(trilake.open(log_of(files), format="delta").files().num_rows)


def _append(files: int) -> int | None:
    return trilake.write(_ROW, log_of(files), mode="append").version


def _their_open(files: int) -> int:
    return deltalake.DeltaTable(str(log_of(files))).version()


def _their_lookup(files: int) -> int:
    return _their_lookup_in(log_of(files), files)


def _their_typed_lookup(files: int) -> int:
    return _their_lookup_in(log_of(files, parsed=True), files)


def _their_lookup_in(table: Path, files: int) -> int:
    adds = pa.table(deltalake.DeltaTable(str(table)).get_add_actions(flatten=True))
    value = _value(files)
    return int(adds.filter((pc.field("min.a") <= value) & (pc.field("max.a") >= value)).num_rows)


def _their_files(files: int) -> int:
    return int(pa.table(deltalake.DeltaTable(str(log_of(files))).get_add_actions()).num_rows)


def _their_append(files: int) -> int:
    deltalake.write_deltalake(str(log_of(files)), _ROW, mode="append")
    return _COMMITS + 1


def _without_appends(files: int) -> None:
    """Undo an append."""
    table = log_of(files)
    log = table / "_delta_log"
    for file in [*table.glob("month=*/*"), *log.glob(f"{_COMMITS + 1:020d}.*")]:
        file.unlink()


_JOBS: dict[str, tuple[Callable[[int], object], Callable[[int], object]]] = {
    "open": (_open, _their_open),
    "lookup": (_lookup, _their_lookup),
    "typed-lookup": (_typed_lookup, _their_typed_lookup),
    "files": (_files, _their_files),
    "append": (_append, _their_append),
}


def benchmarks() -> Iterator[Benchmark]:
    """One for each job and size up to a million."""
    for job, (ours, theirs) in _JOBS.items():
        for size in (s for s in SIZES if s <= PEER_SIZE):
            prepare = partial(_without_appends, size) if job == "append" else None
            yield Benchmark(
                f"{job}-{size}",
                f"{job}, {size:,} files",
                [
                    Contender("deltalake", partial(theirs, size), prepare),
                    Contender("trilake", partial(ours, size), prepare),
                ],
                baseline="deltalake",
                setup=partial(log_of, size, parsed=job == "typed-lookup"),
                rounds=3,
                memory=True,
            )


# --- the curve -------------------------------------------------------------------------------------------------------


def _measured(job: str, who: str, size: int) -> tuple[float, float]:
    """Seconds and MB of one run in a new process, without imports."""
    command = [sys.executable, "-m", "bench.logs.large_logs", "--run", job, who, str(size)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    seconds, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory


def _run_here(job: str, who: str, size: int) -> None:
    run = _JOBS[job][who == "deltalake"]
    run(10_000)  # load lazy imports
    _without_appends(10_000)
    begin = time.perf_counter()
    contender = Contender(who, lambda: run(size))
    used = harness.memory_here(Benchmark(job, job, [contender], baseline=who), who)
    seconds = time.perf_counter() - begin
    if job == "append":
        _without_appends(size)
    print(json.dumps([seconds, used.growth / 1e6]))


def curve(sizes: list[int], jobs: list[str]) -> None:
    """Print seconds, MB and exponents."""
    for size in (10_000, *sizes):
        log_of(size)
        if "typed-lookup" in jobs:
            log_of(size, parsed=True)
    for job in jobs:
        for who in ("trilake", "deltalake"):
            points = [(s, *_measured(job, who, s)) for s in sizes if who == "trilake" or s <= PEER_SIZE]
            texts = [f"{s:,}: {t:.3f} s, {m:.0f} MB" for s, t, m in points]
            steep = ""
            if len(points) > 1:
                (small, t0, m0), (large, t1, m1) = points[-2:]
                by = math.log(large / small)
                steep = f"; exponents {math.log(t1 / t0) / by:.2f} and {math.log(max(m1, 1) / max(m0, 1)) / by:.2f}"
            print(f"{job:12} {who:9} " + "; ".join(texts) + steep, flush=True)


def main() -> None:
    """Run one job, or print the curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs=3, metavar=("JOB", "WHO", "SIZE"), help=argparse.SUPPRESS)
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES[:3]), help="numbers of files")
    parser.add_argument("--jobs", nargs="*", choices=list(_JOBS), default=list(_JOBS))
    given = parser.parse_args()
    if given.run:
        _run_here(given.run[0], given.run[1], int(given.run[2]))
    else:
        curve(given.sizes, given.jobs)


if __name__ == "__main__":
    main()
