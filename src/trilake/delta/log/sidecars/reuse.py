"""Which sidecars of the newest checkpoint the next one reuses, and which ones it rewrites.

Protocol: *Sidecar Files*, *Metadata Cleanup*.  The cost of a v2 checkpoint depends on the commits since the last one::

    newest checkpoint, written by trilake --> sidecars with the current columns, described by tags
      --> a changed path within a sidecar's bounds?  read its paths; rewrite it if it lost a file
      --> merge small ones with the new files
      --> reuse the others; tombstones have a sidecar of their own, rewritten each time

No file is listed twice: the writer of the older checkpoint checked it, and new paths are compared with each other and
with those in every sidecar that may hold them.

**A reused sidecar is old**, so log cleanup keeps it only while a checkpoint names it.  The older checkpoint must
outlast the writing of the new one: the commit after it must be a day younger than the log's retention.
:func:`base_outlasts` checks that before and after files are written; :func:`is_there` checks once the new checkpoint
exists that the older one still does.  When in doubt, all sidecars are rewritten.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.engine import Jobs
from trilake.delta.log.checkpoint import ADDS_TAG, KEY_FIELDS, Share, checkpoint_actions, compare, tags_of
from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.commit_times import in_commit_timestamps_from
from trilake.delta.log.log import DeltaLog, MaybeTwiceError
from trilake.delta.log.segment import SIDECARS, commit_key
from trilake.delta.log.snapshot import (
    NewerFiles,
    PendingSnapshot,
    any_absolute,
    any_twice,
    decoded_paths,
    hashes,
    one_spelling,
)
from trilake.errors import InvalidArgumentError, ObjectNotFoundError
from trilake.expr.terms.engine import Query
from trilake.storage.base import Store

_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Reuse:
    """The sidecars that a checkpoint reuses; ``expected`` is the approximate number of files it writes."""

    log: DeltaLog
    version: PendingSnapshot
    kept: tuple[Sidecar, ...]
    rewritten: tuple[Share, ...]
    expected: int
    rare: Sequence[tuple[str, Any]]

    def pieces(self, unexpired: Callable[[pa.Table], pa.Table]) -> Iterator[tuple[str, pa.Table]]:
        """Yield the unexpired file actions to write, tombstones last; may raise ``MaybeTwiceError`` after the last."""
        log, version = self.log, self.version
        totals = sum((s.files for s in self.kept), FileTotals())
        new_paths = one_spelling(version.newer.adds, version.uri)
        for sidecar in self.rewritten:
            for piece in sidecar.pieces(log.store, log.engine.query):
                totals += FileTotals.of(piece)
                remaining = version.newer_files.without_newer(piece)
                if again(remaining, new_paths, version.uri) is not None:
                    raise MaybeTwiceError
                yield "add", remaining
        compare(log.store, version.segment, totals.num_files, totals.size_in_bytes, self.rare)
        if any_twice(hashes(new_paths, log.engine.query)):
            raise MaybeTwiceError
        yield "add", version.newer.adds
        for sidecar in self.rewritten:
            for piece in sidecar.pieces(log.store, log.engine.query, "remove"):
                yield "remove", unexpired(version.newer_files.without_newer(piece))
        yield "remove", unexpired(version.newer.removes)

    def outlasts(self, now_ms: int) -> bool:
        """Whether no cleanup deletes the older checkpoint within a day."""
        return base_outlasts(self.log, self.version, now_ms)


def reusable(
    log: DeltaLog, version: PendingSnapshot, layout: str, most: int, now_ms: int, jobs: Jobs | None = None
) -> Reuse | None:
    """Choose the sidecars of the older checkpoint to reuse; ``None`` if there are none.

    Sidecars with another ``layout`` are rewritten; ``most`` is the number of files of a full one.  ``jobs`` run the
    reading of file keys as tasks.  Raises ``CorruptLogError``.
    """
    segment, store = version.segment, log.store
    if not segment.commits:
        return None
    rare = checkpoint_actions(store, segment)
    sidecars = [d for n, d in rare if n == "sidecar"]
    if not sidecars or not is_ours(rare) or not base_outlasts(log, version, now_ms):
        return None
    described = [Sidecar.of(d, tags_of(d)) for d in sidecars]
    sizes = {m.key.rpartition("/")[2]: m.size for m in store.list(SIDECARS)}
    paths = _changed_paths(version)
    alike = [s for s in described if s is not None and s.layout == layout and sizes.get(s.path) == s.size]
    to_rewrite = _changed(store, version, [s for s in alike if s.may_hold(paths)], jobs)
    stay = [s for s in alike if s.path not in to_rewrite]
    together = folded([s.files.num_files for s in stay], version.newer.adds.num_rows, most)
    stay = [s for place, s in enumerate(stay) if place not in together]
    if not stay:
        return None
    stay_paths = {s.path for s in stay}
    rewritten = [(d, s) for d, s in zip(sidecars, described, strict=True) if s is None or s.path not in stay_paths]
    files = sum(0 if s is None else s.files.num_files for _, s in rewritten)
    expected = files + version.actions.add.num_rows + version.actions.remove.num_rows
    assert segment.checkpoint_version is not None
    at = segment.checkpoint_version
    shares = tuple(Share.of_sidecar(d, at, None if s is None else s.files.num_files) for d, s in rewritten)
    return Reuse(log, version, tuple(stay), shares, expected, rare)


def is_ours(rare: Sequence[tuple[str, Any]]) -> bool:
    """Whether trilake, which checks for duplicate files, wrote the checkpoint with these actions."""
    return any(ADDS_TAG in tags_of(d) for n, d in rare if n == "checkpointMetadata")


def _changed_paths(version: PendingSnapshot) -> list[str]:
    actions = [version.actions.add, version.actions.remove]
    paths = [t for a in actions for t in (decoded_paths(a["path"]), one_spelling(a, version.uri))]
    return sorted(pc.unique(pa.chunked_array([c for t in paths for c in t.chunks], pa.string())).to_pylist())


def _changed(store: Store, version: PendingSnapshot, sidecars: Sequence[Sidecar], jobs: Jobs | None) -> set[str]:
    """The sidecars with a file that a later commit removes or changes."""
    assert version.segment.checkpoint_version is not None
    new_paths = one_spelling(version.newer.adds, version.uri)
    shares = [Share.of_sidecar(s.action, version.segment.checkpoint_version) for s in sidecars]
    changes = _Changes(store, version.engine.query, version.newer_files, new_paths, version.uri)
    results = map(changes, shares) if jobs is None or not shares else jobs.run(changes, shares)
    return {key.rpartition("/")[2] for key in results if key is not None}


@dataclass(frozen=True)
class _Changes:
    """Yields the key of a sidecar if the commits since the checkpoint change one of its files."""

    store: Store
    query: Query
    newer: NewerFiles
    added: pa.ChunkedArray
    uri: str

    def __call__(self, sidecar: Share) -> str | None:
        for piece in sidecar.pieces(self.store, self.query, only=KEY_FIELDS):
            remaining = self.newer.without_newer(piece)
            if remaining.num_rows < piece.num_rows:
                return sidecar.key  # duplicates are detected when it is rewritten
            if again(remaining, self.added, self.uri) is not None:
                return sidecar.key
        return None


def again(files: pa.Table, added: pa.ChunkedArray, uri: str) -> str | None:
    """The path of a remaining file that was also added later."""
    if not len(added):
        return None
    paths = one_spelling(files, uri)
    twice = paths.filter(pc.is_in(paths, pc.unique(added)))
    return str(twice[0]) if len(twice) else None


def base_outlasts(log: DeltaLog, version: PendingSnapshot, now_ms: int) -> bool:
    """Whether log cleanup keeps the checkpoint that a version is replayed from for at least another day."""
    segment, base = version.segment, version.segment.checkpoint_version
    if base is None or not segment.commits:
        return False
    try:
        retention = version.properties.duration_ms("delta.logRetentionDuration")
        # The file time of a compaction differs from that of the commit, and file times may go back.
        times = [log.store.head(commit_key(base + 1)).modified_ms]
        since = in_commit_timestamps_from(version.metadata)
        if since is not None and since <= base + 1:
            commit_time = log.commit_info(base + 1).get("inCommitTimestamp")
            times.append(commit_time if isinstance(commit_time, int) else 0)
    except (InvalidArgumentError, ObjectNotFoundError):
        return False
    # A slow clock must not make everything look young.
    now = max(now_ms, *(f.modified_ms for _, _, f in segment.commits))
    return min(times) - _DAY_MS > now - retention


def is_there(log: DeltaLog, version: PendingSnapshot) -> bool:
    """Whether the checkpoint that a version is replayed from still exists."""
    return all(log.store.find(file.key) is not None for file in version.segment.checkpoint_files)


# --- The tags of sidecars, and which sidecars are merged --------------------------------------------------------------
# Protocol: *Sidecar Files*.  trilake's `tags`, which other readers ignore, state a sidecar's columns, the bounds of its
# paths, and the number and totals of its files, so that a later checkpoint need not read the sidecar.

#: Tags of a ``sidecar`` action: its columns, its lowest and highest path, and the totals of its files.
LAYOUT, LOW, HIGH = "trilake.layout", "trilake.lowestPath", "trilake.highestPath"
_TOTALS = {f.name: f"trilake.{f.name}" for f in fields(FileTotals)}
#: A longer path is not stored as a bound, since every reader of the checkpoint reads the tags.
_LONGEST = 512
#: A sidecar below this share of a full one is always merged.
_SMALLEST = 16


def layout_of(columns: pa.StructType) -> str:
    """A string that identifies the columns of a sidecar's ``add`` actions, with their physical names and types."""
    return hashlib.md5(f"1 {columns}".encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Sidecar:
    """A sidecar with only ``add`` actions, whose tags state the totals of its files."""

    path: str
    size: int
    modified_ms: int
    files: FileTotals
    layout: str
    #: The bounds of their decoded paths; ``None`` if unknown.
    bounds: tuple[str, str] | None

    @property
    def action(self) -> dict[str, Any]:
        tags = {LAYOUT: self.layout} | {tag: str(getattr(self.files, name)) for name, tag in _TOTALS.items()}
        if self.bounds is not None:
            tags |= {LOW: self.bounds[0], HIGH: self.bounds[1]}
        return {"path": self.path, "sizeInBytes": self.size, "modificationTime": self.modified_ms, "tags": tags}

    @staticmethod
    def of(action: Mapping[str, Any], tags: Mapping[str, Any]) -> Sidecar | None:
        """The sidecar that an action names; ``None`` unless it has trilake's tags."""
        try:
            totals = FileTotals(**{name: int(tags[tag]) for name, tag in _TOTALS.items()})
            path, size, modified = str(action["path"]), int(action["sizeInBytes"]), int(action["modificationTime"])
            layout = str(tags[LAYOUT])
        except (KeyError, TypeError, ValueError):
            return None
        bounds = (str(tags[LOW]), str(tags[HIGH])) if LOW in tags and HIGH in tags else None
        return Sidecar(path, size, modified, totals, layout, bounds) if totals.num_files > 0 else None

    def may_hold(self, paths: Sequence[str]) -> bool:
        """Whether one of these sorted decoded paths may be in this sidecar."""
        if self.bounds is None or not paths:
            return bool(paths)
        low, high = self.bounds
        at = bisect_left(paths, low)
        return at < len(paths) and paths[at] <= high


@dataclass
class PathBounds:
    """The lowest and highest decoded path of some files, if all are relative and short."""

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
    """The indexes of the sidecars to merge with ``fresh`` new files; ``sizes`` are their numbers of files.

    Takes small ones first, while one is at most twice as large as the total so far, or a small share of ``most``, the
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
