"""Flame graphs of contenders, including native code, drawn by py-spy.

``python -m bench NAMES --flames FOLDER`` records each trilake contender of these benchmarks in a separate
process, and writes one SVG each; the default is the paths of :data:`HOT`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench.harness import ROOT, Benchmark, BenchmarkError, contender_of, prepared

#: The hottest code paths.
HOT = (
    "delta.append",
    "delta.snapshot",
    "delta_merge.arrow-vectors",
    "delta_dml.arrow-update",
    "delta_checkpoint.write",
    "depth.optimize-small",
    "large_logs.lookup-1000000",
    "lance.scan",
    "lance.take-10000",
    "lance.nearest",
)
#: Seconds that a contender is repeated, and samples per second.
_SECONDS, _RATE = 8.0, 100


def record(benchmarks: Mapping[str, Benchmark], folder: Path, py_spy: Path | None = None) -> list[Path]:
    """Draw a graph of each contender whose name begins with trilake; returns the files.

    ``py_spy`` is the program, by default that of this interpreter's environment.

    Raises ``BenchmarkError`` if py-spy fails, for example because the system denies access to the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, benchmark in benchmarks.items():
        for contender in (c.name for c in benchmark.contenders if c.name.startswith("trilake")):
            path = folder / f"{name}-{re.sub('[^a-z0-9]+', '-', contender)}.svg"
            program = py_spy or Path(sys.executable).with_name("py-spy")
            spy = [str(program), "record", "--native", "--rate", str(_RATE)]
            run = [sys.executable, "-m", "bench", name, "--again", contender]
            done = subprocess.run(
                [*spy, "--output", str(path), "--", *run], cwd=ROOT, capture_output=True, text=True, check=False
            )
            if done.returncode or not path.exists():
                raise BenchmarkError(
                    f"py-spy has drawn nothing: {(done.stderr or done.stdout).strip()[-300:]}", benchmark=name
                )
            drawn.append(path)
    return drawn


def run_again(benchmark: Benchmark, contender: str, seconds: float = _SECONDS) -> int:
    """Repeat a contender for ``seconds``, at least once; returns the number of runs."""
    chosen = contender_of(benchmark, contender)
    if benchmark.setup is not None:
        benchmark.setup()
    end, times = time.monotonic() + seconds, 0
    while not times or time.monotonic() < end:
        prepared(chosen).run()
        times += 1
    return times
