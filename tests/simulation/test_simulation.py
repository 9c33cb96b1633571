"""The simulation itself: runs are deterministic, and a planted fault is found and shrunk."""

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
def single_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.parametrize("seed", [4, 7])
def test_run_is_deterministic_for_a_seed(single_thread: None, seed: int) -> None:
    first, second = run_seed(seed), run_seed(seed)
    # Names of temporary files and of the store differ between runs.
    assert [e[:3] for e in first.events] == [e[:3] for e in second.events]
    assert first.versions == second.versions
    assert Plan.from_json(first.plan.to_json()) == first.plan


class _Forgetful(dict[Hashable, Any]):
    """A cache that always misses and counts the hits it would have had."""

    again = 0

    def __contains__(self, key: object) -> bool:
        self.again += super().__contains__(key)
        return False


@pytest.mark.parametrize(("seed", "format"), [(4, "delta"), (12, "delta"), (3, "lance")])
def test_parse_cache_does_not_change_a_run(single_thread: None, seed: int, format: str) -> None:
    first, forgetful = run_seed(seed, format), _Forgetful()
    with mock.patch.object(remembered, "_known", forgetful):
        second = run_seed(seed, format)
    assert [e[:3] for e in first.events] == [e[:3] for e in second.events]
    assert first.versions == second.versions
    assert forgetful.again > 5


def test_version_under_cleanup_may_lack_files(single_thread: None) -> None:
    """The reply to the deletion of the manifest was lost, so readers get a missing file error."""
    assert run_seed(2903807, "lance").failure is None


def test_changes_older_than_retention_may_be_gone(single_thread: None) -> None:
    """The two commits of a vacuum 32 days later follow, so the changes are still among the newest versions."""
    assert run_seed(3415113).failure is None


def test_lost_conflict_is_found_and_shrunk(single_thread: None) -> None:
    """The simulation can fail: without the conflict check one of two updates of the same rows is lost."""
    ops = ((Op(1, "update", (0, 1)),), (Op(3, "update", (0, 5)),), (Op(4, "append", (0, 9)),))
    plan = replace(make_plan(0, "delta"), options={}, actors=ops, faults=(), stay=0.0, page=1000)
    with mock.patch("trilake.delta.commit.transaction.check", return_value=None):
        failed = next(r for seed in range(40) if (r := run_plan(replace(plan, seed=seed))).failure is not None)
        assert failed.failure is not None
        small = shrink(failed.plan, failed.failure, tries=4)
    assert small.failure is not None
    assert {op.kind for op in small.plan.ops.values()} == {"update"}
    assert len(small.plan.actors) == 2


def test_checkpoint_that_drops_tombstone_is_found(single_thread: None) -> None:
    """Found although the commits still exist and every read is correct."""
    ops = ((Op(1, "overwrite", (0, 1)), Op(2, "checkpoint", (0, 1))),)
    plan = replace(make_plan(0, "delta"), options={}, actors=ops, faults=(), stay=0.0, page=1000)
    assert run_plan(plan).failure is None
    with mock.patch("trilake.delta.log.checkpoint_writer.expiry_ms", lambda _, now_ms: now_ms + 10**15):
        failure = run_plan(plan).failure
    assert failure is not None
    assert "forgets the tombstones" in failure


def test_log_compaction_that_drops_tombstone_is_found(single_thread: None) -> None:
    ops = ((Op(1, "append", (0, 1)), Op(2, "overwrite", (0, 1)), Op(3, "compact", (0, 1))),)
    plan = replace(make_plan(0, "delta"), options={}, actors=ops, faults=(), stay=0.0, page=1000)
    assert run_plan(plan).failure is None

    def less(kind: str, files: pa.Table) -> Iterator[bytes]:
        return iter(()) if kind == "remove" else json_lines(kind, files)

    with mock.patch("trilake.delta.log.log_compaction.json_lines", less):
        failure = run_plan(plan).failure
    assert failure is not None
    assert "compacted.json: remove: lacks" in failure
