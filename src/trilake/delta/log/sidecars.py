"""Sidecars of v2 checkpoints: which ones the next checkpoint reuses, and how the others are written.

Protocol: *Sidecar Files*, *Metadata Cleanup*.  The cost of a v2 checkpoint depends on the commits since the last one::

    newest checkpoint, written by trilake --> sidecars with the current columns, described by tags
      --> a changed path within a sidecar's bounds?  read its paths; rewrite it if it lost a file
      --> merge small ones with the new files
      --> reuse the others; tombstones have a separate sidecar, rewritten each time

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
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.runtime import Runtime
from trilake.delta.engine import Jobs
from trilake.delta.log.checkpoint import (
    ADDS_TAG,
    FILE_BYTES,
    KEY_FIELDS,
    Share,
    checkpoint_actions,
    compare,
    shares,
    tags_of,
)
from trilake.delta.log.checkpoint_parts import CheckpointFile, FileColumns, expiry_ms, file_schema, unexpired
from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import SIDECARS, commit_key
from trilake.delta.log.snapshot import (
    NewerFiles,
    PendingSnapshot,
    any_absolute,
    decoded_paths,
    one_spelling,
    reject_twice,
    twice_error,
)
from trilake.delta.protocol.table_features.in_commit_timestamp import in_commit_timestamps_from
from trilake.errors import InvalidArgumentError, ObjectNotFoundError, TrilakeError
from trilake.expr.terms.engine import Query
from trilake.storage.base import Store

_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Since:
    """What the commits since the older checkpoint change; any process can apply it to a share of that checkpoint.

    ``added`` are the paths of the files that they add.
    """

    store: Store
    query: Query
    newer: NewerFiles
    added: pa.ChunkedArray
    uri: str

    @staticmethod
    def of(store: Store, version: PendingSnapshot) -> Since:
        added = one_spelling(version.newer.adds, version.uri)
        return Since(store, version.engine.query, version.newer_files, added, version.uri)

    def again(self, files: pa.Table) -> str | None:
        """The path of a remaining file that was also added later."""
        if not len(self.added):
            return None
        paths = one_spelling(files, self.uri)
        twice = paths.filter(pc.is_in(paths, pc.unique(self.added)))
        return str(twice[0]) if len(twice) else None

    def changed(self, sidecar: Share) -> str | None:
        """The key of a sidecar if the commits change one of its files."""
        for piece in sidecar.pieces(self.store, self.query, only=KEY_FIELDS):
            remaining = self.newer.without_newer(piece)
            if remaining.num_rows < piece.num_rows or self.again(remaining) is not None:
                return sidecar.key  # duplicates are detected when it is rewritten
        return None

    def staying_paths(self, share: Share) -> Iterator[pa.ChunkedArray]:
        """The paths in a share that the commits do not touch."""
        for piece in share.pieces(self.store, self.query, only=KEY_FIELDS):
            yield one_spelling(self.newer.without_newer(piece), self.uri)


@dataclass(frozen=True)
class Reuse:
    """The sidecars that a checkpoint reuses, and those that it rewrites."""

    kept: tuple[Sidecar, ...]
    rewritten: tuple[Share, ...]
    rare: Sequence[tuple[str, Any]]


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
    assert segment.checkpoint_version is not None
    at = segment.checkpoint_version
    described = [Sidecar.of(d, tags_of(d)) for d in sidecars]
    sizes = {m.key.rpartition("/")[2]: m.size for m in store.list(SIDECARS)}
    paths = _changed_paths(version)
    alike = [s for s in described if s is not None and s.layout == layout and sizes.get(s.path) == s.size]
    doubtful = [Share.of_sidecar(s.action, at) for s in alike if s.may_hold(paths)]
    changed = _run(jobs, Since.of(store, version).changed, doubtful)
    to_rewrite = {key.rpartition("/")[2] for key in changed if key is not None}
    stay = [s for s in alike if s.path not in to_rewrite]
    together = folded([s.files.num_files for s in stay], version.newer.adds.num_rows, most)
    stay = [s for number, s in enumerate(stay) if number not in together]
    if not stay:
        return None
    stay_paths = {s.path for s in stay}
    rewritten = [(d, s) for d, s in zip(sidecars, described, strict=True) if s is None or s.path not in stay_paths]
    shares = tuple(Share.of_sidecar(d, at, None if s is None else s.files.num_files) for d, s in rewritten)
    return Reuse(tuple(stay), shares, rare)


def _run(jobs: Jobs | None, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
    """Call a function for each task, in this process without ``jobs``."""
    return map(function, tasks) if jobs is None or not tasks else jobs.run(function, tasks)


def is_ours(rare: Sequence[tuple[str, Any]]) -> bool:
    """Whether trilake, which checks for duplicate files, wrote the checkpoint with these actions."""
    return any(ADDS_TAG in tags_of(d) for n, d in rare if n == "checkpointMetadata")


def _changed_paths(version: PendingSnapshot) -> list[str]:
    actions = [version.actions.add, version.actions.remove]
    paths = [t for a in actions for t in (decoded_paths(a["path"]), one_spelling(a, version.uri))]
    return sorted(pc.unique(pa.chunked_array([c for t in paths for c in t.chunks], pa.string())).to_pylist())


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


def _path_range(files: pa.Table) -> tuple[str, str] | None:
    """The lowest and highest decoded path of some files; ``None`` if one is absolute."""
    paths = decoded_paths(files["path"])
    ends = pc.min_max(paths).as_py()
    return None if any_absolute(paths) else (ends["min"], ends["max"])


def _joined_ranges(ranges: Sequence[tuple[str, str] | None]) -> tuple[str, str] | None:
    """The bounds of all paths; ``None`` if they are unknown or too long."""
    known = [r for r in ranges if r is not None]
    if not known or len(known) < len(ranges):
        return None
    bounds = min(low for low, _ in known), max(high for _, high in known)
    return bounds if max(map(len, bounds)) <= _LONGEST else None


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
    for number, size in sorted(enumerate(sizes), key=lambda s: s[1]):
        if 2 * size > most or (size > 2 * total and size * _SMALLEST > most):
            break
        out.add(number)
        total += size
    return out if fresh or len(out) > 1 else set()


# --- Write sidecars: one after another in this process, or in Spark tasks ---------------------------------------------


def unique(runtime: Runtime) -> str:
    """A UUID for the name of a checkpoint file."""
    return str(UUID(runtime.new_id()))


@dataclass(frozen=True)
class Written:
    """Finished sidecars: their ``sidecar`` actions, the totals of their files, and the number of actions."""

    actions: tuple[dict[str, Any], ...] = ()
    totals: FileTotals = field(default_factory=FileTotals)
    rows: int = 0

    def __add__(self, other: Written) -> Written:
        return Written((*self.actions, *other.actions), self.totals + other.totals, self.rows + other.rows)

    @property
    def size(self) -> int:
        return sum(int(a["sizeInBytes"]) for a in self.actions)

    @property
    def newest_ms(self) -> int:
        """When the last one was finished, by the store's clock."""
        return max((int(a["modificationTime"]) for a in self.actions), default=0)

    def discard(self, store: Store) -> None:
        """Delete the sidecars; call this only before a checkpoint names them."""
        with suppress(TrilakeError):  # nothing reads what stays
            store.delete([f"{SIDECARS}/{a['path']}" for a in self.actions])


