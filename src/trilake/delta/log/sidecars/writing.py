"""Write the sidecars of a v2 checkpoint: one after another in this process, or in Spark tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.delta.engine import Jobs
from trilake.delta.log.checkpoint import FILE_BYTES, KEY_FIELDS, Share, checkpoint_actions, compare, shares
from trilake.delta.log.checkpoint_parts import CheckpointFile, FileColumns, Unexpired, file_schema
from trilake.delta.log.checksum import FileTotals
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import SIDECARS
from trilake.delta.log.sidecars.reuse import PathBounds, Reuse, Sidecar, again, is_ours, layout_of
from trilake.delta.log.snapshot import NewerFiles, PendingSnapshot, one_spelling, refuse_twice, twice_error
from trilake.errors import TrilakeError
from trilake.expr.terms.engine import Query
from trilake.storage.base import Store


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

    def take_back(self, store: Store) -> None:
        """Delete the sidecars; call this only before a checkpoint names them."""
        with suppress(TrilakeError):
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
        self._kind, self._held, self._files, self._bounds = "add", 0, FileTotals(), PathBounds()

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
            self.written.take_back(self.store)
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
                self._bounds.take(part)
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
        files, bounds = self._files, self._bounds.bounds
        self._files, self._bounds = FileTotals(), PathBounds()
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
    """Writes the sidecars of a part, in any process; ``added`` are the paths of files that later commits add."""

    store: Store
    query: Query
    runtime: Runtime
    columns: FileColumns
    most: int
    newer: NewerFiles
    unexpired: Unexpired
    added: pa.ChunkedArray
    uri: str

    def __call__(self, part: Part) -> PartWritten:
        read = FileTotals()
        twice: list[str] = []

        def pieces() -> Iterator[tuple[str, pa.Table]]:
            nonlocal read
            for share in part.shares:
                for piece in share.pieces(self.store, self.query):
                    read += FileTotals.of(piece)
                    remaining = self.newer.without_newer(piece)
                    if (path := again(remaining, self.added, self.uri)) is not None:
                        twice.append(path)
                    yield "add", remaining
            if part.adds is not None:
                yield "add", part.adds
            for share in part.shares:
                for piece in share.pieces(self.store, self.query, "remove"):
                    yield "remove", self.unexpired(self.newer.without_newer(piece))
            if part.removes is not None:
                yield "remove", self.unexpired(part.removes)

        writer = SidecarWriter(
            self.store, self.runtime, self.columns, most=self.most, expected=part.expected, mixed=False
        )
        sidecar_files = writer.write(pieces())
        return PartWritten(sidecar_files, read, twice[0] if twice else None)


@dataclass(frozen=True)
class _StayingPaths:
    """The paths in a share that later commits do not touch."""

    store: Store
    query: Query
    newer: NewerFiles
    uri: str

    def __call__(self, share: Share) -> Iterator[pa.ChunkedArray]:
        for piece in share.pieces(self.store, self.query, only=KEY_FIELDS):
            yield one_spelling(self.newer.without_newer(piece), self.uri)


def write_by_tasks(
    log: DeltaLog,
    version: PendingSnapshot,
    columns: FileColumns,
    jobs: Jobs,
    runtime: Runtime,
    *,
    most: int,
    reuse: Reuse | None,
) -> Written:
    """Write the sidecars of a version's checkpoint, except those that ``reuse`` keeps.

    Raises ``CorruptLogError`` if the older checkpoint is damaged, differs from its totals, or lists a file twice.  If a
    job fails, deletes the sidecars of the tasks that have finished.
    """
    store, segment = log.store, version.segment
    rare = checkpoint_actions(store, segment) if reuse is None else reuse.rare
    older = shares(segment, rare, most * FILE_BYTES) if reuse is None else reuse.rewritten
    new_paths = one_spelling(version.newer.adds, version.uri)
    refuse_twice(new_paths, version.uri, version.version)
    if not is_ours(rare):
        path = jobs.repeated(_StayingPaths(store, version.engine.query, version.newer_files, version.uri), older)
        if path is not None:
            raise twice_error(path, version.uri, version.version)
    unexpired = Unexpired.of(version, runtime.clock_ms())
    write = PartWriter(
        store, version.engine.query, runtime, columns, most, version.newer_files, unexpired, new_paths, version.uri
    )
    sent, local = parts(older, version.newer.adds, version.newer.removes, most)
    results: list[PartWritten] = []
    try:
        results += jobs.run(write, sent) if sent else ()
        results += map(write, local)
        path = next((p.twice for p in results if p.twice is not None), None)
        if path is not None:
            raise twice_error(path, version.uri, version.version)
        reused = () if reuse is None else reuse.kept
        totals = sum((p.read for p in results), sum((s.files for s in reused), FileTotals()))
        compare(store, segment, totals.num_files, totals.size_in_bytes, rare)
    except BaseException:
        sum((p.written for p in results), Written()).take_back(store)
        raise
    return sum((p.written for p in results), Written())


def parts(older: Sequence[Share], adds: pa.Table, removes: pa.Table, most: int) -> tuple[list[Part], list[Part]]:
    """Split the work into parts for tasks and parts for this process, each of about one sidecar or one share."""
    sent: list[Part] = []
    for share in older:
        place = next((i for i, p in enumerate(sent) if p.expected + share.expected <= most), None)
        if place is None:
            sent.append(Part((share,), share.expected))
        else:
            part = sent[place]
            sent[place] = replace(part, shares=(*part.shares, share), expected=part.expected + share.expected)
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
