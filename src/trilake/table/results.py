"""Results of writes and of commands that change rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trilake.common.display import Displayed, words


@dataclass(frozen=True)
class WriteResult(Displayed):
    """The result of a write.

    ``version`` is the committed version, or the current one if nothing changed; ``None`` for formats without versions.

    >>> import trilake
    >>> trilake.write({"n": [1]}, "memory://doc-write-result").rows_added
    1
    """

    version: int | None
    files_added: int = 0
    files_removed: int = 0
    rows_added: int = 0
    bytes_added: int = 0


#: Metrics in the short description, and their labels; the first five count rows.
_SHOWN = {
    "numDeletedRows": "rows deleted",
    "numUpdatedRows": "rows updated",
    "numTargetRowsInserted": "rows inserted",
    "numTargetRowsUpdated": "rows updated",
    "numTargetRowsDeleted": "rows deleted",
    "numCopiedRows": "copied",
    "numRemovedFiles": "files removed",
    "numAddedFiles": "files added",
    "numDeletionVectorsAdded": "deletion vectors written",
}
_ALWAYS = {"numDeletedRows", "numUpdatedRows"}


@dataclass(frozen=True, repr=False)
class ChangeResult(Displayed):
    """The result of DELETE, UPDATE or MERGE.

    Parameters
    ----------
    operation: its name in ``commitInfo``.
    version: the committed version, or the newest version if nothing changed.
    metrics: counts, bytes and milliseconds, with the names of ``commitInfo.operationMetrics``.
    committed: whether there is a new version.

    >>> ChangeResult("DELETE", 7, {"numDeletedRows": 12000, "numRemovedFiles": 1, "executionTimeMs": 40})
    <DELETE version 7: 12,000 rows deleted, 1 files removed; 0.04 s>
    """

    operation: str
    version: int
    metrics: Mapping[str, int] = field(default_factory=dict)
    committed: bool = True

    @property
    def rows(self) -> int | None:
        """The number of changed or new rows; ``None`` if removed files do not state their number of rows."""
        counts = [self.metrics[n] for n in list(_SHOWN)[:5] if n in self.metrics]
        return sum(counts) if counts else None

    def _title(self) -> str:
        return self.operation

    def _facts(self) -> list[tuple[str, object]]:
        at: list[tuple[str, object]] = [("version", self.version), ("committed", self.committed)]
        return [*at, *((words(name), value) for name, value in self.metrics.items())]

    def __repr__(self) -> str:
        shown = [n for n in _SHOWN if self.metrics.get(n) or (n in _ALWAYS and n in self.metrics)]
        counts = [f"{self.metrics[n]:,} {_SHOWN[n]}" for n in shown]
        what = ", ".join(counts) if self.committed else "nothing to change"
        return (
            f"<{self.operation} version {self.version}: {what}; {self.metrics.get('executionTimeMs', 0) / 1000:.2f} s>"
        )