class SidecarWriter:
    """Writes about ``expected`` file actions to sidecars of at most ``most`` actions.

    In a small table, tombstones are ``mixed`` with files; later checkpoints cannot reuse such a sidecar.
    """

    def __init__(
        self, store: Store, runtime: Runtime, columns: FileColumns, *, most: int, expected: int, mixed: bool
    ) -> None:
        self.store, self.runtime, self.columns = store, runtime, columns
        self.most, self.expected, self.mixed = most, expected, mixed
        self.written = Written()
        self._schema, self._layout = file_schema(columns, (), files_only=True), layout_of(columns.type)
        self._file: CheckpointFile | None = None
        self._kind, self._held, self._files = "add", 0, FileTotals()
        self._ranges: list[tuple[str, str] | None] = []

    def write(self, pieces: Iterator[tuple[str, pa.Table]]) -> Written:
        """Write file actions; ``add`` actions come before ``remove`` actions."""
        try:
            for kind, piece in pieces:
                self._take(kind, piece)
            self._end()
        except BaseException as e:
            if self._file is not None:
                self._file.__exit__(type(e), e, None)
                self._file = None
            self.written.discard(self.store)
            raise
        return self.written

    def _take(self, kind: str, piece: pa.Table) -> None:
        if kind != self._kind:
            if not self.mixed:
                self._end()
            self._kind = kind
        start = 0
        while start < piece.num_rows:
            file = self._open()
            part = piece.slice(start, self.most - self._held)
            start += part.num_rows
            self._held += part.num_rows
            file.take(kind, part)
            if kind == "add":
                self._files += FileTotals.of(part)
                self._ranges.append(_path_range(part))
            if self._held == self.most:
                self._end()

    def _open(self) -> CheckpointFile:
        if self._file is None:
            key = f"{SIDECARS}/{unique(self.runtime)}.parquet"
            expected = min(self.most, max(1, self.expected))
            self._file = CheckpointFile(self.store, key, self.columns, self._schema, expected, keep_empty=False)
            self._file.__enter__()
            self._held = 0
        return self._file

    def _end(self) -> None:
        file = self._file
        if file is None:
            return
        self._file = None  # a file that fails to finish deletes itself
        file.__exit__(None, None, None)
        files, bounds = self._files, _joined_ranges(self._ranges)
        self._files, self._ranges = FileTotals(), []
        path, modified = file.key.rpartition("/")[2], self.store.head(file.key).modified_ms
        action: dict[str, Any] = {"path": path, "sizeInBytes": file.size, "modificationTime": modified}
        if files.num_files == file.rows and not self.mixed:
            action = Sidecar(path, file.size, modified, files, self._layout, bounds).action
        self.written += Written((action,), files, file.rows)


