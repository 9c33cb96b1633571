"""Auto compaction: compact small files after a commit.

The table (``delta.autoOptimize.autoCompact``) or the writer enables it.  It compacts only partitions to which the
commit added files and that have enough small files.  The commit stands whatever happens here: a failure is only logged,
and a later commit tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow.compute as pc

from trilake.delta.commands.optimize.bins import Numbers, partition_keys, sizes_of
from trilake.delta.commands.optimize.optimize import OptimizeRequest, optimize
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit.transaction import CommitEvent
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.partitions import PartitionKeys
from trilake.delta.protocol.property_values import is_on

_log = logging.getLogger("trilake.delta")

PartitionValues: TypeAlias = Mapping[str, str | None] | None

PROPERTY = "delta.autoOptimize.autoCompact"
#: Legacy name of both that property and the one for optimized writes.
BOTH = "delta.autoOptimize"


@dataclass(frozen=True)
class AutoCompaction:
    """How a process compacts after its commits.

    ``enabled``, unless it is ``None``, overrides the table's property.  A partition is compacted if it has at least
    ``min_files`` files smaller than ``min_size`` bytes (half of ``max_size`` by default), into files of about
    ``max_size`` bytes.
    """

    enabled: bool | None = None
    min_files: int = 50
    max_size: int = 128 << 20
    min_size: int | None = None
    run: Runner = run_here

    @property
    def small(self) -> int:
        """Files below this many bytes are small."""
        return self.max_size // 2 if self.min_size is None else self.min_size

    def applies_to(self, metadata: Metadata) -> bool:
        """Whether a table with this metadata is compacted after a commit."""
        if self.enabled is not None:
            return self.enabled
        conf = metadata.configuration
        return is_on(conf, BOTH) or conf.get(PROPERTY, "false").lower() in _ON


_ON = ("true", "auto", "legacy")


def compact_after_commit(event: CommitEvent, settings_of: Callable[[Metadata], AutoCompaction] | None) -> None:
    """Compact small files of the partitions that the commit touched.  Never raises.

    ``settings_of`` maps a table's metadata to its settings; ``None`` for the table's own properties.
    """
    log = event.log
    try:
        settings = AutoCompaction() if settings_of is None else settings_of(event.metadata)
        if settings.applies_to(event.metadata):
            adds = [a["add"] for a in event.plan.file_actions if "add" in a]
            # Only partitions with new rows.
            values = [a.get("partitionValues") for a in adds if a.get("dataChange", True)]
            snapshot = log.snapshot() if values else None
            if snapshot is not None and len(due(snapshot, values, settings)):
                request = OptimizeRequest(target_size=settings.max_size, min_file_size=settings.small, auto=True)
                only = partial(due, values=values, settings=settings)
                optimize(log, request, run=settings.run, snapshot=snapshot, only=only)
    except Exception as e:  # noqa: BLE001 - the commit stands, whatever an engine raises; the next one tries again
        uri, version = log.store.uri, event.version
        _log.warning("version %d of %s is committed, but compaction after it failed: %s", version, uri, e)


def due(snapshot: Snapshot, values: Sequence[PartitionValues], settings: AutoCompaction) -> Numbers:
    """The positions of the small files in those partitions of ``values`` that have enough of them."""
    adds = snapshot.adds
    # A file of a cube must stay in its cube.
    loose = np.asarray(pc.is_null(adds["clusteringProvider"]))
    small = np.flatnonzero(loose & (sizes_of(adds) < settings.small))
    if len(small) < settings.min_files:
        return small[:0]
    keys = partition_keys(snapshot).take(small)
    enough = np.bincount(keys.codes) >= settings.min_files
    return small[enough[keys.codes] & keys.among(PartitionKeys.of_actions(values, keys.fields))]
