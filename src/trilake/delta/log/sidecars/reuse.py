"""Which sidecars of the newest checkpoint the next one names again, and which files it writes again.

Protocol: *Sidecar Files*, *Metadata Cleanup*.  A checkpoint of version 2 of a large table costs what the commits since
the one before cost::

    newest checkpoint, of trilake --> sidecars of today's columns, whose tags say what they hold
      --> a changed path between a sidecar's bounds?  its paths are read: one that lost a file is written again
      --> small ones are folded together with what is new
      --> the others are named again; tombstones have a sidecar of their own, which is written each time

No file is there twice: none was in the older checkpoint, whose writer has looked, what is new is compared with itself,
and its paths with those of every sidecar that may hold them.

**A sidecar that stays is old**, so log cleanup does not spare it as it spares those of a checkpoint that is being
written; it spares what a checkpoint names.  The older checkpoint must therefore outlast the writing of the new one.
It does where the commit after it is younger, by a day, than the retention of the log: no cleanup by that retention may
take the checkpoint which that commit needs.  :func:`base_outlasts` says so before and after files are written, and the
writer looks once more when the new checkpoint is there (:func:`is_there`).  In doubt everything is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.engine import Jobs
from trilake.delta.log.checkpoint import ADDS_TAG, KEY_FIELDS, Share, checkpoint_actions, compare, tags_of
from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.commit_times import in_commit_timestamps_from
from trilake.delta.log.live_files import MaybeTwiceError
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import Touched, any_twice, decoded_paths, hashes, one_spelling
from trilake.delta.log.segment import SIDECARS, commit_key
from trilake.delta.log.sidecars.sidecar import Sidecar, folded
from trilake.delta.log.snapshot import PendingSnapshot
from trilake.errors import InvalidArgumentError, ObjectNotFoundError
from trilake.storage.base import Store

_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Reuse:
    """The sidecars that a checkpoint names again; ``expected`` is about how many files it writes."""

    log: DeltaLog
    version: PendingSnapshot
    kept: tuple[Sidecar, ...]
    rewritten: tuple[Share, ...]
    expected: int
    rare: Sequence[tuple[str, Any]]

    def pieces(self, unexpired: Callable[[pa.Table], pa.Table]) -> Iterator[tuple[str, pa.Table]]:
        """The file actions that are written, tombstones last, of which ``unexpired`` leaves those that stay.

        Raises ``MaybeTwiceError`` after the last file, where one may be in the version twice, and ``CorruptLogError``.
        """
        log, version = self.log, self.version
        known = sum((s.files for s in self.kept), FileTotals())
        added = one_spelling(version.newer.adds, version.uri)
        for sidecar in self.rewritten:
            for piece in sidecar.pieces(log.store):
                known += FileTotals.of(piece)
                left = version.touched.left_of(piece)
                if again(left, added, version.uri) is not None:
                    raise MaybeTwiceError
                yield "add", left
        compare(log.store, version.segment, known.num_files, known.size_in_bytes, self.rare)
        if any_twice(hashes(added, log.engine.query)):
            raise MaybeTwiceError
        yield "add", version.newer.adds
        for sidecar in self.rewritten:
            for piece in sidecar.pieces(log.store, "remove"):
                yield "remove", unexpired(version.touched.left_of(piece))
        yield "remove", unexpired(version.newer.removes)

    def outlasts(self, now_ms: int) -> bool:
        """Whether no cleanup takes the older checkpoint within a day."""
        return base_outlasts(self.log, self.version, now_ms)


def reusable(
    log: DeltaLog, version: PendingSnapshot, layout: str, most: int, now_ms: int, jobs: Jobs | None = None
) -> Reuse | None:
    """The sidecars of the older checkpoint that the version's checkpoint can name again; ``None`` where there are none.

    Parameters
    ----------
    log, version: what the checkpoint is of.
    layout: of the sidecars that are written today; others do not stay.
    most: files of a full sidecar.
    now_ms: the writer's clock.
    jobs: who reads the keys of files, where that is not this process.

    Raises ``CorruptLogError``.
    """
    segment, store = version.segment, log.store
    if not segment.commits:
        return None
    rare = checkpoint_actions(store, segment)
    named = [d for n, d in rare if n == "sidecar"]
    if not named or not is_ours(rare) or not base_outlasts(log, version, now_ms):
        return None
    described = [Sidecar.of(d, tags_of(d)) for d in named]
    sizes = {m.key.rpartition("/")[2]: m.size for m in store.list(SIDECARS)}
    paths = _changed_paths(version)
    alike: list[Sidecar] = []
    for sidecar in described:
        if sidecar is None or sidecar.layout != layout or sizes.get(sidecar.path) != sidecar.size:
            continue
        alike.append(sidecar)
    changed = _changed(store, version, [s for s in alike if s.may_hold(paths)], jobs)
    stay = [s for s in alike if s.path not in changed]
    together = folded([s.files.num_files for s in stay], version.newer.adds.num_rows, most)
    stay = [s for place, s in enumerate(stay) if place not in together]
    if not stay:
        return None
    kept = {s.path for s in stay}
    anew = [(d, s) for d, s in zip(named, described, strict=True) if s is None or s.path not in kept]
    files = sum(0 if s is None else s.files.num_files for _, s in anew)
    expected = files + version.actions.add.num_rows + version.actions.remove.num_rows
    assert segment.checkpoint_version is not None
    at = segment.checkpoint_version
    shares = tuple(Share.of_sidecar(d, at, None if s is None else s.files.num_files) for d, s in anew)
    return Reuse(log, version, tuple(stay), shares, expected, rare)


def is_ours(rare: Sequence[tuple[str, Any]]) -> bool:
    """Whether a checkpoint with these actions is of this library, whose writer has looked for files that are there
    twice."""
    return any(ADDS_TAG in tags_of(d) for n, d in rare if n == "checkpointMetadata")


def _changed_paths(version: PendingSnapshot) -> list[str]:
    """The decoded paths of all files that the commits since the older checkpoint name, in every spelling, sorted."""
    actions = [version.actions.add, version.actions.remove]
    texts = [t for a in actions for t in (decoded_paths(a["path"]), one_spelling(a, version.uri))]
    return sorted(pc.unique(pa.chunked_array([c for t in texts for c in t.chunks], pa.string())).to_pylist())


def _changed(store: Store, version: PendingSnapshot, sidecars: Sequence[Sidecar], jobs: Jobs | None) -> set[str]:
    """Those of some sidecars that a later commit removes a file of, or says something else of one."""
    assert version.segment.checkpoint_version is not None
    added = one_spelling(version.newer.adds, version.uri)
    shares = [Share.of_sidecar(s.action, version.segment.checkpoint_version) for s in sidecars]
    changes = _Changes(store, version.touched, added, version.uri)
    found = map(changes, shares) if jobs is None or not shares else jobs.run(changes, shares)
    return {key.rpartition("/")[2] for key in found if key is not None}


@dataclass(frozen=True)
class _Changes:
    """Gives the key of a sidecar that has a file which the commits since the checkpoint change."""

    store: Store
    touched: Touched
    added: pa.ChunkedArray
    uri: str

    def __call__(self, sidecar: Share) -> str | None:
        for piece in sidecar.pieces(self.store, only=KEY_FIELDS):
            left = self.touched.left_of(piece)
            if left.num_rows < piece.num_rows:
                return sidecar.key  # whether one is there twice is seen when it is written again
            if again(left, self.added, self.uri) is not None:
                return sidecar.key
        return None


def again(files: pa.Table, added: pa.ChunkedArray, uri: str) -> str | None:
    """The path of a file that stays beside one of its path that was added later."""
    if not len(added):
        return None
    paths = one_spelling(files, uri)
    twice = paths.filter(pc.is_in(paths, pc.unique(added)))
    return str(twice[0]) if len(twice) else None


def base_outlasts(log: DeltaLog, version: PendingSnapshot, now_ms: int) -> bool:
    """Whether the checkpoint that a version is replayed from stays for another day, whoever cleans the log up."""
    segment, base = version.segment, version.segment.checkpoint_version
    if base is None or not segment.commits:
        return False
    try:
        retention = version.properties.duration_ms("delta.logRetentionDuration")
        # A compaction file that stands for the commit has another time, and those of stores go back.
        times = [log.store.head(commit_key(base + 1)).modified_ms]
        since = in_commit_timestamps_from(version.metadata)
        if since is not None and since <= base + 1:
            stated = log.commit_info(base + 1).get("inCommitTimestamp")
            times.append(stated if isinstance(stated, int) else 0)
    except (InvalidArgumentError, ObjectNotFoundError):
        return False
    # A clock that is behind must not make everything young.
    now = max(now_ms, *(f.modified_ms for _, _, f in segment.commits))
    return min(times) - _DAY_MS > now - retention


def is_there(log: DeltaLog, version: PendingSnapshot) -> bool:
    """Whether the checkpoint that a version is replayed from has not gone in the meantime."""
    try:
        for file in version.segment.checkpoint_files:
            log.store.head(file.key)
    except ObjectNotFoundError:
        return False
    return True
