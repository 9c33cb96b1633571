"""``standard_engine``: all formats of data files, post-commit hooks, this machine's clock.

Hooks are loaded at the first commit, since reads do not need them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trilake.common.extras import load
from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.delta.engine import Engine, Jobs
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.iceberg import is_uniform
from trilake.table.registry import data_file_rows

if TYPE_CHECKING:
    from trilake.delta.commands.optimize.optimize import AutoCompaction
    from trilake.delta.commit.transaction import CommitEvent
    from trilake.storage.base import Store


_log = logging.getLogger("trilake.delta")


def maintain_log(event: CommitEvent) -> None:
    """See :func:`trilake.delta.commit.after_commit.maintain_log`."""
    from trilake.delta.commit import after_commit

    after_commit.maintain_log(event)


def update_manifests(event: CommitEvent) -> None:
    """See :func:`trilake.delta.commit.symlink_manifest.update_manifests`."""
    from trilake.delta.commit import symlink_manifest

    symlink_manifest.update_manifests(event)


def update_iceberg(event: CommitEvent) -> None:
    """Update the Iceberg metadata of a table that enables it; a failure is logged, and the next commit catches up."""
    if not is_uniform(event.metadata.configuration):
        return
    try:
        load("trilake.delta.iceberg.sync", "Iceberg metadata of Delta tables").sync(event.log, event)
    except Exception as e:  # noqa: BLE001 - no failure of the conversion may look like one of the commit
        message = "version %d of %s is committed, but its Iceberg metadata could not be written: %s"
        _log.warning(message, event.version, event.log.store.uri, e)


@dataclass(frozen=True)
class CompactAfterCommit:
    """The auto compaction hook, with a table's settings by its metadata; by default those of its properties."""

    settings: Callable[[Metadata], AutoCompaction] | None = None

    def __call__(self, event: CommitEvent) -> None:
        """See :func:`trilake.delta.commands.optimize.optimize.compact_after_commit`."""
        from trilake.delta.commands.optimize.optimize import compact_after_commit

        compact_after_commit(event, self.settings)


def standard_engine(
    *,
    compaction: Callable[[Metadata], AutoCompaction] | None = None,
    runtime: Runtime | None = None,
    jobs: Callable[[Store, int], Jobs | None] | None = None,
) -> Engine:
    """The default engine: ``compaction`` and ``jobs`` as in :class:`CompactAfterCommit` and :class:`Engine`.

    >>> [f.name for f in standard_engine().formats]
    ['lance', 'trevni']
    """
    hooks = (maintain_log, CompactAfterCommit(compaction), update_manifests, update_iceberg)
    return Engine(data_file_rows(), hooks, runtime or SYSTEM_RUNTIME, jobs)
