"""Offsets of a stream from a Delta table, and limits of a batch.

An offset is a position in an immutable sequence: the files of the initial snapshot by time and path, then commit after
commit, file by file.  Its JSON is compatible with Delta's own source::

    {"sourceVersion": 1, "reservoirId": "<id of the table>", "reservoirVersion": 7, "index": -1,
     "isStartingVersion": false, "startedAt": {"reservoirVersion": 3, "isStartingVersion": true}}

Everything up to and including the file ``index`` of ``reservoirVersion`` has been read; ``-1`` is the position before a
version's first file.  Only trilake writes ``startedAt``: when Spark repeats a first batch, it requests the initial
offset again, and by then the table may have newer versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trilake.delta.stream.errors import StreamOffsetError

#: The position before the first file of a version.
BASE_INDEX = -1
_SOURCE_VERSION = 1
_NEWEST_SOURCE = 3
#: Markers of newer Delta sources: the position before the first file, and before a schema change.
_OTHER_BASES = {-100, -20, -19}

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Start:
    """Where a stream started: with a snapshot, or with a commit."""

    version: int
    snapshot: bool


@dataclass(frozen=True)
class StreamOffset:
    """A position in the stream of a table; see the head of this module.

    >>> o = StreamOffset("t", 3, -1, True)
    >>> StreamOffset.from_json(o.to_json()) == o
    True
    """

    reservoir_id: str
    reservoir_version: int
    index: int = BASE_INDEX
    is_starting_version: bool = False
    started_at: Start | None = None

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StreamOffset:
        """Parse the JSON of a checkpoint.  Raises ``StreamOffsetError`` for anything but an offset of a table."""
        try:
            version, source = int(data["reservoirVersion"]), data.get("sourceVersion")
            source = None if source is None else int(source)
            index, began = int(data["index"]), data.get("startedAt")
            start = None if began is None else Start(int(began["reservoirVersion"]), bool(began["isStartingVersion"]))
            snapshot = data.get("isStartingVersion", data.get("isInitialSnapshot", False))
            offset = StreamOffset(str(data["reservoirId"]), version, index, snapshot is True, start)
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise StreamOffsetError(
                f"the checkpoint's offset {str(data)[:200]} is not an offset of a Delta table",
                help="use the checkpoint of a query that reads this table, or a new one",
                condition="DELTA_INVALID_SOURCE_OFFSET_FORMAT",
            ) from e
        if source is None or not 1 <= source <= _NEWEST_SOURCE or version < 0:
            newer = source is not None and source > _NEWEST_SOURCE
            raise StreamOffsetError(
                f"the checkpoint's offset has an unsupported version: sourceVersion {source}, reservoirVersion"
                f" {version}",
                help=f"supported source versions are 1 to {_NEWEST_SOURCE}; use a new checkpoint",
                condition="DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION" if newer else "DELTA_INVALID_SOURCE_VERSION",
            )
        if index < 0:
            if index != BASE_INDEX and index not in _OTHER_BASES:
                raise StreamOffsetError(f"the checkpoint's offset has the invalid index {index}")
            offset = replace(offset, index=BASE_INDEX)
        return offset

    def to_json(self) -> dict[str, Any]:
        """The JSON object; equal offsets give equal strings."""
        out: dict[str, Any] = {
            "sourceVersion": _SOURCE_VERSION,
            "reservoirId": self.reservoir_id,
            "reservoirVersion": self.reservoir_version,
            "index": self.index,
            "isStartingVersion": self.is_starting_version,
        }
        if self.started_at is not None:
            out["startedAt"] = {
                "reservoirVersion": self.started_at.version,
                "isStartingVersion": self.started_at.snapshot,
            }
        return out

    @staticmethod
    def beginning(reservoir_id: str, start: Start) -> StreamOffset:
        """The position before everything."""
        return StreamOffset(reservoir_id, start.version, BASE_INDEX, start.snapshot, start)

    def at(self, version: int, index: int = BASE_INDEX, *, snapshot: bool = False) -> StreamOffset:
        """Another position in the same stream."""
        return replace(self, reservoir_version=version, index=index, is_starting_version=snapshot)

    @property
    def position(self) -> tuple[int, int, int]:
        """The sort key of offsets of one stream."""
        return self.reservoir_version, int(not self.is_starting_version), self.index


@dataclass(frozen=True)
class Limit:
    """The limits of one batch: ``None`` is no limit.

    ``files`` is a number of files.  ``size`` is in bytes and soft: a batch ends with the file that exceeds it.
    """

    files: int | None = None
    size: int | None = None

    def admit(self, counts: Integers, sizes: Integers) -> int:
        """How many units a batch takes, in their order; ``counts`` are their numbers of files, ``sizes`` their bytes.

        A unit is taken whole as soon as there is any room, so a batch is never empty while there is data.

        >>> Limit(2).admit(np.array([1, 1, 1]), np.array([5, 5, 5]))
        2
        >>> Limit(size=6).admit(np.array([1, 1, 1]), np.array([5, 5, 5]))
        2
        """
        count = len(counts)
        for limit, weights in ((self.files, counts), (self.size, sizes)):
            if limit is not None and count:
                before = np.cumsum(weights[:-1])
                count = min(count, 1 + int(np.searchsorted(before, limit, side="left")))
        return count

    def less(self, counts: Integers, sizes: Integers) -> Limit:
        """The rest of the limit after a batch has taken these units."""
        return Limit(
            None if self.files is None else max(0, self.files - int(counts.sum())),
            None if self.size is None else max(0, self.size - int(sizes.sum())),
        )

    @property
    def spent(self) -> bool:
        """Whether the limit is exhausted."""
        return self.files == 0 or self.size == 0
