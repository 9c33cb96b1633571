"""Cache of the newest versions of Delta tables that this process has queried.

Each query lists the log; if its files are those of the cached version, they are not read again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from trilake.delta.log.snapshot import Snapshot
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.storage import open_store

#: Most cached versions, and most bytes of one's files and tombstones.
_MOST, _LARGEST = 32, 32 << 20
#: A younger log file may be replaced by one with the same time: some stores count in seconds.
_SETTLED_MS = 10_000
_Key = tuple[str, frozenset[tuple[str, str]]]


class KnownTables:
    """The last versions, by the table's URI and its store's options."""

    def __init__(self) -> None:
        self.versions: OrderedDict[_Key, Snapshot] = OrderedDict()
        self.lock = threading.Lock()

    def open(self, path: str, options: Mapping[str, str]) -> ArrowDeltaTable:
        """Open the newest version.  Raises as :class:`ArrowDeltaTable`."""
        store = open_store(path, dict(options))
        key = (store.uri, frozenset(options.items()))
        with self.lock:
            cached = self.versions.get(key)
            if cached is not None:
                self.versions.move_to_end(key)
        table = ArrowDeltaTable(store, standard_engine(), known=cached)
        if table.opened is not cached:
            self._keep(key, table)
        return table

    def _keep(self, key: _Key, table: ArrowDeltaTable) -> None:
        opened = table.opened
        with self.lock:
            self.versions.pop(key, None)
            if isinstance(opened, Snapshot) and _worth_keeping(opened):
                self.versions[key] = opened
            if len(self.versions) > _MOST:
                self.versions.popitem(last=False)


def _worth_keeping(version: Snapshot) -> bool:
    """Whether a version is small, and its log files are old enough to be identified by their times."""
    segment, state = version.segment, version.state
    settled = version.engine.runtime.clock_ms() - _SETTLED_MS
    files = (*segment.checkpoint_files, *(file for _, _, file in segment.commits))
    return all(file.modified_ms < settled for file in files) and state.adds.nbytes + state.removes.nbytes <= _LARGEST
