"""What a sidecar says of itself in its tags, and which sidecars are folded together.

Protocol: *Sidecar Files*.  A ``sidecar`` action has ``tags``, which other readers pass over.  Ours say how many files
the sidecar holds and what these come to, so that a checkpoint that names it again knows its totals unread; by which
columns it was written; and, where all its paths are plain ones below the table, between which two they lie.
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
#: A longer path is not a bound: tags are read by every reader of the checkpoint.
_LONGEST = 512
#: A sidecar of less than this share of the most that one holds is never left as it is.
_SMALLEST = 16


def layout_of(columns: pa.StructType) -> str:
    """A string that differs where the ``add`` actions of two sidecars have other columns.

    It covers what decides about their content: the form of the statistics, and the columns, by physical name and type,
    that typed ones have.
    """
    return hashlib.md5(f"1 {columns}".encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Sidecar:
    """A sidecar of ``add`` actions alone, whose tags say what its files come to."""

    path: str
    size: int
    modified_ms: int
    files: FileTotals
    layout: str
    #: Between which decoded paths all of them lie; ``None`` where no one knows.
    bounds: tuple[str, str] | None

    @property
    def action(self) -> dict[str, Any]:
        """The ``sidecar`` action."""
        tags = {LAYOUT: self.layout} | {tag: str(getattr(self.files, name)) for name, tag in _TOTALS.items()}
        if self.bounds is not None:
            tags |= {LOW: self.bounds[0], HIGH: self.bounds[1]}
        return {"path": self.path, "sizeInBytes": self.size, "modificationTime": self.modified_ms, "tags": tags}

    @staticmethod
    def of(action: Mapping[str, Any], tags: Mapping[str, Any]) -> Sidecar | None:
        """The sidecar that an action of trilake describes; ``None`` for any other."""
        try:
            totals = FileTotals(**{name: int(tags[tag]) for name, tag in _TOTALS.items()})
            path, size, modified = str(action["path"]), int(action["sizeInBytes"]), int(action["modificationTime"])
            layout = str(tags[LAYOUT])
        except (KeyError, TypeError, ValueError):
            return None
        bounds = (str(tags[LOW]), str(tags[HIGH])) if LOW in tags and HIGH in tags else None
        return Sidecar(path, size, modified, totals, layout, bounds) if totals.num_files > 0 else None

    def may_hold(self, paths: Sequence[str]) -> bool:
        """Whether one of some decoded paths, which are sorted, may be that of one of its files."""
        if self.bounds is None or not paths:
            return bool(paths)
        low, high = self.bounds
        at = bisect_left(paths, low)
        return at < len(paths) and paths[at] <= high


@dataclass
class PathBounds:
    """The lowest and the highest decoded path of some files, as long as all are relative and short."""

    _bounds: tuple[str, str] | None = None
    _known: bool = field(default=True)

    def take(self, files: pa.Table) -> None:
        """Take file actions."""
        if not self._known or not files.num_rows:
            return
        paths = decoded_paths(files["path"])
        if any_absolute(paths):
            self._known = False
            return
        found = pc.min_max(paths).as_py()
        low, high = found["min"], found["max"]
        if self._bounds is not None:
            low, high = min(low, self._bounds[0]), max(high, self._bounds[1])
        self._bounds = (low, high)

    @property
    def bounds(self) -> tuple[str, str] | None:
        """Both, where they are known."""
        if not self._known or self._bounds is None or max(map(len, self._bounds)) > _LONGEST:
            return None
        return self._bounds


def folded(sizes: Iterable[int], fresh: int, most: int) -> set[int]:
    """The places of those sidecars, of so many files each, that are written again together with ``fresh`` files.

    Small ones go first, as long as one is at most twice as large as all that is written by then, or a small share of
    ``most``, the files of a full sidecar; one that is half full stays.  So the sizes of those that stay at least
    double, and a file is written again a few times until its sidecar is full.

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
