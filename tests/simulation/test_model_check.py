"""Models of commit and vacuum over all interleavings, and the real commit over the interleavings of few writers."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.simulation.exhaustive import every_interleaving
from tests.simulation.model_check import CommitRules, VacuumRules, check_commit, check_vacuum

pytestmark = pytest.mark.long


def test_commit_model_of_two_writers_with_faults() -> None:
    result = check_commit(2, ("append", "change"))
    assert result.broken is None, (result.broken, result.trace)
    assert result.states > 5_000


def test_commit_model_of_three_writers() -> None:
    result = check_commit(3, ("append", "change"), crashes=0, losses=0, delays=0)
    assert result.broken is None, (result.broken, result.trace)
    assert result.states > 10_000


@pytest.mark.soak
@pytest.mark.parametrize("transactions", [("append", "change"), ("change", "change"), ("change", "append")])
def test_commit_model_of_three_writers_with_faults(transactions: tuple[str, ...]) -> None:
    result = check_commit(3, transactions)
    print(f"{result.states} states")
    assert result.broken is None, (result.broken, result.trace)


@pytest.mark.parametrize("rule", [f.name for f in fields(CommitRules)])
def test_commit_model_breaks_without_each_rule(rule: str) -> None:
    result = check_commit(2, ("append", "change"), CommitRules(**{rule: False}))
    assert result.broken is not None


def test_vacuum_model_with_a_reader_and_a_writer() -> None:
    result = check_vacuum()
    assert result.broken is None, (result.broken, result.trace)
    assert result.states > 50_000


@pytest.mark.parametrize("rule", [f.name for f in fields(VacuumRules)])
def test_vacuum_model_breaks_without_each_rule(rule: str) -> None:
    assert check_vacuum(VacuumRules(**{rule: False})).broken is not None


def test_commit_over_every_interleaving_of_two_writers() -> None:
    for kinds in (("append", "append"), ("change", "change"), ("append", "change")):
        result = every_interleaving(kinds)
        assert result.broken is None, result.broken
        assert result.states == 70


@pytest.mark.parametrize("fault", ["lost", "late", "crash", "crash after", "error"])
def test_commit_with_a_fault_at_every_call(fault: str) -> None:
    result = every_interleaving(("change", "append"), fault=fault, most=400)
    assert result.broken is None, result.broken
    assert result.states >= 100


@pytest.mark.soak
def test_commit_over_every_interleaving_of_three_writers() -> None:
    for fault in (None, "lost", "crash after"):
        result = every_interleaving(("change", "append", "change"), fault=fault, most=50_000)
        assert result.broken is None, result.broken
