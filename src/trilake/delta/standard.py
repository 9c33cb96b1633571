"""``standard_engine``: all formats of data files, post-commit hooks, this machine's clock.

Hooks are loaded at the first commit, since reads do not need them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.delta.engine import Engine, Jobs
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.iceberg import is_uniform
from trilake.table.registry import data_file_rows

if TYPE_CHECKING:
    from trilake.delta.commands.optimize.auto_compact import AutoCompaction
    from trilake.delta.commit.transaction import CommitEvent
    from trilake.delta.log.snapshot import Snapshot
    from trilake.storage.base import Store


def maintain_log(event: CommitEvent) -> Snapshot | None:
    """See :func:`trilake.delta.commit.after_commit.maintain_log`."""
    from trilake.delta.commit import after_commit

    return after_commit.maintain_log(event)


def update_manifests(event: CommitEvent) -> None:
    """See :func:`trilake.delta.commit.symlink_manifest.update_manifests`."""
    from trilake.delta.commit import symlink_manifest

    symlink_manifest.update_manifests(event)


def update_iceberg(event: CommitEvent) -> None:
    """See :func:`trilake.delta.iceberg.hook.update_iceberg`."""
    if is_uniform(event.metadata.configuration):
        from trilake.delta.iceberg import hook

        hook.update_iceberg(event)


@dataclass(frozen=True)
class CompactAfterCommit:
    """The auto compaction hook.

    ``settings`` maps a table's metadata to its settings; ``None`` for the table's own properties.
    """

    settings: Callable[[Metadata], AutoCompaction] | None = None

    def __call__(self, event: CommitEvent) -> None:
        """See :func:`trilake.delta.commands.optimize.auto_compact.compact_after_commit`."""
        from trilake.delta.commands.optimize.auto_compact import compact_after_commit

        compact_after_commit(event, self.settings)


def standard_engine(
    *,
    compaction: Callable[[Metadata], AutoCompaction] | None = None,
    runtime: Runtime | None = None,
    jobs: Callable[[Store, int], Jobs | None] | None = None,
) -> Engine:
    """The default engine.

    Parameters
    ----------
    compaction: maps a table's metadata to its compaction settings; by default the table's own properties.
    runtime: clock, ids and waiting; this machine's by default.
    jobs: chooses where to process a table with a given number of files; by default this process.

    >>> [f.name for f in standard_engine().formats]
    ['lance', 'trevni']
    """
    hooks = (maintain_log, CompactAfterCommit(compaction), update_manifests, update_iceberg)
    return Engine(data_file_rows(), hooks, runtime or SYSTEM_RUNTIME, jobs)
