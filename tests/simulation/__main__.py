"""``python -m tests.simulation``: run seeds, replay one, shrink a failing one.

python -m tests.simulation --seed 17            replay and print the calls in order; shrinks a failure
python -m tests.simulation --plan '{...}'       replay a plan that was printed
python -m tests.simulation --seeds 0:2000       many, in --jobs processes; prints seeds per second
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback

from tests.simulation.plan import Plan, make_plan
from tests.simulation.runner import Result, one_thread, run_many, run_plan, shrink


def show(result: Result, *, calls: bool) -> None:
    """Print a run."""
    print(result.plan.describe())
    if calls:
        for step, actor, what, on in result.events:
            print(f"  {step:5d} actor {actor}: {what:24s} {on}")
    if result.cause is not None:
        traceback.print_exception(result.cause)
    print(f"{result.versions} versions; " + (f"BROKEN: {result.failure}" if result.failure else "all promises kept"))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--plan")
    parser.add_argument("--seeds", help="first:last, the last one excluded")
    parser.add_argument("--format", choices=["delta", "lance", "new"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--all", action="store_true", help="go on after a failure")
    parser.add_argument("--quiet", action="store_true", help="do not print the calls")
    parser.add_argument("--no-shrink", action="store_true")
    given = parser.parse_args()
    if given.seeds is None:
        plan = Plan.from_json(given.plan) if given.plan else make_plan(given.seed or 0, given.format)
        with one_thread():
            result = run_plan(plan)
            show(result, calls=not given.quiet)
            if result.failure is not None and not given.no_shrink and given.plan is None:
                small = shrink(plan, result.failure)
                print("\nmade small:")
                show(small, calls=not given.quiet)
                print(f"\nreplay: python -m tests.simulation --plan '{small.plan.to_json()}'")
        return int(result.failure is not None)
    first, last = (int(n) for n in given.seeds.split(":"))
    started, cpu = time.monotonic(), time.process_time()
    until = None if given.seconds is None else started + given.seconds
    share = -(-(last - first) // (given.jobs * 8)) if given.jobs > 1 else last - first
    parts = [(s, min(s + share, last), given.format, until, given.all) for s in range(first, last, share)]
    if given.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
            done = list(pool.imap_unordered(run_many, parts))
    else:
        done = [run_many(p) for p in parts]
    took = time.monotonic() - started
    ran, versions = sum(d[0] for d in done), sum(d[1] for d in done)
    failed = sorted(f for d in done for f in d[2])
    print(
        f"{ran} seeds, {versions} versions in {took:.1f} s ({ran / took:.1f} seeds a second on {given.jobs} processes,"
        f" {time.process_time() - cpu:.1f} s of CPU in this one): {len(failed)} broke a promise"
    )
    for seed, failure in failed:
        of = f" --format {given.format}" if given.format else ""
        print(f"seed {seed}: {failure}\n  replay: python -m tests.simulation --seed {seed}{of}")
    return int(bool(failed))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # same order of string sets in every run
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
