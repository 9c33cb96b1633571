"""Fair timing of contenders.

A module of this package offers benchmarks through a function ``benchmarks() -> Iterable[Benchmark]``.  All contenders
of a benchmark run interleaved in one process: each round runs every contender once, and starts with another one, so
that other load on the machine affects all equally.  A contender is compared with the baseline round by round; the
report shows the median and quartiles of these ratios.

Peak memory is measured in a separate process per contender, because leftover memory of one contender would hide the
use of the next.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trilake.errors import InvalidArgumentError, TrilakeError

ROOT = Path(__file__).resolve().parent.parent

#: Modules of this package without benchmarks.
_NO_BENCHMARKS = {"__main__", "flames", "harness", "picture", "report"}


class BenchmarkError(TrilakeError):
    """A meaningless measurement: contenders disagree, or one of them died."""

    code = "BENCHMARK"


@dataclass(frozen=True)
class Contender:
    """One way to do the job.

    Parameters
    ----------
    name: the name in the table, e.g. ``"deltalake"``.
    run: does the job once, and is timed.  All contenders must return the same result;
        ``None`` is not compared.
    prepare: called before each run, untimed, e.g. to remove the output of the last run.
    """

    name: str
    run: Callable[[], object]
    prepare: Callable[[], object] | None = None


@dataclass(frozen=True)
class Benchmark:
    """One job, and the contenders that do it.

    Parameters
    ----------
    name: letters, digits, ``-`` and ``_``; ``module.name`` on the command line.
    title: what is measured, with the size of the data.
    contenders: at least the baseline.
    baseline: name of the contender that ratios refer to.
    targets: by contender, the highest acceptable ratio of seconds.
    memory_targets: by contender, the highest acceptable ratio of memory.
    setup: called once in each process before anything else, untimed.  Data belongs in :func:`data`, which caches it.
    rounds: how often each contender is timed.
    warmups: uncounted rounds before.
    memory: measure peak memory too.
    """

    name: str
    title: str
    contenders: Sequence[Contender]
    baseline: str
    targets: Mapping[str, float] = field(default_factory=dict)
    memory_targets: Mapping[str, float] = field(default_factory=dict)
    setup: Callable[[], object] | None = None
    rounds: int = 7
    warmups: int = 1
    memory: bool = False

    def __post_init__(self) -> None:
        names = [c.name for c in self.contenders]
        unknown = {self.baseline, *self.targets, *self.memory_targets} - set(names)
        if unknown or len(set(names)) < len(names):
            raise InvalidArgumentError(
                f"baseline and targets must name contenders, each of which has its own name; not so {sorted(unknown)}",
                benchmark=self.name,
                contenders=names,
            )
        if not re.fullmatch(r"[\w-]+", self.name):
            raise InvalidArgumentError("a name is letters, digits, - and _", benchmark=self.name)
        if self.rounds < 1 or self.warmups < 0:
            raise InvalidArgumentError("a benchmark has at least one round", benchmark=self.name)


@dataclass(frozen=True)
class Memory:
    """Resident memory of a process in bytes: before a run, and its peak during the run."""

    before: int
    peak: int

    @property
    def growth(self) -> int:
        """The memory of the run, without interpreter and imports."""
        return max(self.peak - self.before, 0)


@dataclass(frozen=True)
class Spread:
    """The median of some numbers and their quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Spread:
        """Of at least one number."""
        if len(numbers) == 1:
            return cls(numbers[0], numbers[0], numbers[0])
        low, median, high = statistics.quantiles(numbers, n=4, method="inclusive")
        return cls(median, low, high)


@dataclass(frozen=True)
class Result:
    """The measurements of one contender; ``seconds`` has one number per round."""

    contender: str
    seconds: Sequence[float]
    ratio: Spread
    target: float | None = None
    memory: Memory | None = None
    memory_ratio: float | None = None
    memory_target: float | None = None

    @property
    def good(self) -> bool:
        """Whether the targets are met; true without targets."""
        slow = self.target is not None and self.ratio.median > self.target
        fat = (
            self.memory_target is not None and self.memory_ratio is not None and self.memory_ratio > self.memory_target
        )
        return not slow and not fat


