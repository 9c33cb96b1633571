"""A fixture that treats every table as large."""

from __future__ import annotations

import pytest

from tests.delta.log.sidecar_world import ShuffledJobs, World
from trilake.delta.log import checkpoint as checkpoint_module
from trilake.delta.log import checkpoint_parts


@pytest.fixture(params=["here", "tasks"])
def every_table_is_large(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Write checkpoints in slices and sidecars, once in this process and once by tasks."""
    monkeypatch.setattr(World, "jobs", ShuffledJobs() if request.param == "tasks" else None)
    monkeypatch.setattr("trilake.delta.log.segment.LARGE_BYTES", 0)
    monkeypatch.setattr(checkpoint_parts, "SLICE_ROWS", 4)
    monkeypatch.setattr(checkpoint_module, "_BATCH_ROWS", 3)
