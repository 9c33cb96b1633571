"""Every mutant still applies, its test exists, and the report names known mutants only."""

from __future__ import annotations

import json
from pathlib import Path

from tests.house.trees import parsed_text
from tests.simulation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]


def source(mutant: Mutant) -> str:
    path = ROOT / "src/trilake" / mutant.file
    return path.read_text() if path.is_file() else ""


def test_mutant_names_are_unique() -> None:
    names = [m.name for m in MUTANTS]
    assert len(names) > 80
    assert [n for n in names if names.count(n) > 1] == []


def test_every_mutant_matches_source_exactly_once() -> None:
    """Otherwise the mutant cannot be applied, and the report would claim a detection that nobody checked."""
    assert {m.name: n for m in MUTANTS if (n := source(m).count(m.old)) != 1} == {}


def test_mutated_source_is_valid_python() -> None:
    """Any test detects a file that does not parse, which proves nothing."""
    for mutant in MUTANTS:
        assert mutant.old != mutant.new, mutant.name
        parsed_text(source(mutant).replace(mutant.old, mutant.new))


def test_tests_of_mutants_exist() -> None:
    paths = {name.partition("::")[0] for m in MUTANTS for name in m.test.split()}
    assert len(paths) > 5
    assert [p for p in sorted(paths) if not (ROOT / p).exists()] == []


def test_report_names_known_mutants() -> None:
    listed = {m.name: m.file for m in MUTANTS}
    reported = json.loads((ROOT / "docs" / "mutants.json").read_text())
    assert [row["name"] for row in reported if listed.get(row["name"]) != row["file"]] == []