#: Above this many actions of later commits, this process writes them.
_SENT = 100_000


@dataclass(frozen=True)
class Part:
    """The input of one task: shares of the older checkpoint, and actions of later commits."""

    shares: tuple[Share, ...] = ()
    #: Approximate number of actions.
    expected: int = 0
    adds: pa.Table | None = None
    removes: pa.Table | None = None


@dataclass(frozen=True)
class PartWritten:
    """The sidecars of a part, the totals of the files read for it, and the path of a duplicate file."""

    written: Written
    read: FileTotals
    twice: str | None


@dataclass(frozen=True)
class PartWriter:
    """Writes the sidecars of a part, in any process."""

    since: Since
    runtime: Runtime
    columns: FileColumns
    most: int
    expiry_ms: int

    def __call__(self, part: Part) -> PartWritten:
        store, query, newer = self.since.store, self.since.query, self.since.newer
        read = FileTotals()
        twice: list[str] = []

        def pieces() -> Iterator[tuple[str, pa.Table]]:
            nonlocal read
            for share in part.shares:
                for piece in share.pieces(store, query):
                    read += FileTotals.of(piece)
                    remaining = newer.without_newer(piece)
                    if (path := self.since.again(remaining)) is not None:
                        twice.append(path)
                    yield "add", remaining
            if part.adds is not None:
                yield "add", part.adds
            for share in part.shares:
                for piece in share.pieces(store, query, "remove"):
                    yield "remove", unexpired(newer.without_newer(piece), self.expiry_ms)
            if part.removes is not None:
                yield "remove", unexpired(part.removes, self.expiry_ms)

        writer = SidecarWriter(store, self.runtime, self.columns, most=self.most, expected=part.expected, mixed=False)
        sidecar_files = writer.write(pieces())
        return PartWritten(sidecar_files, read, twice[0] if twice else None)


def write_sidecars(
    log: DeltaLog,
    version: PendingSnapshot,
    columns: FileColumns,
    jobs: Jobs | None,
    runtime: Runtime,
    *,
    most: int,
    reuse: Reuse | None,
) -> Written:
    """Write the sidecars of a version's checkpoint, except those that ``reuse`` keeps; ``jobs`` run the tasks.

    Raises ``CorruptLogError`` if the older checkpoint is damaged, differs from its totals, or lists a file twice.  If a
    task fails, deletes the sidecars of the tasks that have finished.
    """
    store, segment, since = log.store, version.segment, Since.of(log.store, version)
    rare = checkpoint_actions(store, segment) if reuse is None else reuse.rare
    older = shares(segment, rare, most * FILE_BYTES) if reuse is None else reuse.rewritten
    reject_twice(since.added, version.uri, version.version)
    if jobs is not None and not is_ours(rare):
        path = jobs.repeated(since.staying_paths, older)
        if path is not None:
            raise twice_error(path, version.uri, version.version)
    write = PartWriter(since, runtime, columns, most, expiry_ms(version, runtime.clock_ms()))
    adds, removes = version.newer.adds, version.newer.removes
    sent, local = parts(older, adds, removes, most)
    if jobs is None:  # one writer fills its sidecars best
        sent, local = [], [Part(tuple(older), sum(p.expected for p in (*sent, *local)), adds, removes)]
    results: list[PartWritten] = []
    try:
        results += _run(jobs, write, sent)
        results += map(write, local)
        path = next((p.twice for p in results if p.twice is not None), None)
        if path is not None:
            raise twice_error(path, version.uri, version.version)
        reused = () if reuse is None else reuse.kept
        totals = sum((p.read for p in results), sum((s.files for s in reused), FileTotals()))
        compare(store, segment, totals.num_files, totals.size_in_bytes, rare)
    except BaseException:
        sum((p.written for p in results), Written()).discard(store)
        raise
    return sum((p.written for p in results), Written())


def parts(older: Sequence[Share], adds: pa.Table, removes: pa.Table, most: int) -> tuple[list[Part], list[Part]]:
    """Split the work into parts for tasks and parts for this process, each of about one sidecar or one share."""
    sent: list[Part] = []
    for share in older:
        number = next((i for i, p in enumerate(sent) if p.expected + share.expected <= most), None)
        if number is None:
            sent.append(Part((share,), share.expected))
        else:
            part = sent[number]
            sent[number] = replace(part, shares=(*part.shares, share), expected=part.expected + share.expected)
    count = adds.num_rows + removes.num_rows
    fresh = Part((), count, adds, removes)
    if not count:
        return sent, []
    if count > _SENT:
        return sent, [fresh]
    least = min(range(len(sent)), key=lambda i: sent[i].expected, default=None)
    if least is None or sent[least].expected + count > most:
        return [*sent, fresh], []
    sent[least] = replace(fresh, shares=sent[least].shares, expected=sent[least].expected + count)
    return sent, []
