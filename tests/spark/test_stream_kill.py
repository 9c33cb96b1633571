"""Exactly-once streams: the process of running queries is killed repeatedly with SIGKILL.

The next victim starts Spark while the previous one runs, which hides most of the startup time.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil
import pyarrow as pa
import pytest

import trilake
from trilake.delta.log.log import DeltaLog
from trilake.delta.scan.read import read_task
from trilake.delta.scan.scan import FileTask
from trilake.delta.standard import standard_engine
from trilake.delta.stream.offset import Limit
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.schema import Reading
from trilake.delta.stream.source import DeltaStream
from trilake.spark.session.java import ensure_java
from trilake.storage import open_store

pytestmark = pytest.mark.long

COMMITS, ROWS = 100, 3
#: Number of kills in a soak run.
MANY = int(os.environ.get("TRILAKE_KILLS", "200"))


class Victim:
    """A process that runs a query."""

    def __init__(self, folder: Path, log: IO[bytes]) -> None:
        script = Path(__file__).with_name("stream_victim.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            text=True,
        )

    def wait_for(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == word:
                return
        raise AssertionError(f"the process ended before it was {word}")

    def ends_with(self, word: str) -> bool:
        """Whether the process says a word before it ends."""
        try:
            self.wait_for(word)
        except AssertionError:
            return False
        return True

    def go(self, hops: str, files: int, where: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{hops} {files} {where}\n")
        self.process.stdin.flush()

    def kill(self, *, all_: bool = True) -> None:
        """Kill the driver and the JVM, and with ``all_`` the Python workers, which otherwise exit later."""
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self.process.pid)
            found = [parent, *parent.children(recursive=True)]
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    if all_ or process is parent or "java" in process.name():
                        process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def victims() -> Iterator[list[Victim]]:
    ensure_java()
    running: list[Victim] = []
    yield running
    for victim in running:
        victim.kill()


def batches(folder: Path) -> int:
    """The number of started batches, by their ids, because Spark keeps only the last hundred offsets."""
    numbers = ([int(f.name) for f in c.glob("offsets/*") if f.name.isdigit()] for c in folder.glob("checkpoint-*"))
    return sum(max(found, default=-1) + 1 for found in numbers)


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(1, marks=[pytest.mark.timeout(1800)]),
        pytest.param(MANY, marks=[pytest.mark.soak, pytest.mark.timeout(6 * 3600)]),
    ],
    ids=["one", "many"],
)
def test_every_row_once_across_kills(tmp_path: Path, victims: list[Victim], kills: int) -> None:
    """source -> middle by one query, middle -> last by another; either one is killed."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    random_ = random.Random(seed)
    commits = COMMITS * kills // 10
    for i in range(commits):
        ids = list(range(i * ROWS, (i + 1) * ROWS))
        trilake.write(pa.table({"id": pa.array(ids, pa.int64())}), tmp_path / "source", mode="append")
    trilake.write(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "middle", mode="append")
    begun_batches = killed = 0
    with (tmp_path / "log.txt").open("wb") as log:

        def start() -> Victim:
            victims.append(Victim(tmp_path, log))
            return victims[-1]

        following = start()
        while killed < kills:
            victim = following
            victim.wait_for("ready")
            following = start()
            begun = batches(tmp_path)
            waiting = count(tmp_path / "last") < count(tmp_path / "middle")
            # The next run may write the same stream by another path than the killed one.
            where = random_.choice(["driver", "tasks"])
            victim.go("last" if waiting and random_.random() < 0.5 else "middle", 1, where)
            until = time.monotonic() + 300
            while batches(tmp_path) == begun and victim.process.poll() is None:
                assert time.monotonic() < until, "no batch begins"
                time.sleep(0.02)
            # The first batch takes seconds, later ones a fraction of a second.
            time.sleep(random_.random() * random_.choice([0.5, 2, 6]))
            killed += victim.process.poll() is None
            victim.kill(all_=random_.random() < 0.7)
            begun_batches += batches(tmp_path) - begun
        for _ in range(5):  # on a busy machine Spark gives up on Python workers that take 10 s to start
            following.wait_for("ready")
            following.go("middle,last", 1000, "driver")
            if following.ends_with("done"):
                break
            following = start()
    expected = list(range(commits * ROWS))
    for name in ("middle", "last"):
        assert sorted(trilake.open(tmp_path / name).to_arrow()["id"].to_pylist()) == expected
    assert read_as_stream(tmp_path / "middle") == expected
    assert begun_batches >= kills // 2


def count(table: Path) -> int:
    """Rows of a table that may not be there yet."""
    return int(trilake.open(table).count()) if DeltaLog(open_store(table), standard_engine()).exists() else 0


def read_as_stream(table: Path) -> list[int]:
    """The rows of a reader that reads commit by commit."""
    log = DeltaLog(open_store(table), standard_engine())
    head = log.head()
    stream = DeltaStream(log, Reading(head.metadata, head.version), StreamOptions(starting_version=0))
    start, out = stream.initial(), []
    while (end := stream.latest(start, Limit(2))) != start:
        batch = stream.batch(start, end)
        for task in batch.tasks:
            assert isinstance(task, FileTask)
            out += [i for rows in read_task(log.store, task, batch.plan) for i in rows["id"].to_pylist()]
        start = end
    return sorted(out)
