"""Data files and deletion vectors of a Delta table for Spark's native scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import types as T

from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor
from trilake.delta.protocol.partitions import typed_partitions
from trilake.delta.protocol.schema import StructType
from trilake.delta.scan.scan import FileTask, ReadPlan, Scan, read_schema
from trilake.delta.scan.statistics import record_counts
from trilake.spark.scan.obstacles import hadoop_uri
from trilake.spark.scan.scan import NativeFiles
from trilake.spark.session.schemas import to_physical_spark, to_spark
from trilake.storage.base import Store
from trilake.storage.uri import check_same_kind


def native_output(schema: StructType) -> list[tuple[str, T.StructField]]:
    """The columns of a table, with their physical names."""
    return [(f.physical_name, s) for f, s in zip(schema.fields, to_spark(schema).fields, strict=True)]


def native_files(store: Store, scan: Scan, vectors: Mapping[int, BitMap64]) -> NativeFiles:
    """The files of a scan, with all columns of the table."""
    schema = read_schema(scan.snapshot.schema)
    files = _native_files(store, schema, scan.plan, scan.paths, scan.files["size"], scan.partitions, vectors)
    return replace(files, nan_counted=scan.nan_counted)


def task_files(store: Store, schema: StructType, plan: ReadPlan, tasks: Sequence[FileTask]) -> NativeFiles:
    """The files of some tasks; ``plan`` has the columns to read, of a table with this schema."""
    values = pa.array([list(t.partition_values.items()) for t in tasks], pa.map_(pa.string(), pa.string()))
    paths = pa.chunked_array([[t.path for t in tasks]], pa.string())
    sizes = pa.chunked_array([[t.size for t in tasks]], pa.int64())
    fields = [schema.field(c) for c in plan.partition_columns]
    with ThreadPoolExecutor(8) as pool:
        vectors = list(pool.map(lambda t: t.vector.load(store) if t.vector is not None else None, tasks))
    read = StructType(plan.fields)
    return _native_files(
        store,
        read,
        replace(plan, partition_columns=tuple(c for c in plan.partition_columns if read.find(c) is not None)),
        paths,
        sizes,
        typed_partitions(pa.table({"partitionValues": values}), fields),
        {i: v for i, v in enumerate(vectors) if v is not None},
    )


def _native_files(
    store: Store,
    schema: StructType,
    plan: ReadPlan,
    paths: pa.ChunkedArray,
    sizes: pa.ChunkedArray,
    partitions: Mapping[str, pa.ChunkedArray],
    vectors: Mapping[int, BitMap64],
) -> NativeFiles:
    inside = [f for f in schema.fields if f.name not in plan.partition_columns]
    return NativeFiles(
        root=store.uri,
        paths=absolute(store, paths),
        sizes=sizes,
        read_schema=to_physical_spark(inside, ids=plan.mode == "id"),
        partition_columns={schema.field(n).physical_name: partitions[n] for n in plan.partition_columns},
        partition_types=to_spark(StructType(tuple(schema.field(n) for n in plan.partition_columns))),
        vectors=vectors,
        output=native_output(schema),
        provider=plan.provider,
        options=dict(plan.format_options),
        id_mode=plan.mode == "id",
    )


def absolute(store: Store, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Absolute, decoded paths of data files.  Raises ``OtherStoreError`` for a path in another kind of store."""
    local = store.local_path("x")
    root = local[:-1] if local is not None else unquote(hadoop_uri(store.uri)) + "/"
    joined = pc.binary_join_element_wise(root, paths, "")
    absolute = pc.match_substring_regex(paths, r"^(?:/|[A-Za-z][A-Za-z0-9+.\-]*:/)")
    heads = pc.replace_substring_regex(paths.filter(absolute), r"^([A-Za-z][A-Za-z0-9+.\-]*:/|/)(?s:.*)$", r"\1")
    for head in pc.unique(heads).to_pylist():
        check_same_kind(store.uri, head, store.options)
    return pc.if_else(absolute, paths, joined)


def load_vectors(store: Store, scan: Scan) -> dict[int, BitMap64]:
    """Indexes of deleted rows by position of the file, loaded in parallel."""
    column = scan.files["deletionVector"]
    at = np.flatnonzero(pc.is_valid(column).to_numpy())
    vectors = [DeletionVectorDescriptor.from_json(d) for d in column.take(pa.array(at)).to_pylist()]
    records = record_counts(scan.files.take(pa.array(at)), scan.snapshot.engine.query).to_pylist()
    with ThreadPoolExecutor(8) as pool:
        bitmaps = pool.map(lambda d, rows: d.load(store, rows) if d is not None else None, vectors, records)
        return {int(i): b for i, b in zip(at, bitmaps, strict=True) if b is not None}
