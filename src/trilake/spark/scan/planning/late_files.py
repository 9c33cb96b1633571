"""The file index of a table with very many files: during planning, lists only files that match a query's conditions.

:class:`LateFiles` lists files whenever Spark plans a query, passes them to Spark's own index, and caches the latest
lists, so that planning a query twice lists files once.

To Spark, partition values are constants of folders.  If folder names spell the values, Spark's index infers them and
prunes folders.  Otherwise :class:`ValueFolders` passes the values of each group of files as a row.
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
from trilake.spark.session.internals import (
    items_of,
    java_array,
    java_class,
    query_execution,
    renumbered,
    say_once,
    sequence,
)

#: Limits on the lists of all frames that are kept for later plans, and on their files; the newest list is always
#: kept.
_MOST_LISTS, _MOST_FILES = 64, 300_000
#: The column with the number of a row of partition values.
_NUMBER = "__trilake_tuple"
_DIRECTORY = "org.apache.spark.sql.execution.datasources.PartitionDirectory"
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"


class ListedFiles(NamedTuple):
    """Listed files: an index of Spark's interface, and the number of files."""

    index: Any
    files: int


class _Lists:
    """The LRU cache of the lists of all tables."""

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
        with self.lock:
            self.kept[key] = listed
            while len(self.kept) > 1 and (len(self.kept) > _MOST_LISTS or self._files() > _MOST_FILES):
                self.kept.popitem(last=False)

    def _files(self) -> int:
        return sum(listed.files for listed in self.kept.values() if listed is not None)


_lists = _Lists()
_numbers = count(1)
#: Lists the files that may have rows for which all conditions (SQL strings) are true; ``None`` if there are none.
ListFiles = Callable[[Sequence[str]], ListedFiles | None]


class LateFiles(PlannedFiles):
    """A Spark ``FileIndex`` in Python that lists files for each plan.

    Parameters
    ----------
    root: URI of the table.
    size: approximate bytes of the files.
    list_files: lists the files for some conditions.
    sample: an index of Spark's, for all methods that are not defined here.
    partitions: the JVM's schema of the partition values.
    reads: records the conditions of plans.
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
        """The columns of the partition values."""
        return self._partitions

    def inputFiles(self) -> Any:
        """All files."""
        listed = self._listed(())
        return java_array(self._spark, "java.lang.String", 0) if listed is None else listed.inputFiles()

    def _listed(self, conditions: tuple[str, ...]) -> Any:
        with self._listing:  # one at a time, since a list may be large
            key = self._number, self._key(conditions)
            is_cached, listed = _lists.get(key)
            if not is_cached:
                listed = self._chosen_list(conditions)
                _lists.put(key, listed)
            return None if listed is None else listed.index

    def _chosen_list(self, conditions: tuple[str, ...]) -> ListedFiles | None:
        try:
            return self._list_files(conditions)
        except TrilakeError:
            raise  # such as a damaged log
        except Exception as e:
            if not conditions:
                raise
            say_once("the files of a plan are not chosen by its conditions", e)
        return self._list_files(())  # reading all files is always correct


def _nothing(_: object) -> Any:
    raise AssertionError("a late file list needs conditions")


class ValueFolders:
    """An index of files whose partition values come as rows.

    Parameters
    ----------
    flat: Spark's index of the files, ordered by value.
    numbers: the number of each file's values, ascending.
    values: the distinct values.
    types: the types of the columns.
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
        """The files grouped by partition values, for the values that match the conditions."""
        conditions = [partition_filters.apply(i) for i in range(partition_filters.size())]
        matching = _where(self._values, conditions)
        numbers = [row[0] for row in matching.select(_NUMBER).collect()]
        folders = []
        for number, row in zip(numbers, _java_rows(matching.drop(_NUMBER)), strict=True):
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
    return query_execution(df).executedPlan().executeCollect()


def _where(df: DataFrame, conditions: Sequence[Any]) -> DataFrame:
    """Filter a DataFrame by conditions of another plan; columns match by name."""
    spark, plan = df.sparkSession, query_execution(df).analyzed()
    other = {str(a.name()): a for c in conditions for a in items_of(c.references().toSeq())}
    plan = renumbered(spark, plan, [(a, other.get(str(a.name()))) for a in items_of(plan.output())])
    for condition in conditions:
        plan = java_class(spark, f"{_PLANS}.Filter")(condition, plan)
    return dataset_of(spark, plan)
