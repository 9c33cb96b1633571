"""Spark's own scan of a given list of files: no listing, and no rows through Python.

A manifest gives Spark the files (:mod:`~trilake.spark.scan.manifest`).  Everything else is an expression in Spark's
plan: partition values (:mod:`~trilake.spark.scan.partitions`), deletion vectors (:mod:`~trilake.spark.scan.vectors`),
and, in this module, names and types of columns.  It needs only the DataFrame API, so it also works on Spark Connect.

One thing differs from other scans: if there are deletion vectors, or partition values that the folders do not spell,
the lowest bits of ``_metadata.file_modification_time`` encode a number.  Columns are nullable, as in any of Spark's
file scans, except those that the caller guarantees to have no nulls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.text import quote_name
from trilake.spark.scan.columns import select_terms
from trilake.spark.scan.frame_tables import RowCount, note_root
from trilake.spark.scan.hidden_metadata import (
    TrackedRows,
    has_metadata,
    metadata_of_no_rows,
    metadata_term,
    with_origins,
)
from trilake.spark.scan.manifest import (
    FileKey,
    Integers,
    base_frame,
    manifest,
    scan_options,
    sound_sizes,
)
from trilake.spark.scan.obstacles import check_files, check_types, hadoop_uri
from trilake.spark.scan.partitions import attached, distinct, hive_columns
from trilake.spark.scan.planning.file_index import PrunableFiles, Prune, planned_frame
from trilake.spark.scan.planning.plan_conditions import is_float, trusts_no_bounds, unpushed
from trilake.spark.scan.planning.table_reads import MARK, TableReads
from trilake.spark.scan.vectors import Vector, alive, pack
from trilake.spark.session.compat import file_metadata, is_connect
from trilake.spark.session.internals import (
    METADATA,
    MISSING_NAME,
    column_without_nulls,
    frame_without_nulls,
    hidden_column,
    say_once,
)
from trilake.spark.session.type_tree import all_nullable, types_in

#: Approximate bytes per line of a manifest.
_LINE = 200
#: Columns for a file's modification time and a row's position, if the table has a column named ``_metadata``.
_MODIFIED, _NUMBER = "__trilake_modified", "__trilake_row_index"
_FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"


@dataclass(frozen=True)
class NativeFiles:
    """The files to scan, and how.

    Parameters
    ----------
    root: URI of the table.
    paths: absolute, decoded paths of the files (``/a b/x.parquet``), or with a scheme (``hdfs://host/a b/x.parquet``).
    sizes: bytes.
    read_schema: the data columns as named in the files, without partition columns; in ``id_mode`` with IDs, as
        ``parquet.field.id`` in the fields' metadata.
    partition_columns: typed values of the files, by the name that ``output`` uses.
    partition_types: the fields of these columns, in the same order; their names are alternative folder names.
    output: the columns of the result: for each, a name in ``read_schema`` or ``partition_columns``, and the resulting
        field, whose nested fields match by position.  A name in neither becomes null.
    vectors: deleted rows by position in ``paths``.
    provider: Spark's name for the format of the files.
    options: options of that format.
    id_mode: match columns of Parquet files by field ID, never by name.
    prune: chooses the files that may have rows for which all conditions are true, SQL strings over :func:`scan_name` of
        columns; ``None`` for all files.  If the session supports that, it is called when Spark plans a query.
    """

    root: str
    paths: pa.ChunkedArray
    sizes: pa.ChunkedArray
    read_schema: T.StructType
    partition_columns: Mapping[str, pa.ChunkedArray]
    partition_types: T.StructType
    output: Sequence[tuple[str, T.StructField]]
    vectors: Mapping[int, Vector] = field(default_factory=dict)
    provider: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    id_mode: bool = False
    prune: Prune | None = None
    #: Whether to read the rows in ``vectors`` instead of skipping them.
    vectors_select: bool = False
    #: Modification times in ms, which ``_metadata.file_modification_time`` shows unless its bits are used.
    times: pa.ChunkedArray | None = None
    #: Columns without nulls, by the names in ``output``; in classic sessions they are non-nullable.
    required: frozenset[str] = frozenset()
    #: Whether the bounds in the files take NaN into account.
    nan_counted: bool = False
    #: Row IDs, which ``_metadata`` shows in classic sessions.
    tracked: TrackedRows | None = None
    #: Records the conditions of plans, for a table's newest version.
    reads: TableReads | None = None

    def modified(self) -> Integers | None:
        """The modification times, 0 for an unknown one; ``None`` if all are unknown."""
        return None if self.times is None else pc.fill_null(self.times.cast(pa.int64()), 0).to_numpy()


@dataclass(frozen=True)
class NativeScan:
    """Spark's scan of a list of files, from which any number of DataFrames can be made.

    Parameters
    ----------
    rows: a DataFrame with the rows to read and at least the scan's columns.
    columns, sources: the columns, as SQL strings if possible, and their types, by the names in
        ``NativeFiles.output``.
    address: SQL for a row's file and position, if the scan has them.
    size: approximate bytes that Spark keeps.
    id_mode: whether columns match by field ID.
    metadata: SQL for the hidden column ``_metadata``, unless it is Spark's own.
    count: how to count the rows if some are deleted.
    reads: records the conditions of plans.
    """

    rows: DataFrame
    columns: Mapping[str, str | Column]
    sources: Mapping[str, T.StructField]
    address: tuple[str, str] | None
    size: int
    id_mode: bool
    metadata: str | None = None
    count: RowCount | None = None
    reads: TableReads | None = None

    def frame(
        self, spark: SparkSession, output: Sequence[tuple[str, T.StructField]], address: tuple[str, str] | None = None
    ) -> DataFrame:
        """The rows in the form of :func:`native_frame`; ``address`` requires a scan made with ``address``."""
        if self.id_mode:
            # Has no effect on schemas without IDs.
            spark.conf.set(_FIELD_IDS, "true")
        out = [_output(self.columns.get(name), self.sources.get(name), f) for name, f in output]
        if address is not None:
            assert self.address is not None
            out += [f"{term} AS {quote_name(name)}" for term, name in zip(self.address, address, strict=True)]
        return select_terms(self.rows, out) if self.metadata is None else _hiding(self.rows, out, self.metadata)


def native_frame(spark: SparkSession, files: NativeFiles, *, address: tuple[str, str] | None = None) -> DataFrame:
    """The rows of ``files`` as a DataFrame with the columns of ``output``; ``address`` names two more columns: the
    position of the row's file in ``files.paths``, and its position in the file (only for Parquet).  ``id_mode`` sets
    the session's ``spark.sql.parquet.fieldId.read.enabled``, which must stay set.  Raises :class:`NativeScanError` if
    Spark would not return exactly these rows: if it would skip a file, or deletion vectors are too large."""
    if not len(files.paths):
        fields = [
            T.StructField(f.name, all_nullable(f.dataType), n not in files.required, f.metadata)
            for n, f in files.output
        ]
        if address is not None:
            fields += [T.StructField(address[0], T.IntegerType()), T.StructField(address[1], T.LongType())]
        df = spark.createDataFrame([], T.StructType(fields))
        if address is not None or is_connect(spark) or not has_metadata(df):
            return df
        hidden = metadata_of_no_rows(files.provider, tracked=files.tracked is not None)
        return _hiding(df, [quote_name(f.name) for f in fields], hidden)
    return native_scan(spark, files, address=address is not None).frame(spark, files.output, address)


def native_scan(spark: SparkSession, files: NativeFiles, *, address: bool = False) -> NativeScan:
    """The scan behind :func:`native_frame`, of at least one file, with or without addresses."""
    note_root(files.root)
    tracked = None if is_connect(spark) or address else files.tracked
    check_types(files.read_schema)
    check_files(spark, files.provider, files.paths, vectors=bool(files.vectors) or address or tracked is not None)
    folders = _folders(files)
    key, values = _file_key(files, address=address or tracked is not None, inferred=folders is not None)
    read = read_fields(files)
    types = dict(zip(files.partition_columns, (f.dataType for f in files.partition_types.fields), strict=True))
    inferred = {name: T.StructField(folder, types[name]) for folder, name in (folders or {}).items()}
    modified = key.packed(len(files.paths), files.modified())
    schema = T.StructType([*read.values(), *inferred.values()])
    required = {f.name for name, f in (*read.items(), *inferred.items()) if name in files.required}
    rules = FloatRules.of(files)
    options = read_options(files, rules, hive=folders is not None)

    base, size = _base_of(spark, files, modified, schema, required, options)
    stored = base
    sources = {**read, **inferred}
    columns = rules.columns(sources, read)
    at, number, metadata = {}, "", None
    if key.parts:
        if tracked is not None and has_metadata(base):
            metadata = metadata_term(tracked)
        base, time, number = with_place(base)
        at = {part: key.term(part, time) for part in key.parts}
    if metadata is not None and tracked is not None:
        base = with_origins(base, tracked, at["file"])
        size += tracked.nbytes
    for name, distinct_values in values.items():
        column = attached(distinct_values, types[name], F.expr(at["tuple"]))
        has_no_nulls = name in files.required and not distinct_values.null_count
        columns[name] = _non_nullable(spark, column) if has_no_nulls else column
        sources[name] = T.StructField(name, types[name])
    if files.vectors:
        packed = pack([files.vectors[i] for i in sorted(files.vectors)])
        base = alive(spark, base, packed, at["slot"], number=number, select=files.vectors_select)
        size += packed.size
    place = (at["file"], number) if address else None
    deleted = sum(map(len, files.vectors.values()))
    count = RowCount(stored, deleted) if deleted and not files.vectors_select else None
    return NativeScan(base, columns, sources, place, size, files.id_mode, metadata, count, files.reads)


def _base_of(
    spark: SparkSession,
    files: NativeFiles,
    modified: Integers,
    schema: T.StructType,
    required: Collection[str],
    options: Mapping[str, str],
) -> tuple[DataFrame, int]:
    """Spark's scan of the files, which are chosen when Spark plans a query if the session supports that; and the
    approximate bytes that Spark keeps."""

    def of_files(positions: Integers | None) -> tuple[DataFrame, int]:
        paths, sizes, times = files.paths, files.sizes, modified
        if positions is not None:
            at = pa.array(positions)
            paths, sizes, times = paths.take(at), sizes.take(at), times[positions]
        listing = manifest(paths, sound_sizes(paths, sizes), times)
        return base_frame(spark, listing, files.provider, schema, options), len(listing)

    if files.prune is not None and len(files.paths) > 1:
        prunable = PrunableFiles(
            hadoop_uri(files.root),
            len(files.paths),
            int(pc.sum(files.sizes).as_py() or 0),
            files.prune,
            lambda positions: of_files(positions)[0],
            files.reads,
        )
        base = planned_frame(spark, prunable, required)
        if base is not None:
            return base, len(files.paths) * _LINE
    base, size = of_files(None)
    return _without_nulls(spark, base, required), size


@dataclass(frozen=True)
class FloatRules:
    """How to read floating point columns without missing a NaN or -0.0: whether there are ``floats``, whether the
    bounds in files may ignore NaN, and whether the reader still uses the bounds of other columns."""

    floats: bool
    nan_hides: bool
    bounds: bool

    @staticmethod
    def of(files: NativeFiles) -> FloatRules:
        floats = files.provider == "parquet" and any(is_float(t) for _, t in types_in(files.read_schema))
        nan_hides = floats and not files.nan_counted
        return FloatRules(floats, nan_hides, not (nan_hides and trusts_no_bounds(files.read_schema)))

    def columns(
        self, sources: Mapping[str, T.StructField], read: Mapping[str, T.StructField]
    ) -> dict[str, str | Column]:
        """The terms for the columns of a scan; ``read`` are the columns that files store."""
        columns: dict[str, str | Column] = {name: quote_name(f.name) for name, f in sources.items()}
        if self.nan_hides and self.bounds:
            columns |= {name: unpushed(quote_name(f.name)) for name, f in read.items() if is_float(f.dataType)}
        return columns


def read_options(files: NativeFiles, rules: FloatRules, *, hive: bool) -> dict[str, str]:
    """The options of Spark's read of the files, including the mark of ``files.reads``."""
    options = scan_options(files.options, hive=hive, floats=rules.floats, bounds=rules.bounds)
    return options if files.reads is None else {**options, MARK: files.reads.mark}


def _without_nulls(spark: SparkSession, base: DataFrame, required: Collection[str]) -> DataFrame:
    """The scan, with these columns non-nullable in classic sessions."""
    if not required or is_connect(spark):
        return base
    try:
        return frame_without_nulls(spark, base, required)
    except MISSING_NAME as e:
        say_once("columns without nulls are shown as nullable", e)
        return base


def _non_nullable(spark: SparkSession, column: Column) -> Column:
    """The column, non-nullable in classic sessions."""
    if is_connect(spark):
        return column
    try:
        return column_without_nulls(spark, column)
    except MISSING_NAME as e:
        say_once("columns without nulls are shown as nullable", e)
        return column


def _folders(files: NativeFiles) -> dict[str, str] | None:
    """The partition columns by folder name, if Spark may infer them."""
    # CSV files have no column names that tell data columns from inferred ones; text files have only one column.
    if not files.partition_columns or files.provider not in ("parquet", "orc"):
        return None
    names = files.partition_types.names
    # In a table with renamed columns, a folder's name may also be that of a data column.
    taken = {f.name.lower() for f in files.read_schema.fields}
    columns = hive_columns(
        files.root, files.paths, files.partition_columns, dict(zip(files.partition_columns, names, strict=True))
    )
    return columns if columns is not None and not taken & {n.lower() for n in columns} else None


def _file_key(files: NativeFiles, *, address: bool, inferred: bool) -> tuple[FileKey, Mapping[str, pa.Array]]:
    """The number to encode for each file, and the partition values that it indexes."""
    parts: dict[str, Integers] = {}
    values: Mapping[str, pa.Array] = {}
    if files.partition_columns and not inferred:
        parts["tuple"], values = distinct(files.partition_columns)
    if files.vectors:
        # All files without a vector have the number after the last vector.
        parts["slot"] = np.full(len(files.paths), len(files.vectors), np.int64)
        parts["slot"][sorted(files.vectors)] = np.arange(len(files.vectors))
    if address:
        parts["file"] = np.arange(len(files.paths))
    return FileKey(parts), values


def read_fields(files: NativeFiles) -> dict[str, T.StructField]:
    """The fields of the scan, by their names in ``read_schema``."""
    targets = dict(files.output)
    out = {}
    for f in files.read_schema.fields:
        type_ = all_nullable(f.dataType)
        target = all_nullable(targets[f.name].dataType) if f.name in targets else type_
        if isinstance(type_, T.NullType):
            continue
        if files.id_mode and f.metadata:
            # Spark pushes filters down by name even if it matches columns by ID, so use a name that is in no file.
            out[f.name] = T.StructField(scan_name(f.name, id_mode=True), type_, True, f.metadata)
        else:
            # If only comments differ, read the target type, which saves a cast.
            same = type_.simpleString() == target.simpleString()
            out[f.name] = T.StructField(f.name, target if same else type_)
    return out


def scan_name(name: str, *, id_mode: bool) -> str:
    """The name of a column of ``read_schema`` in a plan's conditions."""
    return f"__trilake_by_id {name}" if id_mode else name


def _output(term: str | Column | None, source: T.StructField | None, target: T.StructField) -> str | Column:
    """A column of the result, with a new expression ID, so that two DataFrames over the same scan can be joined."""
    type_ = all_nullable(target.dataType)
    if term is None or source is None:
        return _aliased("NULL", target, type_)
    # A cast renames nested fields by position and drops the source's metadata.
    cast = type_ if source.dataType != type_ or source.metadata else None
    return _aliased(term, target, cast)


def _hiding(df: DataFrame, terms: Sequence[str | Column], metadata: str) -> DataFrame:
    out = select_terms(df, [*terms, f"{metadata} AS {METADATA}"])
    try:
        return hidden_column(df.sparkSession, out)
    except Py4JError as e:
        say_once(f"{METADATA} has no row IDs", e)
        return select_terms(df, terms)


def _aliased(term: str | Column, field: T.StructField, type_: T.DataType | None = None) -> str | Column:
    """A term with the name and metadata of ``field``, cast to ``type_`` if given.

    >>> from pyspark.sql.types import LongType, StructField
    >>> _aliased("`a b`", StructField("c", LongType()))
    '`a b` AS `c`'
    """
    if isinstance(term, str) and type_ is None and not field.metadata:
        return f"{term} AS {quote_name(field.name)}"
    column = F.expr(term) if isinstance(term, str) else term
    if type_ is not None:
        column = column.cast(type_)
    return column.alias(field.name, metadata=field.metadata) if field.metadata else column.alias(field.name)


def with_place(df: DataFrame) -> tuple[DataFrame, str, str]:
    """A scan, and the terms for the modification time of a row's file and the row's position.

    Spark rejects its column ``_tmp_metadata_row_index`` together with ``_metadata.row_index``.  An anti join that Spark
    pushes below these terms reads all of ``_metadata``, so the position is a part of it.
    """
    if has_metadata(df):
        return df, f"{METADATA}.file_modification_time", f"{METADATA}.row_index"
    metadata = file_metadata(df)
    columns = {_MODIFIED: metadata.getField("file_modification_time"), _NUMBER: metadata.getField("row_index")}
    return df.withColumns(columns), _MODIFIED, _NUMBER
