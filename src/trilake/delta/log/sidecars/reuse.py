"""Which sidecars of the newest checkpoint the next one reuses, and which it rewrites.

Protocol: *Sidecar Files*, *Metadata Cleanup*.  The cost of a v2 checkpoint depends on the commits since the last one::

    newest checkpoint, written by trilake --> sidecars with the current columns, described by tags
      --> a changed path within a sidecar's bounds?  read its paths; rewrite it if it lost a file
      --> merge small ones with the new files
      --> name the others again; tombstones have a sidecar of their own, rewritten each time

No file is listed twice: the older checkpoint was checked by its writer, and new paths are compared with each other and
with those of every sidecar that may hold them.

**A reused sidecar is old**, so log cleanup keeps it only while a checkpoint names it.  The older checkpoint must
outlast the writing of the new one: the commit after it must be a day younger than the log's retention.
:func:`base_outlasts` checks that before and after files are written, and :func:`is_there` once the new checkpoint
exists.  In doubt everything is rewritten.
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
        """Yield the file actions to write, tombstones last, without those that ``unexpired`` drops.

        Raises ``MaybeTwiceError`` after the last file, where one may be in the version twice, and
        ``CorruptLogError``.
        """
        log, version = self.log, self.version
        totals = sum((s.files for s in self.kept), FileTotals())
        added = one_spelling(version.newer.adds, version.uri)
        for sidecar in self.rewritten:
            for piece in sidecar.pieces(log.store, log.engine.query):
                totals += FileTotals.of(piece)
                remaining = version.touched.left_of(piece)
                if again(remaining, added, version.uri) is not None:
                    raise MaybeTwiceError
                yield "add", remaining
        compare(log.store, version.segment, totals.num_files, totals.size_in_bytes, self.rare)
        if any_twice(hashes(added, log.engine.query)):
            raise MaybeTwiceError
        yield "add", version.newer.adds
        for sidecar in self.rewritten:
            for piece in sidecar.pieces(log.store, log.engine.query, "remove"):
                yield "remove", unexpired(version.touched.left_of(piece))
        yield "remove", unexpired(version.newer.removes)

    def outlasts(self, now_ms: int) -> bool:
        """Whether no cleanup deletes the older checkpoint within a day."""
        return base_outlasts(self.log, self.version, now_ms)


def reusable(
    log: DeltaLog, version: PendingSnapshot, layout: str, most: int, now_ms: int, jobs: Jobs | None = None
) -> Reuse | None:
    """Choose the sidecars of the older checkpoint to reuse; ``None`` where there are none.

    Parameters
    ----------
    log, version: what to checkpoint.
    layout: of current sidecars; those with another one are rewritten.
    most: files of a full sidecar.
    now_ms: the writer's clock.
    jobs: runs the reading of file keys as tasks; ``None`` for this process.

    Raises ``CorruptLogError``.
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
    rewritten = [(d, s) for d, s in zip(sidecars, described, strict=True) if s is None or s.path not in kept]
    files = sum(0 if s is None else s.files.num_files for _, s in rewritten)
    expected = files + version.actions.add.num_rows + version.actions.remove.num_rows
    assert segment.checkpoint_version is not None
    at = segment.checkpoint_version
    shares = tuple(Share.of_sidecar(d, at, None if s is None else s.files.num_files) for d, s in rewritten)
    return Reuse(log, version, tuple(stay), shares, expected, rare)


def is_ours(rare: Sequence[tuple[str, Any]]) -> bool:
    """Whether trilake, whose writer checks for duplicate files, wrote a checkpoint with these actions."""
    return any(ADDS_TAG in tags_of(d) for n, d in rare if n == "checkpointMetadata")


def _changed_paths(version: PendingSnapshot) -> list[str]:
    """The decoded, sorted paths of all files in the commits since the older checkpoint."""
    actions = [version.actions.add, version.actions.remove]
    texts = [t for a in actions for t in (decoded_paths(a["path"]), one_spelling(a, version.uri))]
    return sorted(pc.unique(pa.chunked_array([c for t in texts for c in t.chunks], pa.string())).to_pylist())


def _changed(store: Store, version: PendingSnapshot, sidecars: Sequence[Sidecar], jobs: Jobs | None) -> set[str]:
    """The sidecars with a file that a later commit removes or changes."""
    assert version.segment.checkpoint_version is not None
    added = one_spelling(version.newer.adds, version.uri)
    shares = [Share.of_sidecar(s.action, version.segment.checkpoint_version) for s in sidecars]
    changes = _Changes(store, version.engine.query, version.touched, added, version.uri)
    changed = map(changes, shares) if jobs is None or not shares else jobs.run(changes, shares)
    return {key.rpartition("/")[2] for key in changed if key is not None}


@dataclass(frozen=True)
class _Changes:
    """Yields the key of a sidecar if the commits since the checkpoint change one of its files."""

    store: Store
    query: Query
    touched: Touched
    added: pa.ChunkedArray
    uri: str

    def __call__(self, sidecar: Share) -> str | None:
        for piece in sidecar.pieces(self.store, self.query, only=KEY_FIELDS):
            remaining = self.touched.left_of(piece)
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
    """Whether the checkpoint that a version is replayed from stays for another day despite log cleanup."""
    segment, base = version.segment, version.segment.checkpoint_version
    if base is None or not segment.commits:
        return False
    try:
        retention = version.properties.duration_ms("delta.logRetentionDuration")
        # The file time of a compaction differs from that of the commit, and file times may go back.
        times = [log.store.head(commit_key(base + 1)).modified_ms]
        since = in_commit_timestamps_from(version.metadata)
        if since is not None and since <= base + 1:
            stated = log.commit_info(base + 1).get("inCommitTimestamp")
            times.append(stated if isinstance(stated, int) else 0)
    except (InvalidArgumentError, ObjectNotFoundError):
        return False
    # A clock that is behind must not make everything look young.
    now = max(now_ms, *(f.modified_ms for _, _, f in segment.commits))
    return min(times) - _DAY_MS > now - retention


def is_there(log: DeltaLog, version: PendingSnapshot) -> bool:
    """Whether the checkpoint that a version is replayed from still exists."""
    try:
        for file in version.segment.checkpoint_files:
            log.store.head(file.key)
    except ObjectNotFoundError:
        return False
    return True
