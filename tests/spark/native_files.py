"""Helpers for tests of the native scan: lists of Parquet files, plans and settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from trilake.spark.scan.scan import NativeFiles

SparkError = (PySparkException, Py4JError)
N = pa.table({"n": pa.array([1, 2, 3])})


def write(path: Path, table: pa.Table = N, **options: Any) -> str:
    """A Parquet file and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return str(path)


def listed(
    root: Path,
    paths: Sequence[str],
    schema: pa.Schema | T.StructType = N.schema,
    partitions: Mapping[str, pa.Array] | None = None,
    **more: Any,
) -> NativeFiles:
    """A list of files with the same column names."""
    read = schema if isinstance(schema, T.StructType) else from_arrow_schema(schema)
    columns = {n: pa.chunked_array([v]) for n, v in (partitions or {}).items()}
    types = T.StructType([T.StructField(n, from_arrow_type(v.type)) for n, v in columns.items()])
    defaults: dict[str, Any] = {
        "sizes": pa.chunked_array([[os.path.getsize(p) if os.path.exists(p) else 1000 for p in paths]], pa.int64()),
        "output": [(f.name, f) for f in [*read.fields, *types.fields]],
    }
    return NativeFiles(
        root=root.as_uri(),
        paths=pa.chunked_array([list(paths)], pa.string()),
        read_schema=read,
        partition_columns=columns,
        partition_types=types,
        **{**defaults, **more},
    )


def numbered(root: Path, folders: Sequence[str]) -> list[str]:
    """A file in each folder, whose only row is its position in column ``n``."""
    return [write(root / f / f"part-{i}.parquet", pa.table({"n": [i]})) for i, f in enumerate(folders)]


def chunk(values: Sequence[Any], type_: pa.DataType | None = None) -> pa.ChunkedArray:
    """Values as the one chunk of a column."""
    return pa.chunked_array([pa.array(values, type_)])


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    """The rows in a fixed order."""
    return sorted((tuple(r) for r in df.collect()), key=repr)


def plan(df: DataFrame) -> str:
    """All plans of a frame as a string."""
    return str(df._jdf.queryExecution().toString())


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Temporary session settings."""
    before = {k: spark.conf.get(k, None) for k in values}
    try:
        for k, v in values.items():
            spark.conf.set(k, v)
        yield
    finally:
        for k, old in before.items():
            if old is None:
                spark.conf.unset(k)
            else:
                spark.conf.set(k, old)
