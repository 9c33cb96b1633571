"""Spark's native scan of tables with very many files, which are listed only when Spark plans a query.

The DataFrame works as in :mod:`~trilake.spark.scan.scan`, except that partition columns always come from the file
index, :class:`LateFiles`, which lists files for each plan, passes them to Spark's own index, and caches the latest
lists.  To Spark, partition values are constants of folders.  If folder names spell the values, Spark's index infers
them and prunes folders; otherwise :class:`ValueFolders` passes the values of each group of files as a row.  Deletion
vectors are part of the plan, so all of them are read when the DataFrame is created.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.lru_cache import LruCache
from trilake.errors import TrilakeError
from trilake.spark.scan.frame_tables import RowCount, note_root
from trilake.spark.scan.manifest import FileKey, Integers, NativeScanError, base_frame, manifest, sound_sizes
from trilake.spark.scan.obstacles import check_files, hadoop_uri
from trilake.spark.scan.partitions import Tuples, attached, distinct, hive_columns
from trilake.spark.scan.planning.file_index import FileIndex
from trilake.spark.scan.planning.table_reads import TableReads
from trilake.spark.scan.scan import FloatRules, NativeFiles, NativeScan, read_fields, read_options, with_place
from trilake.spark.scan.vectors import Vector, alive, pack
from trilake.spark.session.bypass import bypass
from trilake.spark.session.compat import dataset_of
from trilake.spark.session.internals import (
    PLANS,
    file_relation,
    frame_with_files,
    items_of,
    java_class,
    java_session,
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


class ListedFiles(NamedTuple):
    """Listed files: an index of Spark's interface, and the number of files."""

    index: Any
    files: int


_lists = LruCache(_MOST_LISTS, _MOST_FILES, least=1)
_MISSING = object()
_numbers = count(1)
#: Lists the files that may have rows for which all conditions (SQL strings) are true; ``None`` if there are none.
ListFiles = Callable[[Sequence[str]], ListedFiles | None]


class LateFiles(FileIndex):
    """An index that lists files for each plan; ``partitions`` is the JVM's schema of the partition values."""

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        size: int,
        list_files: ListFiles,
        sample: Any,
        partitions: Any,
        reads: TableReads | None,
    ) -> None:
        super().__init__(spark, root, size, sample, reads)
        self._list_files, self._partitions = list_files, partitions
        self._number, self._listing = next(_numbers), threading.RLock()

    def partitionSchema(self) -> Any:
        return self._partitions

    def _listed(self, conditions: tuple[str, ...]) -> Any:
        with self._listing:  # one at a time, since a list may be large
            key = self._number, self._key(conditions)
            listed = _lists.get(key, _MISSING)
            if listed is _MISSING:
                listed = self._chosen_list(conditions)
                _lists.put(key, listed, 0 if listed is None else listed.files)
            return None if listed is None else listed.index

    def _chosen_list(self, conditions: tuple[str, ...]) -> ListedFiles | None:
        try:
            return self._list_files(conditions)
        except TrilakeError:
            raise  # such as a damaged log
        except Exception as e:
            if not conditions:
                raise
            say_once("the conditions of a query do not select its files", e)
        return self._list_files(())  # reading all files is always correct


class ValueFolders:
    """An index of files whose partition values come as rows: ``flat`` is Spark's index of the files, ordered by value,
    and ``numbers`` has the number of each file's values, ascending."""

    def __init__(
        self, spark: SparkSession, flat: Any, numbers: Integers, values: Tuples, types: Sequence[T.StructField]
    ) -> None:
        self._spark, self._flat = spark, flat
        none = sequence(spark, [])
        self._files = flat.listFiles(none, none).apply(0).files()
        if self._files.size() != len(numbers):
            raise NativeScanError("Spark does not list all given files")
        self._ends = np.searchsorted(numbers, np.arange(int(numbers[-1]) + 2))
        number = F.col("id").cast("int")
        columns = [attached(values.values[f.name], f.dataType, number).alias(f.name) for f in types]
        rows = len(next(iter(values.values.values())))
        self._values = spark.range(0, rows, 1, 1).select(*columns, number.alias(_NUMBER))
        self._new_folder = java_class(spark, _DIRECTORY)

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        """The files grouped by partition values, for the values that match the conditions."""
        conditions = [partition_filters.apply(i) for i in range(partition_filters.size())]
        matching = _where(self._values, conditions)
        numbers = [row[0] for row in matching.select(_NUMBER).collect()]
        folders = []
        for number, row in zip(
            numbers, query_execution(matching.drop(_NUMBER)).executedPlan().executeCollect(), strict=True
        ):
            start, end = (int(n) for n in self._ends[number : number + 2])
            folders.append(self._new_folder(row, self._files.slice(start, end)))
        return sequence(self._spark, folders)

    def inputFiles(self) -> Any:
        return self._flat.inputFiles()


def _where(df: DataFrame, conditions: Sequence[Any]) -> DataFrame:
    """Filter a DataFrame by conditions of another plan; columns match by name."""
    spark, plan = df.sparkSession, query_execution(df).analyzed()
    other = {str(a.name()): a for c in conditions for a in items_of(c.references().toSeq())}
    plan = renumbered(spark, plan, [(a, other.get(str(a.name()))) for a in items_of(plan.output())])
    for condition in conditions:
        plan = java_class(spark, f"{PLANS}.Filter")(condition, plan)
    return dataset_of(spark, plan)


