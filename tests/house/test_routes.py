"""Routes: how many files of the package a call passes through; the budget is the best figure so far.

A reader of a call path opens these files.  A change that needs more of them raises the budget deliberately.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import trilake

PACKAGE = Path(trilake.__file__).parent

#: Prepares a table, runs one call under a profiler, and prints the files of the package that it passed through.
PROGRAM = """
import json, sys
import pyarrow as pa
import trilake
package, place, call = sys.argv[1:]
trilake.write(pa.table({"n": [1, 2, 3], "s": ["a", "b", "c"]}), place)
trilake.write(pa.table({"n": [4], "s": ["d"]}), place, mode="append")
table = trilake.open(place)
rows = pa.table({"n": [2, 9], "s": ["x", "y"]})
calls = {
    "open": lambda: trilake.open(place).version,
    "read": lambda: table.to_arrow(filter="n > 2"),
    "write": lambda: trilake.write(rows, place, mode="append"),
    "delete": lambda: table.delete("n = 1"),
    "merge": lambda: table.merge(rows, "t.n = s.n", source_alias="s", target_alias="t")
    .when_matched_update_all().when_not_matched_insert_all().execute(),
}
calls[call]()  # fill caches and finish lazy imports
assert trilake.common.compute.pc.field
passed = set()
def note(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(package) and frame.f_code.co_name != "<module>":
        passed.add(frame.f_code.co_filename[len(package) + 1:])
sys.setprofile(note)
calls[call]()
sys.setprofile(None)
print(json.dumps(sorted(passed)))
"""

#: Files that the second of two equal calls passes through.
BUDGET = {"open": 19, "read": 31, "write": 58, "delete": 31, "merge": 81}


def route(call: str, place: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(PACKAGE), str(place), call],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    passed: list[str] = json.loads(done.stdout)
    return passed


@pytest.mark.parametrize("call", BUDGET)
def test_call_passes_through_no_more_files_than_budgeted(call: str, tmp_path: Path) -> None:
    passed = route(call, tmp_path / "t")
    assert len(passed) <= BUDGET[call], passed
