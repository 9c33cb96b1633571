"""``standard_engine``: every format of data files, everything that follows a commit, this machine's clock."""

from __future__ import annotations

from trilake.delta.commands.optimize.auto_compact import AutoCompact, CompactionSettings, table_compaction
from trilake.delta.commit.after_commit import maintain_log, update_manifests
from trilake.delta.engine import Engine
from trilake.delta.runtime import Runtime
from trilake.engine.lance_files import LANCE
from trilake.engine.trevni_files import TREVNI


def standard_engine(*, compaction: CompactionSettings = table_compaction, runtime: Runtime | None = None) -> Engine:
    """The engine of this library.

    Parameters
    ----------
    compaction: says of a table's metadata how it is compacted after a commit; by default as the table's own
        properties say.
    runtime: clock, ids and waiting; this machine's by default.

    >>> [f.name for f in standard_engine().formats]
    ['lance', 'trevni']
    """
    hooks = (maintain_log, AutoCompact(compaction), update_manifests)
    return Engine((LANCE, TREVNI), hooks, runtime or Runtime())
