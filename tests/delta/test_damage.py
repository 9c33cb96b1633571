"""Every decoder of the Delta layer under damage: typed errors or correct answers, in bounded time and memory.

``tests/delta/damage.py`` runs in a subprocess, which an abort or the memory limit would end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.delta.damage import KINDS, share

pytestmark = pytest.mark.long


def _damage(seed: int, *kinds: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.delta.damage", str(seed), *kinds]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-30:]
    assert done.returncode == 0, "\n".join(last)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


#: Damages per decoder in CI and per kind in the soak, and the first seed.
COUNT, LONG = 500, int(os.environ.get("TRILAKE_FUZZ", "20000"))
#: Damages that cost two to three times as much: they read a Parquet checkpoint, or the log with DuckDB.
COSTLY = ("last-checkpoint", "last-checkpoint-values", "many-values", "many-statistics")
FIRST = int(os.environ.get("TRILAKE_FIRST_SEED", "1000000"))
#: Processes in CI.
_PARTS = 2


@pytest.mark.parametrize("part", range(_PARTS))
def test_damage_to_every_kind_of_file(part: int) -> None:
    kinds = [*COSTLY, *(k for k in KINDS if k not in COSTLY)][part::_PARTS]
    report = _damage(0, *(f"{k}:{share(k, COUNT)}" for k in kinds))
    assert report["problems"] == []
    assert report["grown_mb"] < 500
    assert set(report["outcomes"]) == set(kinds)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_extensive_damage_to_every_kind_of_file(kind: str) -> None:
    report = _damage(FIRST, f"{kind}:{LONG}")
    assert report["problems"] == []
    assert report["grown_mb"] < 1_000
