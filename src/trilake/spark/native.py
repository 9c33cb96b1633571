"""Spark's own scan over a known list of files: no listing, and no row through Python.

A *file-sink manifest* (the folder ``_spark_metadata`` that Spark's streaming file sink writes) makes Spark take a
list of files as it is.  Everything else a lakehouse table needs is an expression of Spark's plan:

* The modification time that the manifest states is ours to choose, and Spark hands it to each row as
  ``_metadata.file_modification_time``: it carries the position of the file in the list.
* Partition values and deletion vectors are arrays indexed by that position, in one-row scalar subqueries, which Spark
  evaluates once; so no row is joined to anything.
* Where the folders spell the partition values as Hive does, Spark infers the partition columns and prunes them itself.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.expr import engine
from trilake.spark.hive_layout import follows_hive

#: Formats that Spark has a file scan for.
_PROVIDERS = {"parquet", "orc", "json", "csv", "text"}
_FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"


@dataclass(frozen=True)
class NativeFiles:
    """What a scan reads.

    ``paths`` are absolute, decoded local paths and ``sizes`` bytes.  ``read_schema`` are the data columns as the
    files name them; ``partition_columns`` hold, by the same names, the value of each file.  ``vectors`` are deleted
    row indexes by position in ``paths``.  ``output`` lists the columns of the result: name in ``read_schema`` or
    ``partition_columns``, and the field it becomes.
    """

    root: str
    paths: pa.ChunkedArray
    sizes: pa.ChunkedArray
    read_schema: T.StructType
    partition_columns: Mapping[str, pa.ChunkedArray]
    partition_types: T.StructType
    output: Sequence[tuple[str, T.StructField]]
    vectors: Mapping[int, BitMap64] = field(default_factory=dict)
    provider: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    id_mode: bool = False


def native_refusal(uri: str, provider: str, *, vectors: bool = False) -> str | None:
    """Why Spark cannot scan such files itself, or ``None`` where it can."""
    if not uri.startswith("file:"):
        return (
            f"Spark has no file system for {uri.partition(':')[0]}: without hadoop-aws or its likes it reads files only"
        )
    if provider not in _PROVIDERS:
        return f"Spark has no scan for {provider} files"
    if vectors and provider != "parquet":
        return f"Spark numbers the rows of Parquet files only, and deletion vectors name rows of {provider} files"
    return None


def native_frame(spark: SparkSession, files: NativeFiles) -> DataFrame:
    """The rows of ``files`` as a DataFrame with the columns of ``output``."""
    if files.id_mode:
        # Columns are found by id as soon as the schema has ids; without ids in it the setting changes nothing.
        spark.conf.set(_FIELD_IDS, "true")
    if not len(files.paths):
        return spark.createDataFrame([], T.StructType([f for _, f in files.output]))
    hive = bool(files.partition_columns) and follows_hive(files.root, files.paths, files.partition_columns)
    df = _scan(spark, files, hive)
    position = F.expr("CAST(unix_millis(_metadata.file_modification_time) AS INT)")
    if files.vectors:
        df = df.where(_alive(spark, files, position))
    values = {} if hive else _partition_values(spark, files, position)
    return df.select(*(_output(name, f, values) for name, f in files.output))


def _scan(spark: SparkSession, files: NativeFiles, hive: bool) -> DataFrame:
    folder = Path(tempfile.mkdtemp(prefix="trilake-scan-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "_spark_metadata").mkdir()
    (folder / "_spark_metadata" / "0").write_bytes(manifest(files.paths, files.sizes))
    present = [f for f in files.read_schema.fields if not isinstance(f.dataType, T.NullType)]
    schema = T.StructType(present + (list(files.partition_types.fields) if hive else []))
    reader = spark.read.format(files.provider).options(**dict(files.options)).schema(schema)
    if not hive:
        reader = reader.option("recursiveFileLookup", "true")
    df = reader.load(folder.as_uri())
    if hasattr(spark, "_jvm"):
        # A classic session has read the manifest by now; a Connect server reads it again whenever a plan is run.
        shutil.rmtree(folder, ignore_errors=True)
    return df


def manifest(paths: pa.ChunkedArray, sizes: pa.ChunkedArray) -> bytes:
    """The text of a file-sink manifest; each file's modification time is its position in ms.

    >>> import pyarrow as pa
    >>> print(manifest(pa.chunked_array([["/a b"]]), pa.chunked_array([[7]])).decode())
    v1
    {"path":"file:///a%20b","size":7,"isDir":false,"modificationTime":0,"blockReplication":1,"blockSize":134217728,"action":"add"}
    """
    count = len(paths)
    lines = engine.query(
        # What url_encode leaves is plain ASCII, so nothing is left for JSON to escape.
        """SELECT '{"path":"file://' || replace(url_encode(p), '%2F', '/') || '","size":' || s
               || ',"isDir":false,"modificationTime":' || i
               || ',"blockReplication":1,"blockSize":134217728,"action":"add"}' AS line FROM t ORDER BY i""",
        t=pa.table({"p": paths, "s": sizes, "i": pa.array(np.arange(count))}),
    )["line"].combine_chunks()
    text = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), lines.cast(pa.string())), "\n")
    return b"v1\n" + bytes(text[0].as_buffer())


def _alive(spark: SparkSession, files: NativeFiles, position: Column) -> Column:
    """Whether a row is not in its file's deletion vector."""
    count = len(files.paths)
    words = [_words(files.vectors[i]) if i in files.vectors else None for i in range(count)]
    lengths = [0 if w is None else len(w) for w in words]
    flat = np.concatenate([w for w in words if w is not None] or [np.zeros(0, np.int64)])
    inner = pa.ListArray.from_arrays(pa.array(np.cumsum([0, *lengths]), pa.int32()), pa.array(flat))
    outer = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), inner)
    table = spark.createDataFrame(pa.table({"words": outer})).scalar()
    row = F.col("_metadata.row_index")
    word = F.get(F.get(table, position), F.shiftright(row, 6).cast("int"))
    bit = F.call_function("shiftrightunsigned", word, row.cast("int").bitwiseAND(F.lit(63))).bitwiseAND(F.lit(1))
    return F.coalesce(bit, F.lit(0)) == 0


def _words(rows: BitMap64) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A bitmap as 64-bit words, row ``r`` in bit ``r % 64`` of word ``r // 64``."""
    indexes = np.asarray(rows.to_array(), dtype=np.uint64).astype(np.int64)
    if not len(indexes):
        return np.zeros(0, np.int64)
    bits = np.zeros((int(indexes[-1]) // 64 + 1) * 64, dtype=bool)
    bits[indexes] = True
    return np.packbits(bits, bitorder="little").view(np.int64)


def _partition_values(spark: SparkSession, files: NativeFiles, position: Column) -> dict[str, Column]:
    """The partition columns of rows whose folder does not spell them."""
    out = {}
    for name, values in files.partition_columns.items():
        flat = values.combine_chunks()
        one = pa.ListArray.from_arrays(pa.array([0, len(flat)], pa.int32()), flat)
        out[name] = F.get(spark.createDataFrame(pa.table({"values": one})).scalar(), position)
    return out


def _output(name: str, f: T.StructField, values: Mapping[str, Column]) -> Column:
    if isinstance(f.dataType, T.NullType):
        return F.lit(None).alias(f.name)
    column = values[name] if name in values else F.col(f"`{name.replace('`', '``')}`")
    # Nested fields have physical names in the file; a cast renames them by position.
    return column.cast(f.dataType).alias(f.name, metadata=f.metadata)
