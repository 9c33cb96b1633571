"""Which version of a table a read shows, and how a newer one is found."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from pyspark.sql import DataFrame

from trilake.delta.table import ArrowDeltaTable
from trilake.errors import StorageError, TrilakeError
from trilake.spark.scan.row_counts import RowCount
from trilake.spark.session.analysis_errors import analysis_error, raise_for_spark
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.passing import spark_alone
from trilake.storage.base import ObjectMeta, Store

_NOTED = "_trilake_version"
#: Milliseconds for which a version counts as the newest one where it takes a request to look.
_FRESH_MS = 200
_each_plan: ContextVar[bool] = ContextVar("trilake_each_plan", default=False)
_at: ContextVar[Mapping[str, int]] = ContextVar("trilake_version_to_read", default=MappingProxyType({}))


class Versions(Protocol):
    """The log of a table."""

    store: Store

    def has_newer(self, version: int, file: ObjectMeta | None = None) -> bool:
        """Whether there is another version than this one, whose newest file was ``file``."""


@dataclass(frozen=True)
class ReadVersion:
    """Which version of which table a frame shows, and the newest file of its log, where that is known."""

    table: Versions
    version: int
    file: ObjectMeta | None = None

    @classmethod
    def of(cls, table: ArrowDeltaTable) -> ReadVersion:
        """That of an open table."""
        return cls(table.log, table.version, table.opened.segment.newest_file)


def note_version(frame: DataFrame, shown: ReadVersion) -> DataFrame:
    """Remember that a frame shows the newest version of a table, which is this one; the frame itself."""
    frame.__dict__[_NOTED] = shown
    return frame


def noted_version(frame: DataFrame) -> ReadVersion | None:
    """What :func:`note_version` was given; ``None`` for a frame of an older version, for one."""
    shown = getattr(frame, "__dict__", {}).get(_NOTED)
    return shown if isinstance(shown, ReadVersion) else None


@dataclass(frozen=True, eq=False)
class Read:
    """What was read: the version, how its rows are counted, and the frame, which is Spark's own."""

    shown: ReadVersion
    count: RowCount | None
    frame: DataFrame


@dataclass(eq=False)
class Source:
    """A table that is read again for each newer version."""

    read: Callable[[], Read | None]
    first: Read
    now: Read
    #: When it was last looked for a newer version.
    looked_ms: int
    lock: threading.RLock = field(default_factory=threading.RLock)

    def look(self) -> Read:
        """The newest version, which is read where it is newer than the one that was read before.

        Raises the errors of the read, as Spark's, also where the store does not say which version is the newest.
        """
        with self.lock, _as_spark_raises():
            if self._is_behind():
                self.now = self._read_again()
            return self.now

    def at(self, version: int) -> Read:
        """A version that another read of the table has found to be the newest one.  Raises as :meth:`look`."""
        with self.lock, _as_spark_raises():
            if self.now.shown.version == version:
                return self.now
            token = _at.set({self.now.shown.table.store.uri: version})
            try:
                return self._read_again()
            finally:
                _at.reset(token)

    def _read_again(self) -> Read:
        with spark_alone():
            return self.read() or self.now

    def of_each_plan(self) -> DataFrame:
        """The rows of the version that is the newest one whenever Spark makes a plan."""
        token = _each_plan.set(True)
        try:
            with spark_alone():
                read = self.read()
        finally:
            _each_plan.reset(token)
        return self.now.frame if read is None else read.frame

    def _is_behind(self) -> bool:
        now, shown = spark_engine().runtime.clock_ms(), self.now.shown
        if 0 <= now - self.looked_ms < _FRESH_MS and shown.table.store.local_path("x") is None:
            return False
        try:
            behind = shown.table.has_newer(shown.version, shown.file)
        except OSError as e:
            uri = shown.table.store.uri
            raise StorageError(f"cannot look for a newer version of the table: {e}", file=uri) from e
        self.looked_ms = now
        return behind


@contextmanager
def _as_spark_raises() -> Iterator[None]:
    try:
        yield
    except TrilakeError as e:
        raise_for_spark(e, analysis_error(e))


def look_for_newest(sources: Mapping[int, Source]) -> dict[int, Read]:
    """The newest version of each source; of the same one where several are of one table."""
    reads = {number: source.look() for number, source in sources.items()}
    newest: dict[str, int] = {}
    for shown in (read.shown for read in reads.values()):
        uri = shown.table.store.uri
        newest[uri] = max(shown.version, newest.get(uri, shown.version))
    if len(newest) == len(reads):
        return reads
    versions = {n: newest[read.shown.table.store.uri] for n, read in reads.items()}
    return {n: r if r.shown.version == versions[n] else sources[n].at(versions[n]) for n, r in reads.items()}


def are_of_one_version(reads: Iterable[Read]) -> bool:
    """Whether reads of one table are of one version."""
    versions: dict[str, int] = {}
    return all(versions.setdefault(r.shown.table.store.uri, r.shown.version) == r.shown.version for r in reads)


def version_to_read(uri: str) -> int | None:
    """The version of a table that is to be read in place of the newest one; ``None`` for the newest."""
    return _at.get().get(uri)


def is_read_in_each_plan() -> bool:
    """Whether the newest version is to be looked for in each plan, as a stream makes one for each batch.

    Spark's native scan has the files of one version.  Rows through Arrow come from a table that Spark asks for a scan
    whenever it plans, and which can look at its log then.
    """
    return _each_plan.get()
