"""The list of planted faults: each can still be planted, its test is there, and the report names faults of the list."""

from __future__ import annotations

import json
from pathlib import Path

from tests.house.trees import parsed_text
from tests.simulation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]


def source(mutant: Mutant) -> str:
    path = ROOT / "src/trilake" / mutant.file
    return path.read_text() if path.is_file() else ""


def test_every_name_is_there_once() -> None:
    names = [m.name for m in MUTANTS]
    assert len(names) > 80
    assert [n for n in names if names.count(n) > 1] == []


def test_every_fault_has_one_place_in_todays_source() -> None:
    """Else it is not planted, and the list says of a fault that someone finds it whom no one has asked."""
    assert {m.name: n for m in MUTANTS if (n := source(m).count(m.old)) != 1} == {}


def test_a_source_with_a_fault_is_still_python() -> None:
    """A fault that only breaks the file is found by everything, which says nothing."""
    for mutant in MUTANTS:
        assert mutant.old != mutant.new, mutant.name
        parsed_text(source(mutant).replace(mutant.old, mutant.new))


def test_every_test_that_is_asked_is_there() -> None:
    paths = {name.partition("::")[0] for m in MUTANTS for name in m.test.split()}
    assert len(paths) > 5
    assert [p for p in sorted(paths) if not (ROOT / p).exists()] == []


def test_the_report_names_faults_of_the_list() -> None:
    listed = {m.name: m.file for m in MUTANTS}
    reported = json.loads((ROOT / "docs" / "mutants.json").read_text())
    assert [row["name"] for row in reported if listed.get(row["name"]) != row["file"]] == []
