"""``DeltaContext``: data shared by the checks of one Delta table; each part is read once, on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.engine import Engine
from trilake.delta.log.checkpoint import read_checkpoint, read_checkpoint_tombstones
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LogListing, LogSegment, choose_segment, choose_version
from trilake.delta.log.snapshot import Snapshot, State, apply, decoded_paths, empty_state
from trilake.delta.protocol.actions import EMPTY_BATCH, ActionBatch, parse_commits
from trilake.errors import TrilakeError, UnsupportedProtocolError
from trilake.storage.base import ObjectMeta, Store
from trilake.table.findings import Depth, Finding, NotCheckedError

T = TypeVar("T")
#: Commits fetched and parsed at once.
_AT_ONCE = 2000


@dataclass
class DeltaContext:
    """A table during verification of the version ``requested``, by default the newest.

    ``sample`` is how many files' rows to read.
    """

    store: Store
    engine: Engine
    requested: int | None
    depth: Depth
    sample: int | None = None
    #: Errors while reading, by the code of the check that reports them.
    bad_commits: dict[int, TrilakeError] = field(default_factory=dict)
    snapshot_error: TrilakeError | None = None
    shared: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def log(self) -> DeltaLog:
        return DeltaLog(self.store, self.engine)

    @cached_property
    def everything(self) -> LogListing:
        """All files of the log."""
        return self.log.listing()

    @cached_property
    def version(self) -> int:
        """The version to verify.  Raises ``TableNotFoundError`` or ``VersionNotFoundError``."""
        return choose_version(self.everything, uri=self.store.uri, version=self.requested)

    @cached_property
    def listing(self) -> LogListing:
        """The files of the log up to the version."""
        log, last = self.everything, self.version
        return LogListing(
            {v: m for v, m in log.commits.items() if v <= last},
            tuple(c for c in log.compactions if c[1] <= last),
            tuple(c for c in log.checkpoints if c[0] <= last),
            {v: m for v, m in log.checksums.items() if v <= last},
        )

    def once(self, read: Callable[[DeltaContext], T]) -> T:
        """A result shared by several checks: read for the first of them."""
        if read not in self.shared:
            self.shared[read] = read(self)
        result: T = self.shared[read]
        return result

    # --- the commits -------------------------------------------------------------------------------------------------

    @cached_property
    def batch(self) -> ActionBatch:
        """The actions of all readable commits; ``bad_commits`` has the others."""
        commits = sorted(self.listing.commits.items())
        parts = [p for i in range(0, len(commits), _AT_ONCE) for p in self._parse(commits[i : i + _AT_ONCE])]
        add, remove, cdc = (_joined(parts, kind) for kind in ("add", "remove", "cdc"))
        return ActionBatch(add, remove, cdc, tuple(r for p in parts for r in p.rare))

    def _parse(self, commits: Sequence[tuple[int, ObjectMeta]]) -> list[ActionBatch]:
        try:
            data = self.store.read_many([m.key for _, m in commits])
            contents = [(v, m.key, d) for (v, m), d in zip(commits, data, strict=True)]
            return [parse_commits(contents, self.log.engine.query)]
        except TrilakeError as e:
            if len(commits) == 1:
                self.bad_commits[commits[0][0]] = e
                return []
            middle = len(commits) // 2
            return self._parse(commits[:middle]) + self._parse(commits[middle:])

    def actions(self, first: int, last: int) -> ActionBatch:
        """The actions of the commits between two versions, both included."""
        batch = self.batch

        def within(t: pa.Table) -> pa.Table:
            v = t["version"]
            return t.filter(pc.and_(pc.greater_equal(v, first), pc.less_equal(v, last)))

        rare = tuple(r for r in batch.rare if first <= r[0] <= last)
        return ActionBatch(within(batch.add), within(batch.remove), within(batch.cdc), rare)

    def has_commits(self, first: int, last: int) -> bool:
        """Whether all commits between two versions exist and are readable."""
        _ = self.batch
        good = sum(1 for v in self.listing.commits if first <= v <= last and v not in self.bad_commits)
        return good == last - first + 1

    @cached_property
    def origin(self) -> tuple[State, int]:
        """The oldest state from which commits lead to the version, and its version; -1 for the beginning."""
        if self.has_commits(0, self.version):
            return empty_state(), -1
        if (base := self._base(self.version, self.listing.checkpoints)) is not None:
            return base
        raise NotCheckedError(f"version {self.version} cannot be reconstructed from the log", file=self.store.uri)

    def states(self, versions: Sequence[int]) -> Iterator[tuple[int, State]]:
        """The states of some versions, ascending, computed only from commits, as far as that is possible."""
        state, at, reached = empty_state(), -1, True
        for version in sorted(set(versions)):
            reached = reached and self.has_commits(at + 1, version)
            if not reached:
                base = self._base(version, [c for c in reversed(self.listing.checkpoints) if c[0] < version])
                if base is None:
                    continue
                state, at = base
                reached = True
            state, at = apply(state, self.actions(at + 1, version)), version
            yield version, state

    def _base(
        self, version: int, checkpoints: Sequence[tuple[int, tuple[ObjectMeta, ...]]]
    ) -> tuple[State, int] | None:
        """The first of these checkpoints that is readable and from which commits lead to a version."""
        for at, files in checkpoints:
            if self.has_commits(at + 1, version):
                with suppress(TrilakeError):
                    return self.checkpoint(at, files), at
        return None

    def checkpoint(self, version: int, files: tuple[ObjectMeta, ...]) -> State:
        """The content of a checkpoint, including tombstones.  Raises ``CorruptLogError``."""
        segment = LogSegment(version, version, files, ())
        query = self.log.engine.query
        state = read_checkpoint(self.store, segment, query)
        return replace(state, removes=read_checkpoint_tombstones(self.store, segment, query))

    def finding(self, code: str, message: str, help: str | None, **where: Any) -> Finding:
        """A finding about the version."""
        return Finding(code, message, help, version=self.version, **where)

    def of_files(
        self, wrong: pa.Array | pa.ChunkedArray, code: str, message: str, help: str, **where: Any
    ) -> Iterator[Finding]:
        """The same finding about each of the version's files that are ``wrong``."""
        for file in self.adds["file"].filter(wrong).to_pylist():
            yield self.finding(code, message, help, file=file, **where)

    # --- the version -------------------------------------------------------------------------------------------------

    @cached_property
    def snapshot(self) -> Snapshot:
        """The version, read from other files if some are damaged.  Raises ``NotCheckedError``."""
        try:
            return self.log.snapshot(self.version)
        except UnsupportedProtocolError as e:
            raise NotCheckedError(e.message, file=self.store.uri) from e
        except TrilakeError as e:
            self.snapshot_error = e
        for _, state in self.states([self.version]):
            if state.protocol is not None and state.metadata is not None:
                # Without compaction files and, if the commits go back to the beginning, without checkpoints.
                whole = self.has_commits(0, self.version)
                commits = LogListing(self.listing.commits, (), () if whole else self.listing.checkpoints)
                segment = choose_segment(commits, uri=self.store.uri, version=self.version)
                return Snapshot(self.store.uri, self.version, state, segment, self.engine)
        raise NotCheckedError(f"version {self.version} cannot be reconstructed from the log", file=self.store.uri)

    @cached_property
    def adds(self) -> pa.Table:
        """The files of the version, with their decoded path in the column ``file``."""
        adds = self.snapshot.adds
        try:
            return adds.append_column("file", decoded_paths(adds["path"]))
        except TrilakeError as e:
            raise NotCheckedError(e.message) from e

    @property
    def file_count(self) -> int:
        """The number of files of the version."""
        return int(self.adds.num_rows)


def _joined(parts: Sequence[ActionBatch], kind: str) -> pa.Table:
    """The file actions of one kind, with orders that continue from part to part."""
    tables: list[pa.Table] = [getattr(EMPTY_BATCH, kind)]
    for number, part in enumerate(parts):
        table: pa.Table = getattr(part, kind)
        order = pc.add(table["order"], number << 40)  # far more than the lines of a part
        tables.append(table.set_column(table.schema.get_field_index("order"), "order", order))
    return pa.concat_tables(tables)
