"""Faults planted into a copy of the code, each of which the simulation or a test must find.

``scripts/mutants`` plants those of ``mutants.json``: a file below ``src/trilake``, a string that occurs there once,
its replacement, the format whose seeds are tried, and the test to run if no seed finds it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """A planted fault."""

    name: str
    file: str
    old: str
    new: str
    format: str = "delta"
    test: str = ""


MUTANTS = tuple(Mutant(**row) for row in json.loads(Path(__file__).with_name("mutants.json").read_text()))
