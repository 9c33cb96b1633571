"""The simulation itself: a seed decides a run, and a fault that is planted is found and made small."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from tests.simulation import remembered
from tests.simulation.plan import Op, Plan, make_plan
from tests.simulation.runner import one_thread, run_plan, run_seed, shrink
from trilake.delta.log.log_compaction import json_lines


@pytest.fixture
def alone() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.parametrize("seed", [4, 7])
def test_a_seed_decides_the_whole_run(alone: None, seed: int) -> None:
    first, second = run_seed(seed), run_seed(seed)
    # Names of temporary files and of the store are the process's own.
    assert [e[:3] for e in first.events] == [e[:3] for e in second.events]
    assert first.versions == second.versions
    assert Plan.from_json(first.plan.to_json()) == first.plan


class _Forgetful(dict[Hashable, Any]):
    """Remembers nothing for another time, and counts what it could have."""

    again = 0

    def __contains__(self, key: object) -> bool:
        self.again += super().__contains__(key)
        return False


@pytest.mark.parametrize(("seed", "format"), [(4, "delta"), (12, "delta"), (3, "lance")])
def test_what_is_remembered_changes_no_run(alone: None, seed: int, format: str) -> None:
    first, forgetful = run_seed(seed, format), _Forgetful()
    with mock.patch.object(remembered, "_known", forgetful):
        second = run_seed(seed, format)
    assert [e[:3] for e in first.events] == [e[:3] for e in second.events]
    assert first.versions == second.versions
    assert forgetful.again > 5


def test_a_version_whose_clean_up_is_under_way_may_lack_files(alone: None) -> None:
    """The reply to the deletion of its manifest was lost: who reads it is told that files are missing."""
    assert run_seed(2903807, "lance").failure is None


def test_changes_that_are_older_than_the_retention_may_be_gone(alone: None) -> None:
    """A vacuum of 32 days later has its two commits behind them, so they are among the newest versions still."""
    assert run_seed(3415113).failure is None


def test_a_lost_conflict_is_found_and_made_small(alone: None) -> None:
    """The simulation can fail: without the check of winners two updates of the same rows lose one."""
    ops = ((Op(1, "update", (0, 1)),), (Op(3, "update", (0, 5)),), (Op(4, "append", (0, 9)),))
    plan = replace(make_plan(0, "delta"), options={}, actors=ops, faults=(), stay=0.0, page=1000)
    with mock.patch("trilake.delta.commit.transaction.check", return_value=None):
        failed = next(r for seed in range(40) if (r := run_plan(replace(plan, seed=seed))).failure is not None)
        assert failed.failure is not None
        small = shrink(failed.plan, failed.failure, tries=4)
    assert small.failure is not None
    assert {op.kind for op in small.plan.ops.values()} == {"update"}
    assert len(small.plan.actors) == 2


def test_a_checkpoint_that_forgets_a_tombstone_is_found(alone: None) -> None:
    """Although the commits are still there, and every read is right."""
    ops = ((Op(1, "overwrite", (0, 1)), Op(2, "checkpoint", (0, 1))),)
    plan = replace(make_plan(0, "delta"), options={}, actors=ops, faults=(), stay=0.0, page=1000)
    assert run_plan(plan).failure is None
    with mock.patch("trilake.delta.log.checkpoint_parts._retention_ms", return_value=-(10**15)):
        failure = run_plan(plan).failure
    assert failure is not None
    assert "forgets the tombstones" in failure


def test_a_compaction_that_leaves_a_tombstone_out_is_found(alone: None) -> None:
    ops = ((Op(1, "append", (0, 1)), Op(2, "overwrite", (0, 1)), Op(3, "compact", (0, 1))),)
    plan = replace(make_plan(0, "delta"), options={}, actors=ops, faults=(), stay=0.0, page=1000)
    assert run_plan(plan).failure is None

    def less(kind: str, files: pa.Table, *args: Any) -> list[str]:
        return [] if kind == "remove" else json_lines(kind, files, *args)

    with mock.patch("trilake.delta.log.log_compaction.json_lines", less):
        failure = run_plan(plan).failure
    assert failure is not None
    assert "compacted.json: remove: lacks" in failure