@dataclass(frozen=True)
class Report:
    """The results of one benchmark, in the order of its contenders."""

    name: str
    title: str
    baseline: str
    results: Sequence[Result]


# --- finding and running ---------------------------------------------------------------------------------------------


def discover(names: Sequence[str] = ()) -> dict[str, Benchmark]:
    """The benchmarks of this package and its subpackages, by ``module.name``; with ``names``, only these.

    A name may be a module (``delta``), one benchmark (``delta.snapshot``) or a pattern (``*.snapshot*``).

    Raises ``InvalidArgumentError`` for a name without match.
    """
    package = importlib.import_module(__package__ or "bench")
    found: dict[str, Benchmark] = {}
    modules = {m.name.rpartition(".")[2]: m.name for m in pkgutil.walk_packages(package.__path__, "bench.")}
    for module in sorted(modules.keys() - _NO_BENCHMARKS):
        offer = getattr(importlib.import_module(modules[module]), "benchmarks", None)
        if offer is not None:
            found |= by_name(module, offer())
    return select(found, names)


def by_name(module: str, benchmarks: Iterable[Benchmark]) -> dict[str, Benchmark]:
    """Benchmarks by ``module.name``.  Raises ``InvalidArgumentError`` for duplicates."""
    found: dict[str, Benchmark] = {}
    for benchmark in benchmarks:
        name = f"{module}.{benchmark.name}"
        if name in found:
            raise InvalidArgumentError("two benchmarks have the same name", benchmark=name)
        found[name] = benchmark
    return found


def select(benchmarks: Mapping[str, Benchmark], names: Sequence[str]) -> dict[str, Benchmark]:
    """The ``benchmarks`` that match ``names``, or all.  Raises ``InvalidArgumentError`` for a name without match."""
    for name in names:
        if not any(_fits(b, name) for b in benchmarks):
            raise InvalidArgumentError(f"no benchmark is called {name!r}", help=f"there are {', '.join(benchmarks)}")
    return {b: benchmarks[b] for b in benchmarks if not names or any(_fits(b, name) for name in names)}


def _fits(benchmark: str, name: str) -> bool:
    return fnmatchcase(benchmark, name) or benchmark.startswith(f"{name}.")


def run(
    name: str,
    benchmark: Benchmark,
    *,
    rounds: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
    measure_memory: Callable[[str, str], Memory] | None = None,
) -> Report:
    """Measure one benchmark.

    Parameters
    ----------
    name: its name on the command line.
    benchmark: what to measure.
    rounds: replaces the benchmark's own number.
    clock: seconds since a fixed moment.
    measure_memory: how to measure one contender of one benchmark (by name), if the benchmark requests it; by default
        in a separate process.

    Raises ``BenchmarkError`` if contenders return different results.
    """
    if benchmark.setup is not None:
        benchmark.setup()
    rounds = benchmark.rounds if rounds is None else rounds
    contenders = benchmark.contenders
    seconds: dict[str, list[float]] = {c.name: [] for c in contenders}
    answers: dict[str, object] = {}
    for number in range(-benchmark.warmups, rounds):
        first = number % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            elapsed, answer = _time(contender, clock)
            if number >= 0:
                seconds[contender.name].append(elapsed)
            answers.setdefault(contender.name, answer)
        if number == -benchmark.warmups:
            _check_answers(name, answers)
    memory = {}
    if benchmark.memory:
        measure = measure_memory or memory_in_child
        memory = {c.name: measure(name, c.name) for c in contenders}
    base_seconds = seconds[benchmark.baseline]
    base_growth = memory[benchmark.baseline].growth if memory else 0
    return Report(
        name,
        benchmark.title,
        benchmark.baseline,
        [
            Result(
                c.name,
                seconds[c.name],
                Spread.of([a / b for a, b in zip(seconds[c.name], base_seconds, strict=True)]),
                benchmark.targets.get(c.name),
                memory.get(c.name),
                memory[c.name].growth / base_growth if base_growth else None,
                benchmark.memory_targets.get(c.name),
            )
            for c in contenders
        ],
    )


