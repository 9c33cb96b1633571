"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench import flames, harness, report
from trilake.errors import TrilakeError


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks of the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Time contenders against each other.")
    parser.add_argument("names", nargs="*", help="modules, benchmarks or patterns; all without names")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and end")
    parser.add_argument("--rounds", type=int, help="time each contender so often")
    parser.add_argument("--json", metavar="FILE", help="write everything measured to FILE, or to standard output (-)")
    parser.add_argument(
        "--keep", action="store_true", help="write the results into table and chart of the documentation"
    )
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    parser.add_argument("--flames", metavar="FOLDER", help="draw a flame graph of each contender of trilake instead")
    parser.add_argument("--again", metavar="CONTENDER", help=argparse.SUPPRESS)
    parser.add_argument("--memory-of", metavar="CONTENDER", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be at least 1")
    try:
        return _main(options)
    except TrilakeError as e:
        print(e, file=sys.stderr)
        return 2


def _main(options: argparse.Namespace) -> int:
    chosen = harness.discover(options.names or (list(flames.HOT) if options.flames else []))
    if options.memory_of:
        (benchmark,) = chosen.values()
        print(json.dumps(dataclasses.asdict(harness.memory_here(benchmark, options.memory_of))))
        return 0
    if options.again:
        (benchmark,) = chosen.values()
        print(flames.run_again(benchmark, options.again))
        return 0
    if options.flames:
        for path in flames.record(chosen, Path(options.flames)):
            print(path)
        return 0
    if options.list:
        for name, benchmark in chosen.items():
            print(f"{name}: {benchmark.title}")
        return 0
    console = Console(stderr=options.json == "-", highlight=False)
    console.print(report.heading(), soft_wrap=True)
    reports: list[harness.Report] = []
    try:
        for name, benchmark in chosen.items():
            reports.append(harness.run(name, benchmark, rounds=options.rounds))
            console.print(report.table(reports[-1]))
    finally:  # keep earlier results if a benchmark fails
        if options.json:
            _write_json(options.json, reports)
        if options.keep:
            _keep(reports)
    missed = [f"{r.name}: {x.contender}" for r in reports for x in r.results if not x.good]
    if missed:
        console.print(f"targets missed: {', '.join(missed)}")
    return 1 if missed and options.check else 0


def _write_json(target: str, reports: Sequence[harness.Report]) -> None:
    """Write all results as a file or, for ``-``, to standard output."""
    document = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": report.machine(),
        "packages": report.packages(),
        "benchmarks": [harness.as_json(r) for r in reports],
    }
    text = json.dumps(document, indent=2)
    if target == "-":
        print(text)
    else:
        Path(target).write_text(text + "\n")


def _keep(reports: Sequence[harness.Report]) -> None:
    """Store the results in the table and chart of the documentation."""
    from bench import picture  # late: loads drawing code

    installed = report.packages()
    versions = ", ".join(f"{name} {installed[name]}" for name in report.SHOWN if name in installed)
    machine = report.machine()
    where = f"{machine['cores']} cores ({machine['processor']}, {machine['memory']}), Python {machine['python']}, "
    where += f"{machine['java'].split(' from')[0]}, {versions}"
    rows = picture.rows_of(reports, datetime.now(UTC).date().isoformat(), machine["commit"], where)
    picture.write(picture.keep(rows))


if __name__ == "__main__":
    sys.exit(main())
