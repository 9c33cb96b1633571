"""The files of a native scan, chosen when Spark plans a query.

When Spark plans a query, it passes all conditions on the scan to its ``FileIndex``: from ``where``, from a join, or
from SQL over a view.  :class:`PlannedFiles` is such an index in Python: it skips files by the table's statistics, and
lets Spark's own index list the others from a manifest.  Each use of a DataFrame has its own plan, so a DataFrame
can be filtered in many ways, joined with itself and cached.

Spark applies all conditions to the rows again, so a condition that cannot be parsed costs time, never rows.  If
choosing files fails, all files are read.

This needs a classic session, whose JVM can call Python; see :mod:`trilake.spark.session.internals`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, SparkSession

from trilake.common.lru_cache import LruCache
from trilake.spark.scan.planning.table_reads import TableReads
from trilake.spark.session.bypass import bypass
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import (
    MISSING_NAME,
    SPARK_ERRORS,
    JavaObject,
    file_relation,
    frame_with_files,
    hadoop_path,
    items_of,
    java_array,
    say_once,
    sequence,
)
from trilake.spark.session.settings import session_zone

#: Which files may have rows for which all conditions (SQL strings) are true; ``None`` for all files.
Prune = Callable[[Sequence[str]], npt.NDArray[np.bool_] | None]
#: Makes Spark's scan of the files at these positions; ``None`` for all files.
Scan = Callable[[npt.NDArray[np.int64] | None], DataFrame]

#: Longer conditions contain lists of file values, which only Spark's index uses.
_LONGEST = 1 << 16
#: Conditions with such a word may depend on the time zone.
_TIMED = re.compile("TIMESTAMP|CAST", re.IGNORECASE)
#: The limit on cached file lists per frame; they are cached by condition.
_MOST_LISTS = 8


@dataclass(frozen=True)
class PrunableFiles:
    """``count`` files below ``root``, of ``size`` bytes in total, which ``prune`` chooses and ``scan`` reads; ``reads``
    notes the conditions of plans."""

    root: str
    count: int
    size: int
    prune: Prune
    scan: Scan
    reads: TableReads | None


def planned_frame(spark: SparkSession, files: PrunableFiles, required: Collection[str]) -> DataFrame | None:
    """A DataFrame over the files that are chosen when Spark plans a query; ``None`` if this session does not support
    that.  ``required`` columns are non-nullable."""
    if is_connect(spark):
        return None
    try:
        sample = file_relation(files.scan(np.zeros(1, np.int64)))
        frame = frame_with_files(spark, sample, PlannedFiles(spark, files, sample.location()), required)
        if files.reads is not None:
            files.reads.begin()
        return frame
    except MISSING_NAME as e:
        say_once("files are not selected during planning", e)
    return None


class FileIndex(JavaObject):
    """A Spark ``FileIndex`` in Python, with the methods of Spark's interface.  ``size`` is the bytes of all files,
    ``sample`` an index of Spark's own, for all other methods."""

    def __init__(self, spark: SparkSession, root: str, size: int, sample: Any, reads: TableReads | None) -> None:
        self._spark, self._size, self._sample, self._reads = spark, size, sample, reads
        self._root = sequence(spark, [hadoop_path(spark, root)])

    @abstractmethod
    def _listed(self, conditions: tuple[str, ...]) -> Any:
        """Spark's index of the files that may match these conditions; ``None`` if there are none."""

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        """The files of a plan, as ``PartitionDirectory`` objects."""
        conditions: list[str] = []
        try:
            conditions = [str(e.sql()) for e in (*items_of(partition_filters), *items_of(data_filters))]
        except SPARK_ERRORS as e:  # an expression without SQL
            say_once("the conditions of a query do not select its files", e)
        short = tuple(sorted(c for c in conditions if len(c) <= _LONGEST))
        if self._reads is not None:
            self._reads.note(short)
        listed = self._listed(short)
        return sequence(self._spark, []) if listed is None else listed.listFiles(partition_filters, data_filters)

    def rootPaths(self) -> Any:
        return self._root

    def inputFiles(self) -> Any:
        listed = self._listed(())
        return java_array(self._spark, "java.lang.String", 0) if listed is None else listed.inputFiles()

    def refresh(self) -> None:
        """Do nothing, since the files are those of one version."""

    def sizeInBytes(self) -> int:
        """The bytes of all files, by which Spark chooses joins."""
        return self._size

    def partitionSchema(self) -> Any:
        return self._sample.partitionSchema()

    def __getattr__(self, name: str) -> Any:
        # For methods of other Spark releases, use Spark's own index.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._sample, name)

    def _key(self, conditions: tuple[str, ...]) -> tuple[str, ...]:
        """The cache key: timestamps depend on the session's time zone."""
        timed = any(_TIMED.search(c) for c in conditions)
        return (*conditions, session_zone(self._spark)) if timed else conditions

    class Java:
        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)


class PlannedFiles(FileIndex):
    """An index of files that are chosen for each plan; ``scan`` lets Spark list them."""

    def __init__(self, spark: SparkSession, files: PrunableFiles, sample: Any) -> None:
        super().__init__(spark, files.root, files.size, sample, files.reads)
        self._files = files
        self._all: Any = None
        self._lists = LruCache(_MOST_LISTS, _MOST_LISTS)

    def _listed(self, conditions: tuple[str, ...]) -> Any:
        if not conditions:
            return self._everything()
        key = self._key(conditions)
        listed = self._lists.get(key, self)
        if listed is self:
            listed = self._chosen(conditions)
            self._lists.put(key, listed, 1)
        return listed

    def _chosen(self, conditions: tuple[str, ...]) -> Any:
        try:
            keep = self._files.prune(conditions)
        except Exception as e:  # noqa: BLE001 - reading all files is always correct
            say_once("the conditions of a query do not select its files", e)
            keep = None
        if keep is None or keep.all():
            return self._everything()
        return self._index(np.flatnonzero(keep)) if keep.any() else None

    def _everything(self) -> Any:
        if self._all is None:
            self._all = self._index(None)
        return self._all

    def _index(self, positions: npt.NDArray[np.int64] | None) -> Any:
        with bypass():
            return file_relation(self._files.scan(positions)).location()
