"""The version of a table that a read shows, and how to find a newer one."""

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
from trilake.spark.scan.frame_tables import RowCount
from trilake.spark.session.analysis_errors import analysis_error, raise_for_spark
from trilake.spark.session.bypass import bypass
from trilake.spark.session.engine import spark_engine
from trilake.storage.base import ObjectMeta, Store

_NOTED = "_trilake_version"
#: If a check costs a request, how many ms a version counts as the newest.
_FRESH_MS = 200
_each_plan: ContextVar[bool] = ContextVar("trilake_each_plan", default=False)
_at: ContextVar[Mapping[str, int]] = ContextVar("trilake_version_to_read", default=MappingProxyType({}))


class Versions(Protocol):
    """The log of a table."""

    store: Store

    def has_newer(self, version: int, file: ObjectMeta | None = None) -> bool:
        """Whether the table has a version newer than ``version``, whose newest log file was ``file``."""


@dataclass(frozen=True)
class ReadVersion:
    """The version of a table that a DataFrame shows, and the newest file of its log, if known."""

    table: Versions
    version: int
    file: ObjectMeta | None = None

    @classmethod
    def of(cls, table: ArrowDeltaTable) -> ReadVersion:
        """The version of an open table."""
        return cls(table.log, table.version, table.opened.segment.newest_file)


def note_version(frame: DataFrame, snapshot: ReadVersion) -> DataFrame:
    """Note that a DataFrame shows this version, the newest of its table; returns the DataFrame."""
    frame.__dict__[_NOTED] = snapshot
    return frame


def noted_version(frame: DataFrame) -> ReadVersion | None:
    """The version from :func:`note_version`; ``None`` if there is none, as for time travel."""
    snapshot = getattr(frame, "__dict__", {}).get(_NOTED)
    return snapshot if isinstance(snapshot, ReadVersion) else None


@dataclass(frozen=True, eq=False)
class Read:
    """A read: the version, a way to count its rows, and Spark's own DataFrame."""

    snapshot: ReadVersion
    count: RowCount | None
    frame: DataFrame


@dataclass(eq=False)
class Source:
    """A table that is read again for each newer version."""

    read: Callable[[], Read | None]
    first: Read
    current: Read
    #: Time of the last check for a newer version.
    checked_ms: int
    lock: threading.RLock = field(default_factory=threading.RLock)

    def look(self) -> Read:
        """The newest version; reads the table again if it has a newer version than last time.

        Errors of the read are raised as Spark's.
        """
        with self.lock, _as_spark_raises():
            if self._is_behind():
                self.current = self._read_again()
            return self.current

    def at(self, version: int) -> Read:
        """The rows of ``version``, which another read of the table found to be the newest."""
        with self.lock, _as_spark_raises():
            if self.current.snapshot.version == version:
                return self.current
            token = _at.set({self.current.snapshot.table.store.uri: version})
            try:
                return self._read_again()
            finally:
                _at.reset(token)

    def _read_again(self) -> Read:
        with bypass():
            return self.read() or self.current

    def of_each_plan(self) -> DataFrame:
        """Rows that show the newest version each time Spark plans a query."""
        token = _each_plan.set(True)
        try:
            with bypass():
                read = self.read()
        finally:
            _each_plan.reset(token)
        return self.current.frame if read is None else read.frame

    def _is_behind(self) -> bool:
        now_ms, snapshot = spark_engine().runtime.clock_ms(), self.current.snapshot
        if 0 <= now_ms - self.checked_ms < _FRESH_MS and snapshot.table.store.local_path("x") is None:
            return False
        try:
            behind = snapshot.table.has_newer(snapshot.version, snapshot.file)
        except OSError as e:
            uri = snapshot.table.store.uri
            raise StorageError(f"cannot check for a newer version of the table: {e}", file=uri) from e
        self.checked_ms = now_ms
        return behind


@contextmanager
def _as_spark_raises() -> Iterator[None]:
    try:
        yield
    except TrilakeError as e:
        raise_for_spark(e, analysis_error(e))


def look_for_newest(sources: Mapping[int, Source]) -> dict[int, Read]:
    """The newest version of each source; sources of one table get the same version."""
    reads = {number: source.look() for number, source in sources.items()}
    newest: dict[str, int] = {}
    for snapshot in (read.snapshot for read in reads.values()):
        uri = snapshot.table.store.uri
        newest[uri] = max(snapshot.version, newest.get(uri, snapshot.version))
    if len(newest) == len(reads):
        return reads
    versions = {n: newest[read.snapshot.table.store.uri] for n, read in reads.items()}
    return {n: r if r.snapshot.version == versions[n] else sources[n].at(versions[n]) for n, r in reads.items()}


def are_of_one_version(reads: Iterable[Read]) -> bool:
    """Whether all reads of the same table show the same version."""
    versions: dict[str, int] = {}
    return all(versions.setdefault(r.snapshot.table.store.uri, r.snapshot.version) == r.snapshot.version for r in reads)


def version_to_read(uri: str) -> int | None:
    """The version to read instead of the newest; ``None`` for the newest."""
    return _at.get().get(uri)


def is_read_in_each_plan() -> bool:
    """Re-plan per micro-batch: whether each new plan should look for the newest version.

    Spark's native scan contains the files of one version.  Rows through Arrow come from a data source, which Spark asks
    for a scan whenever it plans, so that the source can check the log each time.
    """
    return _each_plan.get()
