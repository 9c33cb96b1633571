"""``DeltaLog``: the log of one table, read through a :class:`~trilake.storage.Store`.

The steps of a read: ``_last_checkpoint`` (a hint) -> one listing -> :func:`~trilake.delta.log.segment.choose_segment`
-> checkpoint as Arrow -> commits parsed together -> :func:`~trilake.delta.log.snapshot.apply`.  Updating an old
snapshot starts at its version and replays only new commits; the files of a large table are read piece by piece
(:func:`live_files`).  An append does not need the list of files: it reads only the :class:`Head`, at a cost that does
not depend on the number of files.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice, takewhile
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from trilake.common.arguments import as_version
from trilake.delta.engine import Engine
from trilake.delta.log import last_checkpoint
from trilake.delta.log.checkpoint import (
    checkpoint_pieces,
    read_checkpoint,
    read_checkpoint_rare,
    read_checkpoint_tombstones,
)
from trilake.delta.log.checkpoint_selection import Selection
from trilake.delta.log.commit_times import in_commit_ms, newest_until, out_of_range
from trilake.delta.log.last_checkpoint import CheckpointHint
from trilake.delta.log.segment import (
    LAST_CHECKPOINT,
    LOG,
    LogListing,
    LogSegment,
    choose_segment,
    commit_key,
    first_version,
    is_large,
    other_segments,
    same_file,
    settled,
    settled_segment,
    sort_listing,
)
from trilake.delta.log.snapshot import (
    Head,
    NewerFiles,
    PendingSnapshot,
    Snapshot,
    State,
    any_twice,
    apply,
    apply_rare,
    check_complete,
    hashes,
    one_spelling,
    readable,
    reject_paths_twice,
    unreconciled,
)
from trilake.delta.protocol.actions import ActionBatch, Metadata, parse_commits, parse_rare
from trilake.delta.protocol.table_features.in_commit_timestamp import in_commit_timestamps_from
from trilake.errors import (
    CorruptLogError,
    LogGapError,
    MetadataChangedError,
    MissingMetadataError,
    ObjectNotFoundError,
    TableNotFoundError,
    VersionNotFoundError,
)
from trilake.storage.base import ObjectMeta, Store
from trilake.table.location import explained

_T = TypeVar("_T")
_Parse: TypeAlias = Callable[[Sequence[tuple[int, str, pa.Buffer]]], ActionBatch]
_log = logging.getLogger("trilake.delta")
#: How many versions before an old version to look for a checkpoint first.
_NEAR = 100
#: In a log with a checkpoint of this version or a newer one, search in-commit timestamps instead of listing everything.
_LONG = 1000
#: How many earlier commits to check for file times in the future, which shift the times after them.
BEFORE = 1000


class DeltaLog:
    """Reads the log of the table at the root of ``store``; with the default ``engine``, it cannot commit.

    ``user_metadata`` is the default ``userMetadata`` of commits through this object.
    """

    def __init__(self, store: Store, engine: Engine | None = None, *, user_metadata: str | None = None) -> None:
        self.store, self.engine, self.user_metadata = store, engine or Engine(), user_metadata

    # --- listing -----------------------------------------------------------------------------------------------------

    def listing(self, *, start: int | None = None) -> LogListing:
        """List the log folder, from version ``start`` on."""
        after = None if start is None else f"{LOG}/{start:020d}"
        return settled(lambda: sort_listing(self.store.list(LOG, start_after=after)), lambda listing: listing.commits)

    def has_newer(self, version: int, file: ObjectMeta | None = None) -> bool:
        """Whether the table has a version other than ``version``, the newest that the caller has seen, or was replaced.

        ``file`` is the newest file of that version.  Takes one or two requests.
        """
        if self.store.find(commit_key(version + 1)):
            return True
        if current := self.store.find(commit_key(version)):
            return file is not None and file.key == current.key and not sort_listing([current]).holds(file)
        return self.listing(start=version).newest != version  # commits were cleaned up: look for checkpoints

    def hint(self) -> CheckpointHint | None:
        """The content of ``_last_checkpoint``, if it exists undamaged."""
        try:
            return last_checkpoint.read_hint(bytes(self.store.read(LAST_CHECKPOINT)))
        except ObjectNotFoundError:
            return None

    def exists(self) -> bool:
        entries = []
        for meta in self.store.list(LOG):
            if not sort_listing([meta]).empty:
                return True
            entries.append(meta)
        return not sort_listing(entries).empty  # a multi-part checkpoint without commits

    def segment(self, version: int | None = None) -> LogSegment:
        """Find the files that make up ``version``, or the newest one.

        Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``LogGapError``, or ``InvalidArgumentError``
        for a ``version`` that is not a whole number.
        """
        version = as_version(version)
        hint = self.hint()
        listing = None
        if version is not None and version > _NEAR and (hint is None or version < hint.version):
            segment = self._old_segment(version)
            if segment is not None:
                return segment
        if hint is not None and (version is None or version >= hint.version):
            listing = self.listing(start=hint.version)
            # A stale or wrong hint: the listing lacks its checkpoint.  List the whole folder.
            if not any(v >= hint.version for v, _ in listing.checkpoints):
                listing = None
        try:
            segment = settled_segment(listing or self.listing(), self.listing, uri=self.store.uri, version=version)
        except TableNotFoundError as e:
            raise explained(e, self.store, thorough=False) from None
        is_hinted = hint is not None and hint.version == segment.checkpoint_version
        return replace(segment, hint=hint) if is_hinted else segment

    def _old_segment(self, version: int) -> LogSegment | None:
        """Find a version of a long log by listing only what shortly precedes it; ``None`` if that does not suffice."""
        for distance in (_NEAR, 10 * _NEAR, 100 * _NEAR):
            start = version - distance
            if start <= 0:
                return None
            after = self.store.list(LOG, start_after=f"{LOG}/{start:020d}")
            listing = sort_listing(takewhile(lambda meta: (first_version(meta.key) or 0) <= version, after))
            if version in listing.commits and listing.checkpoints:
                with suppress(LogGapError, VersionNotFoundError):  # the whole folder decides which error to raise
                    return choose_segment(listing, uri=self.store.uri, version=version)
                break
        return None

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Read the table at ``version``, or at its newest.

        Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``LogGapError``, ``CorruptLogError``,
        ``MissingMetadataError`` or ``UnsupportedProtocolError``.
        """
        return self._past_damage(self.segment(version), self._read_whole)

    def opened(
        self, version: int | None = None, *, cached: Snapshot | PendingSnapshot | None = None
    ) -> Snapshot | PendingSnapshot:
        """Like :meth:`snapshot`, but :meth:`load` reads the files of a large table; returns ``cached`` if it is
        current."""
        segment = self.segment(version)
        if cached is not None and cached.segment == segment:
            return cached
        if is_large(segment):
            return self._past_damage(segment, self._read_pending)
        return self._past_damage(segment, self._read_whole)

    def _read_pending(self, segment: LogSegment) -> PendingSnapshot:
        state, actions = self._read(segment, read_checkpoint_rare, self._parse_files)
        state = apply_rare(state, actions)
        return readable(PendingSnapshot(self.store.uri, segment.version, state, segment, self.engine, actions))

    def load(self, pending: PendingSnapshot) -> Snapshot:
        """Read the files of a pending snapshot."""

        def read(segment: LogSegment) -> Snapshot:
            if segment is not pending.segment:
                return self._read_whole(segment)
            return self._whole(segment, self._read_checkpoint(self.store, segment), pending.actions)

        return self._past_damage(pending.segment, read)

    def _read_whole(self, segment: LogSegment) -> Snapshot:
        return self._whole(segment, *self._read(segment, self._read_checkpoint, self._parse_files))

    def _whole(self, segment: LogSegment, checkpoint: State, actions: ActionBatch) -> Snapshot:
        state = apply(checkpoint, actions)
        reject_paths_twice(state.adds, self.store.uri, segment.version)
        return readable(Snapshot(self.store.uri, segment.version, state, segment, self.engine))

    def head(self, version: int | None = None, *, past_damage: bool = True) -> Head:
        """Read a version without its files; with ``past_damage``, from other files if some are damaged."""
        segment = self.segment(version)
        return self._past_damage(segment, self._read_head) if past_damage else self._read_head(segment)

    def _read_head(self, segment: LogSegment) -> Head:
        state = apply(*self._read(segment, read_checkpoint_rare, parse_rare))
        return readable(Head(self.store.uri, segment.version, state, segment, self.engine))

    def _past_damage(self, segment: LogSegment, read: Callable[[LogSegment], _T]) -> _T:
        """Call ``read`` on a segment or, if a file is damaged, on others that repeat the same commits."""
        try:
            return read(segment)
        except MissingMetadataError:
            raise  # not damage: the log's writer left it out
        except CorruptLogError as damage:
            for other in other_segments(self.listing, segment, uri=self.store.uri):
                try:
                    result = read(other)
                except (CorruptLogError, LogGapError):
                    continue
                _log.warning("skipped a damaged file: %s", damage.message)
                return result
            raise

    def _read(
        self, segment: LogSegment, read: Callable[[Store, LogSegment], State], parse: _Parse
    ) -> tuple[State, ActionBatch]:
        """Read a segment's checkpoint and the commits after it, in parallel."""
        calls = [lambda: self._trusted(parse, segment.commits), lambda: read(self.store, segment)]
        actions, state = self.store.at_once(calls)
        return state, actions

    def update(self, old: Snapshot) -> Snapshot:
        """Read the newest version by replaying the commits after ``old``, or all of it if the table was replaced."""
        listing = self._since(old)
        if listing is None:
            return self.snapshot()
        newer = [v for v in listing.commits if v > old.version]
        if not newer:
            return old if listing.newest <= old.version else self.snapshot()
        if len(newer) != max(newer) - old.version:
            return self.snapshot()  # cleaned up concurrently: the checkpoint holds the rest
        commits = tuple((v, v, listing.commits[v]) for v in sorted(newer))
        state = apply(old.state, self._parse(commits))
        reject_paths_twice(state.adds, self.store.uri, max(newer))
        segment = replace(old.segment, version=max(newer), commits=(*old.segment.commits, *commits))
        return readable(Snapshot(self.store.uri, segment.version, state, segment, self.engine))

    def updated(self, old: Snapshot | PendingSnapshot) -> Snapshot | PendingSnapshot:
        """Like :meth:`update`, but leave the checkpoint's files of a large table unread."""
        if isinstance(old, Snapshot):
            return self.update(old)
        listing = self._since(old)
        return old if listing is not None and listing.newest <= old.version else self.opened()

    def _since(self, old: Head) -> LogListing | None:
        """List the log from the newest file of ``old`` on; ``None`` if that file was cleaned up or replaced."""
        newest = old.segment.newest_file
        listing = self.listing(start=old.version if newest is None else first_version(newest.key))
        return listing if newest is None or listing.holds(newest) else None

    def _parse(self, commits: Sequence[tuple[int, int, ObjectMeta]]) -> ActionBatch:
        return self._trusted(self._parse_files, commits)

    def _parse_files(self, contents: Sequence[tuple[int, str, pa.Buffer]]) -> ActionBatch:
        return parse_commits(contents, self.engine.query)

    def _read_checkpoint(self, store: Store, segment: LogSegment) -> State:
        return read_checkpoint(store, segment, self.engine.query)

    def _trusted(self, parse: _Parse, commits: Sequence[tuple[int, int, ObjectMeta]]) -> ActionBatch:
        """Parse commits, in place of compactions that do not show which of two actions for a file is newer."""
        batch = parse(self._contents(commits))
        bad = unreconciled(batch, [last for first, last, _ in commits if last > first])
        if not bad:
            return batch
        contents: list[tuple[int, str, pa.Buffer]] = []
        for first, last, file in commits:
            keys = [commit_key(v) for v in range(first, last + 1)] if last in bad else [file.key]
            try:
                data = self.read_files(keys)
            except VersionNotFoundError as e:
                raise CorruptLogError(
                    f"the log compaction file is not reconciled, and commits from version {first} to {last} are"
                    " missing",
                    help="restore the commits from a backup, or read a version before them",
                    file=f"{self.store.uri}/{file.key}",
                    version=last,
                ) from e
            versions = range(first, last + 1) if last in bad else [last]
            contents += zip(versions, [f"{self.store.uri}/{k}" for k in keys], data, strict=True)
        return parse(contents)

    def _contents(self, commits: Sequence[tuple[int, int, ObjectMeta]]) -> list[tuple[int, str, pa.Buffer]]:
        data = self.read_files([c.key for _, _, c in commits])
        return [(last, f"{self.store.uri}/{c.key}", d) for (_, last, c), d in zip(commits, data, strict=True)]

    def read_files(self, keys: Sequence[str]) -> list[pa.Buffer]:
        """Read log files by key.  Raises ``VersionNotFoundError`` if one was deleted after the listing."""
        try:
            return self.store.read_many(keys)
        except ObjectNotFoundError as e:
            message = "a log file was cleaned up while the table was being read"
            raise VersionNotFoundError(message, help="read a newer version", file=self.store.uri) from e

    def tombstones(self, snapshot: Snapshot) -> pa.Table:
        """All ``remove`` actions of the snapshot, including those in its checkpoint."""

        def read(segment: LogSegment) -> pa.Table:
            old = read_checkpoint_tombstones(self.store, segment, self.engine.query)
            loaded = snapshot if segment is snapshot.segment else self._read_whole(segment)
            if not old.num_rows:
                return loaded.state.removes
            batch = self._parse(segment.commits)
            untouched = NewerFiles(batch.add, batch.remove).without_newer(old)
            return pa.concat_tables([untouched, loaded.state.removes])

        return self._past_damage(snapshot.segment, read)

    # --- commits -----------------------------------------------------------------------------------------------------

    def commits(
        self, start: int = 0, end: int | None = None, *, most: int | None = None
    ) -> list[tuple[int, ObjectMeta]]:
        """The commit files between two versions, both included, ascending; at most ``most``, the oldest."""
        return settled(lambda: list(islice(self._commits(start, end), most)), dict, start if start > 0 else None)

    def _commits(self, start: int, end: int | None) -> Iterator[tuple[int, ObjectMeta]]:
        after = f"{LOG}/{start:020d}" if start > 0 else None
        for meta in self.store.list(LOG, start_after=after):  # listings are ordered by version
            version = first_version(meta.key)
            if version is not None and end is not None and version > end:
                return
            if version is not None and version >= start and meta.key == commit_key(version):
                yield version, meta

    def parse(self, commits: Sequence[tuple[int, ObjectMeta]]) -> ActionBatch:
        return self._parse([(v, v, c) for v, c in commits])

    def commit_infos(self, commits: Sequence[tuple[int, ObjectMeta]]) -> dict[int, Mapping[str, Any]]:
        """The ``commitInfo`` of those commits that have one, by version."""
        return dict(parse_rare(self._contents([(v, v, c) for v, c in commits])).of("commitInfo"))

    def commit_info(self, version: int) -> dict[str, Any]:
        """The ``commitInfo`` of one commit; empty if it has none."""
        key = commit_key(version)
        infos = parse_rare([(version, f"{self.store.uri}/{key}", self.store.read(key))]).of("commitInfo")
        return dict(infos[0][1]) if infos else {}

    def commit_times(
        self,
        commits: Sequence[tuple[int, ObjectMeta]],
        metadata: Metadata,
        infos: Mapping[int, Mapping[str, Any]] | None = None,
        *,
        first: int = 0,
    ) -> list[int]:
        """When each commit from version ``first`` on happened, in ms: its in-commit timestamp, or its file time.

        File times are made monotonic, beginning with the earlier commits.  ``metadata`` is the newest; ``infos`` are
        the ``commitInfo`` actions that were read already.
        """
        since = in_commit_timestamps_from(metadata)
        stated = {} if since is None else dict(infos or {})
        stating = [] if since is None else [(v, c) for v, c in commits if v >= max(since, first)]
        if lacking := [(v, c) for v, c in stating if v not in stated]:
            stated |= self.commit_infos(lacking)
        states_time = {v for v, _ in stating if stated.get(v, {}).get("inCommitTimestamp") is not None}
        times: list[int] = []
        for v, c in commits:
            time = in_commit_ms(stated[v], v) if v in states_time else c.modified_ms
            times.append(time if not times or v in states_time else max(time, times[-1] + 1))
        return [t for t, (v, _) in zip(times, commits, strict=True) if v >= first]

    def _timeline(self, timestamp_ms: int) -> tuple[list[int], list[int]]:
        """Versions and their times, ascending: all, or those on both sides of ``timestamp_ms``.

        On its later side the time may be lower than the true one, but is greater than ``timestamp_ms``.
        """
        hint, listing = self.hint(), None
        if hint is not None and hint.version >= _LONG:
            newest = self._newest(self.segment())
        else:
            listing = self.listing()
            newest = self._newest(settled_segment(listing, self.listing, uri=self.store.uri))
        since, end = in_commit_timestamps_from(newest.metadata), newest.version
        if since is not None:
            with suppress(KeyError):  # a commit without its time, against the protocol
                until = newest_until(since, newest.version, self._stated_ms, timestamp_ms)
                if until is not None:
                    sides = 1 if until[0] == newest.version else 2
                    return [until[0], until[0] + 1][:sides], [until[1], timestamp_ms + 1][:sides]
                end = since
        commits = sorted((listing or self.listing()).commits.items())
        if not commits:
            message = "the log has a checkpoint but no commit, so the times of versions are unknown"
            help = "open the newest version, without a timestamp"
            raise VersionNotFoundError(message, help=help, file=self.store.uri, condition="DELTA_NO_COMMITS_FOUND")
        commits = [c for c in commits if c[0] <= end] or commits[:1]
        return [v for v, _ in commits], self.commit_times(commits, newest.metadata)

    def _newest(self, segment: LogSegment) -> Head:
        # Finding a version by time does not require that the newest version can be read.
        state = apply(read_checkpoint_rare(self.store, segment), parse_rare(self._contents(segment.commits)))
        newest = Head(self.store.uri, segment.version, state, segment, self.engine)
        check_complete(newest)
        return newest

    def _stated_ms(self, version: int) -> int | None:
        try:
            info = self.commit_info(version)
        except ObjectNotFoundError:
            return None
        if info.get("inCommitTimestamp") is None:
            raise KeyError(version)
        return in_commit_ms(info, version)

    def version_from(self, timestamp_ms: int) -> int:
        """Find the oldest version committed at or after a time in ms.  Raises ``VersionNotFoundError``."""
        versions, times = self._timeline(timestamp_ms - 1)
        at = bisect_left(times, timestamp_ms)
        if at == len(versions):
            raise out_of_range(timestamp_ms, versions[-1], times[-1], self.store.uri, after=True)
        return versions[at]

    def version_at(self, timestamp_ms: int, *, reached: bool = False) -> int:
        """Find the newest version committed at or before a time (ms since the epoch).

        Raises ``VersionNotFoundError`` for a time before the first commit and, with ``reached``, after the last one.
        """
        versions, times = self._timeline(timestamp_ms)
        if reached and timestamp_ms > times[-1]:
            raise out_of_range(timestamp_ms, versions[-1], times[-1], self.store.uri, after=True)
        at = bisect_right(times, timestamp_ms) - 1
        if at < 0:
            raise out_of_range(timestamp_ms, versions[0], times[0], self.store.uri, after=False)
        return versions[at]


