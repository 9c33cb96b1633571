"""Many writers and readers on one table, interleaved at every store call, with faults, break no promise.

A run is deterministic for its seed; ``python -m tests.simulation --seed N`` replays and shrinks a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
#: Seeds in CI, few enough to finish long before a timeout.
SEEDS = 150
#: Seeds of short runs in which writers create one table.
NEW_SEEDS = 120
#: Seeds of a soak; an hour of one core is about 65,000.
SOAK_SEEDS = int(os.environ.get("TRILAKE_SEEDS", "100000"))
#: First seed of a soak; each night can use other seeds.
SOAK_FIRST = int(os.environ.get("TRILAKE_FIRST_SEED", "2000"))


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the simulation command in a subprocess, where set order is the same every time."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_seeds_break_no_promise() -> None:
    done = simulate("--seeds", f"0:{SEEDS}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{SEEDS} seeds, ")


def test_new_table_seeds_break_no_promise() -> None:
    done = simulate("--format", "new", "--seeds", f"0:{NEW_SEEDS}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{NEW_SEEDS} seeds, ")


@pytest.mark.soak
def test_soak_seeds_break_no_promise() -> None:
    jobs = str(os.cpu_count() or 1)
    done = simulate("--seeds", f"{SOAK_FIRST}:{SOAK_FIRST + SOAK_SEEDS}", "--jobs", jobs, "--all")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
