"""What a hook that follows a commit gets to know."""

from __future__ import annotations

from dataclasses import dataclass

from trilake.common.runtime import Runtime
from trilake.delta.commit.plan import CommitPlan
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Head
from trilake.delta.protocol.actions import Metadata


@dataclass(frozen=True)
class CommitEvent:
    """A commit that is in the log: ``version``, on top of ``base`` (``None``: it made the table), by ``plan``.

    ``metadata`` is the one in force.  A hook must not raise because of work that a later commit can do as well.
    """

    log: DeltaLog
    base: Head | None
    plan: CommitPlan
    metadata: Metadata
    version: int
    runtime: Runtime