# --- The files of a large table, piece by piece -----------------------------------------------------------------------


class MaybeTwiceError(Exception):
    """A file may be in the version twice; only reading all files at once can tell."""


def live_files(log: DeltaLog, pending: PendingSnapshot, selection: Selection | None = None) -> Iterator[pa.Table]:
    """Yield the ``add`` actions of a version; those of its checkpoint only if ``selection`` may match.

    Memory holds a piece and an 8-byte hash per file, to detect a file that is listed twice: then ``MaybeTwiceError``
    follows the last piece.
    """
    read = checkpoint_pieces(log.store, pending.segment, log.engine.query, selection=selection)
    older = map(pending.newer_files.without_newer, read)
    path_hashes = np.empty(0, np.uint64)
    for piece in chain(older, [pending.newer.adds]):
        yield piece
        size, new = len(path_hashes), hashes(one_spelling(piece, pending.uri), log.engine.query)
        path_hashes.resize(size + len(new), refcheck=False)  # in place: a copy would double the memory per file
        path_hashes[size:] = new
    if any_twice(path_hashes):
        raise MaybeTwiceError


# --- Is the table still the one at its location? ----------------------------------------------------------------------
# If a table is dropped or recreated while a writer is at work, the writer's commit would corrupt the new log, and its
# checkpoint, compaction or cleanup would apply to the wrong commits.  So each of them checks right before the decisive
# call.


