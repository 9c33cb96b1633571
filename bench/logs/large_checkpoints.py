"""V2 checkpoints of large Delta logs: their cost in the committing process and in Spark tasks.

``python -m bench.logs.large_checkpoints`` prints seconds and memory, each job in a separate process.  ``first``
writes all sidecars from a single file of another writer; ``next`` rewrites each, because every one lost a file.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from bench import harness
from bench.harness import ROOT, Benchmark, Contender, data
from bench.logs.delta_logs import long_table
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.actions import Protocol
from trilake.delta.standard import standard_engine
from trilake.storage import open_store

SIZES = (300_000, 1_000_000, 3_000_000)
_COMMITS, _ADDED, _LOST = 5, 10, 1000
_PROTOCOL = Protocol(3, 7, ("v2Checkpoint",), ("v2Checkpoint",))


def _version_2(folder: Path, *, files: int) -> None:
    """A table of ``files`` files whose next checkpoint is its first V2 checkpoint."""
    long_table(folder, files=files, commits=_COMMITS, added=_ADDED)
    log = DeltaLog(open_store(str(folder)))
    metadata = log.head().metadata.to_json()
    metadata["configuration"] = {"delta.checkpointPolicy": "v2"}
    lines = [{"protocol": _PROTOCOL.to_json()}, {"metaData": metadata}]
    log.store.put(commit_key(_COMMITS + 1), b"\n".join(json.dumps(line).encode() for line in lines))


def _with_sidecars(folder: Path, *, files: int) -> None:
    """The same with that checkpoint, and a commit that removes files from all sidecars."""
    shutil.copytree(_table("first", files), folder, dirs_exist_ok=True)
    log = DeltaLog(open_store(str(folder)), standard_engine())
    write_checkpoint(log, log.opened(), SYSTEM_RUNTIME)
    opened = log.snapshot()
    chosen = opened.adds.select(["path", "size"]).take(list(range(7, files, files // _LOST)))
    now = SYSTEM_RUNTIME.clock_ms()
    lines = [{"remove": {**row, "deletionTimestamp": now, "dataChange": True}} for row in chosen.to_pylist()]
    log.store.put(commit_key(_COMMITS + 2), b"\n".join(json.dumps(line).encode() for line in lines))


def _table(job: str, files: int) -> Path:
    build = {"first": _version_2, "next": _with_sidecars}[job]
    return data(f"delta-log-{job}-checkpoint-{files}", partial(build, files=files))


def _copied(job: str, files: int) -> Path:
    target = Path(f"{_table(job, files)}-copy")
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(_table(job, files), target))


def _run_here(job: str, by: str, files: int) -> None:
    few = DeltaLog(open_store(str(_copied(job, 10_000))), standard_engine())
    write_checkpoint(few, few.opened(), SYSTEM_RUNTIME)  # load lazy imports
    target = _copied(job, files)
    engine = standard_engine()
    if by == "tasks":
        from trilake.spark.session.engine import spark_engine
        from trilake.spark.session.local import local_session
        from trilake.spark.session.optimize_settings import LARGE_FILES

        spark = local_session()
        spark.conf.set(LARGE_FILES, "100000")
        spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()
        engine = spark_engine()
    log = DeltaLog(open_store(str(target)), engine)
    seconds = []

    def run() -> None:
        begin = time.perf_counter()
        write_checkpoint(log, log.opened(), SYSTEM_RUNTIME)
        seconds.append(time.perf_counter() - begin)

    used = harness.memory_here(Benchmark(job, job, [Contender(by, run)], baseline=by), by)
    assert log.segment().checkpoint_version == log.segment().version
    shutil.rmtree(target)
    print(json.dumps([seconds[0], used.growth / 1e6]))


def main() -> None:
    """Run one job, or print all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs=3, metavar=("JOB", "BY", "FILES"), help=argparse.SUPPRESS)
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES), help="numbers of files")
    given = parser.parse_args()
    if given.run:
        _run_here(given.run[0], given.run[1], int(given.run[2]))
        return
    for job in ("first", "next"):
        for files in given.sizes:
            _table(job, files)
            for by in ("here", "tasks"):
                command = [sys.executable, "-m", "bench.logs.large_checkpoints", "--run", job, by, str(files)]
                done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
                seconds, memory = json.loads(done.stdout.splitlines()[-1])
                print(f"{job:6} {by:6} {files:>10,} files: {seconds:6.1f} s, {memory:5.0f} MB", flush=True)


if __name__ == "__main__":
    main()
