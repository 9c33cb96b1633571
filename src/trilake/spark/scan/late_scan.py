"""Spark's native scan of tables with very many files, which are listed only when Spark plans a query.

The DataFrame works as in :mod:`~trilake.spark.scan.scan`, except that partition columns always come from the file index
(:mod:`~trilake.spark.scan.planning.late_files`).  Deletion vectors are part of the plan, so all of them are read when
the DataFrame is created; each list of files says which file has which vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.spark.scan.bases import base_frame
from trilake.spark.scan.frame_tables import RowCount, note_root
from trilake.spark.scan.manifest import FileKey, Integers, NativeScanError, manifest, sound_sizes
from trilake.spark.scan.partitions import distinct, hive_columns
from trilake.spark.scan.planning.late_files import LateFiles, ListedFiles, ValueFolders
from trilake.spark.scan.refusal import check_files, hadoop_uri
from trilake.spark.scan.scan import FloatRules, NativeFiles, NativeScan, read_fields, read_options, with_place
from trilake.spark.scan.vectors import Vector, alive, pack
from trilake.spark.session.bypass import bypass
from trilake.spark.session.internals import file_relation, frame_with_files, java_session

__all__ = ["LateList", "LateTable", "late_scan"]

_HELP = "read the table with trilake.read(spark, path, filter=...), which lists its files first, or with trilake.open"
#: The approximate memory of a cached scan; the index limits its lists itself.
_SIZE = 1 << 16


@dataclass(frozen=True)
class LateList:
    """The files that a query may need and, if any file has a deletion vector, the number of each file's vector.

    For files without a vector, that is the number after the last vector.
    """

    files: NativeFiles
    slots: Integers | None = None


@dataclass(frozen=True)
class LateTable:
    """A table to scan, whose files are listed later.

    Parameters
    ----------
    files: how to read the files; lists no file.
    size: approximate bytes of all files.
    list_files: lists the files that may have rows for which all conditions are true; these are SQL strings as in
        :data:`~trilake.spark.scan.planning.file_index.Prune`.
    vectors: the deletion vectors of all files.
    rows: the number of rows of the table, if known.
    counts_vectors: whether, according to the log, no vector deletes more rows than its file has.
    """

    files: NativeFiles
    size: int
    list_files: Callable[[Sequence[str]], LateList]
    vectors: Sequence[Vector] = ()
    rows: Callable[[], int | None] | None = None
    counts_vectors: bool = True


def late_scan(spark: SparkSession, table: LateTable) -> NativeScan:
    """The scan of a table, in a classic session.

    Raises :class:`NativeScanError` if only a listed scan is correct, and py4j's errors if Spark's internals
    differ.
    """
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
    sample = file_relation(base_frame(spark, manifest(*nowhere), files.provider, schema, options, keep=False))
    partitions = java_session(spark).parseDataType(T.StructType(list(folders.values())).json())
    index = LateFiles(
        spark, hadoop_uri(files.root), table.size, lister, sample.location(), partitions, reads=files.reads
    )
    required = {f.name for name, f in (*read.items(), *folders.items()) if name in files.required}
    base = stored = frame_with_files(spark, sample, index, required, partitions)
    if files.reads is not None:
        files.reads.begin()
    sources = {**read, **folders}
    size = _SIZE
    if table.vectors:
        base, time, number = with_place(base, None)
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
        return file_relation(base_frame(self.spark, listing, files.provider, schema, options, keep=False)).location()

    def _modified(self, listed: LateList) -> Integers:
        files = listed.files
        count = len(files.paths)
        times = None if files.times is None else pc.fill_null(files.times.cast(pa.int64()), 0).to_numpy()
        if listed.slots is None:
            return FileKey({}).packed(count, times)
        # Add the number of a missing vector, so that numbers have the same width in every list.
        slots = np.append(listed.slots, len(self.table.vectors))
        return FileKey({"slot": slots}).packed(count + 1, None if times is None else np.append(times, 0))[:count]
