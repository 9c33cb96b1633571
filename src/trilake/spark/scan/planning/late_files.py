"""The files of a table that are not listed before Spark plans a query: those that its conditions leave, and no others.

For a table of very many files.  :class:`LateFiles` is Spark's index of such a scan: it asks for a list whenever a query
is planned, hands it to Spark's own index, and keeps the newest lists, so that to plan twice is to list once.

Partition values are constants of folders to Spark.  Where folders spell the values, Spark's index infers them, and
leaves folders out by conditions.  Elsewhere :class:`ValueFolders` gives the values of each group of files as a row.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.errors import TrilakeError
from trilake.spark.scan.manifest import Integers, NativeScanError
from trilake.spark.scan.partitions import Tuples, attached
from trilake.spark.scan.planning.file_index import PlannedFiles
from trilake.spark.scan.planning.table_reads import TableReads
from trilake.spark.session.compat import dataset_of
from trilake.spark.session.internals import items_of, java_array, java_class, query_execution, say_once, sequence

#: Lists that are kept for the next plan, of all frames, and files that they may have together; the newest list is kept
#: in any case.
_MOST_LISTS, _MOST_FILES = 64, 300_000
#: The column of the rows of partition values that says which one it is.
_NUMBER = "__trilake_tuple"
_DIRECTORY = "org.apache.spark.sql.execution.datasources.PartitionDirectory"
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"


class ListedFiles(NamedTuple):
    """What Spark lists: an index, its own or one like it, and how many files there are."""

    index: Any
    files: int


class _Lists:
    """The newest lists of all tables, least recently used first."""

    def __init__(self) -> None:
        self.kept: OrderedDict[tuple[int, tuple[str, ...]], ListedFiles | None] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, key: tuple[int, tuple[str, ...]]) -> tuple[bool, ListedFiles | None]:
        with self.lock:
            if key not in self.kept:
                return False, None
            self.kept.move_to_end(key)
            return True, self.kept[key]

    def put(self, key: tuple[int, tuple[str, ...]], listed: ListedFiles | None) -> None:
        """Keep a list, and put others away where there are too many."""
        with self.lock:
            self.kept[key] = listed
            while len(self.kept) > 1 and (len(self.kept) > _MOST_LISTS or self._files() > _MOST_FILES):
                self.kept.popitem(last=False)

    def _files(self) -> int:
        return sum(listed.files for listed in self.kept.values() if listed is not None)


_lists = _Lists()
_numbers = count(1)
#: Lists the files that may hold rows for which all conditions, SQL strings, are true; of no files for ``None``.
ListFiles = Callable[[Sequence[str]], ListedFiles | None]


class LateFiles(PlannedFiles):
    """A ``FileIndex`` of Spark's, in Python, whose files are listed for each plan.

    Parameters
    ----------
    root: URI of the table.
    size: about how many bytes the files have.
    list_files: lists some of them.
    sample: an index of Spark's, which answers what others than ours are asked.
    partitions: the JVM's schema of the partition values.
    reads: is told what plans ask for.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        size: int,
        list_files: ListFiles,
        sample: Any,
        partitions: Any,
        reads: TableReads | None = None,
    ) -> None:
        super().__init__(spark, root, 0, size, _nothing, _nothing, sample, reads)
        self._list_files, self._partitions = list_files, partitions
        self._number, self._listing = next(_numbers), threading.RLock()

    def partitionSchema(self) -> Any:
        """The partition values that come with the files."""
        return self._partitions

    def toString(self) -> str:
        """What logs of Spark show."""
        return "LateFiles"

    def inputFiles(self) -> Any:
        """All files."""
        listed = self._listed(())
        return java_array(self._spark, "java.lang.String", 0) if listed is None else listed.inputFiles()

    def _listed(self, conditions: tuple[str, ...]) -> Any:
        with self._listing:  # one list at a time: each may be a large one
            key = self._number, self._key(conditions)
            known, listed = _lists.get(key)
            if not known:
                listed = self._chosen_list(conditions)
                _lists.put(key, listed)
            return None if listed is None else listed.index

    def _chosen_list(self, conditions: tuple[str, ...]) -> ListedFiles | None:
        try:
            return self._list_files(conditions)
        except TrilakeError:
            raise  # a damaged log, for one
        except Exception as e:
            if not conditions:
                raise
            say_once("the files of a plan are not chosen by its conditions", e)
        return self._list_files(())  # all files are right for every plan


def _nothing(_: object) -> Any:
    raise AssertionError("a late file list needs conditions")


class ValueFolders:
    """An index over files whose partition values come as rows.

    Parameters
    ----------
    flat: Spark's index of the files, in the order of their values.
    numbers: which of the values each file has, ascending.
    values: the distinct values.
    types: of the columns.
    """

    def __init__(
        self, spark: SparkSession, flat: Any, numbers: Integers, values: Tuples, types: Sequence[T.StructField]
    ) -> None:
        self._spark, self._flat = spark, flat
        none = sequence(spark, [])
        self._files = flat.listFiles(none, none).apply(0).files()
        if self._files.size() != len(numbers):
            raise NativeScanError("Spark does not list all given files")
        self._ends = np.searchsorted(numbers, np.arange(int(numbers[-1]) + 2))
        self._values = self._rows(values, types)
        self._new_folder = java_class(spark, _DIRECTORY)

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        """The files in groups of the same values, those for which conditions on the values are true."""
        conditions = [partition_filters.apply(i) for i in range(partition_filters.size())]
        kept = _where(self._values, conditions)
        numbers = [row[0] for row in kept.select(_NUMBER).collect()]
        folders = []
        for number, row in zip(numbers, _java_rows(kept.drop(_NUMBER)), strict=True):
            start, end = (int(n) for n in self._ends[number : number + 2])
            folders.append(self._new_folder(row, self._files.slice(start, end)))
        return sequence(self._spark, folders)

    def inputFiles(self) -> Any:
        """All files."""
        return self._flat.inputFiles()

    def _rows(self, values: Tuples, types: Sequence[T.StructField]) -> DataFrame:
        length = len(next(iter(values.values.values())))
        number = F.col("id").cast("int")
        columns = [attached(values.values[f.name], f.dataType, number).alias(f.name) for f in types]
        return self._spark.range(0, length, 1, 1).select(*columns, number.alias(_NUMBER))


def _java_rows(df: DataFrame) -> Any:
    """The rows of a frame as the JVM's array of Spark's own rows."""
    return query_execution(df).executedPlan().executeCollect()


def _where(df: DataFrame, conditions: Sequence[Any]) -> DataFrame:
    """The rows of a frame for which conditions of another plan are true, whose columns are found by name."""
    spark, plan = df.sparkSession, query_execution(df).analyzed()
    alias, none = java_class(spark, "org.apache.spark.sql.catalyst.expressions.Alias"), sequence(spark, [])
    empty = java_class(spark, "scala.Option").empty()
    other = {str(a.name()): a for c in conditions for a in items_of(c.references().toSeq())}
    columns = [
        a
        if (b := other.get(str(a.name()))) is None
        else alias(a, str(a.name()), b.exprId(), b.qualifier(), empty, none)
        for a in items_of(plan.output())
    ]
    plan = java_class(spark, f"{_PLANS}.Project")(sequence(spark, columns), plan)
    for condition in conditions:
        plan = java_class(spark, f"{_PLANS}.Filter")(condition, plan)
    return dataset_of(spark, plan)