def check_same_table(log: DeltaLog, base: Head) -> None:
    """Raise ``MetadataChangedError`` if the location no longer holds the table that was read.

    Takes one request if the newest log file is unchanged; otherwise, as after a cleanup, compares the table's id.
    """
    file = base.segment.newest_file
    if file is not None and _is_there(log, file):
        return
    try:
        there = log.head()
    except TableNotFoundError as e:
        event, help = "was dropped while this command was using it", "create the table again, then repeat the write"
        raise _gone(base, event, help) from e
    if there.metadata.id != base.metadata.id or there.version < base.version:
        event = (
            "was replaced by another table while this command was using it: expected the table id"
            f" {base.metadata.id}, got {there.metadata.id}"
        )
        raise _gone(base, event, "read the table again and repeat the write")


def check_untouched(log: DeltaLog, base: Head) -> None:
    """Like :func:`check_same_table`, but also raise if the newest log file, which replaces files to delete, changed."""
    if (file := base.segment.newest_file) is None:
        check_same_table(log, base)
    else:
        check_same_file(log, file)


def check_same_file(log: DeltaLog, file: ObjectMeta) -> None:
    """Raise ``MetadataChangedError`` if a log file changed since it was listed."""
    if not _is_there(log, file):
        message = "the log of the table was cleaned up or replaced while this command was using it"
        help = "read the table again and repeat the command"
        raise MetadataChangedError(message, help=help, file=f"{log.store.uri}/{file.key}")


def _is_there(log: DeltaLog, file: ObjectMeta) -> bool:
    there = log.store.find(file.key)
    return there is not None and same_file(there, file)


def _gone(base: Head, event: str, help: str) -> MetadataChangedError:
    return MetadataChangedError(
        f"the table {event}", help=help, file=base.uri, version=base.version, condition="DELTA_TABLE_ID_MISMATCH"
    )