_HELP = "read the table with trilake.read(spark, path, filter=...), which lists its files first, or with trilake.open"
#: The approximate memory of a cached scan; the index limits its lists itself.
_SIZE = 1 << 16


@dataclass(frozen=True)
class LateList:
    """The files that a query may need, and the number of each file's deletion vector, or the one after the last."""

    files: NativeFiles
    slots: Integers | None = None


@dataclass(frozen=True)
class LateTable:
    """A table whose ``files`` (without a list) and approximate ``size`` are known.  ``list_files`` lists those for
    conditions (SQL strings); ``vectors`` are all deletion vectors, and ``counts_vectors`` means that none of them
    deletes more rows than its file has; ``rows`` counts the table's rows, if possible."""

    files: NativeFiles
    size: int
    list_files: Callable[[Sequence[str]], LateList]
    vectors: Sequence[Vector] = ()
    rows: Callable[[], int | None] | None = None
    counts_vectors: bool = True


def late_scan(spark: SparkSession, table: LateTable) -> NativeScan:
    """The scan of a table, in a classic session.  Raises :class:`NativeScanError` if only a listed scan is correct."""
    files = table.files
    note_root(files.root)
    read = read_fields(files)
    types = zip(files.partition_columns, files.partition_types.fields, strict=True)
    folders = {name: T.StructField(name, f.dataType) for name, f in types}
    if {f.name.lower() for f in read.values()} & {name.lower() for name in folders}:
        raise NativeScanError("a partition column has the name of another column")
    rules = FloatRules.of(files)
    options = read_options(files, rules, hive=False)
    schema = T.StructType(list(read.values()))
    lister = _Lister(spark, table, schema, list(folders.values()), rules)
    nowhere = pa.chunked_array([[f"{hadoop_uri(files.root)}/none"]]), pa.chunked_array([[1]]), np.zeros(1, np.int64)
    sample = file_relation(base_frame(spark, manifest(*nowhere), files.provider, schema, options))
    partitions = java_session(spark).parseDataType(T.StructType(list(folders.values())).json())
    index = LateFiles(spark, hadoop_uri(files.root), table.size, lister, sample.location(), partitions, files.reads)
    required = {f.name for name, f in (*read.items(), *folders.items()) if name in files.required}
    base = stored = frame_with_files(spark, sample, index, required, partitions)
    if files.reads is not None:
        files.reads.begin()
    sources = {**read, **folders}
    size = _SIZE
    if table.vectors:
        base, time, number = with_place(base)
        packed = pack(table.vectors)
        slot = FileKey({"slot": np.array([len(table.vectors)])}).term("slot", time)
        base = alive(spark, base, packed, slot, number=number)
        size += packed.size
    deleted = sum(map(len, table.vectors))
    count = RowCount(stored if deleted and table.counts_vectors else None, deleted, table.rows)
    return NativeScan(
        base, rules.columns(sources, read), sources, None, size, files.id_mode, count=count, reads=files.reads
    )


@dataclass(frozen=True)
class _Lister:
    """Lists the files of a plan for Spark; ``partitions`` are the columns whose values come with the files."""

    spark: SparkSession
    table: LateTable
    schema: T.StructType
    partitions: Sequence[T.StructField]
    rules: FloatRules

    def __call__(self, conditions: Sequence[str]) -> ListedFiles | None:
        listed = self.table.list_files(conditions)
        count = len(listed.files.paths)
        if not count:
            return None
        try:
            with bypass():
                return ListedFiles(self._index(listed), count)
        except NativeScanError as e:  # Spark is already planning: no fallback
            raise NativeScanError(e.message, help=_HELP, file=listed.files.root) from e

    def _index(self, listed: LateList) -> object:
        files = listed.files
        check_files(self.spark, files.provider, files.paths, vectors=bool(self.table.vectors))
        names = [f.name for f in self.partitions]
        if not names:
            return self._flat(listed, None)
        values = {n: files.partition_columns[n] for n in names}
        inferred = hive_columns(files.root, files.paths, values, {n: n for n in names})
        if inferred is not None and list(inferred.values()) == names == list(inferred):
            return self._flat(listed, None, hive=True)
        tuples = distinct(values)
        order = np.argsort(tuples.number, kind="stable")
        return ValueFolders(self.spark, self._flat(listed, order), tuples.number[order], tuples, self.partitions)

    def _flat(self, listed: LateList, order: Integers | None, *, hive: bool = False) -> object:
        """Spark's index of the files, in this order."""
        files = listed.files
        paths, sizes = files.paths, sound_sizes(files.paths, files.sizes)
        modified = self._modified(listed)
        if order is not None:
            paths, sizes, modified = paths.take(pa.array(order)), sizes.take(pa.array(order)), modified[order]
        schema = T.StructType([*self.schema.fields, *(self.partitions if hive else ())])
        options = read_options(self.table.files, self.rules, hive=hive)
        listing = manifest(paths, sizes, modified)
        return file_relation(base_frame(self.spark, listing, files.provider, schema, options)).location()

    def _modified(self, listed: LateList) -> Integers:
        count, times = len(listed.files.paths), listed.files.modified()
        if listed.slots is None:
            return FileKey({}).packed(count, times)
        # Add the number of a missing vector, so that numbers have the same width in every list.
        slots = np.append(listed.slots, len(self.table.vectors))
        return FileKey({"slot": slots}).packed(count + 1, None if times is None else np.append(times, 0))[:count]
