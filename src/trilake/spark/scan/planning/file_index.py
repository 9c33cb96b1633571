"""The files of a native scan, chosen when Spark plans a query.

Spark asks the ``FileIndex`` of a scan for its files once a query is planned, and hands it the conditions that the
query puts on the scan, wherever they were written: in ``where``, in a join, in SQL over a view.  :class:`PlannedFiles`
is such an index, in Python: it leaves out the files that the table's statistics rule out, and has Spark's own index
list the others from a manifest.  Each use of a frame has its own plan, so a frame may be filtered in many ways, joined
with itself and cached.

Spark applies all conditions to the rows again: a condition that is not understood costs time, never rows.  What goes
wrong while files are chosen leaves the list as it is.

This takes a classic session, whose JVM can call Python; see :mod:`trilake.spark.session.internals`.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, SparkSession

from trilake.spark.scan.planning.table_reads import TableReads
from trilake.spark.session.bypass import bypass
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import (
    InternalsError,
    file_relation,
    frame_with_files,
    hadoop_path,
    items_of,
    say_once,
    sequence,
)
from trilake.spark.session.settings import session_zone

#: Which files may hold rows for which all conditions, SQL strings, are true; ``None`` for all of them.
Prune = Callable[[Sequence[str]], npt.NDArray[np.bool_] | None]
#: Makes Spark's own scan of the files at these positions; of all for ``None``.
Scan = Callable[[npt.NDArray[np.int64] | None], DataFrame]

#: Conditions longer than this are values of files spelled out, which Spark's own index goes by.
_LONGEST = 1 << 16
#: Conditions with such a word in them may mean something else in another zone.
_TIMED = re.compile("TIMESTAMP|CAST", re.IGNORECASE)
#: Lists of files that are kept for the next plan with the same conditions, apart from that of all files.
_MOST_LISTS = 8


def planned_frame(
    spark: SparkSession,
    root: str,
    count: int,
    size: int,
    scan: Scan,
    prune: Prune,
    required: Collection[str] = (),
    reads: TableReads | None = None,
) -> DataFrame | None:
    """A frame over files that are chosen when a query is planned; ``None`` where this session cannot do that.

    Parameters
    ----------
    root: URI of the table, which plans show.
    count, size: how many files there are, and their bytes.
    scan: makes Spark's own scan of some of them.
    prune: which of them a query needs.
    required: columns of the scan that hold no nulls.
    reads: is told what plans ask for.
    """
    if is_connect(spark):
        return None
    try:
        sample = file_relation(scan(np.zeros(1, np.int64)))
        index = PlannedFiles(spark, root, count, size, scan, prune, sample.location(), reads)
        frame = frame_with_files(spark, sample, index, required)
        if reads is not None:
            reads.begin()
        return frame
    except InternalsError as e:
        say_once("files are not chosen when a query is planned", e)
    except Exception as e:  # noqa: BLE001 - py4j's errors, and what a renamed class of Spark gives
        say_once("files are not chosen when a query is planned", e)
    return None


class PlannedFiles:
    """A ``FileIndex`` of Spark's, in Python; the names of its methods are Spark's."""

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        count: int,
        size: int,
        scan: Scan,
        prune: Prune,
        sample: Any,
        reads: TableReads | None = None,
    ) -> None:
        self._spark, self._count, self._size = spark, count, size
        self._scan, self._prune = scan, prune
        self._sample, self._reads = sample, reads
        self._root = sequence(spark, [hadoop_path(spark, root)])
        self._all: Any = None
        self._lists: OrderedDict[tuple[str, ...], Any] = OrderedDict()
        self._lock = threading.Lock()

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        """The files of a plan, as ``PartitionDirectory`` objects."""
        conditions: list[str] = []
        try:
            conditions = [str(e.sql()) for e in (*items_of(partition_filters), *items_of(data_filters))]
        except Exception as e:  # noqa: BLE001 - an expression without a text
            say_once("conditions of a plan do not choose files", e)
        short = tuple(sorted(c for c in conditions if len(c) <= _LONGEST))
        if self._reads is not None:
            self._reads.note(short)
        listed = self._listed(short)
        return sequence(self._spark, []) if listed is None else listed.listFiles(partition_filters, data_filters)

    def rootPaths(self) -> Any:
        """Where the table is."""
        return self._root

    def inputFiles(self) -> Any:
        """All files."""
        return self._everything().inputFiles()

    def refresh(self) -> None:
        """Nothing: the files are those of one version."""

    def sizeInBytes(self) -> int:
        """Bytes of all files, by which Spark chooses how to join."""
        return self._size

    def partitionSchema(self) -> Any:
        """The columns that are inferred from folders."""
        return self._sample.partitionSchema()

    def equals(self, other: object) -> bool:
        """Whether this is ``other``: the JVM asks only where they are not the same object."""
        return False

    def hashCode(self) -> int:
        """A number that is the same for the same object."""
        return id(self) & 0x7FFFFFFF

    def toString(self) -> str:
        """What logs of Spark show."""
        return f"PlannedFiles({self._count} files)"

    def __getattr__(self, name: str) -> Any:
        # What other releases of Spark ask an index for, Spark's own index answers.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._sample, name)

    def _listed(self, conditions: tuple[str, ...]) -> Any:
        """Spark's own index of the files that rows under these conditions may be in; ``None`` where there are none."""
        if not conditions:
            return self._everything()
        key = self._key(conditions)
        with self._lock:
            if key in self._lists:
                self._lists.move_to_end(key)
                return self._lists[key]
        listed = self._chosen(conditions)
        with self._lock:
            self._lists[key] = listed
            while len(self._lists) > _MOST_LISTS:
                self._lists.popitem(last=False)
        return listed

    def _key(self, conditions: tuple[str, ...]) -> tuple[str, ...]:
        """What says of two plans that their conditions mean the same: times are in the zone of the session."""
        timed = any(_TIMED.search(c) for c in conditions)
        return (*conditions, session_zone(self._spark)) if timed else conditions

    def _chosen(self, conditions: tuple[str, ...]) -> Any:
        try:
            keep = self._prune(conditions)
        except Exception as e:  # noqa: BLE001 - all files are right for every plan
            say_once("the files of a plan are not chosen by its conditions", e)
            keep = None
        count = self._count if keep is None else int(np.count_nonzero(keep))
        if keep is None or count == self._count:
            return self._everything()
        return self._index(np.flatnonzero(keep)) if count else None

    def _everything(self) -> Any:
        if self._all is None:
            self._all = self._index(None)
        return self._all

    def _index(self, positions: npt.NDArray[np.int64] | None) -> Any:
        with bypass():
            return file_relation(self._scan(positions)).location()

    class Java:
        """What py4j implements for the JVM."""

        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)
