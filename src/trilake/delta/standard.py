"""``standard_engine``: all formats of data files, the hooks that follow a commit, this machine's clock.

The registry names the formats; hooks are loaded with the first commit, as a read needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.delta.engine import Engine, Jobs
from trilake.delta.protocol.actions import Metadata
from trilake.table.registry import data_file_rows

if TYPE_CHECKING:
    from trilake.delta.commands.optimize.auto_compact import AutoCompaction
    from trilake.delta.commit.hooks import CommitEvent
    from trilake.delta.log.snapshot import Snapshot
    from trilake.storage.base import Store


def maintain_log(event: CommitEvent) -> Snapshot | None:
    """See :func:`trilake.delta.commit.after_commit.maintain_log`."""
    from trilake.delta.commit import after_commit

    return after_commit.maintain_log(event)


def update_manifests(event: CommitEvent) -> None:
    """See :func:`trilake.delta.commit.after_commit.update_manifests`."""
    from trilake.delta.commit import after_commit

    after_commit.update_manifests(event)


@dataclass(frozen=True)
class CompactAfterCommit:
    """The hook of automatic compaction.

    ``settings`` says of a table's metadata how it is compacted; ``None``: as the table's own properties say.
    """

    settings: Callable[[Metadata], AutoCompaction] | None = None

    def __call__(self, event: CommitEvent) -> None:
        """See :class:`trilake.delta.commands.optimize.auto_compact.AutoCompact`."""
        from trilake.delta.commands.optimize.auto_compact import AutoCompact, table_compaction

        AutoCompact(self.settings or table_compaction)(event)


def standard_engine(
    *,
    compaction: Callable[[Metadata], AutoCompaction] | None = None,
    runtime: Runtime | None = None,
    jobs: Callable[[Store, int], Jobs | None] | None = None,
) -> Engine:
    """The engine of this library.

    Parameters
    ----------
    compaction: says of a table's metadata how it is compacted after a commit; by default as the table's own
        properties say.
    runtime: clock, ids and waiting; this machine's by default.
    jobs: says who works on a table of so many files; by default this process.

    >>> [f.name for f in standard_engine().formats]
    ['lance', 'trevni']
    """
    hooks = (maintain_log, CompactAfterCommit(compaction), update_manifests)
    return Engine(data_file_rows(), hooks, runtime or SYSTEM_RUNTIME, jobs)
