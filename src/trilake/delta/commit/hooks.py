"""Input of post-commit hooks."""

from __future__ import annotations

from dataclasses import dataclass

from trilake.common.runtime import Runtime
from trilake.delta.commit.plan import CommitPlan
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Head
from trilake.delta.protocol.actions import Metadata


@dataclass(frozen=True)
class CommitEvent:
    """A finished commit: ``version``, on top of ``base`` (``None`` for a new table), by ``plan``.

    ``metadata`` is the current one.  A hook must not raise for work that a later commit can do.
    """

    log: DeltaLog
    base: Head | None
    plan: CommitPlan
    metadata: Metadata
    version: int
    runtime: Runtime
