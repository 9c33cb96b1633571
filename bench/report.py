"""The output of ``python -m bench``: the machine, the versions, and a table per benchmark."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
from pathlib import Path

from rich.table import Table

from bench.harness import ROOT, Report, Result
from trilake.errors import TrilakeError
from trilake.spark.session.java import find_java

#: Distributions whose versions are printed above the tables; the JSON output has all.
SHOWN = ("trilake", "pyspark", "pyarrow", "deltalake", "pylance", "polars", "duckdb", "numpy", "numba", "obstore")


def packages() -> dict[str, str]:
    """The versions of all installed distributions."""
    found = {d.name.lower(): d.version for d in importlib.metadata.distributions()}
    return dict(sorted(found.items()))


def machine() -> dict[str, str]:
    """The parts of the environment that affect the numbers, except packages."""
    return {
        "python": platform.python_version(),
        "java": _java(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "commit": _commit(),
    }


def heading() -> str:
    """Machine and versions, one line each."""
    installed = packages()
    lines = [f"{key}: {value}" for key, value in machine().items()]
    lines.append("packages: " + ", ".join(f"{name} {installed[name]}" for name in SHOWN if name in installed))
    return "\n".join(lines)


def table(report: Report) -> Table:
    """The results of one benchmark."""
    shown = Table(title=f"{report.name}: {report.title}", title_justify="left", title_style="bold")
    shown.add_column("contender")
    for column in "median", "fastest", f"x {report.baseline}", "quartiles", "target":
        shown.add_column(column, justify="right")
    with_memory = any(r.memory is not None for r in report.results)
    if with_memory:
        for column in "peak memory", "of that the run", f"x {report.baseline}", "target":
            shown.add_column(column, justify="right")
    for result in report.results:
        row = [
            result.contender,
            _seconds(statistics.median(result.seconds)),
            _seconds(min(result.seconds)),
            f"{result.ratio.median:.2f}",
            f"{result.ratio.low:.2f}-{result.ratio.high:.2f}",
            _target(result.target),
        ]
        shown.add_row(*row, *(_memory(result) if with_memory else []), style=None if result.good else "red")
    return shown


def _memory(result: Result) -> list[str]:
    if result.memory is None:
        return [""] * 4
    ratio = "" if result.memory_ratio is None else f"{result.memory_ratio:.2f}"
    return [_bytes(result.memory.peak), _bytes(result.memory.growth), ratio, _target(result.memory_target)]


def _target(target: float | None) -> str:
    return "" if target is None else f"<= {target:.2f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


def _bytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def _java() -> str:
    try:
        return str(find_java())
    except TrilakeError as e:
        return str(e)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    """The commit, with ``-dirty`` if files other than the results were changed."""
    try:
        named = _git("describe", "--always").stdout.strip()
        changed = _git(
            "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)docs/internals/benchmarks.*"
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{named}-dirty" if changed else named


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
