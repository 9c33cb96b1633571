"""Exactly once, whatever dies: the process of running queries is killed with SIGKILL again and again.

The next victim starts Spark while the one before it runs, which hides most of what a start costs.
"""

from __future__ import annotations

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
from trilake.spark.java import ensure_java

COMMITS, ROWS = 60, 3


class Victim:
    """A process that runs the queries."""

    def __init__(self, folder: Path, files: int, log: IO[bytes]) -> None:
        script = Path(__file__).with_name("stream_victim.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(folder), str(files)],
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

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self, *, all_: bool = True) -> None:
        """Kill the driver and the JVM, and with ``all_`` the Python workers; those see later that nobody is left."""
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
    """How many batches were begun."""
    return sum(1 for f in folder.glob("checkpoint-*/offsets/*") if f.name.isdigit())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=[pytest.mark.soak])])
def test_every_row_once_although_the_process_is_killed(tmp_path: Path, victims: list[Victim], kills: int) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    random_ = random.Random(seed)
    commits = COMMITS * kills // 10
    for i in range(commits):
        ids = list(range(i * ROWS, (i + 1) * ROWS))
        trilake.write(pa.table({"id": pa.array(ids, pa.int64())}), tmp_path / "source", mode="append")
    trilake.write(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "middle", mode="append")
    died_at = []
    with (tmp_path / "log.txt").open("wb") as log:

        def start(files: int) -> Victim:
            victims.append(Victim(tmp_path, files, log))
            return victims[-1]

        following = start(1)
        for kill in range(kills):
            victim = following
            victim.wait_for("ready")
            following = start(1 if kill + 1 < kills else 1000)
            begun = batches(tmp_path)
            victim.go()
            until = time.monotonic() + 120
            while batches(tmp_path) == begun and victim.process.poll() is None:
                assert time.monotonic() < until, "no batch begins"
                time.sleep(0.02)
            time.sleep(random_.random() * random_.choice([0.2, 1, 3]))
            victim.kill(all_=random_.random() < 0.7)
            died_at.append(batches(tmp_path))
        following.wait_for("ready")
        following.go()
        following.wait_for("done")
    expected = list(range(commits * ROWS))
    for name in ("middle", "last"):
        assert sorted(trilake.open(tmp_path / name).to_arrow()["id"].to_pylist()) == expected
    assert died_at[0] < died_at[-1]
