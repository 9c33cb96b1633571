"""Which files of ``_delta_log`` make up a version: their names, and a pure function that chooses them.

Protocol: *Delta Log Entries*, *Checkpoints*, *Log Compaction Files*.  This module reads no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

import numpy as np

from trilake.delta.log.last_checkpoint import CheckpointHint
from trilake.errors import LogGapError, TableNotFoundError, VersionNotFoundError
from trilake.storage.base import ObjectMeta

T = TypeVar("T")

LOG = "_delta_log"
SIDECARS = f"{LOG}/_sidecars"
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"
#: Checkpoints above these limits are read lazily, only as far as a filter needs.
LARGE_BYTES, LARGE_FILES = 32 << 20, 250_000
#: How often to list a log with a gap again.
_LISTINGS = 3

_COMMIT = re.compile(r"(\d{20})\.json")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_CLASSIC = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
# The protocol requires a UUID; delta-spark takes any string without a dot.
_UUID = re.compile(r"(\d{20})\.checkpoint\.[^./]+\.(?:json|parquet)")

_OWNED = re.compile(
    "|".join(
        p.pattern.replace(r"(\d{20})", "", 1) for p in (_COMMIT, _CHECKSUM, _COMPACTED, _CLASSIC, _PART, _UUID)
    ).join((r"(\d{20})(?:", r")\Z"))
)


def commit_key(version: int) -> str:
    """The key of a commit file below the table's root.

    >>> commit_key(3)
    '_delta_log/00000000000000000003.json'
    """
    return f"{LOG}/{version:020d}.json"


def checkpoint_key(version: int) -> str:
    """The key of a single-file checkpoint."""
    return f"{LOG}/{version:020d}.checkpoint.parquet"


def checkpoint_part_key(version: int, part: int, parts: int) -> str:
    """The key of part ``part``, from 1, of a checkpoint in ``parts`` files."""
    return f"{LOG}/{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet"


def v2_checkpoint_key(version: int, unique: str, extension: str) -> str:
    """The key of the top-level file of a v2 checkpoint; ``unique`` is a UUID, ``extension`` json or parquet."""
    return f"{LOG}/{version:020d}.checkpoint.{unique}.{extension}"


def checksum_key(version: int) -> str:
    """The key of the checksum file of a version."""
    return f"{LOG}/{version:020d}.crc"


def compacted_key(start: int, end: int) -> str:
    """The key of the log compaction file of the versions ``start`` to ``end``, both included."""
    return f"{LOG}/{start:020d}.{end:020d}.compacted.json"


def first_version(key: str) -> int | None:
    """The (first) version of a log file, also of an incomplete checkpoint; ``None`` for any other name.

    >>> first_version("_delta_log/00000000000000000003.00000000000000000007.compacted.json")
    3
    >>> first_version("_delta_log/_last_checkpoint")
    """
    folder, _, name = key.rpartition("/")
    match = _OWNED.match(name) if folder == LOG else None
    return int(match[1]) if match else None


def may_name_sidecars(key: str) -> bool:
    """Whether a log file is a checkpoint that can have sidecars; multi-part checkpoints cannot."""
    name = key.removeprefix(f"{LOG}/")
    return _CLASSIC.fullmatch(name) is not None or _UUID.fullmatch(name) is not None


@dataclass(frozen=True)
class LogListing:
    """The files of a log folder, sorted into kinds."""

    commits: dict[int, ObjectMeta]
    #: (first version, last version, file)
    compactions: tuple[tuple[int, int, ObjectMeta], ...]
    #: complete checkpoints: (version, files), ascending
    checkpoints: tuple[tuple[int, tuple[ObjectMeta, ...]], ...]
    #: version checksum files
    checksums: Mapping[int, ObjectMeta] = field(default_factory=dict)
    #: further complete checkpoints of the same versions
    others: tuple[tuple[int, tuple[ObjectMeta, ...]], ...] = ()

    @property
    def empty(self) -> bool:
        return not self.commits and not self.checkpoints

    @property
    def newest(self) -> int:
        """The newest version with a commit or checkpoint; -1 without one."""
        return max((*self.commits, *(v for v, _ in self.checkpoints)), default=-1)

    def holds(self, file: ObjectMeta) -> bool:
        """Whether a commit, compaction or checkpoint file of an earlier listing is in this one, unchanged."""
        version = first_version(file.key)
        commits = [self.commits[version]] if version in self.commits else []
        compactions = (f for first, _, f in self.compactions if first == version)
        checkpoints = (f for v, files in (*self.checkpoints, *self.others) if v == version for f in files)
        return any(f.key == file.key and same_file(f, file) for f in (*commits, *compactions, *checkpoints))

    def without(self, checkpoint: tuple[ObjectMeta, ...]) -> LogListing:
        """The listing without one checkpoint; another checkpoint of the same version, if any, takes its place."""
        keys = {f.key for f in checkpoint}
        remaining = [
            (v, files) for v, files in (*self.others, *self.checkpoints) if keys.isdisjoint(f.key for f in files)
        ]
        by_version = dict(remaining)  # the last one of a version is the one chosen before
        others = tuple(c for c in remaining if by_version[c[0]] is not c[1])
        return replace(self, checkpoints=tuple(sorted(by_version.items())), others=others)


def sort_listing(objects: Iterable[ObjectMeta]) -> LogListing:
    """Sort a listing of ``_delta_log`` into kinds; files with other names are ignored."""
    commits: dict[int, ObjectMeta] = {}
    compactions: list[tuple[int, int, ObjectMeta]] = []
    checksums: dict[int, ObjectMeta] = {}
    whole: dict[int, list[ObjectMeta]] = {}
    parts: dict[tuple[int, int], dict[int, ObjectMeta]] = {}
    for meta in objects:
        folder, _, name = meta.key.rpartition("/")
        if folder != LOG:
            continue
        if match := _COMMIT.fullmatch(name):
            commits[int(match[1])] = meta
        elif ".checkpoint." in name:
            if match := _CLASSIC.fullmatch(name) or _UUID.fullmatch(name):
                if meta.size > 0:
                    whole.setdefault(int(match[1]), []).append(meta)
            elif (match := _PART.fullmatch(name)) and meta.size > 0:
                parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = meta
        elif (match := _COMPACTED.fullmatch(name)) and meta.size > 0:
            compactions.append((int(match[1]), int(match[2]), meta))
        elif (match := _CHECKSUM.fullmatch(name)) and meta.size > 0:
            checksums[int(match[1])] = meta
    complete: list[tuple[int, tuple[ObjectMeta, ...]]] = []
    for (version, total), numbered in parts.items():
        # A writer may have died between two parts: only a full set counts.
        if len(numbered) == total and min(numbered) == 1 and max(numbered) == total:
            complete.append((version, tuple(numbered[i] for i in range(1, total + 1))))
    complete += [(version, (file,)) for version, files in whole.items() for file in reversed(files)]
    by_version = dict(complete)  # the last of a version
    others = tuple(c for c in complete if by_version[c[0]] is not c[1])
    return LogListing(commits, tuple(compactions), tuple(sorted(by_version.items())), checksums, others)


@dataclass(frozen=True)
class LogSegment:
    """The files that hold a version: at most one checkpoint, and the commits after it.

    ``commits`` are ``(first, last, file)``, contiguous; a log compaction covers several versions.
    """

    version: int
    checkpoint_version: int | None
    checkpoint_files: tuple[ObjectMeta, ...]
    commits: tuple[tuple[int, int, ObjectMeta], ...]
    #: What ``_last_checkpoint`` and the version's checksum state about the checkpoint.
    hint: CheckpointHint | None = None
    checksum: ObjectMeta | None = None

    @property
    def newest_file(self) -> ObjectMeta | None:
        """The last commit, or a file of the checkpoint if no commit follows it; ``None`` if all are gone."""
        if self.commits:
            return self.commits[-1][2]
        return self.checkpoint_files[-1] if self.checkpoint_files else None


def same_file(now: ObjectMeta, before: ObjectMeta) -> bool:
    """Whether two listings show the same object; some stores give times in ms in one call and in s in another."""
    if now.size != before.size:
        return False
    times = now.modified_ms, before.modified_ms
    whole = any(t % 1000 == 0 for t in times)
    return times[0] // 1000 == times[1] // 1000 if whole else times[0] == times[1]


def is_large(segment: LogSegment) -> bool:
    """Whether the checkpoint is so large that its files are read lazily."""
    num_files = 0 if segment.hint is None else segment.hint.num_add_files or 0
    return num_files > LARGE_FILES or sum(f.size for f in segment.checkpoint_files) > LARGE_BYTES


def choose_version(listing: LogListing, *, uri: str, version: int | None = None) -> int:
    """Choose ``version``, or the newest one.

    Raises ``TableNotFoundError`` for an empty log, ``VersionNotFoundError`` for a version outside it.
    """
    if listing.empty:
        message = "this is not a Delta table: _delta_log has no commit and no checkpoint"
        help = "check the path, or create a table there with trilake.write"
        raise TableNotFoundError(message, help=help, file=uri, condition="DELTA_PATH_DOES_NOT_EXIST")
    newest = listing.newest
    target = newest if version is None else version
    if target > newest or target < 0:
        message = f"Cannot time travel Delta table to version {target}: version {target} does not exist"
        help = f"the newest version is {newest}"
        raise VersionNotFoundError(message, help=help, file=uri, version=target, condition="DELTA_VERSION_NOT_FOUND")
    return target


def choose_segment(listing: LogListing, *, uri: str, version: int | None = None) -> LogSegment:
    """Choose the segment of ``version``, or of the newest one.

    Raises the errors of :func:`choose_version`, and ``LogGapError`` if versions in between are missing.
    """
    target = choose_version(listing, uri=uri, version=version)
    base = [(v, files) for v, files in listing.checkpoints if v <= target]
    checkpoint_version, files = base[-1] if base else (None, ())
    start = 0 if checkpoint_version is None else checkpoint_version + 1
    # Do not iterate over all versions: a file name can claim any number.
    present = sorted(v for v in listing.commits if start <= v <= target)
    if len(present) != target - start + 1:
        _reject_gap(listing, start, present, target, uri)
    checksum = None if checkpoint_version is None else listing.checksums.get(checkpoint_version)
    return LogSegment(target, checkpoint_version, files, _cover(listing, start, target), checksum=checksum)


def other_segments(listed: Callable[[], LogListing], segment: LogSegment, *, uri: str) -> Iterator[LogSegment]:
    """Other files with the same version: other checkpoints, then commits in place of compactions; may list the log."""
    compacted = any(first < last for first, last, _ in segment.commits)
    if not segment.checkpoint_files and not compacted:
        return
    listing = listed()
    ways = [listing.without(segment.checkpoint_files)] if segment.checkpoint_files else []
    ways += [replace(listing, compactions=())] if compacted else []
    for remaining in ways:
        while True:
            try:
                other = choose_segment(remaining, uri=uri, version=segment.version)
            except (LogGapError, TableNotFoundError, VersionNotFoundError):
                break
            yield other
            if not other.checkpoint_files:
                break
            remaining = remaining.without(other.checkpoint_files)


def _reject_gap(listing: LogListing, start: int, present: list[int], target: int, uri: str) -> NoReturn:
    first_missing = next((start + i for i, v in enumerate(present) if v != start + i), start + len(present))
    if first_missing == 0 and (not present or present[-1] - present[0] == len(present) - 1):
        # The log begins after version 0 and has no checkpoint at or before the target: it was cleaned up.
        readable = [v for v, _ in listing.checkpoints if v > target]
        if readable:
            message = f"version {target} is no longer readable: its commits were cleaned up"
            help = f"the oldest readable version is {min(readable)}"
            raise VersionNotFoundError(
                message, help=help, file=uri, version=target, condition="DELTA_VERSION_NOT_FOUND"
            )
        message = f"the log begins with version {min(listing.commits)}, but no checkpoint has the state before it"
        help = "restore the commit files from version 0 on, or a complete checkpoint"
        raise LogGapError(
            message, help=help, file=f"{uri}/{commit_key(0)}", version=0, condition="DELTA_TRUNCATED_TRANSACTION_LOG"
        )
    count = target - start + 1 - len(present)
    behind = min((v for v, _ in listing.checkpoints if v > target), default=None)
    raise LogGapError(
        f"the versions in the log are not contiguous: {count} missing, beginning with version {first_missing}",
        help="restore the missing commit files, or read a version before the gap"
        + ("" if behind is None else f", or version {behind} or later, which a checkpoint covers"),
        file=f"{uri}/{commit_key(first_missing)}",
        version=first_missing,
    )


def _cover(listing: LogListing, start: int, target: int) -> tuple[tuple[int, int, ObjectMeta], ...]:
    """Commits ``start..target``, with compaction files in place of the runs they cover."""
    longest: dict[int, tuple[int, ObjectMeta]] = {}
    for first, last, file in listing.compactions:
        if start <= first < last <= target and last > longest.get(first, (first, file))[0]:
            longest[first] = (last, file)
    out: list[tuple[int, int, ObjectMeta]] = []
    v = start
    while v <= target:
        last, file = longest.get(v, (v, listing.commits[v]))
        out.append((v, last, file))
        v = last + 1
    return tuple(out)


# --- listings while others commit ------------------------------------------------------------------------------------


def settled(listed: Callable[[], T], versions: Callable[[T], Collection[int]], first: int | None = None) -> T:
    """Call ``listed`` until listing again fills no more gaps between its ``versions``, from ``first`` on.

    A listing of a folder is not atomic: it may show only the later of two concurrent commits.  The earlier one exists
    by then, so the next listing shows it unless it was deleted.
    """
    missing: int | None = None
    while True:
        listing = listed()
        gap = first_gap(versions(listing), first)
        if gap is None or gap == missing:
            return listing
        missing = gap


def settled_segment(
    listing: LogListing, again: Callable[[], LogListing], *, uri: str, version: int | None = None
) -> LogSegment:
    """Call :func:`choose_segment`, with new listings if versions are missing, since others may write and clean up."""
    for _ in range(_LISTINGS):
        try:
            return choose_segment(listing, uri=uri, version=version)
        except LogGapError:
            listing = again()
    return choose_segment(listing, uri=uri, version=version)


def first_gap(versions: Collection[int], first: int | None = None) -> int | None:
    """The first missing version, from ``first`` (default: the lowest) on, that precedes an existing one.

    >>> first_gap([3, 4, 7]), first_gap([3, 4], 1), first_gap([3, 4]), first_gap([])
    (5, 1, None, None)
    """
    if not versions:
        return None
    start = min(versions) if first is None else first
    if max(versions) - start + 1 == len(versions):
        return None
    # As floats: a file name can claim a version of any size.
    there = np.sort(np.fromiter(versions, np.float64, len(versions)))
    wrong = np.flatnonzero(there != start + np.arange(len(there)))
    return start + int(wrong[0]) if len(wrong) else None
