"""Every decoder of the Delta layer under damage: typed errors or right answers, in bounded time and memory.

``tests/delta/damage.py`` does it in a process of its own, which an abort or the limit of memory would end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.delta.damage import KINDS


def _damage(seed: int, count: int, *kinds: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.delta.damage", str(seed), str(count), *kinds]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-30:]
    assert done.returncode == 0, "\n".join(last)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_little_damage_of_every_file() -> None:
    report = _damage(0, 20)
    assert report["problems"] == []
    assert report["grown_mb"] < 500
    assert set(report["outcomes"]) == set(KINDS)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_much_damage_of_every_file(kind: str) -> None:
    report = _damage(1_000_000, 3_000, kind)
    assert report["problems"] == []
    assert report["grown_mb"] < 1_000
