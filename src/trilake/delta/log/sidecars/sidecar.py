"""The tags of sidecars, and which sidecars are merged.

Protocol: *Sidecar Files*.  trilake's ``tags``, which other readers ignore, state the number of files and their totals
(so that a later checkpoint need not read the sidecar), its columns, and the bounds of its paths.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.replay import any_absolute, decoded_paths

#: Tags of a ``sidecar`` action: its columns, its lowest and highest path, and the totals of its files.
LAYOUT, LOW, HIGH = "trilake.layout", "trilake.lowestPath", "trilake.highestPath"
_TOTALS = {f.name: f"trilake.{f.name}" for f in fields(FileTotals)}
#: A longer path is not stored as a bound: every reader of the checkpoint reads the tags.
_LONGEST = 512
#: A sidecar below this share of a full one is always merged.
_SMALLEST = 16


def layout_of(columns: pa.StructType) -> str:
    """A string that identifies the columns of the ``add`` actions of a sidecar.

    It covers the form of the statistics, and the physical names and types of typed columns.
    """
    return hashlib.md5(f"1 {columns}".encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Sidecar:
    """A sidecar of ``add`` actions only, whose tags state the totals of its files."""

    path: str
    size: int
    modified_ms: int
    files: FileTotals
    layout: str
    #: The bounds of their decoded paths; ``None`` where unknown.
    bounds: tuple[str, str] | None

    @property
    def action(self) -> dict[str, Any]:
        tags = {LAYOUT: self.layout} | {tag: str(getattr(self.files, name)) for name, tag in _TOTALS.items()}
        if self.bounds is not None:
            tags |= {LOW: self.bounds[0], HIGH: self.bounds[1]}
        return {"path": self.path, "sizeInBytes": self.size, "modificationTime": self.modified_ms, "tags": tags}

    @staticmethod
    def of(action: Mapping[str, Any], tags: Mapping[str, Any]) -> Sidecar | None:
        """The sidecar of an action with trilake's tags; ``None`` for any other."""
        try:
            totals = FileTotals(**{name: int(tags[tag]) for name, tag in _TOTALS.items()})
            path, size, modified = str(action["path"]), int(action["sizeInBytes"]), int(action["modificationTime"])
            layout = str(tags[LAYOUT])
        except (KeyError, TypeError, ValueError):
            return None
        bounds = (str(tags[LOW]), str(tags[HIGH])) if LOW in tags and HIGH in tags else None
        return Sidecar(path, size, modified, totals, layout, bounds) if totals.num_files > 0 else None

    def may_hold(self, paths: Sequence[str]) -> bool:
        """Whether one of some sorted decoded paths may be in this sidecar."""
        if self.bounds is None or not paths:
            return bool(paths)
        low, high = self.bounds
        at = bisect_left(paths, low)
        return at < len(paths) and paths[at] <= high


@dataclass
class PathBounds:
    """The lowest and highest decoded path of some files, as long as all are relative and short."""

    _bounds: tuple[str, str] | None = None
    _known: bool = field(default=True)

    def take(self, files: pa.Table) -> None:
        if not self._known or not files.num_rows:
            return
        paths = decoded_paths(files["path"])
        if any_absolute(paths):
            self._known = False
            return
        bounds = pc.min_max(paths).as_py()
        low, high = bounds["min"], bounds["max"]
        if self._bounds is not None:
            low, high = min(low, self._bounds[0]), max(high, self._bounds[1])
        self._bounds = (low, high)

    @property
    def bounds(self) -> tuple[str, str] | None:
        if not self._known or self._bounds is None or max(map(len, self._bounds)) > _LONGEST:
            return None
        return self._bounds


def folded(sizes: Iterable[int], fresh: int, most: int) -> set[int]:
    """The indexes of the sidecars, with these numbers of files, to merge with ``fresh`` new files.

    Small ones first, while one is at most twice as large as the total so far, or a small share of ``most``, the
    size of a full sidecar; half-full ones stay.  So the sizes of those that stay at least double, and a file is
    rewritten only a few times until its sidecar is full.

    >>> folded([1000, 300, 40], 20, 1000), folded([1000, 300, 100], 60, 1000), folded([1000, 300, 100], 5, 1000)
    ({2}, {1, 2}, set())
    """
    out: set[int] = set()
    total = fresh
    for place, size in sorted(enumerate(sizes), key=lambda s: s[1]):
        if 2 * size > most or (size > 2 * total and size * _SMALLEST > most):
            break
        out.add(place)
        total += size
    return out if fresh or len(out) > 1 else set()
