"""The version of a table that a read shows, and newer ones, with checks of their columns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.char_varchar import TYPE_STRING
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import SchemaMismatchError, StorageError
from trilake.spark.scan.frame_tables import RowCount
from trilake.spark.session.analysis_errors import analysis_error, as_spark_errors
from trilake.spark.session.bypass import bypass
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.type_tree import all_nullable, paired
from trilake.storage.base import ObjectMeta

#: If a check costs a request, how many ms a version counts as the newest.
_FRESH_MS = 200
_each_plan: ContextVar[bool] = ContextVar("trilake_each_plan", default=False)
_at: ContextVar[Mapping[str, int]] = ContextVar("trilake_version_to_read", default=MappingProxyType({}))


@dataclass(frozen=True)
class ReadVersion:
    """The version of a table that a DataFrame shows, and the newest file of its log, if known."""

    table: DeltaLog
    version: int
    file: ObjectMeta | None = None

    @classmethod
    def of(cls, table: ArrowDeltaTable) -> ReadVersion:
        return cls(table.log, table.version, table.opened.segment.newest_file)


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
        """The newest version; reads the table again if there is a newer one.  Errors are raised as Spark's."""
        with self.lock, as_spark_errors():
            if self._is_behind():
                self.current = self._read_again()
            return self.current

    def at(self, version: int) -> Read:
        """The rows of ``version``, which another read of the table found to be the newest."""
        with self.lock, as_spark_errors():
            if self.current.snapshot.version == version:
                return self.current
            with reading(self.current.snapshot.table.store.uri, version):
                return self._read_again()

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


@contextmanager
def reading(uri: str, version: int) -> Iterator[None]:
    """In the block, reads of the newest version of the table at ``uri`` show this version."""
    token = _at.set({**_at.get(), uri: version})
    try:
        yield
    finally:
        _at.reset(token)


def version_to_read(uri: str) -> int | None:
    """The version to read instead of the newest; ``None`` for the newest."""
    return _at.get().get(uri)


def is_read_in_each_plan() -> bool:
    """Re-plan per micro-batch: whether each new plan should look for the newest version.  Spark's native scan has the
    files of one version, whereas a data source can check the log whenever Spark plans."""
    return _each_plan.get()


def is_in_cache(frame: DataFrame) -> bool:
    """Whether Spark's cache holds the rows of this DataFrame."""
    level = frame.storageLevel
    return bool(level.useMemory or level.useDisk)


def check_columns(old: T.StructType, new: T.StructType, snapshot: ReadVersion) -> None:
    """Raise ``SchemaMismatchError`` (also one of Spark's) if the table has dropped a column or changed its type, also
    from ``char(n)``: the DataFrame's conditions have padded constants."""
    fields = {f.name: f for f in new.fields}
    for f in old.fields:
        new_field, limit = fields.get(f.name), str(f.metadata.get(TYPE_STRING, ""))
        limited = limit.startswith("char(") and new_field is not None and new_field.metadata.get(TYPE_STRING) != limit
        if new_field is None or limited or not has_all_of(f.dataType, new_field.dataType):
            change = (
                "was dropped"
                if new_field is None
                else f"has changed from {limit if limited else f.dataType.simpleString()} to"
                f" {new_field.metadata.get(TYPE_STRING, new_field.dataType.simpleString())}"
            )
            raise analysis_error(
                SchemaMismatchError(
                    f"column {f.name!r} of the table {change} since this DataFrame was read",
                    help="read the table again",
                    file=snapshot.table.store.uri,
                    version=snapshot.version,
                    column=f.name,
                    condition="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
                )
            )


def has_all_of(old: T.DataType, new: T.DataType) -> bool:
    """Whether ``new`` has every field of ``old``, including nested structs; nullability is ignored.

    >>> old, new = T.ArrayType(T.StructType([])), T.ArrayType(T.StructType([T.StructField("a", T.LongType())]))
    >>> has_all_of(old, new), has_all_of(new, old)
    (True, False)
    """
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        types = {f.name: f.dataType for f in new.fields}
        return all(f.name in types and has_all_of(f.dataType, types[f.name]) for f in old.fields)
    inside = paired(old, new)
    return old.simpleString() == new.simpleString() if inside is None else all(has_all_of(*pair) for pair in inside)


def in_types_of(schema: T.StructType, frame: DataFrame) -> DataFrame:
    """The DataFrame with its structs cast to the types of ``schema``, if they differ."""
    types = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
    if all(types[f.name] == f.dataType.simpleString() for f in schema.fields):
        return frame
    return frame.to(T.StructType([T.StructField(f.name, all_nullable(f.dataType)) for f in schema.fields]))
