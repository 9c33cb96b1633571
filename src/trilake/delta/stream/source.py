"""``DeltaStream``: a Delta table as a sequence of files that a reader can resume from any position.

The steps of a micro-batch::

    start --> the initial snapshot's remaining files, if any
          --> commits after it, as units (:mod:`trilake.delta.stream.tail`)
          --> as many as the limit allows --> end      (latest)
    start, end --> the files between them --> tasks    (batch)

``batch`` returns the same files for the same two offsets in any process and at any later time, or raises.  That is the
source's half of exactly-once; the other half is the sink's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.delta.log.log import BEFORE, DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.log.snapshot import Head
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.table_features import in_commit_timestamp
from trilake.delta.protocol.table_features.in_commit_timestamp import in_commit_timestamps_from
from trilake.delta.scan.changes import CHANGE_FIELDS, ChangeFeedTask, version_tasks
from trilake.delta.scan.scan import FileTask, ReadPlan, metadata_plan
from trilake.delta.stream.errors import DATA_LOSS_HELP, StreamOffsetError, StreamSchemaChangedError
from trilake.delta.stream.offset import BASE_INDEX, Limit, Start, StreamOffset
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.schema import Reading
from trilake.delta.stream.tail import (
    Tail,
    Units,
    empty_units,
    excluded_paths,
    feed_problem,
    snapshot_units,
    tail_of,
)
from trilake.errors import VersionNotFoundError
from trilake.storage.base import ObjectMeta
from trilake.table.streams import StreamDataLossError

_log = logging.getLogger("trilake.delta")

#: Commits parsed at a time, which bounds memory if the reader is far behind.
_CHUNK = 256
#: Commits listed at once.
_LISTED = 1000
#: Commits without rows advance the stream only if they are this many, or this old, since each advance is a batch.
_IDLE_COMMITS = 10
_IDLE_MS = 3_600_000

StreamTask = FileTask | ChangeFeedTask


@dataclass(frozen=True)
class StreamBatch:
    """The files of one micro-batch, and how to read each; a change feed has :class:`ChangeFeedTask` in ``changes``."""

    tasks: tuple[StreamTask, ...]
    plan: ReadPlan
    changes: bool


class DeltaStream:
    """A table read as a stream, using only its log; ``reading`` are the declared columns."""

    def __init__(self, log: DeltaLog, reading: Reading, options: StreamOptions, runtime: Runtime | None = None) -> None:
        self.log, self.reading, self.options, self.runtime = log, reading, options, runtime or log.engine.runtime
        self.uri = log.store.uri
        self._initial: StreamOffset | None = None
        self._until: int | None = None
        self._checked = False
        self._snapshot: tuple[int, Units] | None = None
        #: The times of the versions in the last batch, if they are file times.
        self._known_times: dict[int, int] = {}
        self._tail: Tail | None = None
        self._commits: list[tuple[int, ObjectMeta]] = []

    @property
    def table_id(self) -> str:
        """The id of the table that the stream was declared over."""
        return self.reading.metadata.id

    def initial(self) -> StreamOffset:
        """The position where a new stream starts.

        Raises ``VersionNotFoundError`` for a start outside the log, ``StreamSchemaChangedError`` if the table has other
        columns now, and ``ChangeFeedError`` if the changes from the start on were not recorded.
        """
        if self._initial is None:
            head = self.log.head(self._until)
            self._same_table(head)
            self._initial = StreamOffset.beginning(self.table_id, self._start(head))
        return self._initial

    def _start(self, head: Head) -> Start:
        options, version = self.options, self.options.starting_version
        if version == "latest":
            return self._starting(head, Start(head.version + 1, False))
        if options.starting_timestamp_ms is not None:
            try:
                version = self.log.version_from(options.starting_timestamp_ms)
            except VersionNotFoundError:
                if not options.beyond_newest:
                    raise
                version = head.version + 1
        if version is None:
            return self._starting(head, Start(head.version, True))
        if version > head.version and options.beyond_newest:
            return self._starting(head, Start(version, False))
        if version > head.version:
            raise VersionNotFoundError(
                f"the stream cannot start at version {version}, which does not exist",
                help=f"the newest version is {head.version}; startingVersion=latest begins with the next one",
                file=self.uri,
                version=version,
                condition="DELTA_VERSION_NOT_FOUND",
            )
        if not self._has_commit(version):
            oldest = self.log.commits(most=1)
            raise VersionNotFoundError(
                f"the stream cannot start at version {version}, whose commit was cleaned up",
                help=f"the oldest commit is version {oldest[0][0]}" if oldest else "the log has no commits",
                file=self.uri,
                version=version,
                condition="DELTA_VERSION_NOT_FOUND",
            )
        if self.options.read_change_feed:  # the commit there may not mention the feed
            self._check_feed(head if version == head.version else self.log.head(version))
        return Start(version, False)

    def _check_feed(self, head: Head) -> None:
        problem = feed_problem(head.metadata, head.version, self.options, uri=self.uri)
        if problem is not None:
            raise problem

    def _starting(self, head: Head, start: Start) -> Start:
        """A start at the newest version; its columns must be the declared ones."""
        self._check_feed(head)
        problem = self.reading.check(head.metadata, head.version, uri=self.uri)
        if problem is not None:
            raise problem
        return start

    def newest(self) -> StreamOffset:
        """The position after all commits."""
        return StreamOffset(self.table_id, self.newest_version() + 1)

    def newest_version(self) -> int:
        return self.log.segment().version

    def stop_at_newest(self) -> None:
        """Leave later commits to another run."""
        self._until = self.newest_version()

    def latest(self, start: StreamOffset, limit: Limit | None = None) -> StreamOffset:
        """The end of the batch that starts at ``start``; ``start`` itself if there is nothing to read.

        ``limit`` bounds the batch; by default there is no limit.  Raises the error that ends the stream once all rows
        before it have been delivered.
        """
        limit = limit or Limit()
        self._check_resumable(start)
        offset, moved = start, False
        if start.is_starting_version:
            units = self._snapshot_of(start.reservoir_version).after(start.reservoir_version, start.index)
            count = len(units) if self.options.whole_snapshot else limit.admit(units.count, units.size)
            if count < len(units):
                return start.at(start.reservoir_version, int(units.index[count - 1]), snapshot=True)
            offset, moved = start.at(start.reservoir_version + 1), True
            limit = limit.less(units.count, units.size)
            if limit.spent or (self.options.whole_snapshot and count):
                return offset
        else:
            self._snapshot = None
        return self._latest_commits(offset, limit, moved=moved)

    def _latest_commits(self, start: StreamOffset, limit: Limit, *, moved: bool) -> StreamOffset:
        until = self._until
        tail = self._tail_since(start.reservoir_version, start.index, limit, until)
        units = tail.units.after(start.reservoir_version, start.index)
        if until is not None:
            units = units.until(until + 1, BASE_INDEX)
        count = limit.admit(units.count, units.size)
        if count < len(units):
            last, following = int(units.version[count - 1]), int(units.version[count])
            return start.at(following) if following != last else start.at(last, int(units.index[count - 1]))
        last = tail.last if until is None else min(tail.last, until)
        if count:
            return start.at(last + 1)
        if tail.stop is not None and not moved and last == tail.last:
            raise tail.stop
        return start.at(last + 1) if self._idle(start.reservoir_version, last) else start

    def _idle(self, version: int, last: int) -> bool:
        """Whether the stream must advance past commits without rows, which are many or may soon be cleaned up."""
        if last < version:
            return False
        if last - version + 1 >= _IDLE_COMMITS:
            return True
        oldest = next((c.modified_ms for v, c in self._commits if v >= version), None)
        return oldest is not None and self.runtime.clock_ms() - oldest > _IDLE_MS

    def batch(self, start: StreamOffset, end: StreamOffset) -> StreamBatch:
        """The files after ``start`` up to ``end``.

        Raises ``StreamDataLossError`` if commits between them are gone, ``StreamOffsetError`` for offsets of another
        table.
        """
        start = self._true_start(start, end)
        for offset in (start, end):
            self._check_id(offset)
        self._check_resumable(start)
        tasks: list[StreamTask] = []
        offset = start
        if start.is_starting_version:
            units = self._snapshot_of(start.reservoir_version).after(start.reservoir_version, start.index)
            if end.is_starting_version:
                units = units.until(end.reservoir_version, end.index)
            files, version = units.tasks(), start.reservoir_version
            if self.options.read_change_feed:
                time = self._times([version])[version] if self._has_commit(version) else 0
                tasks += [ChangeFeedTask(f, "insert", version, time) for f in files]
            else:
                tasks += files
            offset = start.at(start.reservoir_version + 1)
            if not end.is_starting_version:
                self._snapshot = None  # free its files, which are not needed again
        if not end.is_starting_version and offset.position < end.position:
            tasks += self._commit_tasks(offset, end)
        reading = self.reading
        extra = {f.name for f in CHANGE_FIELDS} if self.options.read_change_feed else set()
        names = None if reading.columns is None else [c for c in reading.columns if c not in extra]
        plan = metadata_plan(reading.metadata, self.log.engine, self.uri, reading.version, names)
        return StreamBatch(tuple(tasks), plan, self.options.read_change_feed)

    def _true_start(self, start: StreamOffset, end: StreamOffset) -> StreamOffset:
        """The original start of the batch that ended at ``end``.

        When Spark repeats a first batch, it passes a new initial offset.
        """
        if start.started_at is not None and end.started_at is not None and start.started_at != end.started_at:
            return StreamOffset.beginning(end.reservoir_id, end.started_at)
        if end.started_at is None and start.position > end.position:  # an offset of another source
            if not end.is_starting_version and end.reservoir_version == 0:
                return end
            version = end.reservoir_version - (0 if end.is_starting_version else 1)
            return StreamOffset.beginning(end.reservoir_id, Start(version, True))
        return start

    def _commit_tasks(self, start: StreamOffset, end: StreamOffset) -> list[StreamTask]:
        last = end.reservoir_version if end.index > BASE_INDEX else end.reservoir_version - 1
        tail = self._tail_since(start.reservoir_version, start.index, None, last)
        if tail.last < last:
            if tail.stop is not None:
                raise tail.stop
            self._lost(tail.last + 1, f"the batch ends with version {last}")
        units = tail.units.after(start.reservoir_version, start.index).until(end.reservoir_version, end.index)
        if not self.options.read_change_feed:
            return list(units.tasks())
        versions: list[int] = np.unique(units.version).tolist()
        if not versions:
            return []
        files = dict(self.log.commits(versions[0], versions[-1]))
        batch = self.log.parse([(v, files[v]) for v in versions])
        times = self._times(versions, dict(batch.of("commitInfo")))
        tasks: list[StreamTask] = [t for v in versions for t in version_tasks(self.log, batch, v, times[v])]
        if self.options.exclude is not None and tasks:
            paths = pa.chunked_array([[t.file.path for t in tasks if isinstance(t, ChangeFeedTask)]], pa.string())
            excluded = excluded_paths(paths, self.options.exclude).to_pylist()
            tasks = [t for t, out in zip(tasks, excluded, strict=True) if not out]
        return tasks

    def _times(self, versions: Sequence[int], infos: Mapping[int, Mapping[str, Any]] | None = None) -> dict[int, int]:
        """The times of some versions; ``infos`` are the ``commitInfo`` actions that were read already.

        With file times, earlier commits count: a time in the future shifts those after it.  The shift of the previous
        batch is cached.
        """
        metadata, first = self.reading.metadata, versions[0]
        if not in_commit_timestamp.enabled(metadata) and any("inCommitTimestamp" in i for i in (infos or {}).values()):
            metadata = self.log.head().metadata  # commits have stated their times since before the stream was declared
        first_version = in_commit_timestamps_from(metadata)
        before = (
            1 if first - 1 in self._known_times or (first_version is not None and first_version < first) else BEFORE
        )
        commits = [
            (v, replace(file, modified_ms=self._known_times.get(v, file.modified_ms)))
            for v, file in self.log.commits(max(0, first - before), versions[-1])
        ]
        times = self.log.commit_times(commits, metadata, infos, first=first)
        result = dict(zip((v for v, _ in commits if v >= first), times, strict=True))
        if first_version is None:
            self._known_times = result
        return result

    def _snapshot_of(self, version: int) -> Units:
        if self._snapshot is None or self._snapshot[0] != version:
            try:
                adds = self.log.snapshot(version).adds
            except VersionNotFoundError as e:
                raise StreamDataLossError(
                    f"the stream has not read all rows of version {version} yet, but that version can no longer be"
                    " reconstructed from the log",
                    help="start a new query with a new checkpoint, and keep the log longer"
                    " (delta.logRetentionDuration)",
                    file=self.uri,
                    version=version,
                    condition="DELTA_MISSING_FILES_UNEXPECTED_VERSION",
                ) from e
            self._snapshot = (version, snapshot_units(adds, version, self.options))
        return self._snapshot[1]

    def _tail_since(self, version: int, index: int, limit: Limit | None, until: int | None) -> Tail:
        """The commits from ``version`` on: at least as many as the limit admits after ``index``.

        May include commits after ``until``.
        """
        tail = self._tail
        if tail is None or not tail.first <= version <= tail.last + 1:
            tail = Tail(version, version - 1, empty_units(self.options))
            self._commits = []
        tail = tail.since(version)
        self._commits = [c for c in self._commits if c[0] >= version]
        fresh: list[tuple[int, ObjectMeta]] = []
        more = True
        while tail.stop is None and (until is None or tail.last < until):
            ahead = tail.units.after(version, index)
            if limit is not None and limit.admit(ahead.count, ahead.size) < len(ahead):
                break
            if not fresh and more:
                fresh = self._next_commits(tail.last + 1)
                more = len(fresh) == _LISTED
            some, fresh = fresh[:_CHUNK], fresh[_CHUNK:]
            if not some:
                break
            if some[0][0] > tail.last + 1:  # commits are lost, which the stream tolerates
                tail = Tail(some[0][0], some[0][0] - 1, tail.units)
            self._commits += some
            batch = self.log.parse(some)
            tail = tail.then(tail_of(batch, [v for v, _ in some], self.options, self.reading, uri=self.uri))
        self._tail = tail
        return tail

    def _next_commits(self, version: int) -> list[tuple[int, ObjectMeta]]:
        commits = self.log.commits(version, most=_LISTED)
        if commits and commits[0][0] > version and not self._has_commit(version):
            again = self.log.commits(version, most=_LISTED)
            if again and again[0][0] > version:
                self._lost(version, f"the oldest commit is version {again[0][0]}")
            commits = again
        if commits and commits[0][0] > version and self._has_commit(version):
            return []  # the commit has just appeared
        contiguous = (i for i, (v, _) in enumerate(commits) if v != commits[0][0] + i)
        return commits[: next(contiguous, len(commits))]

    def _lost(self, version: int, what: str) -> None:
        error = StreamDataLossError(
            f"the stream must continue at version {version}, which is no longer in the log: {what}",
            help=DATA_LOSS_HELP,
            file=self.uri,
            version=version,
            condition="DELTA_MISSING_FILES_UNEXPECTED_VERSION",
        )
        if self.options.fail_on_data_loss:
            raise error
        _log.warning("rows were missed; the stream continues because failOnDataLoss=false: %s", error)

    def _has_commit(self, version: int) -> bool:
        return self.log.store.find(commit_key(version)) is not None

    def _check_id(self, offset: StreamOffset) -> None:
        if offset.reservoir_id != self.table_id:
            raise StreamOffsetError(
                f"the checkpoint belongs to the table with id {offset.reservoir_id}, but this table has id"
                f" {self.table_id}",
                help="the table was recreated, or the checkpoint belongs to another table: use a new checkpoint",
                file=self.uri,
                condition="DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
            )

    def _same_table(self, head: Head) -> None:
        if head.metadata.id != self.table_id:
            raise StreamSchemaChangedError(
                "the table was replaced by another table after load()",
                help="call load() again",
                file=self.uri,
                version=head.version,
                condition="DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
            )

    def _check_resumable(self, start: StreamOffset) -> None:
        """Check once per process that the table, and its columns at ``start``, are those of the stream."""
        if self._checked:
            return
        self._check_id(start)
        before = start.reservoir_version if start.is_starting_version else start.reservoir_version - 1
        if start == StreamOffset.beginning(start.reservoir_id, Start(start.reservoir_version, False)):
            before = min(before, self.newest_version())  # nothing was read yet, and the start may be a later commit
        metadata = self._metadata_at(before)
        if metadata is not None:
            problem = self.reading.check(metadata, before, uri=self.uri)
            if problem is not None:
                raise problem
        self._checked = True

    def _metadata_at(self, version: int) -> Metadata | None:
        head = self.log.head()
        self._same_table(head)
        if version > head.version:
            raise StreamOffsetError(
                f"the checkpoint is at version {version}, but the newest version of the table is {head.version}",
                help="the table was recreated or restored from a backup: use a new checkpoint",
                file=self.uri,
                version=version,
            )
        if version == head.version or version < 0:
            return head.metadata if version >= 0 else None
        try:
            return self.log.head(version).metadata
        except VersionNotFoundError:  # the log no longer has it; the remaining commits show what changed
            return None
