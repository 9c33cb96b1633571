"""``CommitPlan``: the content of a commit, apart from its version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.protocol.actions import Metadata, Protocol


@dataclass(frozen=True)
class CommitPlan:
    """The content of a commit, apart from its version.

    ``file_actions`` are whole action objects with one key each, such as ``{"add": {...}}``; ``txns`` are the
    transaction versions of applications, and ``domains`` the configuration of metadata domains (``None`` removes
    one).
    """

    operation: str
    parameters: Mapping[str, Any]
    file_actions: Sequence[Mapping[str, Any]]
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    user_metadata: str | None = None
    read: ReadSet = field(default_factory=ReadSet)
    txns: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, str | None] = field(default_factory=dict)
    #: The largest assigned row id where the table's domain may lack it, since dropping the feature removed it.
    row_id_mark: int = -1
    #: Whether a new table may be created in a folder with unreferenced files, as a conversion does.
    among_files: bool = False
    #: Recomputes the plan when identity columns advanced; see :class:`~trilake.delta.commit.conflicts.ReadSet`.
    rebase: Callable[[CommitPlan, Metadata], CommitPlan] | None = None

    @property
    def complete_read(self) -> ReadSet:
        """The read set, completed from the plan."""
        return replace(
            self.read,
            app_ids=self.read.app_ids | set(self.txns),
            domains=self.read.domains | set(self.domains),
            changes_metadata=self.read.changes_metadata or self.metadata is not None,
            rebases_identity=self.rebase is not None,
        )