def _time(contender: Contender, clock: Callable[[], float]) -> tuple[float, object]:
    prepared(contender)
    collect_garbage()
    begin = clock()
    answer = contender.run()
    return clock() - begin, answer


def collect_garbage() -> None:
    """Collect garbage, outside of the timing, and exclude what is left from collections within it."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def contender_of(benchmark: Benchmark, name: str) -> Contender:
    """The contender of a name.  Raises ``InvalidArgumentError`` if it is unknown."""
    for contender in benchmark.contenders:
        if contender.name == name:
            return contender
    raise InvalidArgumentError(f"no contender is called {name!r}", benchmark=benchmark.name)


def prepared(contender: Contender) -> Contender:
    """The contender, ready to run once."""
    if contender.prepare is not None:
        contender.prepare()
    return contender


def _check_answers(benchmark: str, answers: Mapping[str, object]) -> None:
    """Contenders with different results did not do the same job."""
    compared = {name: answer for name, answer in answers.items() if answer is not None}
    if len(compared) > 1:
        (first, expected), *others = compared.items()
        for name, answer in others:
            if answer != expected:
                raise BenchmarkError(
                    f"{name} answers {_short(answer)} and {first} answers {_short(expected)}", benchmark=benchmark
                )


def _short(answer: object, limit: int = 200) -> str:
    text = repr(answer)
    return text if len(text) <= limit else text[:limit] + "…"


# --- memory ----------------------------------------------------------------------------------------------------------


def memory_in_child(benchmark: str, contender: str) -> Memory:
    """Run one contender once in a new process and measure that process.

    Processes that the contender starts, such as a JVM, are not counted.

    Raises ``BenchmarkError`` if the process fails.
    """
    command = [sys.executable, "-m", "bench", "--memory-of", contender, benchmark]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(
            f"the process that measures memory ended with exit code {done.returncode}",
            benchmark=benchmark,
            contender=contender,
        )
    # The contender may print as well; the measurement is the last line.
    return Memory(**json.loads(done.stdout.splitlines()[-1]))


def memory_here(benchmark: Benchmark, contender: str) -> Memory:
    """Run one contender once in this process and measure it.

    Raises ``InvalidArgumentError`` for an unknown contender.
    """
    chosen = contender_of(benchmark, contender)
    if benchmark.setup is not None:
        benchmark.setup()
    prepared(chosen)
    gc.collect()
    before = _reset_peak()
    chosen.run()
    return Memory(before, _peak())


def _reset_peak() -> int:
    """Reset the peak if the system supports it; returns the current resident bytes."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak()
    return _peak()


def _peak() -> int:
    """The peak of resident bytes since the last reset."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        # Not Linux.  macOS counts bytes here, others kilobytes.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


# --- data ------------------------------------------------------------------------------------------------------------


def data_root() -> Path:
    """The folder of benchmark data: ``TRILAKE_BENCH_DATA``, or ``bench-data`` next to this package."""
    return Path(os.environ.get("TRILAKE_BENCH_DATA") or ROOT / "bench-data")


def data(name: str, build: Callable[[Path], object]) -> Path:
    """The folder ``name`` of benchmark data; ``build`` fills it the first time, atomically.

    The data lives below :func:`data_root`.  The name must state everything the data depends on, such as its size.
    """
    folder = data_root() / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
        try:
            build(unfinished)
            unfinished.chmod(0o755)
            unfinished.rename(folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return folder


def as_json(report: Report) -> dict[str, Any]:
    """A report as plain JSON data; seconds, bytes and ratios."""
    return {
        "name": report.name,
        "title": report.title,
        "baseline": report.baseline,
        "contenders": [
            {
                "name": r.contender,
                "seconds": list(r.seconds),
                "median_seconds": statistics.median(r.seconds),
                "ratio": {"median": r.ratio.median, "low": r.ratio.low, "high": r.ratio.high},
                "target": r.target,
                "memory": None if r.memory is None else {"before": r.memory.before, "peak": r.memory.peak},
                "memory_ratio": r.memory_ratio,
                "memory_target": r.memory_target,
                "good": r.good,
            }
            for r in report.results
        ],
    }
